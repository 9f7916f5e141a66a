/* SPDX-License-Identifier: MIT */
/* Captures on simulated devices: what is kept, how graphs run, and what makes a capture void. */
#include "sim_fixture.h"
#include <loch/pool.h>
#include <loch/tensor.h>

#define BACKED "sim:64MiB,granule=64KiB,backed,clock=stepped,lag=1000"
#define BYTES ((size_t)4096)

typedef struct bench {
    loch_device *device;
    loch_stream *stream, *other;
    loch_event *event;
    unsigned char *block;
} bench;

static bench bench_open(void)
{
    bench it = {.device = sim_open(BACKED)};
    it.stream = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    it.other = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    it.event = sim_event(it.device);
    it.block = sim_raw(it.device, BYTES);
    memset(it.block, 0, BYTES);
    return it;
}

static void bench_close(bench *it)
{
    CHECK_OK(loch_device_sync(it->device));
    CHECK_OK(loch_raw_free(it->block));
    loch_event_destroy(it->event);
    loch_stream_close(it->stream);
    loch_stream_close(it->other);
    loch_device_release(it->device);
}

static void expect_void(bench *it)
{
    loch_sim_graph *graph = TEST_UNTOUCHED;
    loch_capture_info info = {.size = sizeof info};
    CHECK_FAILS(loch_sim_capture_end(it->stream, &graph), DRIVER);
    assert_null(graph);
    CHECK_OK(loch_stream_query_capture(it->stream, &info)); /* the capture has ended anyway */
    assert_int_equal(info.active, 0);
    CHECK_OK(sim_busy(it->stream, 1));
}

static void a_graph_runs_when_launched(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    loch_capture_info info = {.size = sizeof info};
    CHECK_OK(loch_stream_query_capture(it.stream, &info));
    assert_int_equal(info.active, 0);
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_FAILS(loch_sim_capture_begin(it.stream), INVALID);
    CHECK_OK(loch_stream_query_capture(it.stream, &info));
    assert_int_equal(info.active, 1);
    assert_true(info.id != 0);
    CHECK_OK(loch_fill_on(it.block, BYTES, "a", 1, it.stream));
    CHECK_OK(loch_copy_on(it.block + 8, it.block + 100, 4, it.stream));
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_STATUS(loch_stream_query(it.stream), LOCH_E_BUSY); /* asking does not disturb it */
    CHECK_STATUS(loch_event_query(it.event), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(it.device, 10000));
    assert_int_equal(it.block[0], 0);
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    loch_sim_graph *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_sim_capture_end(it.stream, &none), INVALID);
    assert_null(none);
    CHECK_OK(loch_stream_sync(it.stream));
    assert_int_equal(it.block[0], 0); /* nothing of it ran yet */
    CHECK_OK(loch_sim_graph_launch(graph, it.stream));
    CHECK_OK(loch_stream_sync(it.stream));
    assert_int_equal(it.block[0], 'a');
    loch_sim_graph_destroy(graph);
    bench_close(&it);
}

static void a_graph_runs_again(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_fill_on(it.block, BYTES, "a", 1, it.stream));
    CHECK_OK(sim_busy(it.stream, 500));
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    for (int i = 0; i < 3; i++) {
        memset(it.block, 0, BYTES);
        const uint64_t before = sim_now(it.device);
        CHECK_OK(loch_sim_graph_launch(graph, it.other));
        assert_int_equal(it.block[0], 0);
        CHECK_OK(loch_stream_sync(it.other));
        assert_int_equal(it.block[BYTES - 1], 'a');
        assert_int_equal(sim_now(it.device), before + SIM_LAG + 500);
    }
    CHECK_OK(loch_sim_graph_launch(graph, it.other));
    loch_sim_graph_destroy(graph); /* what was launched runs on */
    assert_int_equal(sim_stats(it.device).pending, 2);
    bench_close(&it);
}

