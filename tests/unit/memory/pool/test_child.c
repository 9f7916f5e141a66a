/* SPDX-License-Identifier: MIT */
/* Child pools: ranges, how children end, streams, walking and misuse. */
#include "child_fixture.h"
#include <loch/direct.h>
#include <loch/wrapper.h>

#define MIB TEST_MIB
#define KIB TEST_KIB

/* --- options --- */

/* What the parent's memory can do, that of its children can too. */
static void a_child_has_the_handle_options_of_its_parent(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,backed");
    const loch_pool_options shared = {.size = sizeof shared,
                                      .handle = {.size = sizeof shared.handle, .share = LOCH_SHARE_FD}},
                            others = {.size = sizeof others, .captures = LOCH_POOL_CAPTURES_NONE},
                            plain = {.size = sizeof plain, .handle = {.size = sizeof plain.handle}};
    const loch_pool_options *const given[] = {NULL, &others, &plain};
    loch_allocator *parent, *child;
    CHECK_OK(loch_pool_create(device, "parent", &shared, &parent));
    for (size_t i = 0; i < 3; i++) {
        const loch_child_options options = {.size = sizeof options, .pool = given[i]};
        loch_virtual_info info = {.size = sizeof info};
        CHECK_OK(loch_pool_create_child(parent, NULL, &options, &child));
        void *block = family_alloc(child, 3 * MIB, 1);
        CHECK_OK(loch_virtual_find(block, &info));
        assert_int_equal(info.share, i < 2 ? LOCH_SHARE_FD : LOCH_SHARE_NONE);
        family_free(child, block, 3 * MIB, 1);
        loch_allocator_release(child);
    }
    pool_end(parent, device);
}

static void handle_options_without_their_size_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,backed");
    const loch_pool_options given[] = {{.size = sizeof given[0], .handle = {.share = LOCH_SHARE_FD}},
                                       {.size = sizeof given[0], .handle = {.rdma = LOCH_RDMA_ON}}};
    loch_allocator *parent = pool_make(device, NULL), *out;
    for (size_t i = 0; i < 2; i++) {
        const loch_child_options options = {.size = sizeof options, .pool = &given[i]};
        CHECK_FAILS(loch_pool_create(device, NULL, &given[i], &out), INVALID);
        assert_null(out);
        CHECK_FAILS(loch_pool_create_child(parent, NULL, &options, &out), INVALID);
        assert_null(out);
    }
    pool_end(parent, device);
}

/* --- ranges --- */

/* Any size from the smallest on; blocks of all sizes come and go, and what lies beside them stays. */
static void a_range_of_any_size_holds_blocks_of_all_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {16 * KIB,     16 * KIB + 1, 40000,       100001,      1000 * KIB,
                                   2 * MIB - 17, 2 * MIB,      3 * MIB + 7, 5000 * 1000, 17 * MIB};
    for (size_t d = 0; d < CHILD_DEVICES; d++) {
        loch_device *device = sim_open(child_devices[d]);
        loch_allocator *parent = pool_make(device, NULL);
        void *beside = family_alloc(parent, 300 * KIB, 1);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            loch_allocator *child = child_range(parent, sizes[i]), *both[] = {parent, child};
            const loch_pool_info info = pool_info(child);
            assert_true(info.reserved_bytes <= sizes[i] && sizes[i] - info.reserved_bytes < 512);
            assert_int_equal(info.largest_free_bytes, info.reserved_bytes);
            void *small = family_alloc(child, 100, 2), *next = family_alloc(parent, 100 * KIB, 3);
            void *large = NULL;
            if (sizes[i] > 64 * KIB) large = family_alloc(child, sizes[i] / 2, 4);
            family_expect_whole(both, 2);
            void *none = TEST_UNTOUCHED;
            CHECK_FAILS(loch_alloc(child, sizes[i] + 1, &none), LIMIT);
            assert_null(none);
            family_free(child, small, 100, 2);
            if (large) family_free(child, large, sizes[i] / 2, 4);
            assert_int_equal(pool_trim(child, 0), 0); /* it is the parent's */
            void *all = family_alloc(child, info.reserved_bytes, 5);
            family_expect_whole(both, 2);
            family_free(child, all, info.reserved_bytes, 5);
            family_free(parent, next, 100 * KIB, 3);
            loch_allocator_release(child);
            pool_expect_whole(parent);
        }
        family_free(parent, beside, 300 * KIB, 1);
        pool_end(parent, device);
    }
}

