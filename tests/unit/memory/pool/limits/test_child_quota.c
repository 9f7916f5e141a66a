/* SPDX-License-Identifier: MIT */
/* Child pools with quotas: what they may hold, and whom they take it from. */
#include "unit/memory/pool/child_fixture.h"
#include <loch/direct.h>
#include <loch/wrapper.h>
#include <pthread.h>

#define MIB TEST_MIB
#define KIB TEST_KIB

/* --- quotas --- */

/* The minimum is there whatever the parent and the siblings take, from the first byte on. */
static void a_minimum_is_kept_for_its_child(void **state)
{
    (void)state;
    for (size_t d = 0; d < CHILD_DEVICES; d++) {
        loch_device *device = sim_open(child_devices[d]);
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
        loch_allocator *parent = pool_make(device, &options);
        loch_allocator *safe = child_quota(parent, 16 * MIB, 0), *greedy = child_quota(parent, 0, 0);
        loch_allocator *all[] = {parent, safe, greedy};
        void *taken[64], *none;
        size_t count = 0;
        while (count < 64 && loch_alloc(count % 2 ? parent : greedy, 2 * MIB, &taken[count]) == LOCH_OK)
            count++;
        assert_int_equal(loch_error_get()->status, LOCH_E_LIMIT);
        assert_true(count >= 20);
        CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, 8 * MIB, 0, NULL, (loch_allocator **)&none), LIMIT);
        family_expect_whole(all, 3);
        void *mine[7];
        for (size_t i = 0; i < 7; i++)
            mine[i] = family_alloc(safe, 2 * MIB, i);
        family_expect_whole(all, 3);
        assert_true(pool_info(parent).reserved_bytes + pool_info(safe).reserved_bytes +
                        pool_info(greedy).reserved_bytes <=
                    64 * MIB);
        for (size_t i = 0; i < 7; i++)
            family_free(safe, mine[i], 2 * MIB, i);
        CHECK_FAILS(loch_alloc(greedy, 4 * MIB, &none), LIMIT); /* free again, and still the child's */
        CHECK_FAILS(loch_alloc(parent, 4 * MIB, &none), LIMIT);
        for (size_t i = 0; i < count; i++)
            CHECK_OK(loch_free(i % 2 ? parent : greedy, taken[i]));
        loch_allocator_release(safe);
        void *large = pool_alloc(greedy, 60 * MIB); /* the promise went with the child */
        CHECK_OK(loch_free(greedy, large));
        loch_allocator_release(greedy);
        pool_end(parent, device);
    }
}

static void a_hard_limit_counts_children_below(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,granule=64KiB,backed");
    loch_allocator *parent = pool_make(device, NULL), *child = child_quota(parent, 0, 8 * MIB);
    loch_allocator *below = child_quota(child, 4 * MIB, 0), *all[] = {parent, child, below};
    void *block = pool_alloc(child, 4 * MIB), *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(child, MIB, &none), LIMIT);
    assert_non_null(strstr(loch_error_get()->sentence, "with its children"));
    CHECK_FAILS(loch_alloc(below, 5 * MIB, &none), LIMIT);
    void *inner = pool_alloc(below, 4 * MIB);
    family_expect_whole(all, 3);
    CHECK_OK(loch_free(child, block));
    void *more = pool_alloc(below, 4 * MIB); /* what the child above holds idle is taken back */
    CHECK_FAILS(loch_alloc(child, MIB, &none), LIMIT);
    CHECK_FAILS(loch_pool_set_limit(child, 3 * MIB), LIMIT); /* less than it has promised */
    assert_int_equal(pool_info(child).limit_bytes, 8 * MIB);
    CHECK_OK(loch_pool_set_limit(child, 12 * MIB));
    block = pool_alloc(child, 4 * MIB);
    CHECK_OK(loch_pool_set_limit(child, 4 * MIB)); /* what is in use stays, and goes back when it is freed */
    CHECK_OK(loch_free(child, block));
    CHECK_OK(loch_free(below, more));
    family_expect_whole(all, 3);
    (void)pool_trim(child, 0); /* what the thread kept */
    (void)pool_trim(below, 0);
    CHECK_FAILS(loch_alloc(below, MIB, &none), LIMIT);
    CHECK_OK(loch_free(below, inner));
    CHECK_OK(loch_pool_set_limit(parent, 16 * MIB));
    assert_int_equal(pool_info(child).reserved_bytes + pool_info(below).reserved_bytes <= 4 * MIB, 1);
    loch_allocator_release(below);
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* Idle memory goes to the pool that needs it: from siblings, from the parent, and to the parent. Blocks are never
 * taken. */