/* stream: busy 100 -> mark;  other: behind the mark, busy 400 -> mark;  stream: busy 200, behind the mark, busy 10 */
static void streams_fork_and_join(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    loch_capture_info ours = {.size = sizeof ours}, theirs = {.size = sizeof theirs};
    loch_event *joined = sim_event(it.device);
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(sim_busy(it.stream, 100));
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_OK(loch_stream_wait(it.other, it.event));
    CHECK_OK(loch_stream_query_capture(it.stream, &ours));
    CHECK_OK(loch_stream_query_capture(it.other, &theirs));
    assert_true(theirs.active && theirs.id == ours.id);
    CHECK_OK(sim_busy(it.other, 400));
    CHECK_OK(loch_event_record(joined, it.other));
    CHECK_OK(sim_busy(it.stream, 200));
    CHECK_OK(loch_stream_wait(it.stream, joined));
    CHECK_OK(sim_busy(it.stream, 10));
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    CHECK_OK(loch_stream_query_capture(it.other, &theirs));
    assert_int_equal(theirs.active, 0);
    CHECK_OK(sim_busy(it.stream, 1000)); /* the graph comes behind it */
    CHECK_OK(loch_sim_graph_launch(graph, it.stream));
    CHECK_OK(loch_stream_sync(it.stream));
    assert_int_equal(sim_now(it.device), 1510);
    /* Two launches of one graph follow each other, on whatever streams. */
    CHECK_OK(loch_sim_graph_launch(graph, it.stream));
    CHECK_OK(loch_sim_graph_launch(graph, it.other));
    CHECK_OK(loch_stream_sync(it.other));
    assert_int_equal(sim_now(it.device), 1510 + 2 * 510);
    loch_sim_graph_destroy(graph);
    loch_event_destroy(joined);
    bench_close(&it);
}

static void branches_are_checked_for_order(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    loch_sim_violation found;
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_OK(loch_stream_wait(it.other, it.event));
    CHECK_OK(sim_writes(it.stream, it.block, 64));
    CHECK_OK(sim_writes(it.other, it.block, 64)); /* side by side */
    CHECK_OK(loch_event_record(it.event, it.other));
    CHECK_OK(loch_stream_wait(it.stream, it.event));
    CHECK_OK(sim_writes(it.stream, it.block, 64)); /* behind both */
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(loch_sim_graph_launch(graph, it.stream));
    assert_int_equal(sim_violations(it.device, &found), 1);
    assert_int_equal(found.stream, sim_number(it.other));
    assert_int_equal(found.other_stream, sim_number(it.stream));
    CHECK_OK(sim_writes(it.stream, it.block, 64));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    loch_sim_graph_destroy(graph);
    bench_close(&it);
}

static void waits_and_foreign_events_make_a_capture_void(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_event *outside = sim_event(it.device);
    uint64_t ns;

    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_FAILS(loch_stream_sync(it.stream), DRIVER);
    CHECK_FAILS(sim_busy(it.stream, 1), DRIVER);
    expect_void(&it);

    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_FAILS(loch_event_sync(it.event), DRIVER);
    expect_void(&it);
    CHECK_FAILS(loch_event_sync(it.event), DRIVER); /* still an event of a capture */

    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_event_record(outside, it.other));
    CHECK_OK(loch_event_query(outside)); /* one from outside may be asked */
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_FAILS(loch_event_elapsed(outside, it.event, &ns), DRIVER);
    expect_void(&it);

    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_FAILS(loch_device_sync(it.device), DRIVER);
    expect_void(&it);

    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_FAILS(loch_stream_wait(it.stream, outside), DRIVER);
    expect_void(&it);

    CHECK_OK(loch_sim_capture_begin(it.stream)); /* forked and not joined back */
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_OK(loch_stream_wait(it.other, it.event));
    CHECK_OK(sim_busy(it.other, 5));
    expect_void(&it);
    CHECK_FAILS(loch_stream_wait(it.other, it.event), DRIVER); /* its capture has ended */

    CHECK_OK(loch_sim_capture_begin(it.stream)); /* ended on another stream */
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_OK(loch_stream_wait(it.other, it.event));
    loch_sim_graph *graph;
    CHECK_FAILS(loch_sim_capture_end(it.other, &graph), DRIVER);
    expect_void(&it);

    CHECK_OK(loch_event_record(it.event, it.stream)); /* an ordinary event again */
    CHECK_OK(loch_event_sync(it.event));
    loch_event_destroy(outside);
    bench_close(&it);
}

static void the_default_stream_is_not_captured_and_voids_what_is_tied_to_it(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_stream *legacy = loch_stream_get_default(it.device);
    loch_stream *tied = sim_stream(it.device, LOCH_STREAM_WITH_DEFAULT), *keep = it.stream;
    CHECK_FAILS(loch_sim_capture_begin(legacy), DRIVER);
    CHECK_OK(loch_sim_capture_begin(it.stream)); /* independent: the default stream may go on */
    CHECK_OK(sim_busy(legacy, 5));
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    loch_sim_graph_destroy(graph);
    it.stream = tied;
    CHECK_OK(loch_sim_capture_begin(tied));
    CHECK_STATUS(loch_stream_query(legacy), LOCH_E_BUSY);
    CHECK_OK(sim_busy(tied, 5)); /* asking did not disturb it */
    CHECK_FAILS(sim_busy(legacy, 5), DRIVER);
    expect_void(&it);
    it.stream = keep;
    loch_stream_close(tied);
    bench_close(&it);
}

