/* SPDX-License-Identifier: MIT */
/* LOCH_POOL_WIPE_FREED: freed memory is zero before it is reused, in the order of streams, without a wait on the host.
 * Memory that cannot be wiped now is not reused. */
#include "pool_fixture.h"

#define MIB TEST_MIB
#define KIB TEST_KIB

static const char *const devices[] = {"cpu", "sim:256MiB,backed", "sim:256MiB,backed,granule=64KiB,alias=off",
                                      "sim:256MiB,backed,virtual=off"};
#define DEVICES (sizeof devices / sizeof *devices)
static const size_t sizes[] = {1, 100, 5000, 8192, 9000, 200 * KIB, MIB, 3 * MIB, 10 * MIB};
#define SIZES (sizeof sizes / sizeof *sizes)

static loch_allocator *wipe_make(loch_device *device, loch_pool_preset preset)
{
    const loch_pool_options options = {.size = sizeof options, .wipe = LOCH_POOL_WIPE_FREED, .preset = preset};
    return pool_make(device, &options);
}

static bool is_zero(const void *block, size_t bytes)
{
    const unsigned char *at = block;
    for (size_t i = 0; i < bytes; i++)
        if (at[i]) return false;
    return true;
}

static bool holds(const void *block, size_t bytes, unsigned char value)
{
    const unsigned char *at = block;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value) return false;
    return true;
}

/* Takes blocks, writes and frees them, and looks at what the next owner finds: whether any of it was written. */
static bool wipe_finds_contents(loch_device *device, loch_allocator *pool)
{
    bool found = false;
    void *blocks[SIZES];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZES; i++) {
            blocks[i] = pool_alloc(pool, sizes[i]);
            CHECK_OK(loch_device_sync(device));
            found |= !is_zero(blocks[i], sizes[i]);
            memset(blocks[i], 0xaa, sizes[i]);
        }
        for (size_t i = 0; i < SIZES; i++)
            CHECK_OK(loch_free(pool, blocks[round == 1 ? SIZES - 1 - i : i]));
    }
    return found;
}

static void freed_blocks_are_zero(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (int preset = LOCH_POOL_STANDARD; preset <= LOCH_POOL_WHOLE_BLOCKS; preset++) {
            loch_device *device = sim_open(devices[d]);
            loch_allocator *pool = wipe_make(device, (loch_pool_preset)preset);
            assert_false(wipe_finds_contents(device, pool));
            pool_end(pool, device);
            device = sim_open(devices[d]); /* off by default: the contents are there */
            pool = pool_make(device, NULL);
            assert_true(wipe_finds_contents(device, pool));
            pool_end(pool, device);
        }
}

static void what_a_resize_gives_up_is_zero(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        void *block = pool_alloc(pool, 8 * MIB), *again, *grown;
        memset(block, 0xaa, 8 * MIB);
        CHECK_OK(loch_allocator_realloc(pool, block, 2 * MIB, NULL, &again));
        CHECK_OK(loch_device_sync(device));
        assert_true(holds(again, 2 * MIB, 0xaa)); /* its own part stays */
        void *rest[5];
        for (size_t i = 0; i < 5; i++) {
            rest[i] = pool_alloc(pool, MIB);
            CHECK_OK(loch_device_sync(device));
            assert_true(is_zero(rest[i], MIB));
        }
        CHECK_OK(loch_allocator_realloc(pool, again, 20 * MIB, NULL, &grown)); /* moves: the old place is zero */
        void *there = pool_alloc(pool, 2 * MIB);
        CHECK_OK(loch_device_sync(device));
        assert_true(is_zero(there, 2 * MIB));
        assert_true(holds(grown, 2 * MIB, 0xaa));
        CHECK_OK(loch_free(pool, there));
        CHECK_OK(loch_free(pool, grown));
        for (size_t i = 0; i < 5; i++)
            CHECK_OK(loch_free(pool, rest[i]));
        pool_end(pool, device);
    }
}

