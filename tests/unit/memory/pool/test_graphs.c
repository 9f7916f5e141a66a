/* SPDX-License-Identifier: MIT */
/* Pools of graphs (LOCH_POOL_CAPTURES_SHARED): captures share their memory, free memory stays mapped until the last
 * reference is released, and no call ends a capture. */
#include "pool_fixture.h"
#include "worker.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define BACKED "sim:128MiB,granule=64KiB,backed,clock=stepped,lag=1000"

static const char *const devices[] = {BACKED, BACKED ",alias=off", "sim:128MiB,granule=2MiB,backed",
                                      "sim:128MiB,virtual=off,backed"};
#define DEVICES (sizeof devices / sizeof *devices)

static const size_t sizes[] = {100, 5000, 50000, 300000, 3 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

static const loch_pool_options shared = {.size = sizeof shared, .captures = LOCH_POOL_CAPTURES_SHARED};

static void capture_begin(loch_stream *stream)
{
    CHECK_OK(loch_sim_capture_begin(stream));
}

static loch_sim_graph *capture_end(loch_stream *stream)
{
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    return graph;
}

static bool overlaps(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Releases a pool without live blocks: all its memory is back, and nothing was used without order. */
static void end_pool(pool_bench *it)
{
    pool_expect_whole(it->pool);
    sim_expect_order(it->device);
    loch_allocator_release(it->pool);
    const loch_sim_stats stats = sim_stats(it->device);
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.mappings, 0);
    assert_int_equal(stats.events, 0);
    pool_bench_end_streams(it);
    sim_expect_order(it->device);
    loch_device_release(it->device);
}

/* One step of a model: each block is used by captured or other work, all are freed at the end. */
static void run_step(pool_bench *it, loch_stream *stream, char *blocks[SIZES])
{
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = pool_alloc_on(it->pool, sizes[i], stream);
        CHECK_OK(loch_fill_on(blocks[i], sizes[i], "s", 1, stream));
    }
    for (size_t i = 0; i < SIZES; i++)
        CHECK_OK(loch_free(it->pool, blocks[i]));
}

/* --- sharing --- */

static void captures_share_their_memory(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        pool_bench it = pool_bench_open(devices[d], &shared);
        char *first[SIZES], *later[SIZES];
        loch_sim_graph *graphs[4];
        size_t reserved = 0;
        for (size_t i = 0; i < 4; i++) {
            capture_begin(it.a);
            run_step(&it, it.a, i ? later : first);
            graphs[i] = capture_end(it.a);
            pool_expect_whole(it.pool);
            if (!i) reserved = pool_info(it.pool).reserved_bytes;
            assert_int_equal(pool_info(it.pool).reserved_bytes, reserved);
            for (size_t k = 0; k < SIZES && i; k++)
                assert_ptr_equal(later[k], first[k]);
            run_step(&it, it.a, later); /* outside of captures too */
            assert_int_equal(pool_info(it.pool).reserved_bytes, reserved);
        }
        for (size_t i = 0; i < 12; i++) {
            CHECK_OK(loch_sim_graph_launch(graphs[i % 4], it.a));
            run_step(&it, it.a, later);
        }
        sim_expect_order(it.device);
        for (size_t i = 0; i < 4; i++)
            loch_sim_graph_destroy(graphs[i]);
        assert_int_equal(pool_info(it.pool).reserved_bytes, reserved);
        end_pool(&it);
    }
}

