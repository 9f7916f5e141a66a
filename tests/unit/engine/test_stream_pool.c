/* SPDX-License-Identifier: MIT */
/* Pools of streams: what comes back is handed out again when its work has ended, and not before. */
#include "engine/stream_pool.h"
#include "device/device.h"
#include "sim_fixture.h"
#include "sweep.h"

#define STEPPED "sim:1GiB,granule=64KiB,clock=stepped,lag=1000"
#define LONG 1000000 /* nanoseconds of a kernel */

typedef struct bench {
    loch_device *device;
    loch_stream_pool *pool;
} bench;

static bench bench_open(const char *name, const loch_stream_pool_options *options)
{
    bench b = {.device = sim_open(name)};
    CHECK_OK(loch_stream_pool_create(b.device, options, &b.pool));
    return b;
}

static void bench_close(bench *b)
{
    CHECK_OK(loch_device_sync(b->device));
    loch_stream_pool_destroy(b->pool);
    if (loch_device_can(b->device, LOCH_CAN_ASYNC)) {
        assert_int_equal(sim_stats(b->device).streams, 0);
        assert_int_equal(sim_stats(b->device).events, 0);
    }
    loch_device_release(b->device);
}

static loch_stream *take(bench *b)
{
    loch_stream *stream;
    CHECK_OK(loch_stream_pool_acquire(b->pool, &stream));
    CHECK_OK(loch_stream_query(stream)); /* always without work */
    return stream;
}

static void give(bench *b, loch_stream *stream)
{
    CHECK_OK(loch_stream_pool_release(b->pool, stream));
}

static loch_event *take_event(bench *b, loch_event_kind kind)
{
    loch_event *event;
    CHECK_OK(lochi_stream_pool_acquire_event(b->pool, kind, &event));
    CHECK_OK(loch_event_query(event));
    return event;
}

static loch_stream_pool_info info_of(bench *b)
{
    loch_stream_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_stream_pool_get_info(b->pool, &info));
    return info;
}

/* --- streams --- */

static void idle_streams_are_handed_out_again(void **state)
{
    (void)state;
    const char *const names[] = {STEPPED, "sim:1GiB", "cpu"};
    for (int n = 0; n < 3; n++) {
        bench b = bench_open(names[n], NULL);
        loch_stream *one = take(&b), *two = take(&b);
        assert_ptr_not_equal(one, two);
        assert_int_equal(info_of(&b).streams_out, 2);
        give(&b, one);
        give(&b, two);
        assert_int_equal(info_of(&b).streams_kept, 2);
        assert_ptr_equal(take(&b), two); /* the last one first */
        assert_ptr_equal(take(&b), one);
        give(&b, one);
        give(&b, two);
        const loch_stream_pool_info info = info_of(&b);
        assert_int_equal(info.streams_made, 2);
        assert_int_equal(info.streams_again, 2);
        assert_int_equal(info.streams_out, 0);
        bench_close(&b);
    }
}

/* The original handed a stream out again while work of the one before was queued on it: the new user's work stood
 * behind it. */
static void a_busy_stream_is_not_reused(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *idle = take(&b), *first = take(&b), *second = take(&b);
    CHECK_OK(sim_busy(first, LONG));
    CHECK_OK(sim_busy(second, 3 * LONG));
    give(&b, idle);
    give(&b, first);
    give(&b, second);
    assert_ptr_equal(take(&b), idle); /* under the two that are busy */
    loch_stream *third = take(&b);
    assert_true(third != first && third != second);
    assert_int_equal(info_of(&b).streams_made, 4);
    assert_int_equal(info_of(&b).streams_kept, 2);
    CHECK_OK(loch_sim_advance(b.device, 2 * LONG));
    assert_ptr_equal(take(&b), first); /* its work has ended; the other one, given back later, is busy */
    CHECK_OK(loch_sim_advance(b.device, 2 * LONG));
    assert_ptr_equal(take(&b), second);
    assert_int_equal(info_of(&b).streams_kept, 0);
    assert_int_equal(info_of(&b).streams_made, 4);
    give(&b, idle);
    give(&b, first);
    give(&b, second);
    give(&b, third);
    bench_close(&b);
}