static void what_a_growable_block_gives_up_is_zero(void **state)
{
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        const loch_request request = {.size = sizeof request, .bytes = 16 * MIB};
        void *first, *second;
        CHECK_OK(loch_pool_alloc_growable(pool, 64 * MIB, &request, &first));
        memset(first, 0xaa, 16 * MIB);
        CHECK_OK(loch_pool_resize_growable(pool, first, 4 * MIB));
        CHECK_OK(loch_device_sync(device));
        assert_true(holds(first, 4 * MIB, 0xaa));
        CHECK_OK(loch_pool_alloc_growable(pool, 64 * MIB, &request, &second)); /* has what the first one gave up */
        CHECK_OK(loch_device_sync(device));
        assert_true(is_zero(second, 16 * MIB));
        memset(second, 0xaa, 16 * MIB);
        CHECK_OK(loch_free(pool, first));
        CHECK_OK(loch_free(pool, second));
        void *block = pool_alloc(pool, 16 * MIB);
        CHECK_OK(loch_device_sync(device));
        assert_true(is_zero(block, 16 * MIB));
        CHECK_OK(loch_free(pool, block));
        pool_end(pool, device);
    }
}

/* --- tenants --- */

/* A child's memory goes back to its parent; a parent that wipes has children that do. */
static void memory_of_children_is_zero_for_the_parent(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (int whose = 0; whose < 2; whose++) {
            loch_device *device = sim_open(devices[d]);
            const loch_pool_options wiping = {.size = sizeof wiping, .wipe = LOCH_POOL_WIPE_FREED};
            loch_allocator *parent = pool_make(device, whose ? &wiping : NULL), *child;
            const loch_child_options options = {.size = sizeof options,
                                                .kind = LOCH_CHILD_RANGE,
                                                .limit_bytes = 8 * MIB,
                                                .pool = whose ? NULL : &wiping};
            CHECK_OK(loch_pool_create_child(parent, "tenant", &options, &child));
            char *start = NULL;
            for (size_t i = 0; i < 7; i++) {
                void *block = pool_alloc(child, i ? sizes[i] : 3 * MIB);
                if (!i) start = block;
                memset(block, 0xaa, i ? sizes[i] : 3 * MIB);
                CHECK_OK(loch_free(child, block));
            }
            void *other = pool_alloc(child, 2 * MIB); /* within the child, too */
            CHECK_OK(loch_device_sync(device));
            assert_true(is_zero(other, 2 * MIB));
            memset(other, 0xaa, 2 * MIB);
            CHECK_OK(loch_free(child, other));
            loch_allocator_release(child);
            char *block = pool_alloc(parent, 8 * MIB);
            CHECK_OK(loch_device_sync(device));
            assert_true(start >= block && start < block + 8 * MIB); /* that memory it is */
            assert_true(is_zero(block, 8 * MIB));
            CHECK_OK(loch_free(parent, block));
            pool_end(parent, device);
        }
}

static void blocks_of_an_ended_session_are_zero(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        for (int round = 0; round < 2; round++) {
            loch_session *session;
            CHECK_OK(loch_session_begin(pool, "request", &session));
            for (size_t i = 0; i < SIZES; i++) {
                void *block = pool_alloc(loch_session_get_allocator(session), sizes[i]);
                CHECK_OK(loch_device_sync(device));
                assert_true(is_zero(block, sizes[i]));
                memset(block, 0xaa, sizes[i]);
            }
            CHECK_OK(loch_session_end(session, NULL, NULL));
        }
        pool_end(pool, device);
    }
}