/* Memory of work before the first capture serves captures, and blocks live on from one capture to the next. */
static void memory_from_before_serves_captures(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 20 * MIB, it.a)));
    const size_t reserved = pool_info(it.pool).reserved_bytes;
    capture_begin(it.a);
    char *input = pool_alloc_on(it.pool, MIB, it.a), *output = pool_alloc_on(it.pool, MIB, it.a);
    CHECK_OK(loch_fill_on(input, MIB, "i", 1, it.a));
    loch_sim_graph *first = capture_end(it.a);
    capture_begin(it.a);
    char *scratch = pool_alloc_on(it.pool, 10 * MIB, it.a);
    CHECK_OK(loch_copy_on(scratch, input, MIB, it.a));
    CHECK_OK(loch_copy_on(output, scratch, MIB, it.a));
    CHECK_OK(loch_free(it.pool, scratch));
    loch_sim_graph *second = capture_end(it.a);
    assert_int_equal(pool_info(it.pool).reserved_bytes, reserved);
    assert_true(pool_info(it.pool).captured_bytes >= 2 * MIB);
    CHECK_OK(loch_fill(output, MIB, "x", 1));
    CHECK_OK(loch_sim_graph_launch(first, it.a));
    CHECK_OK(loch_sim_graph_launch(second, it.a));
    CHECK_OK(loch_device_sync(it.device));
    assert_int_equal(output[0], 'i');
    assert_int_equal(output[MIB - 1], 'i');
    CHECK_OK(loch_free(it.pool, input));
    CHECK_OK(loch_free(it.pool, output));
    loch_sim_graph_destroy(first);
    loch_sim_graph_destroy(second);
    end_pool(&it);
}

/* --- other streams --- */

static void a_freed_block_serves_its_own_stream_only(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        const loch_pool_options options = {
            .size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED, .limit_bytes = 24 * MIB};
        pool_bench it = pool_bench_open(devices[d], &options);
        capture_begin(it.a);
        char *block = pool_alloc_on(it.pool, 14 * MIB, it.a), *small = pool_alloc_on(it.pool, 200, it.a);
        CHECK_OK(sim_writes(it.a, block, 14 * MIB));
        CHECK_OK(loch_free(it.pool, block)); /* during the capture */
        loch_sim_graph *graph = capture_end(it.a);
        CHECK_OK(loch_free(it.pool, small)); /* after it */
        CHECK_OK(loch_device_sync(it.device));
        for (int is_captured = 0; is_captured < 2; is_captured++) {
            if (is_captured) capture_begin(it.b);
            void *none = TEST_UNTOUCHED;
            CHECK_FAILS_SET(pool_try_alloc(it.pool, 12 * MIB, 0, it.b, &none), POOL_SHORT);
            CHECK_FAILS_SET(pool_try_alloc(it.pool, 12 * MIB, 0, NULL, &none), POOL_SHORT);
            char *others[8];
            for (size_t i = 0; i < 8; i++) {
                others[i] = pool_alloc_on(it.pool, i % 2 ? 200 : 100 * KIB, it.b);
                CHECK_OK(sim_writes(it.b, others[i], 200));
                assert_false(overlaps(others[i], 100 * KIB, block, 14 * MIB));
                assert_false(overlaps(others[i], 200, small, 200));
            }
            for (size_t i = 0; i < 8; i++)
                CHECK_OK(loch_free(it.pool, others[i]));
            if (is_captured) loch_sim_graph_destroy(capture_end(it.b));
            pool_expect_whole(it.pool);
        }
        const loch_pool_info info = pool_info(it.pool);
        assert_int_equal(info.handles_moved, 0);
        assert_int_equal(info.handles_released, 0);
        assert_int_equal(info.waits_on_device, 0);
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        char *again = pool_alloc_on(it.pool, 14 * MIB, it.a);
        assert_ptr_equal(again, block);
        CHECK_OK(loch_free(it.pool, again));
        loch_sim_graph_destroy(graph);
        end_pool(&it);
    }
}

static void a_block_freed_on_another_stream_returns_to_its_own(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    char *block = pool_alloc_on(it.pool, 4 * MIB, it.a);
    CHECK_OK(sim_writes(it.a, block, 4 * MIB));
    pool_order(it.device, it.a, it.b);
    CHECK_OK(sim_writes(it.b, block, 4 * MIB));
    CHECK_OK(loch_allocator_free_on(it.pool, block, it.b));
    char *other = pool_alloc_on(it.pool, 4 * MIB, it.b);
    assert_false(overlaps(other, 4 * MIB, block, 4 * MIB));
    CHECK_OK(loch_device_sync(it.device));
    char *again = pool_alloc_on(it.pool, 4 * MIB, it.a);
    assert_ptr_equal(again, block);
    CHECK_OK(sim_writes(it.a, again, 4 * MIB));
    CHECK_OK(loch_free(it.pool, again));
    CHECK_OK(loch_free(it.pool, other));
    end_pool(&it);
}