static void a_stream_that_goes_while_captured_makes_the_capture_void(void **state)
{
    (void)state;
    bench it = bench_open();
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_event_record(it.event, it.stream));
    CHECK_OK(loch_stream_wait(it.other, it.event));
    loch_stream_close(it.other);
    it.other = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    expect_void(&it);
    CHECK_OK(loch_sim_capture_begin(it.other));
    loch_stream_close(it.other);
    it.other = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    bench_close(&it);
}

/* Allocating is legal under capture; the memory that a graph uses has to be there at the launch. */
static void a_graph_whose_memory_has_gone_is_not_launched(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(it.stream));
    unsigned char *more = sim_raw(it.device, 64);
    CHECK_OK(loch_fill_on(it.block, 64, "b", 1, it.stream));
    CHECK_OK(loch_fill_on(more, 64, "b", 1, it.stream));
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    CHECK_OK(loch_raw_free(more));
    CHECK_FAILS(loch_sim_graph_launch(graph, it.stream), OUT_OF_RANGE);
    assert_int_equal(sim_stats(it.device).pending, 0); /* all of it or nothing */
    CHECK_OK(loch_stream_sync(it.stream));
    assert_int_equal(it.block[0], 0);
    loch_device *device = sim_open("sim:1GiB");
    CHECK_FAILS(loch_sim_graph_launch(graph, loch_stream_get_default(device)), INVALID);
    CHECK_FAILS(loch_sim_graph_launch(NULL, it.stream), INVALID);
    loch_device_release(device);
    loch_sim_graph_destroy(graph);
    loch_sim_graph_destroy(NULL);
    bench_close(&it);
}

static void a_device_without_captures_refuses_them(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,capture=off");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    CHECK_FAILS(loch_sim_capture_begin(stream), UNSUPPORTED);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* --- host memory --- */

/* The device fills pinned memory at every launch: nothing of the first one is needed for the second. */
static void pinned_memory_is_filled_at_every_launch(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    char *pinned = sim_pinned(it.device, BYTES);
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_fill_on(pinned, BYTES, "ab", 2, it.stream));
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    for (int i = 0; i < 3; i++) {
        memset(pinned, 0, BYTES);
        CHECK_OK(loch_sim_graph_launch(graph, it.other));
        CHECK_OK(loch_stream_sync(it.other));
        assert_int_equal(pinned[0], 'a');
        assert_int_equal(pinned[BYTES - 1], 'b');
    }
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_fill_on(pinned, BYTES, "c", 1, it.stream)); /* as ever */
    CHECK_OK(loch_stream_sync(it.stream));
    assert_int_equal(pinned[BYTES - 1], 'c');
    CHECK_OK(loch_raw_free(pinned));
    bench_close(&it);
}

/* What the host does once cannot be in a graph, nor a copy whose end the caller waits for: refused, and not in the
 * graph. */
static void what_the_host_does_is_refused(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    char *pinned = sim_pinned(it.device, BYTES), plain[64] = {0}, other[64] = {0};
    const loch_pitched rows = {.row_bytes = 4, .rows = 4, .planes = 1, .to_row_pitch = 8, .from_row_pitch = 8};
    const loch_pitched wide = {.row_bytes = 4, .rows = 4, .planes = 1, .to_row_pitch = 12, .from_row_pitch = 8};
    const loch_copy_options queued = {.size = sizeof queued, .stream = it.stream, .wait = LOCH_WAIT_QUEUED};
    const loch_copy_options ended = {.size = sizeof ended, .stream = it.stream, .wait = LOCH_WAIT_END};
    memset(it.block, 'x', BYTES);
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_FAILS(loch_fill_on(plain, sizeof plain, "a", 1, it.stream), BUSY);
    CHECK_FAILS(loch_copy_on(plain, other, sizeof plain, it.stream), BUSY);
    CHECK_FAILS(loch_copy_on(pinned, plain, sizeof plain, it.stream), BUSY);
    CHECK_FAILS(loch_copy_on(pinned, pinned + 64, 64, it.stream), BUSY);
    CHECK_FAILS(loch_copy_pitched(plain, other, &rows, &queued), BUSY);
    CHECK_FAILS(loch_copy_pitched(plain, plain + 4, &wide, &queued), BUSY); /* through a block of its own */
    CHECK_FAILS(loch_copy_with(plain, it.block, sizeof plain, &ended), BUSY);
    CHECK_FAILS(loch_fill_with(it.block, 64, "a", 1, &ended), BUSY);
    CHECK_FAILS(loch_copy_pitched(plain, it.block, &rows, &ended), BUSY);
    CHECK_OK(loch_sim_capture_end(it.stream, &graph)); /* none of it made the capture void */
    for (int i = 0; i < 2; i++) {
        CHECK_OK(loch_sim_graph_launch(graph, it.stream));
        CHECK_OK(loch_stream_sync(it.stream));
    }
    assert_int_equal(plain[0], 0);
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_copy_with(plain, it.block, sizeof plain, &ended));
    assert_int_equal(plain[0], 'x');
    CHECK_OK(loch_copy_on(pinned, plain, sizeof plain, it.stream));
    CHECK_OK(loch_stream_sync(it.stream));
    assert_int_equal(pinned[63], 'x');
    CHECK_OK(loch_raw_free(pinned));
    bench_close(&it);
}