static void a_range_is_a_block_of_its_parent(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,backed");
    loch_allocator *parent = pool_make(device, NULL), *child;
    loch_tag tag;
    CHECK_OK(loch_tag_create("child range", &tag));
    const loch_child_options options = {
        .size = sizeof options, .kind = LOCH_CHILD_RANGE, .limit_bytes = 5 * MIB, .tag = tag};
    CHECK_OK(loch_pool_create_child(parent, NULL, &options, &child));
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_tag_stats(parent, tag, &stats));
    assert_int_equal(stats.requested_bytes, 5 * MIB);
    assert_int_equal(pool_stats(parent).blocks, 1);
    assert_int_equal(pool_stats(child).limit_bytes, 5 * MIB);
    assert_ptr_equal(loch_pool_get_parent(child), parent);
    assert_null(loch_pool_get_parent(parent));
    void *first = pool_alloc(child, 4 * MIB), *range = lochi_pool_of(child)->range;
    assert_ptr_equal(first, range);
    /* a block of the child is not a block of the parent, even where the range begins */
    CHECK_FAILS(loch_free(parent, first), BUSY);
    CHECK_FAILS(loch_free(parent, (char *)first + 512), INTERIOR);
    void *moved = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_realloc(parent, range, 9 * MIB, NULL, &moved), BUSY);
    CHECK_FAILS(loch_allocator_realloc(parent, range, MIB, NULL, &moved), BUSY);
    CHECK_FAILS(loch_pool_set_limit(child, MIB), UNSUPPORTED);
    CHECK_FAILS(loch_pool_set_idle(child, MIB), UNSUPPORTED);
    void *growable = TEST_UNTOUCHED;
    const loch_request request = {.size = sizeof request, .bytes = 1};
    CHECK_FAILS(loch_pool_alloc_growable(child, MIB, &request, &growable), UNSUPPORTED);
    CHECK_OK(loch_free(child, first));
    loch_allocator_release(child);
    assert_int_equal(pool_stats(parent).blocks, 0);
    pool_end_sim(parent, device);
}

/* A pool of whole blocks, of pinned memory, and through wrappers. */
static void a_parent_may_be_of_any_kind_and_wrapped(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        loch_device *device = sim_open("sim:1GiB,backed");
        const loch_pool_options options = {.size = sizeof options,
                                           .kind = i == 1 ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE,
                                           .preset = i == 0 ? LOCH_POOL_WHOLE_BLOCKS : LOCH_POOL_STANDARD,
                                           .limit_bytes = 64 * MIB};
        loch_allocator *parent = pool_make(device, &options), *outer = loch_allocator_retain(parent);
        if (i == 2) {
            loch_allocator_release(outer);
            CHECK_OK(loch_tracking_create(parent, NULL, NULL, &outer));
        }
        loch_allocator *range = child_range(outer, 3 * MIB), *quota = child_quota(outer, 4 * MIB, 8 * MIB);
        loch_allocator *all[] = {parent, range, quota};
        assert_ptr_equal(loch_pool_get_parent(range), parent);
        void *a = family_alloc(range, 2 * MIB, 1), *b = family_alloc(quota, 3 * MIB, 2),
             *c = family_alloc(outer, MIB, 3);
        family_expect_whole(all, 3);
        family_free(range, a, 2 * MIB, 1);
        family_free(quota, b, 3 * MIB, 2);
        family_free(outer, c, MIB, 3);
        loch_allocator_release(range);
        loch_allocator_release(quota);
        loch_allocator_release(outer);
        pool_end_sim(parent, device);
    }
}

/* --- bugs that others have --- */