/* A use on a further stream in a capture: the block waits, no event gets into the capture, and it is used again later.
 */
static void a_use_on_a_captured_stream_delays_the_reuse(void **state)
{
    (void)state;
    static const size_t used[] = {1000, 4 << 20};
    for (size_t i = 0; i < 2; i++) {
        const size_t bytes = used[i];
        pool_bench it = pool_bench_open(BACKED, &shared);
        capture_begin(it.a);
        pool_order(it.device, it.a, it.b); /* the second stream joins the capture */
        char *block = pool_alloc_on(it.pool, bytes, it.a);
        CHECK_OK(sim_writes(it.a, block, bytes));
        pool_order(it.device, it.a, it.b);
        CHECK_OK(sim_reads(it.b, block, bytes));
        CHECK_OK(loch_allocator_record_use(it.pool, block, it.b));
        const uint64_t events = test_call_count(it.device, "event_record");
        CHECK_OK(loch_free(it.pool, block));
        char *next = pool_alloc_on(it.pool, bytes, it.a);
        assert_false(overlaps(next, bytes, block, bytes));
        CHECK_OK(sim_writes(it.a, next, bytes));
        CHECK_OK(loch_free(it.pool, next));
        assert_int_equal(test_call_count(it.device, "event_record"), events);
        pool_order(it.device, it.b, it.a);
        loch_sim_graph *graph = capture_end(it.a); /* is good */
        assert_true(pool_info(it.pool).waiting_bytes >= bytes);
        const size_t reserved = pool_info(it.pool).reserved_bytes;
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        CHECK_OK(loch_device_sync(it.device));
        (void)pool_trim(it.pool, SIZE_MAX); /* records the events, and collects what has passed */
        CHECK_OK(loch_device_sync(it.device));
        char *both[2];
        capture_begin(it.a);
        for (size_t k = 0; k < 2; k++)
            both[k] = pool_alloc_on(it.pool, bytes, it.a);
        assert_true(both[0] == block || both[1] == block);
        assert_int_equal(pool_info(it.pool).waiting_bytes, 0);
        assert_int_equal(pool_info(it.pool).reserved_bytes, reserved);
        for (size_t k = 0; k < 2; k++)
            CHECK_OK(loch_free(it.pool, both[k]));
        loch_sim_graph_destroy(capture_end(it.a));
        loch_sim_graph_destroy(graph);
        end_pool(&it);
    }
}

/* A request outside of captures waits on the device for the other stream, as in any pool. */
static void waiting_blocks_serve_their_stream_behind_a_wait(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED, .limit_bytes = 16 * MIB};
    pool_bench it = pool_bench_open(BACKED, &options);
    char *block = pool_alloc_on(it.pool, 12 * MIB, it.a);
    CHECK_OK(sim_writes(it.a, block, 12 * MIB));
    pool_order(it.device, it.a, it.b);
    CHECK_OK(sim_busy(it.b, 100000));
    CHECK_OK(sim_writes(it.b, block, 12 * MIB));
    CHECK_OK(loch_allocator_record_use(it.pool, block, it.b));
    CHECK_OK(loch_free(it.pool, block));
    char *again = pool_alloc_on(it.pool, 12 * MIB, it.a);
    assert_ptr_equal(again, block);
    CHECK_OK(sim_writes(it.a, again, 12 * MIB));
    CHECK_OK(loch_free(it.pool, again));
    sim_expect_order(it.device);
    end_pool(&it);
}

/* --- what stays --- */