static void a_stream_that_is_still_retained_is_neither_handed_out_nor_closed(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *one = take(&b), *owner = loch_stream_retain(one);
    give(&b, one);
    assert_int_equal(info_of(&b).streams_out, 0);
    assert_int_equal(info_of(&b).streams_kept, 0);
    loch_stream *two = take(&b);
    assert_ptr_not_equal(two, owner);
    CHECK_OK(loch_stream_sync(owner)); /* not closed */
    give(&b, two);
    loch_stream_release(owner);
    assert_int_equal(sim_stats(b.device).streams, 1);
    loch_stream *three = take(&b); /* retained in between only */
    loch_stream_release(loch_stream_retain(three));
    give(&b, three);
    assert_int_equal(info_of(&b).streams_kept, 1);
    bench_close(&b);
}

static void busy_streams_keep_their_order(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *streams[4];
    for (int i = 0; i < 4; i++)
        streams[i] = take(&b);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(sim_busy(streams[i], LONG));
        give(&b, streams[i]);
    }
    loch_stream *further = take(&b); /* asks all four, and puts them back */
    CHECK_OK(loch_sim_advance(b.device, 2 * LONG));
    for (int i = 3; i >= 0; i--)
        assert_ptr_equal(take(&b), streams[i]);
    for (int i = 0; i < 4; i++)
        give(&b, streams[i]);
    give(&b, further);
    bench_close(&b);
}

static void ran(void *user)
{
    ++*(int *)user;
}

/* The original kept whatever came back; what is too much goes here, and its work still runs. */
static void no_more_are_kept_than_said(void **state)
{
    (void)state;
    const loch_stream_pool_options options = {.size = sizeof options, .kept_streams = 2, .kept_events = 1};
    bench b = bench_open(STEPPED, &options);
    loch_stream *streams[4];
    loch_event *events[2];
    int calls = 0;
    for (int i = 0; i < 4; i++) {
        streams[i] = take(&b);
        CHECK_OK(sim_busy(streams[i], LONG));
        CHECK_OK(loch_stream_call(streams[i], ran, &calls));
    }
    for (int i = 0; i < 2; i++) {
        events[i] = take_event(&b, LOCH_EVENT_PLAIN);
        CHECK_OK(loch_event_record(events[i], streams[i]));
    }
    for (int i = 0; i < 4; i++)
        give(&b, streams[i]);
    for (int i = 0; i < 2; i++)
        lochi_stream_pool_release_event(b.pool, events[i]);
    const loch_stream_pool_info info = info_of(&b);
    assert_int_equal(info.streams_kept, 2); /* busy ones count */
    assert_int_equal(info.streams_out, 0);
    assert_int_equal(info.events_kept, 1);
    assert_int_equal(sim_stats(b.device).streams, 2);
    assert_int_equal(calls, 0);
    CHECK_OK(loch_device_sync(b.device));
    assert_int_equal(calls, 4);
    bench_close(&b);
}

static void streams_are_made_as_said(void **state)
{
    (void)state;
    const loch_stream_pool_options options = {
        .size = sizeof options,
        .stream = {.size = sizeof options.stream, .order = LOCH_STREAM_WITH_DEFAULT},
    };
    bench b = bench_open(STEPPED, &options);
    loch_stream *stream = take(&b);
    loch_event *event = take_event(&b, LOCH_EVENT_PLAIN);
    CHECK_OK(sim_busy(loch_stream_get_default(b.device), LONG));
    CHECK_OK(loch_event_record(event, stream)); /* behind the default stream's work */
    CHECK_STATUS(loch_event_query(event), LOCH_E_BUSY);
    lochi_stream_pool_release_event(b.pool, event);
    CHECK_OK(loch_device_sync(b.device));
    give(&b, stream);
    bench_close(&b);
}

static void captured_streams_stay_the_callers(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *stream = take(&b), *forked = take(&b), *other;
    loch_event *event = take_event(&b, LOCH_EVENT_PLAIN), *join = take_event(&b, LOCH_EVENT_PLAIN);
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(loch_stream_wait(forked, event));
    CHECK_FAILS(loch_stream_pool_release(b.pool, stream), INVALID);
    CHECK_FAILS(loch_stream_pool_release(b.pool, forked), INVALID);
    assert_int_equal(info_of(&b).streams_out, 2);
    other = take(&b); /* taking and giving do not disturb the capture */
    give(&b, other);
    CHECK_OK(loch_event_record(join, forked));
    CHECK_OK(loch_stream_wait(stream, join));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    loch_sim_graph_destroy(graph);
    give(&b, stream);
    give(&b, forked);
    /* A mark that went into a graph never passes: such an event is not handed out. */
    lochi_stream_pool_release_event(b.pool, event);
    lochi_stream_pool_release_event(b.pool, join);
    loch_event *fresh = take_event(&b, LOCH_EVENT_PLAIN);
    CHECK_OK(loch_event_record(fresh, stream));
    CHECK_OK(loch_event_sync(fresh));
    lochi_stream_pool_release_event(b.pool, fresh);
    bench_close(&b);
}

