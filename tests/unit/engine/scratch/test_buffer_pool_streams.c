/* SPDX-License-Identifier: MIT */
/* Pools of buffers and streams, under the checker of stream order. */
#include "buffer_pool_fixture.h"

static loch_status make_direct(loch_device *device, loch_allocator **out)
{
    return loch_direct_create(device, "scratch", NULL, out);
}

/* --- streams --- */

static make_allocator *const makers[] = {make_pool, make_direct};

static void another_stream_waits_on_the_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bench it = bench_open_with(STEPPED, makers[i], NULL);
        CHECK_OK(loch_device_measure_calls(it.device, LOCH_MEASURE_OFF));
        const uint64_t id = use(&it, 1000, it.a);
        assert_int_equal(use(&it, 1000, it.b), id);
        assert_int_equal(test_call_count(it.device, "stream_wait"), 1);
        assert_int_equal(use(&it, 1000, it.b), id); /* its own by now */
        assert_int_equal(test_call_count(it.device, "stream_wait"), 1);
        assert_int_equal(use(&it, 1000, loch_stream_get_default(it.device)), id);
        assert_int_equal(test_call_count(it.device, "stream_wait"), 2);
        assert_true(sim_stats(it.device).pending >= 4); /* the host waited for nothing */
        CHECK_OK(loch_sim_advance(it.device, 1000000));
        assert_int_equal(use(&it, 1000, it.a), id); /* has passed: no wait */
        assert_int_equal(test_call_count(it.device, "stream_wait"), 2);
        bench_close(&it);
    }
}

static void own_ones_first_then_those_that_have_passed(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_stream *c = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    loch_buffer *mine = get(&it, 1100, it.a), *passed = get(&it, 1050, it.b), *busy = get(&it, 1000, c);
    const uint64_t mine_id = loch_buffer_get_id(mine), passed_id = loch_buffer_get_id(passed),
                   busy_id = loch_buffer_get_id(busy);
    CHECK_OK(writes(it.a, mine));
    CHECK_OK(writes(it.b, passed));
    put(&it, mine, it.a);
    put(&it, passed, it.b);
    CHECK_OK(loch_sim_advance(it.device, 100000));
    CHECK_OK(writes(c, busy));
    put(&it, busy, c);
    /* the smaller ones belong to others */
    mine = get(&it, 1000, it.a);
    assert_int_equal(loch_buffer_get_id(mine), mine_id);
    passed = get(&it, 1000, it.a);
    assert_int_equal(loch_buffer_get_id(passed), passed_id);
    busy = get(&it, 1000, it.a);
    assert_int_equal(loch_buffer_get_id(busy), busy_id);
    CHECK_OK(writes(it.a, busy));
    put(&it, mine, it.a);
    put(&it, passed, it.a);
    put(&it, busy, it.a);
    loch_stream_close(c);
    bench_close(&it);
}

/* A block that was allocated for one stream and worked on by another goes back to the allocator behind both: kept and
 * thrown out, simply released, or given back while others hold it. */
static void blocks_go_back_behind_all_their_streams(void **state)
{
    (void)state;
    enum { TRIMMED, RELEASED, HELD, WAYS };
    for (size_t i = 0; i < 2 * WAYS; i++) {
        bench it = bench_open_with(STEPPED, makers[i / WAYS], NULL);
        const uint64_t id = use(&it, 100 * KIB, it.a);
        loch_buffer *buffer = get(&it, 100 * KIB, it.b);
        assert_int_equal(loch_buffer_get_id(buffer), id);
        CHECK_OK(writes(it.b, buffer));
        loch_buffer *held = i % WAYS == HELD ? loch_buffer_retain(buffer) : NULL;
        if (i % WAYS == RELEASED)
            loch_buffer_release(buffer);
        else
            put(&it, buffer, it.b);
        loch_buffer_release(held);
        CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
        for (int n = 0; n < 4; n++) { /* the next block with that memory, for the first stream */
            void *block;
            const loch_request request = {.size = sizeof request, .bytes = 100 * KIB, .stream = it.a};
            CHECK_OK(loch_allocator_alloc(it.allocator, &request, &block));
            CHECK_OK(sim_writes(it.a, block, 100 * KIB));
            CHECK_OK(loch_free(it.allocator, block));
        }
        bench_close(&it);
    }
}

/* Used on one stream, given back in the order of another that has waited for it, which only the release says. */
static void a_buffer_given_back_on_another_stream_waits_for_it(void **state)
{
    (void)state;
    for (int is_trimmed = 0; is_trimmed < 2; is_trimmed++) {
        bench it = bench_open(STEPPED, NULL);
        loch_event *event = sim_event(it.device);
        loch_buffer *buffer = get(&it, 100 * KIB, it.a);
        CHECK_OK(writes(it.a, buffer));
        CHECK_OK(loch_event_record(event, it.a));
        CHECK_OK(loch_stream_wait(it.b, event));
        CHECK_OK(writes(it.b, buffer));
        put(&it, buffer, it.b);
        if (is_trimmed) CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
        (void)use(&it, 100 * KIB, it.a);
        assert_int_equal(stats_of(&it).reused, is_trimmed ? 0 : 1);
        loch_event_destroy(event);
        bench_close(&it);
    }
}

static void streams_may_end_meanwhile(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bench it = bench_open_with(STEPPED, makers[i], NULL);
        const uint64_t id = use(&it, 1000, it.a); /* allocated for it */
        loch_stream *c = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        assert_int_equal(use(&it, 1000, c), id);
        loch_stream_close(it.a);
        loch_stream_close(c); /* given back on it */
        assert_int_equal(use(&it, 1000, it.b), id);
        it.a = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
        (void)use(&it, 1000, it.a);
        bench_close(&it);
    }
}