/* The memory of a child is never that of a live block, wherever that lies. */
static void a_child_never_overlaps_a_live_block(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,backed");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 40 * MIB};
    loch_allocator *parent = pool_make(device, &options), *none = TEST_UNTOUCHED;
    void *block = family_alloc(parent, 39 * MIB, 1);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, 20 * MIB, NULL, &none), LIMIT);
    assert_null(none);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, 20 * MIB, 0, NULL, &none), LIMIT);
    assert_null(none);
    assert_true(pool_info(parent).free_bytes <= 40 * MIB);
    pool_expect_whole(parent);
    family_free(parent, block, 39 * MIB, 1);
    loch_allocator *child = child_range(parent, 20 * MIB), *both[] = {parent, child};
    void *above = family_alloc(parent, 19 * MIB, 2), *inside = family_alloc(child, 20 * MIB, 3);
    family_expect_whole(both, 2);
    CHECK_FAILS_SET(loch_alloc(parent, 20 * MIB, &block), POOL_SHORT);
    family_free(parent, above, 19 * MIB, 2);
    family_free(child, inside, 20 * MIB, 3);
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* Small children and full parents: no figure is ever below zero. */
static void limits_do_not_underflow(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,granule=2MiB,backed");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB};
    loch_allocator *parent = pool_make(device, &options), *none;
    loch_allocator *range = child_range(parent, 16 * KIB), *quota = child_quota(parent, 1, 2 * MIB);
    loch_allocator *empty = child_quota(parent, 0, 1), *pools[] = {parent, range, quota, empty};
    for (size_t i = 0; i < 4; i++) {
        const loch_pool_info info = pool_info(pools[i]);
        assert_true(info.limit_bytes <= 8 * MIB && info.free_bytes <= 8 * MIB && info.largest_free_bytes <= 8 * MIB);
        assert_true(pool_stats(pools[i]).cached_bytes <= 8 * MIB);
    }
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(empty, 1, &block), LIMIT); /* less than a granule */
    CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, SIZE_MAX, 0, NULL, &none), OVERFLOW);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, SIZE_MAX / 2, 0, NULL, &none), LIMIT);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, SIZE_MAX, NULL, &none), OVERFLOW);
    void *small = pool_alloc(quota, 2 * MIB - 512), *more = pool_alloc(parent, MIB),
         *last = pool_alloc(parent, 3 * MIB);
    CHECK_FAILS(loch_alloc(parent, 2 * MIB, &block), LIMIT);
    CHECK_FAILS(loch_alloc(quota, 1 * MIB, &block), LIMIT);
    family_expect_whole(pools, 4);
    CHECK_OK(loch_free(quota, small));
    CHECK_OK(loch_free(parent, more));
    CHECK_OK(loch_free(parent, last));
    for (size_t i = 1; i < 4; i++)
        loch_allocator_release(pools[i]);
    pool_end_sim(parent, device);
}

/* Four pools, each below another; `is_wide`: two below the first. */
static void family_make(loch_device *device, bool is_wide, loch_allocator *pools[4])
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    pools[0] = pool_make(device, &options);
    pools[1] = child_quota(pools[0], 4 * MIB, 32 * MIB);
    pools[2] = is_wide ? child_range(pools[0], 6 * MIB) : child_quota(pools[1], 2 * MIB, 0);
    pools[3] = child_range(pools[2], 3 * MIB);
}

static void family_end_in_order(const char *name, bool is_wide, const size_t order[4], bool has_blocks)
{
    enum { BYTES = 700 * KIB };
    loch_device *device = sim_open(name);
    loch_allocator *pools[4], *left[4];
    void *blocks[4];
    family_make(device, is_wide, pools);
    for (size_t i = 0; i < 4; i++) {
        left[i] = pools[i];
        if (has_blocks) blocks[i] = family_alloc(pools[i], BYTES, i);
    }
    family_expect_whole(left, 4);
    for (size_t i = 0; i < 4; i++) {
        loch_allocator_release(pools[order[i]]);
        left[order[i]] = NULL;
        family_expect_whole(left, 4);
    }
    for (size_t i = 0; has_blocks && i < 4; i++) { /* in another order than they lost their owners */
        const size_t k = order[(i + order[0]) % 4];
        family_free(pools[k], blocks[k], BYTES, k);
    }
    const loch_sim_stats stats = sim_stats(device);
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.mappings, 0);
    assert_int_equal(stats.reserved_bytes, 0);
    assert_int_equal(stats.events, 0);
    assert_int_equal(stats.violations, 0);
    loch_device_release(device);
}