static void idle_memory_is_borrowed_and_taken_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < CHILD_DEVICES; d++) {
        loch_device *device = sim_open(child_devices[d]);
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 32 * MIB};
        loch_allocator *parent = pool_make(device, &options);
        loch_allocator *one = child_quota(parent, 4 * MIB, 0), *two = child_quota(parent, 4 * MIB, 0);
        loch_allocator *all[] = {parent, one, two};
        for (size_t round = 0; round < 6; round++) {
            loch_allocator *user = all[round % 3];
            void *block = family_alloc(user, 22 * MIB, round); /* more than half: what the last one kept */
            family_expect_whole(all, 3);
            void *none = TEST_UNTOUCHED;
            CHECK_FAILS(loch_alloc(all[(round + 1) % 3], 22 * MIB, &none), LIMIT);
            family_expect_whole(all, 3);
            family_free(user, block, 22 * MIB, round);
        }
        loch_allocator_release(one);
        loch_allocator_release(two);
        pool_end(parent, device);
    }
}

/* Growable blocks take from the family, too. */
static void growable_blocks_borrow_from_the_family(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,granule=64KiB,backed");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    loch_allocator *parent = pool_make(device, &options), *child = child_quota(parent, 0, 0);
    CHECK_OK(loch_free(parent, pool_alloc(parent, 12 * MIB))); /* idle now */
    const loch_request request = {.size = sizeof request, .bytes = 6 * MIB};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_pool_alloc_growable(child, 64 * MIB, &request, &block));
    CHECK_OK(loch_free(parent, pool_alloc(parent, 8 * MIB)));
    CHECK_OK(loch_pool_resize_growable(child, block, 15 * MIB));
    CHECK_FAILS(loch_pool_resize_growable(child, block, 17 * MIB), LIMIT);
    CHECK_OK(loch_free(child, block));
    pool_expect_whole(child);
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* A growth fills the last granule of the block first. It lacks the memory of whole further granules only. */
static void a_growth_lacks_what_its_last_granule_does_not_have(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=4MiB");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 12 * MIB};
    loch_allocator *parent = pool_make(device, &options), *child = child_quota(parent, 0, 0);
    const loch_request request = {.size = sizeof request, .bytes = MIB};
    void *live = pool_alloc(parent, 4 * MIB), *idle = pool_alloc(parent, 4 * MIB), *block = TEST_UNTOUCHED;
    CHECK_OK(loch_pool_alloc_growable(child, 64 * MIB, &request, &block));
    CHECK_OK(loch_free(parent, idle));
    CHECK_OK(loch_pool_resize_growable(child, block, 8 * MIB));
    CHECK_OK(loch_free(child, block));
    CHECK_OK(loch_free(parent, live));
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* A family without a limit has the device's. */
static void minima_of_a_parent_without_a_limit_fit_the_device(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB,backed");
    loch_allocator *parent = pool_make(device, NULL), *none;
    loch_allocator *one = child_quota(parent, 40 * MIB, 0);
    CHECK_FAILS(child_try(parent, LOCH_CHILD_QUOTA, 30 * MIB, 0, NULL, &none), LIMIT);
    loch_allocator *two = child_quota(parent, 20 * MIB, 0);
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(two, 30 * MIB, &block), LIMIT);
    block = pool_alloc(one, 40 * MIB);
    CHECK_OK(loch_free(one, block));
    loch_allocator_release(one);
    loch_allocator_release(two);
    pool_end_sim(parent, device);
}

/* --- what related pools can give back --- */

/* Two streams still use the two halves of a free handle. It is whole after a wait for both. */
static void a_family_waits_for_the_streams_of_idle_memory(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=4MiB");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB};
    loch_allocator *parent = pool_make(device, &options), *one = child_quota(parent, 0, 0);
    loch_allocator *two = child_quota(parent, 0, 0);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    void *first = pool_alloc_on(one, 2 * MIB, a), *second = pool_alloc_on(one, 2 * MIB, b);
    assert_int_equal(pool_info(one).reserved_bytes, 4 * MIB);
    CHECK_OK(sim_busy(a, 1000000));
    CHECK_OK(sim_busy(b, 1000000));
    CHECK_OK(loch_free(one, first));
    CHECK_OK(loch_free(one, second));
    void *block = pool_alloc(two, 8 * MIB);
    CHECK_OK(loch_free(two, block));
    loch_stream_close(a);
    loch_stream_close(b);
    loch_allocator_release(one);
    loch_allocator_release(two);
    pool_end_sim(parent, device);
}