/* Everything that makes pools give memory back. */
static void press(const pool_bench *it, loch_allocator *parent, loch_allocator *sibling)
{
    void *none = TEST_UNTOUCHED;
    assert_int_equal(pool_trim(it->pool, 0), 0);
    (void)pool_trim(parent, 0);
    CHECK_OK(loch_pool_set_idle(it->pool, KIB));
    CHECK_OK(loch_pool_set_idle(it->pool, 0));
    CHECK_OK(loch_pool_set_limit(it->pool, MIB));
    CHECK_OK(loch_pool_set_limit(it->pool, 0));
    CHECK_FAILS_SET(pool_try_alloc(parent, 126 * MIB, 0, it->a, &none), POOL_SHORT);
    CHECK_FAILS_SET(pool_try_alloc(sibling, 126 * MIB, 0, it->a, &none), POOL_SHORT);
    CHECK_FAILS_SET(pool_try_alloc(it->pool, 126 * MIB, 0, it->a, &none), POOL_SHORT);
    CHECK_FAILS_SET(pool_try_alloc(it->pool, 126 * MIB, 0, it->b, &none), POOL_SHORT);
    const loch_compact_options compact = {.size = sizeof compact};
    CHECK_FAILS(loch_pool_compact(it->pool, &compact, NULL), UNSUPPORTED);
    CHECK_OK(loch_pool_compact(parent, &compact, NULL));
    pool_expect_whole(it->pool);
    pool_expect_whole(parent);
}

static void free_memory_stays_whatever_happens(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES - 1; d++) {
        pool_bench it = pool_bench_open(devices[d], NULL);
        loch_allocator *parent = it.pool, *sibling = pool_make(it.device, NULL);
        const loch_pool_options options = {
            .size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED, .idle_bytes = MIB};
        const loch_child_options child = {.size = sizeof child, .limit_bytes = 64 * MIB, .pool = &options};
        CHECK_OK(loch_pool_create_child(parent, "graphs", &child, &it.pool));
        char *first[SIZES];
        capture_begin(it.a);
        run_step(&it, it.a, first);
        char *result = pool_alloc_on(it.pool, MIB, it.a);
        CHECK_OK(loch_copy_on(result, first[SIZES - 1], MIB, it.a)); /* from memory that is free now */
        loch_sim_graph *graph = capture_end(it.a);
        const size_t reserved = pool_info(it.pool).reserved_bytes;
        for (int i = 0; i < 3; i++) {
            if (i == 1) capture_begin(it.streams[2]); /* nor does any of it end a capture */
            press(&it, parent, sibling);
            if (i == 1) loch_sim_graph_destroy(capture_end(it.streams[2]));
            assert_int_equal(pool_info(it.pool).reserved_bytes, reserved);
            assert_int_equal(pool_info(it.pool).handles_moved, 0);
            assert_int_equal(pool_info(it.pool).handles_released, 0);
            CHECK_OK(loch_fill(result, MIB, "x", 1));
            CHECK_OK(loch_sim_graph_launch(graph, it.a));
            CHECK_OK(loch_device_sync(it.device));
            assert_int_equal(result[0], 's');
            assert_int_equal(result[MIB - 1], 's');
        }
        loch_sim_graph_destroy(graph);
        CHECK_OK(loch_free(it.pool, result));
        loch_allocator_release(it.pool);
        assert_int_equal(sim_stats(it.device).physical_bytes,
                         pool_info(parent).reserved_bytes + pool_info(sibling).reserved_bytes);
        loch_allocator_release(sibling);
        it.pool = parent;
        pool_bench_close(&it);
    }
}

/* A request that grows the pool in a capture, also when the device is nearly full: the capture goes on. */
static void new_memory_comes_in_a_capture(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        pool_bench it = pool_bench_open(devices[d], &shared);
        loch_allocator *other = pool_make(it.device, NULL);
        CHECK_OK(loch_free(other, pool_alloc_on(other, 100 * MIB, it.b))); /* most of the device */
        CHECK_OK(loch_device_sync(it.device));
        capture_begin(it.a);
        char *blocks[4];
        for (size_t i = 0; i < 4; i++) {
            blocks[i] = pool_alloc_on(it.pool, 20 * MIB, it.a);
            CHECK_OK(sim_writes(it.a, blocks[i], 20 * MIB));
        }
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS_SET(pool_try_alloc(it.pool, 100 * MIB, 0, it.a, &none), POOL_SHORT);
        loch_sim_graph *graph = capture_end(it.a);
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        for (size_t i = 0; i < 4; i++)
            CHECK_OK(loch_free(it.pool, blocks[i]));
        loch_sim_graph_destroy(graph);
        loch_allocator_release(other);
        end_pool(&it);
    }
}