/* Contents that were saved while memory slept are not left where they were. */
static void saved_contents_are_wiped_where_they_were(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,backed"), *host = sim_open("cpu");
    loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD), *keeper = pool_make(host, NULL);
    void *block = pool_alloc(pool, 8 * MIB), *freed = pool_alloc(pool, 4 * MIB);
    memset(block, 0xaa, 8 * MIB);
    memset(freed, 0xaa, 4 * MIB);
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_HOST, .allocator = keeper};
    CHECK_OK(loch_pool_sleep(pool, &options, NULL));
    CHECK_OK(loch_free(pool, freed)); /* without memory */
    CHECK_OK(loch_pool_wake(pool, NULL));
    assert_true(holds(block, 8 * MIB, 0xaa));
    void *found = pool_alloc(keeper, 4 * MIB), *more = pool_alloc(keeper, 8 * MIB), *mine = pool_alloc(pool, 4 * MIB);
    CHECK_OK(loch_device_sync(device));
    assert_true(is_zero(found, 4 * MIB));
    assert_true(is_zero(more, 8 * MIB));
    assert_true(is_zero(mine, 4 * MIB));
    CHECK_OK(loch_free(keeper, found));
    CHECK_OK(loch_free(keeper, more));
    CHECK_OK(loch_free(pool, mine));
    CHECK_OK(loch_free(pool, block));
    pool_end(keeper, host);
    test_end_defaults(); /* the default that a stage came from */
    pool_end_sim(pool, device);
}

/* --- streams --- */

typedef struct peek {
    unsigned char *block;
    size_t bytes;
    unsigned char seen; /* the value that all bytes had; 0xff: several */
} peek;

static void peek_run(void *user)
{
    peek *p = user;
    p->seen = holds(p->block, p->bytes, p->block[0]) ? p->block[0] : 0xff;
}

static void paint_run(void *user)
{
    peek *p = user;
    memset(p->block, 0xaa, p->bytes);
}

/* A kernel that reads or writes a block when it ends, 1000 ns after it began. */
static void wipe_launch(loch_stream *stream, peek *p, loch_stream_function *run)
{
    const loch_sim_range range = {p->block, p->bytes};
    const bool is_read = run == peek_run;
    const loch_sim_kernel kernel = {.size = sizeof kernel,
                                    .reads = &range,
                                    .reads_count = is_read,
                                    .writes = &range,
                                    .writes_count = !is_read,
                                    .duration_ns = 1000,
                                    .run = run,
                                    .user = p};
    CHECK_OK(loch_sim_launch(stream, &kernel));
}

/* The fill comes behind the last use on the block's own stream and on those that were named, and before the next
 * owner's; the host waits for nothing. */
static void wiping_comes_behind_the_last_use_and_before_the_next(void **state)
{
    (void)state;
    for (size_t s = 1; s < SIZES; s++) {
        loch_device *device = sim_open("sim:256MiB,backed,clock=stepped");
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        loch_stream *own = sim_stream(device, LOCH_STREAM_INDEPENDENT),
                    *other = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        peek p = {.block = pool_alloc_on(pool, sizes[s], own), .bytes = sizes[s]}, late = p, next = p;
        wipe_launch(own, &p, paint_run);
        pool_order(device, own, other);
        wipe_launch(other, &late, peek_run);
        CHECK_OK(loch_allocator_record_use(pool, p.block, other));
        CHECK_OK(loch_free(pool, p.block));
        assert_true(sim_stats(device).pending > 0); /* nothing has run */
        assert_int_equal(pool_info(pool).waits_on_host, 0);
        CHECK_OK(loch_device_sync(device));
        assert_int_equal(late.seen, 0xaa); /* work that still used the block saw the old contents */
        next.block = pool_alloc_on(pool, sizes[s], other);
        wipe_launch(other, &next, peek_run);
        CHECK_OK(loch_device_sync(device));
        assert_int_equal(next.seen, 0);
        CHECK_OK(loch_free(pool, next.block));
        /* on its own stream at once, without a look at the clock */
        p.block = pool_alloc_on(pool, sizes[s], own);
        wipe_launch(own, &p, paint_run);
        CHECK_OK(loch_free(pool, p.block));
        next.block = pool_alloc_on(pool, sizes[s], own);
        wipe_launch(own, &next, peek_run);
        CHECK_OK(loch_free(pool, next.block));
        CHECK_OK(loch_device_sync(device));
        assert_int_equal(next.seen, 0);
        assert_int_equal(pool_info(pool).waits_on_host, 0);
        loch_stream_close(own);
        loch_stream_close(other);
        pool_end_sim(pool, device);
    }
}