/* A child gives back what it holds above its minimum, whether the minimum is in idle handles or beside live blocks. */
static void a_minimum_in_parts_of_handles_leaves_whole_handles_to_others(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=4MiB");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    loch_allocator *parent = pool_make(device, &options), *child = child_quota(parent, 24 * MIB, 0);
    void *live[12], *large = pool_alloc(child, 24 * MIB);
    for (size_t i = 0; i < 12; i++)
        live[i] = pool_alloc(child, 2 * MIB);
    assert_int_equal(pool_info(child).reserved_bytes, 48 * MIB);
    for (size_t i = 0; i < 12; i += 2)
        CHECK_OK(loch_free(child, live[i])); /* 12 MiB that cannot go back */
    CHECK_OK(loch_free(child, large));       /* 24 MiB that can, of which the minimum needs none */
    void *block = pool_alloc(parent, 40 * MIB);
    CHECK_OK(loch_free(parent, block));
    for (size_t i = 1; i < 12; i += 2)
        CHECK_OK(loch_free(child, live[i]));
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* Segments of pinned memory are as large as their blocks, to a page: a request needs no whole cell. */
static void a_family_of_pinned_pools_counts_in_pages(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB");
    const loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED, .limit_bytes = 12 * MIB};
    loch_allocator *parent = pool_make(device, &options), *one = child_quota(parent, 0, 0);
    loch_allocator *two = child_quota(parent, 0, 0);
    void *live = pool_alloc(one, 7 * MIB), *idle = pool_alloc(one, 5 * MIB), *block;
    assert_int_equal(pool_info(one).reserved_bytes, 12 * MIB);
    CHECK_OK(loch_free(one, idle));
    CHECK_OK(loch_alloc(two, 5 * MIB, &block));
    CHECK_OK(loch_free(two, block));
    CHECK_OK(pool_try_alloc(one, 5 * MIB, 0, NULL, &idle));
    CHECK_OK(loch_free(one, idle));
    CHECK_OK(pool_try_alloc(two, 5 * MIB, 64 * KIB, NULL, &block)); /* segments start at a cell */
    CHECK_OK(loch_free(two, block));
    CHECK_OK(loch_free(one, live));
    loch_allocator_release(one);
    loch_allocator_release(two);
    pool_end_sim(parent, device);
}

/* A pool above holds more than its limit since that was lowered. A request inside a minimum needs nothing of it. */
static void a_lowered_limit_above_a_minimum_is_no_lack(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=64KiB");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    loch_allocator *top = pool_make(device, &options), *safe = child_quota(top, 20 * MIB, 0);
    loch_allocator *below = child_quota(safe, 0, 4 * MIB), *last = child_quota(below, 0, 0);
    void *live = pool_alloc(top, 40 * MIB), *block;
    CHECK_OK(loch_pool_set_limit(top, 44 * MIB)); /* less than it holds and has promised, together */
    void *idle = pool_alloc(last, 4 * MIB);
    CHECK_OK(loch_free(last, idle));
    CHECK_OK(loch_alloc(below, 2 * MIB, &block));
    CHECK_OK(loch_free(below, block));
    CHECK_OK(loch_free(top, live));
    loch_allocator_release(last);
    loch_allocator_release(below);
    loch_allocator_release(safe);
    pool_end_sim(top, device);
}

/* The minimum of a pool is for its children as well: what it has idle serves them, cached by a thread or not. */
static void a_minimum_serves_the_children_of_its_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open("sim:256MiB,granule=64KiB");
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
        loch_allocator *top = pool_make(device, &options), *safe = child_quota(top, 16 * MIB, 16 * MIB);
        loch_allocator *below = child_quota(safe, 0, 0), *none;
        void *block = pool_alloc(safe, 8 * MIB);
        CHECK_OK(loch_free(safe, block));
        if (i) (void)pool_trim(safe, SIZE_MAX);
        CHECK_OK(loch_alloc(below, 12 * MIB, &block));
        CHECK_OK(loch_free(below, block));
        (void)pool_trim(below, 0);
        CHECK_OK(loch_free(safe, pool_alloc(safe, 8 * MIB)));
        if (i) (void)pool_trim(safe, SIZE_MAX);
        CHECK_OK(child_try(safe, LOCH_CHILD_QUOTA, 12 * MIB, 0, NULL, &none));
        loch_allocator_release(none);
        loch_allocator_release(below);
        loch_allocator_release(safe);
        pool_end_sim(top, device);
    }
}

