/* SPDX-License-Identifier: MIT */
/* A pool under stream capture: its calls do not invalidate the capture, and memory allocated in the capture serves no
 * other request until the capture is released, however often its graph runs. */
#include "pool_fixture.h"

#define MIB TEST_MIB
#define BACKED "sim:128MiB,granule=64KiB,backed,clock=stepped,lag=1000"

static uint64_t capture_begin(loch_stream *stream)
{
    loch_capture_info info = {.size = sizeof info};
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(loch_stream_query_capture(stream, &info));
    assert_true(info.active);
    return info.id;
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

static const size_t sizes[] = {100, 5000, 50000, 300000, 3 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Blocks handed out and freed in a capture stay with it. */
static void memory_stays_with_its_capture(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, NULL);
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 20 * MIB, it.a))); /* free memory that lies about */
    const uint64_t id = capture_begin(it.a);
    char *captured[SIZES];
    for (size_t i = 0; i < SIZES; i++) {
        captured[i] = pool_alloc_on(it.pool, sizes[i], it.a);
        CHECK_OK(loch_fill_on(captured[i], sizes[i], "c", 1, it.a));
        CHECK_OK(loch_free(it.pool, captured[i]));
        char *again = pool_alloc_on(it.pool, sizes[i], it.a); /* inside, it is used again */
        CHECK_OK(loch_fill_on(again, sizes[i], "d", 1, it.a));
        CHECK_OK(loch_free(it.pool, again));
        char *outside = pool_alloc_on(it.pool, sizes[i], it.b); /* another stream goes on meanwhile */
        memset(outside, 'o', sizes[i]);
        CHECK_OK(loch_free(it.pool, outside));
    }
    loch_sim_graph *graph = capture_end(it.a);
    pool_expect_whole(it.pool);
    for (int round = 0; round < 3; round++) {
        char *plain[2 * SIZES];
        for (size_t i = 0; i < 2 * SIZES; i++) {
            plain[i] = pool_alloc_on(it.pool, sizes[i / 2], i % 2 ? it.a : it.b);
            memset(plain[i], (int)i, sizes[i / 2]);
            for (size_t k = 0; k < SIZES; k++)
                assert_false(overlaps(plain[i], sizes[i / 2], captured[k], sizes[k]));
        }
        CHECK_OK(loch_sim_graph_launch(graph, it.b));
        CHECK_OK(loch_device_sync(it.device));
        assert_int_equal(sim_violations(it.device, NULL), 0);
        for (size_t i = 0; i < 2 * SIZES; i++) { /* the graph wrote into none of them */
            assert_int_equal(plain[i][0], i);
            assert_int_equal(plain[i][sizes[i / 2] - 1], i);
            CHECK_OK(loch_free(it.pool, plain[i]));
        }
        (void)pool_trim(it.pool, 0); /* its memory stays mapped */
    }
    loch_sim_graph_destroy(graph);
    CHECK_FAILS(loch_pool_release_capture(it.pool, id + 1000), NOT_FOUND);
    CHECK_OK(loch_pool_release_capture(it.pool, id));
    CHECK_FAILS(loch_pool_release_capture(it.pool, id), NOT_FOUND);
    pool_bench_close(&it);
}

/* A block that lives on after the capture: the graph fills it at every launch. */
static void a_graph_finds_its_memory(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, NULL);
    const uint64_t id = capture_begin(it.a);
    char *block = pool_alloc_on(it.pool, MIB, it.a), *scratch = pool_alloc_on(it.pool, MIB, it.a);
    CHECK_OK(loch_fill_on(scratch, MIB, "s", 1, it.a));
    CHECK_OK(loch_copy_on(block, scratch, MIB, it.a));
    CHECK_OK(loch_free(it.pool, scratch));
    loch_sim_graph *graph = capture_end(it.a);
    assert_true(pool_info(it.pool).captured_bytes >= MIB);
    for (int i = 0; i < 10; i++) {
        char *others[8];
        for (size_t k = 0; k < 8; k++) {
            others[k] = pool_alloc_on(it.pool, MIB / 2 + k * 1000, k % 2 ? it.a : it.b);
            memset(others[k], 'x', MIB / 2);
        }
        memset(block, 0, MIB);
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        CHECK_OK(loch_stream_sync(it.a));
        assert_int_equal(block[0], 's');
        assert_int_equal(block[MIB - 1], 's');
        for (size_t k = 0; k < 8; k++) {
            assert_int_equal(others[k][MIB / 2 - 1], 'x');
            CHECK_OK(loch_free(it.pool, others[k]));
        }
    }
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_free(it.pool, block));
    CHECK_OK(loch_pool_release_capture(it.pool, id));
    assert_int_equal(pool_info(it.pool).captured_bytes, 0);
    pool_bench_close(&it);
}