static void children_end_in_any_order(void **state)
{
    (void)state;
    static const char *const names[] = {"sim:1GiB,granule=64KiB,backed", "sim:1GiB,virtual=off,backed"};
    size_t orders = 0;
    for (size_t code = 0; code < 256; code++) {
        const size_t order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        if ((1u << order[0] | 1u << order[1] | 1u << order[2] | 1u << order[3]) != 15) continue;
        orders++;
        for (unsigned how = 0; how < 8; how++)
            family_end_in_order(names[how & 1], how & 2, order, how & 4);
    }
    assert_int_equal(orders, 24);
}

/* Allocated blocks keep a child, its parents and their memory, even after all references were released. */
static void blocks_outlive_their_child(void **state)
{
    (void)state;
    for (size_t d = 0; d < CHILD_DEVICES; d++) {
        loch_device *device = sim_open(child_devices[d]);
        loch_allocator *pools[4];
        family_make(device, false, pools);
        void *block = family_alloc(pools[3], 2 * MIB, 1), *small = family_alloc(pools[3], 100, 2);
        for (size_t i = 0; i < 4; i++)
            loch_allocator_release(pools[i]);
        loch_device_release(device);
        family_free(pools[3], block, 2 * MIB, 1);
        family_free(pools[3], small, 100, 2); /* the end of all four, and of the device */
    }
}

/* --- streams --- */

/* The range is taken in the order of its stream, and goes back behind all that used it, without a wait of the host. */
static void a_range_comes_and_goes_in_the_order_of_its_stream(void **state)
{
    (void)state;
    enum { LONG = 50000000 };
    loch_device *device = sim_open("sim:1GiB,clock=stepped");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB};
    loch_allocator *parent = pool_make(device, &options), *child;
    loch_stream *one = sim_stream(device, LOCH_STREAM_INDEPENDENT), *two = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    void *before = pool_alloc_on(parent, 8 * MIB, one);
    CHECK_OK(sim_busy(one, LONG));
    CHECK_OK(sim_writes(one, before, 8 * MIB));
    CHECK_OK(loch_free(parent, before)); /* still written */
    CHECK_OK(child_try(parent, LOCH_CHILD_RANGE, 0, 8 * MIB, one, &child));
    void *mine = pool_alloc_on(child, 3 * MIB, one), *other = pool_alloc_on(child, 4 * MIB, two);
    CHECK_OK(sim_writes(one, mine, 3 * MIB));
    CHECK_OK(sim_writes(two, other, 4 * MIB));
    CHECK_OK(sim_busy(two, LONG));
    CHECK_OK(sim_writes(two, other, 4 * MIB));
    CHECK_OK(loch_free(child, mine));
    CHECK_OK(loch_free(child, other));
    pool_expect_whole(child);
    const uint64_t start = sim_now(device);
    loch_allocator_release(child);
    assert_true(sim_now(device) - start < LONG / 2);
    pool_expect_whole(parent);
    void *after = pool_alloc_on(parent, 8 * MIB, one);
    CHECK_OK(sim_writes(one, after, 8 * MIB));
    CHECK_OK(loch_free(parent, after));
    loch_stream_close(two);
    loch_stream_close(one);
    pool_end_sim(parent, device);
}

/* The streams of a child go before it does. */
static void streams_may_end_before_the_child(void **state)
{
    (void)state;
    for (int kind = LOCH_CHILD_QUOTA; kind <= LOCH_CHILD_RANGE; kind++) {
        loch_device *device = sim_open("sim:1GiB");
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB};
        loch_allocator *parent = pool_make(device, &options), *child;
        loch_stream *one = sim_stream(device, LOCH_STREAM_INDEPENDENT),
                    *two = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        CHECK_OK(child_try(parent, (loch_child_kind)kind, 0, 8 * MIB, one, &child));
        void *mine = pool_alloc_on(child, 3 * MIB, one), *other = pool_alloc_on(child, 4 * MIB, two);
        CHECK_OK(sim_busy(one, 1000000));
        CHECK_OK(sim_writes(one, mine, 3 * MIB));
        CHECK_OK(sim_busy(two, 1000000));
        CHECK_OK(sim_writes(two, other, 4 * MIB));
        CHECK_OK(loch_free(child, mine));
        loch_stream_close(two);
        loch_stream_close(one);
        CHECK_OK(loch_free(child, other));
        loch_allocator_release(child);
        void *after = pool_alloc(parent, 8 * MIB);
        CHECK_OK(sim_writes(loch_stream_get_default(device), after, 8 * MIB));
        CHECK_OK(loch_free(parent, after));
        pool_end_sim(parent, device);
    }
}