/* --- the end --- */

/* The last reference goes while blocks are live and the last launch runs: free memory goes back at once, the rest with
 * its blocks. */
static void released_memory_goes_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        const loch_pool_options options = {
            .size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED, .handle_bytes = 2 * MIB};
        pool_bench it = pool_bench_open(devices[d], &options);
        char *blocks[4], *large;
        capture_begin(it.a);
        for (size_t i = 0; i < 4; i++)
            blocks[i] = pool_alloc_on(it.pool, 4 * MIB, it.a);
        large = pool_alloc_on(it.pool, 16 * MIB, it.a);
        CHECK_OK(sim_writes(it.a, large, 16 * MIB));
        CHECK_OK(loch_free(it.pool, large));
        loch_sim_graph *graph = capture_end(it.a);
        const size_t held = sim_stats(it.device).physical_bytes;
        assert_true(held >= 28 * MIB);
        CHECK_OK(sim_busy(it.b, 1000000));
        CHECK_OK(loch_sim_graph_launch(graph, it.b));
        CHECK_OK(loch_free(it.pool, blocks[1]));
        loch_allocator_release(it.pool);
        sim_expect_order(it.device);
        assert_true(sim_stats(it.device).physical_bytes <= held - 16 * MIB);
        CHECK_OK(loch_fill(blocks[0], 4 * MIB, "b", 1)); /* live blocks stay */
        assert_int_equal(blocks[0][4 * MIB - 1], 'b');
        const size_t left = sim_stats(it.device).physical_bytes;
        CHECK_OK(loch_free(it.pool, blocks[0]));
        CHECK_OK(loch_device_sync(it.device));
        CHECK_OK(loch_fill(blocks[2], 4 * MIB, "b", 1));
        CHECK_OK(loch_free(it.pool, blocks[2])); /* the first one has passed */
        if (!strstr(devices[d], "virtual")) assert_true(sim_stats(it.device).physical_bytes < left);
        CHECK_OK(loch_free(it.pool, blocks[3]));
        assert_int_equal(sim_stats(it.device).physical_bytes, 0);
        loch_sim_graph_destroy(graph);
        pool_bench_end_streams(&it);
        sim_expect_order(it.device);
        loch_device_release(it.device);
    }
}

/* A release while a stream of the pool is captured keeps the memory, and the capture. */
static void a_release_in_a_capture_does_not_end_it(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    capture_begin(it.a);
    char *block = pool_alloc_on(it.pool, 4 * MIB, it.a);
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 8 * MIB, it.a)));
    const size_t held = sim_stats(it.device).physical_bytes;
    loch_allocator_release(it.pool);
    assert_int_equal(sim_stats(it.device).physical_bytes, held);
    loch_sim_graph_destroy(capture_end(it.a));
    CHECK_OK(loch_free(it.pool, block));
    assert_int_equal(sim_stats(it.device).physical_bytes, 0);
    pool_bench_end_streams(&it);
    loch_device_release(it.device);
}