/* A block that outlives its stream. */
static void a_block_that_outlives_its_stream_is_wiped(void **state)
{
    (void)state;
    for (size_t s = 1; s < SIZES; s++) {
        loch_device *device = sim_open("sim:256MiB,backed");
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        loch_stream *own = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        peek p = {.block = pool_alloc_on(pool, sizes[s], own), .bytes = sizes[s]};
        wipe_launch(own, &p, paint_run);
        loch_stream_close(own);
        CHECK_OK(loch_free(pool, p.block));
        CHECK_OK(loch_device_sync(device));
        loch_stream *next = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        for (int i = 0; i < 3; i++) {
            peek q = {.block = pool_alloc_on(pool, sizes[s], next), .bytes = sizes[s]};
            wipe_launch(next, &q, peek_run);
            CHECK_OK(loch_device_sync(device));
            assert_int_equal(q.seen, 0);
            CHECK_OK(loch_free(pool, q.block));
        }
        loch_stream_close(next);
        pool_end_sim(pool, device);
    }
}

/* --- captures --- */

/* Memory of a capture is wiped when the capture is released, not by its graph. */
static void captured_memory_is_wiped_at_its_release(void **state)
{
    (void)state;
    for (size_t s = 1; s < SIZES; s++) {
        loch_device *device = sim_open("sim:256MiB,backed");
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        loch_capture_info info = {.size = sizeof info};
        loch_sim_graph *graph;
        CHECK_OK(loch_sim_capture_begin(stream));
        CHECK_OK(loch_stream_query_capture(stream, &info));
        peek p = {.block = pool_alloc_on(pool, sizes[s], stream), .bytes = sizes[s]};
        wipe_launch(stream, &p, paint_run);
        CHECK_OK(loch_free(pool, p.block));
        CHECK_OK(loch_sim_capture_end(stream, &graph));
        CHECK_OK(loch_sim_graph_launch(graph, stream));
        CHECK_OK(loch_device_sync(device));
        assert_true(holds(p.block, p.bytes, 0xaa)); /* it is the graph's */
        const loch_sim_fault fault = {.size = sizeof fault, .call = "fill", .mode = LOCH_SIM_FAULT_ONCE};
        CHECK_OK(loch_sim_set_fault(device, &fault));
        CHECK_FAILS(loch_pool_release_capture(pool, info.id), DRIVER); /* nothing was released */
        CHECK_OK(loch_pool_release_capture(pool, info.id));
        CHECK_OK(loch_device_sync(device));
        assert_true(is_zero(p.block, p.bytes));
        CHECK_OK(loch_sim_set_fault(device, NULL));
        loch_sim_graph_destroy(graph);
        loch_stream_close(stream);
        pool_end_sim(pool, device);
    }
}

/* A block of before, freed while its stream is captured: a fill would become part of the graph. */
static void a_free_under_capture_adds_no_fill_to_the_graph(void **state)
{
    (void)state;
    for (size_t s = 1; s < SIZES; s++) {
        loch_device *device = sim_open("sim:256MiB,backed");
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        loch_sim_graph *graph;
        peek p = {.block = pool_alloc_on(pool, sizes[s], stream), .bytes = sizes[s]};
        wipe_launch(stream, &p, paint_run);
        CHECK_OK(loch_sim_capture_begin(stream));
        CHECK_OK(loch_free(pool, p.block));
        assert_true(pool_info(pool).waiting_bytes >= sizes[s]); /* not free yet */
        pool_expect_whole(pool);
        void *block = TEST_UNTOUCHED;
        CHECK_FAILS(loch_free(pool, p.block), DOUBLE_FREE);
        CHECK_OK(loch_sim_capture_end(stream, &graph));
        loch_sim_graph_destroy(graph);
        (void)pool_trim(pool, 0); /* looks again */
        assert_int_equal(pool_info(pool).waiting_bytes, 0);
        block = pool_alloc_on(pool, sizes[s], stream);
        CHECK_OK(loch_device_sync(device));
        assert_true(is_zero(block, sizes[s]));
        CHECK_OK(loch_free(pool, block));
        loch_stream_close(stream);
        pool_end_sim(pool, device);
    }
}