/* Blocks that were freed in a sleeping pool need no memory when it wakes. */
static void a_wake_asks_the_family_for_what_lives(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=64KiB,backed");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 40 * MIB};
    loch_allocator *parent = pool_make(device, &options), *one = child_quota(parent, 0, 0);
    loch_allocator *two = child_quota(parent, 0, 0);
    const loch_sleep_options drop = {.size = sizeof drop, .contents = LOCH_SLEEP_DROP};
    void *kept = pool_alloc(one, 16 * MIB), *gone = pool_alloc(one, 16 * MIB);
    CHECK_OK(loch_pool_sleep(one, &drop, NULL));
    CHECK_OK(loch_free(one, gone));
    void *live = pool_alloc(two, 20 * MIB), *idle = pool_alloc(two, 20 * MIB);
    CHECK_OK(loch_free(two, idle));
    CHECK_OK(loch_pool_wake(one, NULL));
    assert_int_equal(pool_info(one).reserved_bytes, 16 * MIB);
    CHECK_OK(loch_free(one, kept));
    CHECK_OK(loch_free(two, live));
    loch_allocator_release(one);
    loch_allocator_release(two);
    pool_end_sim(parent, device);
}

/* --- a child for each request --- */

#define MANY 10000

/* Counts children, and checks that they come in order of creation. */
typedef struct many_walk {
    loch_allocator *const *children;
    size_t count;
} many_walk;

static loch_status many_see(loch_allocator *child, void *user)
{
    many_walk *walk = user;
    assert_ptr_equal(child, walk->children[walk->count]);
    walk->count++;
    return LOCH_OK;
}

/* Every child has a block, so every child has a granule and a range of addresses. */
static void ten_thousand_children_have_a_block_each(void **state)
{
    (void)state;
    if (TEST_HAS_FEW_ADDRESSES) skip();
    static const char *const large[] = {"sim:80GiB", "sim:141GiB"};
    static loch_allocator *children[MANY];
    static void *blocks[MANY];
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(large[d]);
        loch_allocator *parent = pool_make(device, NULL);
        const size_t addresses = sim_stats(device).reserved_bytes;
        for (size_t i = 0; i < MANY; i++) {
            children[i] = child_quota(parent, 0, 0);
            blocks[i] = pool_alloc(children[i], 1000);
        }
        many_walk walk = {children, 0};
        CHECK_OK(loch_pool_walk_children(parent, many_see, &walk));
        assert_int_equal(walk.count, MANY);
        void *mine = pool_alloc(parent, 3 * MIB); /* the family still has memory */
        CHECK_OK(loch_free(parent, mine));
        for (size_t i = 0; i < MANY; i++) {
            const size_t at = i * 7919 % MANY; /* in an order that is neither up nor down */
            if (i % 2) CHECK_OK(loch_free(children[at], blocks[at]));
            loch_allocator_release(children[at]);
            if (!(i % 2)) CHECK_OK(loch_free(children[at], blocks[at])); /* the block keeps the child */
        }
        assert_int_equal(sim_stats(device).reserved_bytes, addresses);
        family_expect_whole(&parent, 1);
        pool_end(parent, device);
    }
}

/* Children of a pool with a source have no granules of their own, but pieces of those of the pool below. */
static void ten_thousand_children_on_a_source_share_granules(void **state)
{
    (void)state;
    static loch_allocator *children[MANY];
    static void *blocks[MANY];
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *below = pool_make(device, NULL);
    const loch_pool_options source = {.size = sizeof source, .source = below};
    const loch_pool_options pieces = {.size = sizeof pieces, .handle_bytes = 64 << 10};
    const loch_child_options each = {.size = sizeof each, .limit_bytes = MIB, .pool = &pieces};
    loch_allocator *parent = pool_make(device, &source);
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(loch_pool_create_child(parent, "request", &each, &children[i]));
        blocks[i] = pool_alloc(children[i], 1000);
    }
    assert_int_equal(pool_info(children[MANY - 1]).reserved_bytes, 64 << 10);
    assert_true(sim_stats(device).physical_bytes <= MANY * ((size_t)66 << 10));
    family_expect_whole(&parent, 1);
    CHECK_FAILS(loch_alloc(children[0], 2 * MIB, &(void *){NULL}), LIMIT);
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(loch_free(children[i], blocks[i]));
        loch_allocator_release(children[i]);
    }
    assert_int_equal(pool_stats(below).blocks, 0);
    loch_allocator_release(parent);
    pool_end_sim(below, device);
}