/* Memory of a wiped pool leaves it without its contents. */
static void wiped_memory_leaves_clean(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED, .wipe = LOCH_POOL_WIPE_FREED};
    pool_bench it = pool_bench_open(BACKED, &options);
    char *blocks[SIZES], *live = pool_alloc_on(it.pool, 64 * KIB, it.a);
    capture_begin(it.a);
    run_step(&it, it.a, blocks);
    loch_sim_graph *graph = capture_end(it.a);
    CHECK_OK(loch_sim_graph_launch(graph, it.a));
    CHECK_OK(loch_device_sync(it.device));
    const uint64_t before = test_call_count(it.device, "fill");
    loch_allocator_release(it.pool);
    const uint64_t released = test_call_count(it.device, "fill");
    assert_true(released > before);
    CHECK_OK(loch_free(it.pool, live));
    assert_true(test_call_count(it.device, "fill") > released);
    it.pool = pool_make(it.device, &options);
    run_step(&it, it.a, blocks);
    const uint64_t second = test_call_count(it.device, "fill");
    loch_sim_graph_destroy(graph);
    loch_allocator_release(it.pool); /* without live blocks */
    assert_true(test_call_count(it.device, "fill") > second);
    pool_bench_end_streams(&it);
    sim_expect_order(it.device);
    loch_device_release(it.device);
}

/* --- the rest --- */

/* Requests do not ask the driver, and are served by the threads' caches. */
static void the_fast_path_serves_all_streams(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    char *first = pool_alloc_on(it.pool, 1000, it.a), *large = pool_alloc_on(it.pool, MIB, it.a);
    CHECK_OK(loch_free(it.pool, first));
    CHECK_OK(loch_free(it.pool, large));
    const uint64_t before = test_call_count(it.device, "stream_capture");
    for (int i = 0; i < 20; i++) {
        if (i == 10) capture_begin(it.a);
        char *small = pool_alloc_on(it.pool, 1000, it.a), *block = pool_alloc_on(it.pool, MIB, it.a);
        assert_ptr_equal(small, first);
        assert_ptr_equal(block, large);
        CHECK_OK(loch_free(it.pool, small));
        CHECK_OK(loch_free(it.pool, block));
    }
    loch_sim_graph_destroy(capture_end(it.a));
    assert_int_equal(test_call_count(it.device, "stream_capture"), before);
    end_pool(&it);
}

static void calls_about_single_captures_are_refused(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    loch_capture_info info = {.size = sizeof info};
    capture_begin(it.a);
    CHECK_OK(loch_stream_query_capture(it.a, &info));
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, MIB, it.a)));
    loch_sim_graph_destroy(capture_end(it.a));
    CHECK_FAILS(loch_pool_release_capture(it.pool, info.id), NOT_FOUND);
    CHECK_FAILS(loch_pool_release_capture(it.pool, 0), NOT_FOUND);
    CHECK_FAILS(loch_pool_release_capture(it.pool, UINT64_MAX), NOT_FOUND);
    CHECK_FAILS(loch_pool_release_capture(it.pool, UINT64_MAX - 1), NOT_FOUND);
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_pool_alloc_growable(it.pool, MIB, NULL, &none), UNSUPPORTED);
    const loch_pool_options wrong = {.size = sizeof wrong, .captures = (loch_pool_captures)9};
    loch_allocator *pool = (loch_allocator *)TEST_UNTOUCHED;
    CHECK_FAILS(loch_pool_create(it.device, NULL, &wrong, &pool), INVALID);
    assert_null(pool);
    end_pool(&it);
}

static void children_decide_by_themselves(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    loch_allocator *child = (loch_allocator *)TEST_UNTOUCHED;
    loch_child_options options = {
        .size = sizeof options, .kind = LOCH_CHILD_RANGE, .limit_bytes = 4 * MIB, .pool = &shared, .stream = it.a};
    CHECK_FAILS(loch_pool_create_child(it.pool, "range", &options, &child), UNSUPPORTED);
    assert_null(child);
    options.pool = NULL;
    CHECK_OK(loch_pool_create_child(it.pool, "range", &options, &child)); /* an ordinary pool in memory of graphs */
    char *block = pool_alloc_on(child, MIB, it.b);
    CHECK_OK(sim_writes(it.b, block, MIB));
    CHECK_OK(loch_free(child, block));
    loch_allocator_release(child);
    options.kind = LOCH_CHILD_QUOTA;
    options.stream = NULL;
    CHECK_OK(loch_pool_create_child(it.pool, "quota", &options, &child));
    CHECK_OK(loch_free(child, pool_alloc_on(child, 2 * MIB, it.b)));
    assert_true(pool_info(child).reserved_bytes >= 2 * MIB);
    pool_expect_empty(child); /* its memory goes back */
    loch_allocator_release(child);
    sim_expect_order(it.device);
    end_pool(&it);
}