/* --- failures --- */

/* Memory that could not be wiped is not reused, and is reused when it can be wiped. */
static void what_could_not_be_wiped_reaches_nobody(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        loch_device *device = sim_open("sim:256MiB,backed");
        loch_allocator *pool = wipe_make(device, LOCH_POOL_STANDARD);
        char *block = pool_alloc(pool, sizes[s]);
        memset(block, 0xaa, sizes[s]);
        const loch_sim_fault fault = {.size = sizeof fault, .call = "fill", .mode = LOCH_SIM_FAULT_FOREVER};
        CHECK_OK(loch_sim_set_fault(device, &fault));
        CHECK_OK(loch_free(pool, block)); /* freed it is */
        assert_int_equal(pool_stats(pool).blocks, 0);
        assert_true(pool_info(pool).waiting_bytes >= sizes[s]);
        pool_expect_whole(pool);
        CHECK_FAILS(loch_free(pool, block), DOUBLE_FREE);
        char *others[8];
        for (size_t i = 0; i < 8; i++) {
            others[i] = pool_alloc(pool, sizes[s]);
            assert_true(others[i] + sizes[s] <= block || others[i] >= block + sizes[s]);
        }
        (void)pool_trim(pool, 0);
        assert_true(pool_info(pool).waiting_bytes >= sizes[s]);
        CHECK_OK(loch_sim_set_fault(device, NULL));
        for (size_t i = 0; i < 8; i++)
            CHECK_OK(loch_free(pool, others[i]));
        (void)pool_trim(pool, 64 * MIB);
        assert_int_equal(pool_info(pool).waiting_bytes, 0);
        for (size_t i = 0; i < 8; i++) {
            others[i] = pool_alloc(pool, sizes[s]);
            CHECK_OK(loch_device_sync(device));
            assert_true(is_zero(others[i], sizes[s]));
        }
        for (size_t i = 0; i < 8; i++)
            CHECK_OK(loch_free(pool, others[i]));
        pool_end_sim(pool, device);
    }
}

/* A child's range that cannot be wiped does not go back to a parent that would hand it out. */
static void a_range_that_cannot_be_wiped_does_not_go_back(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    const loch_pool_options wiping = {.size = sizeof wiping, .wipe = LOCH_POOL_WIPE_FREED};
    loch_allocator *parent = pool_make(device, NULL), *child;
    const loch_child_options options = {
        .size = sizeof options, .kind = LOCH_CHILD_RANGE, .limit_bytes = 8 * MIB, .pool = &wiping};
    CHECK_OK(loch_pool_create_child(parent, "tenant", &options, &child));
    char *block = pool_alloc(child, MIB);
    memset(block, 0xaa, MIB);
    const loch_sim_fault fault = {.size = sizeof fault, .call = "fill", .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(device, &fault));
    CHECK_OK(loch_free(child, block));
    loch_allocator_release(child);
    assert_int_equal(pool_stats(parent).blocks, 1); /* the range stays allocated, without an owner */
    CHECK_OK(loch_sim_set_fault(device, NULL));
    void *found = NULL;
    for (uintptr_t at = (uintptr_t)block; !found; at -= 512) { /* the test knows where: it may give it back */
        loch_block about = {.size = sizeof about};
        if (loch_allocator_find(parent, (void *)at, &about) == LOCH_OK) found = about.address;
    }
    memset(found, 0, 8 * MIB);
    CHECK_OK(loch_free(parent, found));
    pool_end_sim(parent, device);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    const loch_pool_options options = {.size = sizeof options, .wipe = (loch_pool_wipe)7};
    loch_allocator *pool = TEST_UNTOUCHED;
    CHECK_FAILS(loch_pool_create(device, NULL, &options, &pool), INVALID);
    assert_null(pool);
    loch_device_release(device);
}

/* --- random programs --- */

#define STREAMS 3
#define LIVE 40