/* --- tensors --- */

/* Elements of 8 bytes are filled at every launch with what was asked for, wherever the call kept it. */
static void tensors_are_filled_at_every_launch(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    loch_tensor *tensor, *columns;
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(it.device, "pool", NULL, &pool));
    const loch_tensor_options options = {.size = sizeof options, .allocator = pool, .stream = it.stream};
    CHECK_OK(loch_tensor_create(LOCH_F64, 2, (const int64_t[]){6, 8}, &options, &tensor));
    CHECK_OK(loch_tensor_slice(tensor, 1, 1, 8, 2, &columns));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_from_double(0.3), it.stream));
    CHECK_OK(loch_stream_sync(it.stream));
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_OK(loch_tensor_fill(columns, loch_scalar_from_double(0.1), it.stream));
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    double out[48];
    for (int i = 0; i < 3; i++) {
        CHECK_OK(loch_tensor_fill(tensor, loch_scalar_from_double(0.3), it.stream));
        CHECK_OK(loch_sim_graph_launch(graph, it.stream));
        CHECK_OK(loch_tensor_read(tensor, out, sizeof out, it.stream));
        for (int k = 0; k < 48; k++)
            assert_true(out[k] == (k % 2 ? 0.1 : 0.3));
    }
    loch_sim_graph_destroy(graph);
    loch_tensor_release(columns);
    loch_tensor_release(tensor);
    loch_allocator_release(pool);
    bench_close(&it);
}

/* A read that is waited for, in several calls of the driver: refused, and none of them is in the graph. */
static void reads_of_tensors_are_refused(void **state)
{
    (void)state;
    bench it = bench_open();
    loch_sim_graph *graph;
    loch_tensor *parts[4];
    loch_allocator *pool;
    static float out[4 * 2 * 3 * 4096];
    CHECK_OK(loch_pool_create(it.device, "pool", NULL, &pool));
    const loch_tensor_options options = {.size = sizeof options, .allocator = pool, .stream = it.stream};
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(4, 4, 4, 8192), &options, &parts[0]));
    CHECK_OK(loch_tensor_fill(parts[0], loch_scalar_from_double(1), it.stream));
    CHECK_OK(loch_tensor_slice(parts[0], 1, 0, 2, 1, &parts[1]));
    CHECK_OK(loch_tensor_slice(parts[1], 2, 0, 3, 1, &parts[2]));
    CHECK_OK(loch_tensor_slice(parts[2], 3, 0, 4096, 1, &parts[3]));
    CHECK_OK(loch_stream_sync(it.stream));
    CHECK_OK(loch_sim_capture_begin(it.stream));
    CHECK_FAILS(loch_tensor_read(parts[3], out, sizeof out, it.stream), BUSY);
    CHECK_FAILS(loch_tensor_write(parts[3], out, sizeof out, it.stream), BUSY);
    CHECK_OK(loch_sim_capture_end(it.stream, &graph));
    CHECK_OK(loch_sim_graph_launch(graph, it.stream));
    CHECK_OK(loch_stream_sync(it.stream));
    assert_true(out[0] == 0);
    CHECK_OK(loch_tensor_read(parts[3], out, sizeof out, it.stream));
    assert_true(out[0] == 1 && out[sizeof out / sizeof *out - 1] == 1);
    loch_sim_graph_destroy(graph);
    for (size_t i = 0; i < 4; i++)
        loch_tensor_release(parts[i]);
    loch_allocator_release(pool);
    bench_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_graph_runs_when_launched),
        SIM_TEST(a_graph_runs_again),
        SIM_TEST(pinned_memory_is_filled_at_every_launch),
        SIM_TEST(what_the_host_does_is_refused),
        SIM_TEST(tensors_are_filled_at_every_launch),
        SIM_TEST(reads_of_tensors_are_refused),
        SIM_TEST(streams_fork_and_join),
        SIM_TEST(branches_are_checked_for_order),
        SIM_TEST(waits_and_foreign_events_make_a_capture_void),
        SIM_TEST(the_default_stream_is_not_captured_and_voids_what_is_tied_to_it),
        SIM_TEST(a_stream_that_goes_while_captured_makes_the_capture_void),
        SIM_TEST(a_graph_whose_memory_has_gone_is_not_launched),
        SIM_TEST(a_device_without_captures_refuses_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