/* --- threads --- */

typedef struct worker {
    loch_allocator *pool;
    loch_stream *stream;
    atomic_bool *is_over;
    atomic_size_t done;
    char failure[300];
} worker;

/* Allocates, fills and frees on a stream of its own. Blocks keep what was written into them. */
static void work(worker *w)
{
    test_random random = {(uintptr_t)w};
    while (!atomic_load(w->is_over) || atomic_load(&w->done) < 100) {
        const size_t bytes = sizes[test_random_below(&random, SIZES)];
        void *block = NULL;
        TRY(pool_try_alloc(w->pool, bytes, 0, w->stream, &block));
        TRY(loch_fill_on(block, bytes, "w", 1, w->stream));
        TRY(loch_free(w->pool, block));
        atomic_fetch_add(&w->done, 1);
    }
}

static void *work_thread(void *user)
{
    work(user);
    return NULL;
}

/* Threads use their own streams while another one is captured. */
static void threads_work_beside_captures(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, &shared);
    atomic_bool is_over = false;
    worker workers[3] = {{.pool = it.pool, .stream = it.streams[2]},
                         {.pool = it.pool, .stream = it.streams[3]},
                         {.pool = it.pool, .stream = it.streams[3]}};
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        workers[i].is_over = &is_over;
        assert_int_equal(pthread_create(&threads[i], NULL, work_thread, &workers[i]), 0);
    }
    size_t reserved = 0;
    for (int i = 0; i < 30; i++) {
        for (size_t t = 0; i == 5 && t < 3; t++) /* threads that begin late would take memory after the look */
            while (atomic_load(&workers[t].done) < 50 && !workers[t].failure[0])
                sched_yield();
        char *blocks[SIZES];
        capture_begin(it.a);
        run_step(&it, it.a, blocks);
        (void)pool_trim(it.pool, 0);
        loch_sim_graph *graph = capture_end(it.a);
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        CHECK_OK(loch_stream_sync(it.a));
        loch_sim_graph_destroy(graph);
        if (i == 5) reserved = pool_info(it.pool).reserved_bytes;
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    }
    assert_true(pool_info(it.pool).reserved_bytes <= reserved + 16 * MIB); /* what three threads hold at a time */
    end_pool(&it);
}

/* A device without captures: memory stays as well. */
static void the_cpu_keeps_memory_too(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, &shared);
    void *block = pool_alloc(pool, 8 * MIB);
    CHECK_OK(loch_free(pool, block));
    assert_int_equal(pool_trim(pool, 0), 0);
    assert_true(pool_info(pool).reserved_bytes >= 8 * MIB);
    assert_ptr_equal(pool_alloc(pool, 8 * MIB), block);
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(pool);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(captures_share_their_memory),
        POOL_TEST(memory_from_before_serves_captures),
        POOL_TEST(a_freed_block_serves_its_own_stream_only),
        POOL_TEST(a_block_freed_on_another_stream_returns_to_its_own),
        POOL_TEST(a_use_on_a_captured_stream_delays_the_reuse),
        POOL_TEST(waiting_blocks_serve_their_stream_behind_a_wait),
        POOL_TEST(free_memory_stays_whatever_happens),
        POOL_TEST(new_memory_comes_in_a_capture),
        POOL_TEST(released_memory_goes_back),
        POOL_TEST(a_release_in_a_capture_does_not_end_it),
        POOL_TEST(wiped_memory_leaves_clean),
        POOL_TEST(the_fast_path_serves_all_streams),
        POOL_TEST(calls_about_single_captures_are_refused),
        POOL_TEST(children_decide_by_themselves),
        POOL_TEST(threads_work_beside_captures),
        POOL_TEST(the_cpu_keeps_memory_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