static void a_range_is_refused_under_capture_and_ends_behind_its_graph(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *parent = pool_make(device, NULL), *child = child_range(parent, 8 * MIB), *none = TEST_UNTOUCHED;
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_sim_graph *graph;
    CHECK_OK(loch_device_sync(device)); /* the range may be used by any stream */
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, MIB, stream, &none), BUSY);
    assert_null(none);
    void *block = pool_alloc_on(child, MIB, stream);
    CHECK_OK(sim_writes(stream, block, MIB));
    CHECK_OK(loch_free(child, block));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    CHECK_OK(loch_sim_graph_launch(graph, stream));
    pool_expect_whole(child);
    loch_allocator_release(child); /* waits for the graph */
    void *after = pool_alloc(parent, 8 * MIB);
    CHECK_OK(sim_writes(loch_stream_get_default(device), after, 8 * MIB));
    CHECK_OK(loch_free(parent, after));
    loch_sim_graph_destroy(graph);
    loch_stream_close(stream);
    pool_end_sim(parent, device);
}

/* --- walking, and misuse --- */

typedef struct seen {
    loch_allocator *children[4];
    size_t count, stop_at;
} seen;

static loch_status see(loch_allocator *child, void *user)
{
    seen *s = user;
    s->children[s->count++] = child;
    return s->count == s->stop_at ? LOCH_E_CANCELLED : LOCH_OK;
}

static loch_status end_sibling(loch_allocator *child, void *user)
{
    seen *s = user;
    if (s->count++ == 0) loch_allocator_release(s->children[1]); /* the next one */
    return child == s->children[1] ? LOCH_E_CANCELLED : LOCH_OK;
}

static void children_are_walked(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *parent = pool_make(device, NULL);
    seen made = {.children = {child_quota(parent, 0, 0), child_range(parent, MIB), child_quota(parent, 0, MIB)}};
    loch_allocator *below = child_quota(made.children[0], 0, 0);
    seen found = {.count = 0};
    CHECK_OK(loch_pool_walk_children(parent, see, &found));
    assert_int_equal(found.count, 3);
    assert_memory_equal(found.children, made.children, 3 * sizeof *found.children);
    found = (seen){.stop_at = 2};
    CHECK_STATUS(loch_pool_walk_children(parent, see, &found), LOCH_E_CANCELLED);
    assert_int_equal(found.count, 2);
    CHECK_OK(loch_pool_walk_children(parent, end_sibling, &made));
    assert_int_equal(made.count, 2);
    CHECK_FAILS(loch_pool_walk_children(NULL, see, &found), INVALID);
    CHECK_FAILS(loch_pool_walk_children(parent, NULL, NULL), INVALID);
    assert_null(loch_pool_get_parent(NULL));
    loch_allocator_release(below);
    loch_allocator_release(made.children[0]);
    loch_allocator_release(made.children[2]);
    found = (seen){.count = 0};
    CHECK_OK(loch_pool_walk_children(parent, see, &found));
    assert_int_equal(found.count, 0);
    pool_end_sim(parent, device);
}

/* A parent of which all memory is in children is not "0 B" alone. */
static void a_parent_says_what_is_for_its_children(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *parent = pool_make(device, NULL), *child = child_quota(parent, 0, 0);
    void *block = pool_alloc(child, 64 * MIB);
    char text[1024];
    CHECK_OK(loch_pool_print(parent, text, sizeof text, NULL));
    assert_non_null(
        strstr(text, "held from the device: 0 B in 0 handles, peak 0 B, and 64 MiB for 1 child, limit none"));
    loch_allocator *other = child_quota(parent, 2 * MIB, 0);
    CHECK_OK(loch_pool_print(parent, text, sizeof text, NULL));
    assert_non_null(strstr(text, "and 66 MiB for 2 children, limit none"));
    CHECK_OK(loch_free(child, block));
    loch_allocator_release(other);
    loch_allocator_release(child);
    CHECK_OK(loch_pool_print(parent, text, sizeof text, NULL));
    assert_null(strstr(text, "child"));
    pool_end_sim(parent, device);
}