/* What goes into a graph is used whenever the graph runs: such work neither takes what others left nor leaves
 * anything. */
static void captured_work_has_buffers_of_its_own(void **state)
{
    (void)state;
    bench it = bench_open("sim:64MiB,granule=64KiB,clock=stepped", NULL);
    const uint64_t id = use(&it, 1000, it.b);
    loch_sim_graph *graph;
    loch_buffer *own, *fresh;
    CHECK_OK(loch_sim_capture_begin(it.a));
    own = get(&it, 1000, it.a);
    assert_int_not_equal(loch_buffer_get_id(own), id);
    CHECK_OK(writes(it.a, own));
    fresh = get(&it, 1000, it.a);
    CHECK_OK(writes(it.a, fresh));
    put(&it, fresh, it.a);
    assert_int_equal(stats_of(&it).idle, 1);
    CHECK_OK(loch_sim_capture_end(it.a, &graph)); /* nothing illegal was done to it */
    CHECK_OK(loch_sim_graph_launch(graph, it.a));
    CHECK_OK(loch_stream_sync(it.a));
    loch_sim_graph_destroy(graph);
    put(&it, own, it.a);
    assert_int_equal(stats_of(&it).idle, 2);
    bench_close(&it);
}

/* Host memory that a device still reads is not handed out. */
static void work_of_another_device_is_waited_for(void **state)
{
    (void)state;
    bench it = bench_open("cpu", NULL);
    loch_device *sim = sim_open(STEPPED);
    loch_stream *stream = sim_stream(sim, LOCH_STREAM_INDEPENDENT);
    loch_buffer *buffer = get(&it, 1000, NULL);
    const uint64_t id = loch_buffer_get_id(buffer);
    CHECK_OK(sim_busy(stream, 5000));
    CHECK_OK(loch_buffer_record_use(buffer, stream));
    put(&it, buffer, NULL);
    buffer = get(&it, 1000, NULL);
    assert_int_not_equal(loch_buffer_get_id(buffer), id);
    CHECK_OK(loch_sim_advance(sim, 10000));
    loch_buffer *after = get(&it, 1000, NULL);
    assert_int_equal(loch_buffer_get_id(after), id);
    put(&it, buffer, NULL);
    put(&it, after, NULL);
    loch_stream_close(stream);
    loch_device_release(sim);
    bench_close(&it);
}

static void contents_are_those_of_the_last_owner(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    unsigned char back[1000];
    for (unsigned char i = 0; i < 20; i++) {
        loch_stream *stream = i % 2 ? it.a : it.b;
        loch_buffer *buffer = get(&it, sizeof back, stream);
        CHECK_OK(loch_buffer_fill(buffer, &i, 1, stream));
        if (i % 3 == 0) {
            CHECK_OK(loch_copy_on(back, loch_buffer_get_address(buffer), sizeof back, stream));
            CHECK_OK(loch_stream_sync(stream));
            for (size_t at = 0; at < sizeof back; at++)
                assert_int_equal(back[at], i);
        }
        put(&it, buffer, stream);
    }
    assert_int_equal(stats_of(&it).reused, 19);
    bench_close(&it);
}

static void random_streams_keep_order(void **state)
{
    (void)state;
    test_random random = {test_seed(5)};
    enum { STREAMS = 4, OUT = 12 };
    for (size_t i = 0; i < 2; i++) {
        const loch_buffer_pool_options options = {.size = sizeof options, .idle_count_max = 6};
        bench it = bench_open_with("sim:64MiB,granule=64KiB,lag=3000", makers[i], &options);
        loch_stream *streams[STREAMS];
        loch_buffer *out[OUT] = {NULL};
        size_t of[OUT] = {0};
        for (size_t s = 0; s < STREAMS; s++)
            streams[s] = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        for (int step = 0; step < 3000; step++) {
            const size_t at = test_random_below(&random, OUT);
            if (!out[at]) {
                of[at] = test_random_below(&random, STREAMS);
                out[at] = get(&it, 1 + test_random_below(&random, 20 * KIB), streams[of[at]]);
                CHECK_OK(writes(streams[of[at]], out[at]));
            } else if (test_random_below(&random, 8)) {
                put(&it, out[at], streams[of[at]]);
                out[at] = NULL;
            } else {
                loch_buffer_clear(&out[at]);
            }
            if (test_random_below(&random, 100) == 0)
                CHECK_OK(loch_buffer_pool_trim(it.pool, test_random_below(&random, 40 * KIB), NULL));
            if (test_random_below(&random, 50) == 0) { /* a stream ends, with nothing of the caller's on it */
                const size_t s = test_random_below(&random, STREAMS);
                for (size_t n = 0; n < OUT; n++) {
                    if (of[n] == s) loch_buffer_clear(&out[n]);
                }
                loch_stream_close(streams[s]);
                streams[s] = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
            }
        }
        assert_true(stats_of(&it).reused > 500);
        for (size_t n = 0; n < OUT; n++)
            loch_buffer_release(out[n]);
        for (size_t s = 0; s < STREAMS; s++)
            loch_stream_close(streams[s]);
        bench_close(&it);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(another_stream_waits_on_the_device),
        SIM_TEST(own_ones_first_then_those_that_have_passed),
        SIM_TEST(blocks_go_back_behind_all_their_streams),
        SIM_TEST(a_buffer_given_back_on_another_stream_waits_for_it),
        SIM_TEST(streams_may_end_meanwhile),
        SIM_TEST(captured_work_has_buffers_of_its_own),
        SIM_TEST(work_of_another_device_is_waited_for),
        SIM_TEST(contents_are_those_of_the_last_owner),
        SIM_TEST(random_streams_keep_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