static void foreign_streams_stay_the_callers(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL), other = bench_open(STEPPED ",id=2", NULL);
    loch_stream_pool *second;
    loch_stream *own = sim_stream(b.device, LOCH_STREAM_INDEPENDENT), *stream = take(&b), *of_thread, *wrapped;
    CHECK_OK(loch_stream_pool_create(b.device, NULL, &second));
    CHECK_FAILS(loch_stream_pool_release(b.pool, own), FOREIGN);
    CHECK_FAILS(loch_stream_pool_release(other.pool, stream), INVALID); /* of another device */
    CHECK_FAILS(loch_stream_pool_release(second, stream), FOREIGN);
    CHECK_FAILS(loch_stream_pool_release(b.pool, loch_stream_get_default(b.device)), INVALID);
    CHECK_OK(loch_stream_require_thread_default(b.device, &of_thread));
    CHECK_FAILS(loch_stream_pool_release(b.pool, of_thread), INVALID);
    CHECK_OK(loch_stream_wrap(b.device, loch_stream_get_native(own), &wrapped));
    CHECK_FAILS(loch_stream_pool_release(b.pool, wrapped), INVALID);
    loch_stream_close(wrapped);
    give(&b, stream);
    CHECK_FAILS(loch_stream_pool_release(b.pool, stream), FOREIGN); /* twice */
    assert_int_equal(info_of(&b).streams_kept, 1);
    assert_int_equal(info_of(&b).streams_out, 0);
    loch_stream_close(own);
    loch_stream_pool_destroy(second);
    bench_close(&other);
    bench_close(&b);
}

static void what_is_out_outlives_the_pool(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *stream = take(&b), *busy = take(&b);
    loch_event *event = take_event(&b, LOCH_EVENT_TIMED);
    int calls = 0;
    CHECK_OK(sim_busy(busy, LONG));
    CHECK_OK(loch_stream_call(busy, ran, &calls));
    give(&b, busy);
    loch_stream_pool_destroy(b.pool);
    b.pool = NULL;
    loch_stream_pool_destroy(NULL);
    CHECK_OK(sim_busy(stream, 2 * LONG));
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(loch_event_sync(event));
    assert_int_equal(calls, 1);
    loch_event_destroy(event);
    loch_stream_close(stream);
    bench_close(&b);
}

/* --- events --- */

static void pending_events_are_not_handed_out(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *stream = take(&b);
    loch_event *events[2] = {take_event(&b, LOCH_EVENT_PLAIN), take_event(&b, LOCH_EVENT_PLAIN)};
    CHECK_OK(sim_busy(stream, LONG));
    CHECK_OK(loch_event_record(events[0], stream));
    CHECK_OK(sim_busy(stream, 2 * LONG));
    CHECK_OK(loch_event_record(events[1], stream));
    for (int i = 0; i < 2; i++)
        lochi_stream_pool_release_event(b.pool, events[i]);
    loch_event *third = take_event(&b, LOCH_EVENT_PLAIN);
    assert_true(third != events[0] && third != events[1]);
    CHECK_OK(loch_sim_advance(b.device, 2 * LONG));
    assert_ptr_equal(take_event(&b, LOCH_EVENT_PLAIN), events[0]);
    CHECK_OK(loch_sim_advance(b.device, 2 * LONG));
    assert_ptr_equal(take_event(&b, LOCH_EVENT_PLAIN), events[1]);
    loch_stream_pool_info info = info_of(&b);
    assert_int_equal(info.events_made, 3);
    assert_int_equal(info.events_again, 2);
    assert_int_equal(info.events_out, 3);
    assert_int_equal(info.events_kept, 0);
    for (int i = 0; i < 2; i++)
        lochi_stream_pool_release_event(b.pool, events[i]);
    lochi_stream_pool_release_event(b.pool, events[1]); /* twice: left alone */
    lochi_stream_pool_release_event(b.pool, third);
    lochi_stream_pool_release_event(b.pool, NULL);
    assert_int_equal(info_of(&b).events_kept, 3);
    give(&b, stream);
    bench_close(&b);
}