/* A child without blocks takes nothing from the device: neither addresses nor memory. */
static void a_child_without_blocks_makes_no_driver_call(void **state)
{
    (void)state;
    static loch_allocator *children[MANY];
    static const char *const devices[] = {"cpu", "sim:80GiB"};
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *parent = pool_make(device, NULL);
        const uint64_t calls = test_call_count(device, "reserve") + test_call_count(device, "handle_create");
        for (size_t i = 0; i < MANY; i++)
            children[i] = child_quota(parent, 0, 64 * MIB);
        CHECK_OK(loch_allocator_trim(children[0], 0, NULL));
        assert_int_equal(pool_stats(children[1]).blocks, 0);
        const loch_sleep_options drop = {.size = sizeof drop, .contents = LOCH_SLEEP_DROP};
        CHECK_OK(loch_pool_sleep(children[2], &drop, NULL));
        CHECK_OK(loch_pool_wake(children[2], NULL));
        family_expect_whole(children, 3);
        void *none;
        CHECK_FAILS(loch_alloc(children[3], 65 * MIB, &none), LIMIT);
        for (size_t i = 4; i < MANY; i++)
            loch_allocator_release(children[i]);
        assert_true(test_call_count(device, "handle_create") + test_call_count(device, "reserve") <= calls + 1);
        void *block = pool_alloc(children[3], 10 * MIB); /* the first block makes the range */
        CHECK_OK(loch_free(children[3], block));
        for (size_t i = 0; i < 4; i++)
            loch_allocator_release(children[i]);
        pool_end(parent, device);
    }
}

static void families_are_in_the_report(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,granule=64KiB");
    loch_allocator *parent = pool_make(device, NULL), *quota = child_quota(parent, 3 * MIB, 0);
    loch_allocator *range = child_range(parent, MIB);
    char text[1024];
    assert_true(test_pool_print(parent, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "and 3 MiB for 2 children"));
    assert_true(test_pool_print(quota, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "a quota of \"pool\", minimum 3 MiB"));
    assert_null(strstr(text, "children"));
    assert_true(test_pool_print(range, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "a range of \"pool\""));
    loch_allocator_release(quota);
    loch_allocator_release(range);
    pool_end_sim(parent, device);
}

/* --- threads --- */

static void *use_pools(void *user)
{
    loch_allocator **pools = user;
    for (size_t i = 0; i < 200; i++) {
        void *block;
        loch_allocator *pool = pools[i % 3];
        if (loch_alloc(pool, 100 + i * 997 % (200 * KIB), &block) != LOCH_OK) return pool;
        if (loch_free(pool, block) != LOCH_OK) return pool;
    }
    return NULL;
}

static void threads_that_end_give_back(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *parent = pool_make(device, NULL);
    loch_allocator *pools[] = {parent, child_range(parent, 4 * MIB), child_quota(parent, 0, 8 * MIB)};
    for (size_t i = 0; i < 4; i++) {
        pthread_t thread;
        void *failed;
        assert_int_equal(pthread_create(&thread, NULL, use_pools, pools), 0);
        pthread_join(thread, &failed);
        assert_null(failed);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(pool_info(pools[k]).thread_bytes, 0);
        family_expect_whole(pools, 3);
    }
    loch_allocator_release(pools[1]);
    loch_allocator_release(pools[2]);
    pool_end(parent, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_minimum_is_kept_for_its_child),
        POOL_TEST(a_hard_limit_counts_children_below),
        POOL_TEST(ten_thousand_children_have_a_block_each),
        POOL_TEST(ten_thousand_children_on_a_source_share_granules),
        POOL_TEST(a_child_without_blocks_makes_no_driver_call),
        POOL_TEST(idle_memory_is_borrowed_and_taken_back),
        POOL_TEST(growable_blocks_borrow_from_the_family),
        POOL_TEST(a_growth_lacks_what_its_last_granule_does_not_have),
        POOL_TEST(minima_of_a_parent_without_a_limit_fit_the_device),
        POOL_TEST(a_family_waits_for_the_streams_of_idle_memory),
        POOL_TEST(a_minimum_in_parts_of_handles_leaves_whole_handles_to_others),
        POOL_TEST(a_family_of_pinned_pools_counts_in_pages),
        POOL_TEST(a_lowered_limit_above_a_minimum_is_no_lack),
        POOL_TEST(a_minimum_serves_the_children_of_its_pool),
        POOL_TEST(a_wake_asks_the_family_for_what_lives),
        POOL_TEST(families_are_in_the_report),
        POOL_TEST(threads_that_end_give_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