static void bad_children_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB"), *other = sim_open("sim:1GiB,id=1");
    loch_allocator *parent = pool_make(device, NULL), *range = child_range(parent, MIB), *direct, *out = TEST_UNTOUCHED;
    loch_stream *stream = sim_stream(other, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_FAILS(child_try(NULL, LOCH_CHILD_QUOTA, 0, 0, NULL, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(child_try(direct, LOCH_CHILD_QUOTA, 0, 0, NULL, &out), INVALID);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, 0, 0, NULL, NULL), INVALID);
    CHECK_FAILS(child_try(parent, (loch_child_kind)2, 0, MIB, NULL, &out), INVALID);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, 0, NULL, &out), INVALID);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, 16 * KIB - 1, NULL, &out), INVALID);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 1, MIB, NULL, &out), INVALID);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, MIB, stream, &out), INVALID);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, 2 * MIB, MIB, NULL, &out), INVALID);
    CHECK_FAILS(child_try(range, LOCH_CHILD_QUOTA, 0, 0, NULL, &out), UNSUPPORTED);
    CHECK_FAILS_SET(child_try(range, LOCH_CHILD_RANGE, 0, 2 * MIB, NULL, &out), POOL_SHORT);
    const loch_pool_options pinned = {.size = sizeof pinned, .kind = LOCH_MEMORY_PINNED};
    loch_child_options options = {.size = sizeof options, .pool = &pinned};
    CHECK_FAILS(loch_pool_create_child(parent, NULL, &options, &out), INVALID);
    char name[100] = {0};
    options = (loch_child_options){.size = sizeof options, .kind = LOCH_CHILD_RANGE, .limit_bytes = MIB};
    CHECK_FAILS(loch_pool_create_child(parent, memset(name, 'x', sizeof name - 1), &options, &out), INVALID);
    assert_int_equal(pool_stats(parent).blocks, 1); /* the first range: this one went back */
    options = (loch_child_options){.size = 1};
    CHECK_FAILS(loch_pool_create_child(parent, NULL, &options, &out), INVALID);
    assert_null(out);
    CHECK_OK(loch_pool_create_child(parent, NULL, NULL, &out)); /* all defaults: a quota without a minimum */
    void *block = pool_alloc(out, 100), *mine = pool_alloc(parent, 100);
    CHECK_FAILS_SET(loch_free(parent, block), TEST_SET(FOREIGN));
    CHECK_FAILS_SET(loch_free(out, mine), TEST_SET(FOREIGN));
    CHECK_FAILS_SET(loch_free(range, mine), TEST_SET(FOREIGN));
    CHECK_OK(loch_free(parent, mine));
    CHECK_OK(loch_free(out, block));
    loch_allocator_release(out);
    loch_allocator_release(range);
    loch_allocator_release(direct);
    loch_stream_close(stream);
    loch_device_release(other);
    pool_end_sim(parent, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_child_has_the_handle_options_of_its_parent),
        POOL_TEST(handle_options_without_their_size_are_refused),
        POOL_TEST(a_range_of_any_size_holds_blocks_of_all_sizes),
        POOL_TEST(a_range_is_a_block_of_its_parent),
        POOL_TEST(a_parent_may_be_of_any_kind_and_wrapped),
        POOL_TEST(a_child_never_overlaps_a_live_block),
        POOL_TEST(limits_do_not_underflow),
        POOL_TEST(children_end_in_any_order),
        POOL_TEST(blocks_outlive_their_child),
        POOL_TEST(a_range_comes_and_goes_in_the_order_of_its_stream),
        POOL_TEST(streams_may_end_before_the_child),
        POOL_TEST(a_range_is_refused_under_capture_and_ends_behind_its_graph),
        POOL_TEST(children_are_walked),
        POOL_TEST(a_parent_says_what_is_for_its_children),
        POOL_TEST(bad_children_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