/* Released memory serves others, and goes back. */
static void released_memory_serves_everybody(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench it = pool_bench_open(BACKED, &options);
    const uint64_t id = capture_begin(it.a);
    char *block = pool_alloc_on(it.pool, 12 * MIB, it.a);
    CHECK_OK(loch_fill_on(block, 12 * MIB, "c", 1, it.a));
    CHECK_OK(loch_free(it.pool, block));
    loch_sim_graph *graph = capture_end(it.a);
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS_SET(pool_try_alloc(it.pool, 10 * MIB, 0, it.b, &none), TEST_SET(LIMIT) | TEST_SET(FRAGMENTED));
    CHECK_FAILS_SET(pool_try_alloc(it.pool, 10 * MIB, 0, it.a, &none), TEST_SET(LIMIT) | TEST_SET(FRAGMENTED));
    pool_expect_whole(it.pool);
    CHECK_OK(loch_sim_graph_launch(graph, it.a));
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_pool_release_capture(it.pool, id)); /* the last launch may still run */
    char *other = pool_alloc_on(it.pool, 14 * MIB, it.b);
    CHECK_OK(sim_writes(it.b, other, 14 * MIB));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(loch_free(it.pool, other));
    pool_bench_close(&it);
}

/* A block of a released capture is an ordinary one: its free is in the order of its stream. */
static void a_block_outlives_its_capture(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench it = pool_bench_open(BACKED, &options);
    const uint64_t id = capture_begin(it.a);
    char *block = pool_alloc_on(it.pool, 12 * MIB, it.a);
    loch_sim_graph_destroy(capture_end(it.a));
    CHECK_OK(loch_pool_release_capture(it.pool, id));
    assert_int_equal(pool_info(it.pool).captured_bytes, 0);
    CHECK_OK(sim_writes(it.a, block, 12 * MIB));
    CHECK_OK(loch_free(it.pool, block));
    char *other = pool_alloc_on(it.pool, 10 * MIB, it.b);
    CHECK_OK(sim_writes(it.b, other, 10 * MIB));
    loch_sim_violation found;
    if (sim_violations(it.device, &found)) fail_msg("%s", found.text);
    CHECK_OK(loch_free(it.pool, other));
    pool_bench_close(&it);
}

/* Memory is short in a capture: whatever is tried, the capture goes on. */
static void a_shortage_does_not_void_the_capture(void **state)
{
    (void)state;
    static const char *const devices[] = {BACKED, BACKED ",alias=off", "sim:128MiB,virtual=off,clock=stepped"};
    for (size_t d = 0; d < 3; d++) {
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 32 * MIB};
        pool_bench it = pool_bench_open(devices[d], &options);
        char *mine = pool_alloc_on(it.pool, 14 * MIB, it.a), *theirs = pool_alloc_on(it.pool, 14 * MIB, it.b);
        CHECK_OK(sim_writes(it.a, mine, 14 * MIB));
        CHECK_OK(sim_writes(it.b, theirs, 14 * MIB));
        CHECK_OK(loch_allocator_record_use(it.pool, mine, it.b));
        CHECK_OK(loch_free(it.pool, mine));   /* waits for the other stream */
        CHECK_OK(loch_free(it.pool, theirs)); /* unfinished */
        const uint64_t id = capture_begin(it.a);
        void *captured = NULL, *none = TEST_UNTOUCHED;
        const loch_status status = pool_try_alloc(it.pool, 10 * MIB, 0, it.a, &captured);
        if (status == LOCH_OK) CHECK_OK(sim_writes(it.a, captured, 10 * MIB));
        CHECK_FAILS_SET(pool_try_alloc(it.pool, 60 * MIB, 0, it.a, &none), POOL_SHORT);
        loch_sim_graph *graph = capture_end(it.a); /* is still good */
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        CHECK_OK(loch_device_sync(it.device));
        loch_sim_violation found;
        if (sim_violations(it.device, &found)) fail_msg("%s", found.text);
        loch_sim_graph_destroy(graph);
        CHECK_OK(loch_free(it.pool, captured));
        if (captured) CHECK_OK(loch_pool_release_capture(it.pool, id));
        pool_bench_close(&it);
    }
}