/* One that never passes must not make every later one new. */
static void events_behind_a_slow_one_are_found(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *slow = take(&b);
    loch_event *events[8];
    CHECK_OK(sim_busy(slow, 1000 * (uint64_t)LONG));
    for (int i = 0; i < 8; i++)
        events[i] = take_event(&b, LOCH_EVENT_PLAIN);
    for (int i = 0; i < 8; i++) {
        if (i < 7) CHECK_OK(loch_event_record(events[i], slow));
        lochi_stream_pool_release_event(b.pool, events[i]);
    }
    loch_event *fresh = take_event(&b, LOCH_EVENT_PLAIN); /* after a few that have not passed a new one is cheaper */
    assert_int_equal(info_of(&b).events_made, 9);
    assert_ptr_equal(take_event(&b, LOCH_EVENT_PLAIN), events[7]); /* those asked before stand behind it */
    lochi_stream_pool_release_event(b.pool, events[7]);
    lochi_stream_pool_release_event(b.pool, fresh);
    give(&b, slow);
    bench_close(&b);
}

static void kinds_of_events_are_kept_apart(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream *stream = take(&b);
    loch_event *plain = take_event(&b, LOCH_EVENT_PLAIN), *start = take_event(&b, LOCH_EVENT_TIMED);
    loch_event *last = take_event(&b, LOCH_EVENT_TIMED), *event = TEST_UNTOUCHED;
    uint64_t ns;
    CHECK_OK(loch_event_record(start, stream));
    CHECK_OK(sim_busy(stream, LONG));
    CHECK_OK(loch_event_record(last, stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_event_elapsed(start, last, &ns));
    assert_true(ns >= LONG);
    lochi_stream_pool_release_event(b.pool, plain);
    lochi_stream_pool_release_event(b.pool, start);
    assert_ptr_equal(take_event(&b, LOCH_EVENT_TIMED), start);
    CHECK_FAILS(loch_event_elapsed(start, last, &ns), INVALID); /* as if it were new: the old mark is forgotten */
    assert_ptr_equal(take_event(&b, LOCH_EVENT_PLAIN), plain);
    CHECK_FAILS(lochi_stream_pool_acquire_event(b.pool, (loch_event_kind)2, &event), INVALID);
    assert_null(event);
    lochi_stream_pool_release_event(b.pool, plain);
    lochi_stream_pool_release_event(b.pool, start);
    lochi_stream_pool_release_event(b.pool, last);
    assert_int_equal(info_of(&b).events_kept, 3);
    give(&b, stream);
    bench_close(&b);
}

/* --- wrong calls, and faults --- */

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    bench b = bench_open(STEPPED, NULL);
    loch_stream_pool *pool = TEST_UNTOUCHED;
    loch_stream *stream = TEST_UNTOUCHED;
    loch_event *event = TEST_UNTOUCHED;
    loch_stream_pool_info info = {.size = 0};
    loch_stream_pool_options options = {.size = sizeof options, .stream = {.priority = 1}};
    CHECK_FAILS(loch_stream_pool_create(NULL, NULL, &pool), INVALID);
    assert_null(pool);
    CHECK_FAILS(loch_stream_pool_create(b.device, NULL, NULL), INVALID);
    CHECK_FAILS(loch_stream_pool_create(b.device, &options, &pool), INVALID); /* the size of the inner one */
    options.stream = (loch_stream_options){.size = sizeof options.stream, .order = (loch_stream_order)9};
    CHECK_FAILS(loch_stream_pool_create(b.device, &options, &pool), INVALID);
    options.size = 1;
    CHECK_FAILS(loch_stream_pool_create(b.device, &options, &pool), INVALID);
    CHECK_FAILS(loch_stream_pool_acquire(NULL, &stream), INVALID);
    assert_null(stream);
    CHECK_FAILS(loch_stream_pool_acquire(b.pool, NULL), INVALID);
    CHECK_FAILS(lochi_stream_pool_acquire_event(NULL, LOCH_EVENT_PLAIN, &event), INVALID);
    assert_null(event);
    CHECK_FAILS(loch_stream_pool_release(NULL, NULL), INVALID);
    CHECK_OK(loch_stream_pool_release(b.pool, NULL));
    CHECK_FAILS(loch_stream_pool_get_info(b.pool, &info), INVALID);
    info = (loch_stream_pool_info){.size = 2 * sizeof(size_t), .streams_out = 77};
    CHECK_OK(loch_stream_pool_get_info(b.pool, &info)); /* a caller's that is older */
    assert_int_equal(info.streams_out, 77);
    bench_close(&b);
}