typedef struct owned {
    peek paint, look;
    loch_stream *stream;
} owned;

static owned blocks[LIVE];

static void wipe_drop(loch_allocator *pool, test_random *random, loch_stream *const *streams, owned *block)
{
    loch_stream *other = streams[test_random_below(random, STREAMS)];
    const size_t how = test_random_below(random, 4);
    if (how == 0 && other != block->stream) {
        pool_order(loch_allocator_get_device(pool), block->stream, other);
        wipe_launch(other, &block->paint, paint_run);
        CHECK_OK(loch_allocator_record_use(pool, block->paint.block, other));
        CHECK_OK(loch_free(pool, block->paint.block));
    } else if (how == 1 && other != block->stream) {
        pool_order(loch_allocator_get_device(pool), block->stream, other);
        CHECK_OK(loch_allocator_free_on(pool, block->paint.block, other));
    } else {
        CHECK_OK(loch_free(pool, block->paint.block));
    }
}

/* Every owner looks before it writes, and always finds zeros. */
static void every_owner_finds_zeros(void **state)
{
    (void)state;
    const uint64_t first = test_seed(1);
    for (uint64_t seed = first; seed < first + 12; seed++) {
        test_random random = {seed};
        loch_device *device = sim_open(seed % 2 ? "sim:256MiB,backed" : "sim:256MiB,backed,granule=64KiB,alias=off");
        loch_allocator *pool = wipe_make(device, seed % 3 ? LOCH_POOL_STANDARD : LOCH_POOL_WHOLE_BLOCKS);
        loch_stream *streams[STREAMS];
        for (size_t i = 0; i < STREAMS; i++)
            streams[i] = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        size_t live = 0;
        for (size_t step = 0; step < 400; step++) {
            if (live < LIVE && test_random_below(&random, 2)) {
                static const size_t most[] = {200, 8000, 100000, 2 << 20};
                owned *block = &blocks[live++];
                const size_t bytes = 1 + test_random_below(&random, most[test_random_below(&random, 4)]);
                block->stream = streams[test_random_below(&random, STREAMS)];
                block->paint = (peek){.block = pool_alloc_on(pool, bytes, block->stream), .bytes = bytes};
                block->look = block->paint;
                wipe_launch(block->stream, &block->look, peek_run);
                wipe_launch(block->stream, &block->paint, paint_run);
            } else if (live) {
                CHECK_OK(loch_device_sync(device)); /* kernels point into the array */
                for (size_t i = 0; i < live; i++)
                    assert_int_equal(blocks[i].look.seen, 0);
                owned *block = &blocks[test_random_below(&random, live)];
                wipe_drop(pool, &random, streams, block);
                CHECK_OK(loch_device_sync(device));
                *block = blocks[--live];
            }
            if (step % 100 == 50) (void)pool_trim(pool, 8 * MIB);
        }
        CHECK_OK(loch_device_sync(device));
        while (live)
            CHECK_OK(loch_free(pool, blocks[--live].paint.block));
        for (size_t i = 0; i < STREAMS; i++)
            loch_stream_close(streams[i]);
        pool_end_sim(pool, device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(freed_blocks_are_zero),
        POOL_TEST(what_a_resize_gives_up_is_zero),
        POOL_TEST(what_a_growable_block_gives_up_is_zero),
        POOL_TEST(memory_of_children_is_zero_for_the_parent),
        POOL_TEST(blocks_of_an_ended_session_are_zero),
        POOL_TEST(saved_contents_are_wiped_where_they_were),
        POOL_TEST(wiping_comes_behind_the_last_use_and_before_the_next),
        POOL_TEST(a_block_that_outlives_its_stream_is_wiped),
        POOL_TEST(captured_memory_is_wiped_at_its_release),
        POOL_TEST(a_free_under_capture_adds_no_fill_to_the_graph),
        POOL_TEST(what_could_not_be_wiped_reaches_nobody),
        POOL_TEST(a_range_that_cannot_be_wiped_does_not_go_back),
        POOL_TEST(bad_options_are_refused),
        POOL_TEST(every_owner_finds_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