/* Nor does anything else that a pool does while one is under way, on that stream or for a sibling. */
static void no_call_voids_a_capture(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, NULL);
    loch_allocator *sibling = pool_make(it.device, NULL);
    char *blocks[SIZES], *theirs = pool_alloc_on(sibling, 8 * MIB, it.a);
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = pool_alloc_on(it.pool, sizes[i], it.a);
        CHECK_OK(sim_writes(it.a, blocks[i], sizes[i]));
    }
    CHECK_OK(sim_writes(it.a, theirs, 8 * MIB));
    CHECK_OK(loch_free(sibling, theirs));
    const uint64_t id = capture_begin(it.a);
    char *captured = pool_alloc_on(it.pool, MIB, it.a);
    CHECK_OK(loch_fill_on(captured, MIB, "c", 1, it.a));
    for (size_t i = 0; i < SIZES; i++)
        CHECK_OK(loch_free(it.pool, blocks[i]));
    (void)pool_trim(it.pool, 0);
    (void)pool_trim(sibling, 0);
    CHECK_OK(loch_pool_set_limit(it.pool, 64 * MIB));
    CHECK_OK(loch_pool_set_idle(it.pool, MIB));
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS_SET(pool_try_alloc(it.pool, 100 * MIB, 0, it.a, &none), POOL_SHORT);
    CHECK_OK(loch_pool_set_limit(it.pool, 0));
    CHECK_FAILS_SET(pool_try_alloc(it.pool, 127 * MIB, 0, it.a, &none), POOL_SHORT); /* asks the sibling */
    CHECK_FAILS_SET(pool_try_alloc(it.pool, 127 * MIB, 0, it.b, &none), POOL_SHORT);
    loch_sim_graph_destroy(capture_end(it.a));
    pool_expect_whole(it.pool);
    CHECK_OK(loch_free(it.pool, captured));
    CHECK_OK(loch_pool_release_capture(it.pool, id));
    pool_expect_empty(sibling);
    loch_allocator_release(sibling);
    pool_bench_close(&it);
}

/* A pool ends while a graph with its memory runs. */
static void a_pool_ends_before_its_graph(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, NULL);
    (void)capture_begin(it.a);
    char *block = pool_alloc_on(it.pool, MIB, it.a);
    CHECK_OK(loch_fill_on(block, MIB, "c", 1, it.a));
    CHECK_OK(loch_free(it.pool, block));
    loch_sim_graph *graph = capture_end(it.a);
    CHECK_OK(loch_sim_graph_launch(graph, it.b));
    loch_allocator_release(it.pool);
    assert_int_equal(sim_violations(it.device, NULL), 0);
    assert_int_equal(sim_stats(it.device).physical_bytes, 0);
    loch_sim_graph_destroy(graph);
    pool_bench_end_streams(&it);
    loch_device_release(it.device);
}

/* The block of a capture changes its size in it. */
static void captured_figures_follow_sizes(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = 8 * MIB}; /* all in one handle */
    pool_bench it = pool_bench_open(BACKED, &options);
    const uint64_t id = capture_begin(it.a);
    char *all = pool_alloc_on(it.pool, 8 * MIB, it.a);
    CHECK_OK(loch_free(it.pool, all));
    void *block = pool_alloc_on(it.pool, 2 * MIB, it.a), *moved;
    assert_int_equal(pool_info(it.pool).captured_bytes, 2 * MIB);
    CHECK_OK(loch_allocator_realloc(it.pool, block, 5 * MIB, it.a, &moved));
    assert_int_equal(pool_info(it.pool).captured_bytes, 5 * MIB);
    CHECK_OK(loch_allocator_realloc(it.pool, moved, MIB, it.a, &moved));
    assert_int_equal(pool_info(it.pool).captured_bytes, MIB);
    CHECK_OK(loch_free(it.pool, moved));
    loch_sim_graph_destroy(capture_end(it.a));
    CHECK_OK(loch_pool_release_capture(it.pool, id));
    assert_int_equal(pool_info(it.pool).captured_bytes, 0);
    pool_bench_close(&it);
}