static loch_device *program_device;

/* Takes, works, gives back and takes again. What cannot be given back is destroyed. */
static loch_status small_program(const void *user)
{
    (void)user;
    loch_stream_pool *pool = NULL;
    loch_status status = loch_stream_pool_create(program_device, NULL, &pool), given;
    for (int i = 0; i < 4 && status == LOCH_OK; i++) {
        loch_stream *streams[2] = {NULL, NULL};
        loch_event *event = NULL;
        for (int s = 0; s < 2 && status == LOCH_OK; s++)
            status = loch_stream_pool_acquire(pool, &streams[s]);
        if (status == LOCH_OK) status = lochi_stream_pool_acquire_event(pool, LOCH_EVENT_PLAIN, &event);
        if (status == LOCH_OK) status = sim_busy(streams[0], LONG);
        if (status == LOCH_OK) status = loch_event_record(event, streams[0]);
        const loch_error failure = *loch_error_get();
        lochi_stream_pool_release_event(pool, event);
        for (int s = 0; s < 2; s++) {
            given = loch_stream_pool_release(pool, streams[s]);
            if (given != LOCH_OK) loch_stream_close(streams[s]);
            if (given != LOCH_OK && status == LOCH_OK) status = given;
        }
        if (failure.status == status && status != LOCH_OK)
            loch_error_set(status, NULL, 0, "%s", failure.sentence); /* the first one */
    }
    loch_stream_pool_destroy(pool);
    const loch_error failure = *loch_error_get();
    LOCH_IGNORE(loch_device_sync(program_device)); /* what is queued takes memory of the device's */
    if (status != LOCH_OK) loch_error_set(failure.status, NULL, 0, "%s", failure.sentence);
    return status;
}

static void without_memory_nothing_is_left_behind(void **state)
{
    (void)state;
    program_device = sim_open(STEPPED);
    test_host_sweep(small_program, NULL);
    loch_device_release(program_device);
}

static void run_faulted(test_round *round, const void *user)
{
    (void)user;
    program_device = sim_open(STEPPED);
    test_round_begin(round, program_device);
    const loch_status status = small_program(NULL);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) assert_int_equal(loch_error_get()->status, status);
    CHECK_OK(small_program(NULL)); /* and it goes on */
    CHECK_OK(loch_device_sync(program_device));
    assert_int_equal(sim_stats(program_device).streams + sim_stats(program_device).events, 0);
    loch_device_release(program_device);
}

static void failing_driver_calls_leave_nothing_behind(void **state)
{
    (void)state;
    const test_rounds rounds = test_rounds_run(&test_sim_faults, STEPPED, run_faulted, NULL);
    assert_true(rounds.felt > 10 && rounds.felt < rounds.places); /* a kept stream that cannot be asked is replaced */
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(idle_streams_are_handed_out_again),
        SIM_TEST(a_busy_stream_is_not_reused),
        SIM_TEST(a_stream_that_is_still_retained_is_neither_handed_out_nor_closed),
        SIM_TEST(busy_streams_keep_their_order),
        SIM_TEST(no_more_are_kept_than_said),
        SIM_TEST(streams_are_made_as_said),
        SIM_TEST(captured_streams_stay_the_callers),
        SIM_TEST(foreign_streams_stay_the_callers),
        SIM_TEST(what_is_out_outlives_the_pool),
        SIM_TEST(pending_events_are_not_handed_out),
        SIM_TEST(events_behind_a_slow_one_are_found),
        SIM_TEST(kinds_of_events_are_kept_apart),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(without_memory_nothing_is_left_behind),
        SIM_TEST(failing_driver_calls_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