static void many_captures_come_and_go(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(BACKED, NULL);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    size_t held = 0;
    for (int i = 0; i < 100; i++) {
        const uint64_t id = capture_begin(it.a);
        for (size_t k = 0; k < SIZES; k++) {
            char *block = pool_alloc_on(it.pool, sizes[k], it.a);
            CHECK_OK(loch_fill_on(block, sizes[k], "c", 1, it.a));
            CHECK_OK(loch_free(it.pool, block));
        }
        loch_sim_graph *graph = capture_end(it.a);
        CHECK_OK(loch_sim_graph_launch(graph, it.a));
        loch_sim_graph_destroy(graph);
        CHECK_OK(loch_pool_release_capture(it.pool, id));
        pool_expect_whole(it.pool);
        if (i == 20) {
            CHECK_OK(loch_host_get_usage(&before));
            held = pool_info(it.pool).reserved_bytes;
        }
    }
    CHECK_OK(loch_host_get_usage(&after));
    assert_true(after.bytes <= before.bytes + before.bytes / 4);
    assert_true(pool_info(it.pool).reserved_bytes <= held + 4 * MIB);
    pool_bench_close(&it);
}

/* Memory of a wiped pool serves others only after the fills of its release. */
static void a_released_capture_is_wiped_before_others_use_it(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .wipe = LOCH_POOL_WIPE_FREED, .limit_bytes = 16 * MIB};
    pool_bench it = pool_bench_open(BACKED, &options);
    const uint64_t id = capture_begin(it.a);
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 12 * MIB, it.a)));
    loch_sim_graph_destroy(capture_end(it.a));
    CHECK_OK(loch_pool_release_capture(it.pool, id));
    char *other = pool_alloc_on(it.pool, 12 * MIB, it.b);
    CHECK_OK(sim_writes(it.b, other, 12 * MIB));
    sim_expect_order(it.device);
    CHECK_OK(loch_free(it.pool, other));
    pool_bench_close(&it);
}

/* A program that promised not to capture is not asked. */
static void a_pool_without_captures_asks_no_stream(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .captures = LOCH_POOL_CAPTURES_NONE};
    pool_bench it = pool_bench_open(BACKED, &options);
    const uint64_t before = test_call_count(it.device, "stream_capture");
    for (int i = 0; i < 20; i++)
        CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 1000, it.a)));
    assert_int_equal(test_call_count(it.device, "stream_capture"), before);
    pool_bench_close(&it);
}

/* Graphs have memory elsewhere: requests ask no stream, and no call disturbs a capture on a stream with free memory. */
static void a_pool_with_captures_elsewhere_asks_late(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .captures = LOCH_POOL_CAPTURES_ELSEWHERE, .limit_bytes = 40 * MIB};
    pool_bench it = pool_bench_open(BACKED, &options);
    const uint64_t before = test_call_count(it.device, "stream_capture");
    for (int i = 0; i < 20; i++)
        CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 1000, it.a)));
    assert_int_equal(test_call_count(it.device, "stream_capture"), before);
    char *old = pool_alloc_on(it.pool, 30 * MIB, it.a), *used = pool_alloc_on(it.pool, MIB, it.b);
    CHECK_OK(loch_fill_on(old, 30 * MIB, "x", 1, it.a)); /* work is under way */
    CHECK_OK(loch_allocator_record_use(it.pool, used, it.a));
    (void)capture_begin(it.a);
    CHECK_OK(loch_free(it.pool, old));
    CHECK_OK(loch_free(it.pool, used));
    void *block = NULL;
    const loch_request request = {.size = sizeof request, .bytes = 20 * MIB, .stream = it.b};
    assert_int_not_equal(loch_allocator_alloc(it.pool, &request, &block), LOCH_OK); /* needs what `a` has */
    (void)pool_trim(it.pool, 0);
    loch_sim_graph *graph = capture_end(it.a); /* still valid */
    assert_non_null(graph);
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 20 * MIB, it.b)));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    pool_bench_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(memory_stays_with_its_capture),
        POOL_TEST(a_graph_finds_its_memory),
        POOL_TEST(released_memory_serves_everybody),
        POOL_TEST(a_block_outlives_its_capture),
        POOL_TEST(a_shortage_does_not_void_the_capture),
        POOL_TEST(no_call_voids_a_capture),
        POOL_TEST(a_pool_ends_before_its_graph),
        POOL_TEST(captured_figures_follow_sizes),
        POOL_TEST(many_captures_come_and_go),
        POOL_TEST(a_released_capture_is_wiped_before_others_use_it),
        POOL_TEST(a_pool_without_captures_asks_no_stream),
        POOL_TEST(a_pool_with_captures_elsewhere_asks_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
