/* SPDX-License-Identifier: MIT */
/* Time on simulated devices: when operations end, in which order they take effect, what waits for what. */
#include "sim_fixture.h"
#include <pthread.h>

#define STEPPED "sim:1GiB,granule=64KiB,backed,clock=stepped,lag=1000"

static void work_ends_when_the_clock_passes(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    assert_int_equal(sim_now(device), 0);
    CHECK_OK(sim_busy(stream, 500));
    CHECK_OK(sim_busy(stream, 700));
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(device, 1199));
    assert_int_equal(sim_stats(device).pending, 1);
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(device, 1));
    CHECK_OK(loch_stream_query(stream));
    assert_int_equal(sim_now(device), 1200);
    CHECK_OK(sim_busy(stream, 0)); /* the lag */
    CHECK_OK(loch_stream_sync(stream));
    assert_int_equal(sim_now(device), 2200);
    CHECK_FAILS(loch_sim_set_time(device, 2199), INVALID);
    CHECK_OK(loch_sim_set_time(device, 2200));
    loch_stream_close(stream);
    loch_device_release(device);
}

static void steps_go_operation_by_operation(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    for (uint64_t ns = 100; ns <= 400; ns += 100)
        CHECK_OK(sim_busy(stream, ns));
    CHECK_OK(loch_sim_step(stream, 0));
    assert_int_equal(sim_now(device), 0);
    CHECK_OK(loch_sim_step(stream, 1));
    assert_int_equal(sim_now(device), 100);
    CHECK_OK(loch_sim_step(stream, 2));
    assert_int_equal(sim_now(device), 600);
    CHECK_OK(loch_sim_step(stream, 9));
    assert_int_equal(sim_now(device), 1000);
    CHECK_OK(loch_sim_step(stream, 9));
    assert_int_equal(sim_now(device), 1000);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* Letters that kernels append when they run. */
static char written[32];

static void append(void *user)
{
    strcat(written, user);
}

static loch_status append_later(loch_stream *stream, uint64_t ns, const char *letter)
{
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .duration_ns = ns, .run = append, .user = (void *)(uintptr_t)letter};
    return loch_sim_launch(stream, &kernel);
}

static void effects_come_in_the_order_of_their_ends(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    written[0] = '\0';
    CHECK_OK(append_later(a, 300, "c"));
    CHECK_OK(append_later(b, 100, "a"));
    CHECK_OK(append_later(b, 100, "b"));
    CHECK_OK(append_later(a, 100, "e"));
    CHECK_OK(append_later(b, 100, "d")); /* ends at 300 too, but was queued later than c */
    CHECK_OK(loch_stream_call(b, append, "D"));
    assert_string_equal(written, "");
    CHECK_OK(loch_sim_advance(device, 299));
    assert_string_equal(written, "ab");
    CHECK_OK(loch_sim_advance(device, 1));
    assert_string_equal(written, "abcdD");
    CHECK_OK(loch_device_sync(device));
    assert_string_equal(written, "abcdDe");
    loch_stream_close(a);
    loch_stream_close(b);
    loch_device_release(device);
}

static void events_are_marks_in_time(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_event *before = sim_event(device), *behind = sim_event(device);
    uint64_t ns;
    CHECK_OK(loch_event_query(before)); /* never recorded */
    CHECK_OK(loch_sim_advance(device, 50));
    CHECK_OK(loch_event_record(before, stream));
    CHECK_OK(loch_event_query(before));
    CHECK_OK(sim_busy(stream, 800));
    CHECK_OK(loch_event_record(behind, stream));
    CHECK_STATUS(loch_event_query(behind), LOCH_E_BUSY);
    CHECK_STATUS(loch_event_elapsed(before, behind, &ns), LOCH_E_BUSY);
    CHECK_OK(loch_event_sync(behind));
    assert_int_equal(sim_now(device), 850);
    CHECK_OK(loch_event_elapsed(before, behind, &ns));
    assert_int_equal(ns, 800);
    CHECK_FAILS(loch_event_elapsed(behind, before, &ns), INVALID);
    CHECK_OK(sim_busy(stream, 10));
    CHECK_OK(loch_event_query(behind)); /* what comes later does not move the mark */
    loch_event_destroy(before);
    loch_event_destroy(behind);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void a_stream_waits_for_an_event(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_event *event = sim_event(device);
    CHECK_OK(sim_busy(a, 900));
    CHECK_OK(loch_event_record(event, a));
    CHECK_OK(loch_stream_wait(b, event));
    CHECK_OK(sim_busy(a, 5000)); /* after the mark: no wait depends on it */
    CHECK_OK(sim_busy(b, 100));
    loch_event_destroy(event); /* the wait holds */
    CHECK_OK(loch_stream_sync(b));
    assert_int_equal(sim_now(device), 1000);
    CHECK_STATUS(loch_stream_query(a), LOCH_E_BUSY);
    loch_stream_close(a);
    loch_stream_close(b);
    loch_device_release(device);
}

static void the_default_stream_waits_both_ways(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *tied = sim_stream(device, LOCH_STREAM_WITH_DEFAULT);
    loch_stream *apart = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(sim_busy(tied, 300));
    CHECK_OK(sim_busy(loch_stream_get_default(device), 300)); /* ends at 600 */
    CHECK_OK(sim_busy(tied, 300));                            /* ends at 900 */
    CHECK_OK(sim_busy(apart, 300));                           /* ends at 300 */
    CHECK_OK(loch_stream_sync(apart));
    assert_int_equal(sim_now(device), 300);
    CHECK_OK(loch_stream_sync(tied));
    assert_int_equal(sim_now(device), 900);
    loch_stream_close(apart);
    CHECK_OK(sim_busy(tied, 300));
    loch_stream_close(tied); /* its work still counts */
    CHECK_OK(sim_busy(loch_stream_get_default(device), 300));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(device)));
    assert_int_equal(sim_now(device), 1500);
    loch_device_release(device);
}

static void *thread_default_id(void *user)
{
    loch_stream *stream, *again;
    CHECK_OK(loch_stream_require_thread_default(user, &stream));
    CHECK_OK(loch_stream_require_thread_default(user, &again));
    CHECK_OK(sim_busy(stream, 100));
    return stream == again ? loch_stream_get_native(stream) : NULL;
}

static void every_thread_has_its_default_stream(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    pthread_t thread;
    void *theirs;
    void *ours = thread_default_id(device);
    assert_int_equal(pthread_create(&thread, NULL, thread_default_id, device), 0);
    pthread_join(thread, &theirs);
    assert_non_null(ours);
    assert_non_null(theirs);
    assert_ptr_not_equal(ours, theirs);
    /* Both ran side by side, and the device's default stream comes behind both. */
    CHECK_OK(sim_busy(loch_stream_get_default(device), 10));
    CHECK_OK(loch_device_sync(device));
    assert_int_equal(sim_now(device), 110);
    loch_device_release(device);
}

static void destroyed_streams_run_to_their_end(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    written[0] = '\0';
    CHECK_OK(append_later(stream, 100, "a"));
    CHECK_OK(append_later(stream, 100, "b"));
    loch_stream_close(stream);
    assert_int_equal(sim_stats(device).streams, 0);
    assert_int_equal(sim_stats(device).pending, 2);
    CHECK_OK(loch_sim_advance(device, 100));
    assert_string_equal(written, "a");
    loch_device_release(device); /* closing runs the rest */
    assert_string_equal(written, "ab");
}

static void a_wrapped_stream_is_the_stream_itself(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT), *wrapped, *of_thread;
    CHECK_OK(loch_stream_wrap(device, loch_stream_get_native(stream), &wrapped));
    assert_int_equal(sim_number(wrapped), sim_number(stream));
    CHECK_OK(sim_busy(wrapped, 100));
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    loch_stream_close(wrapped);
    int other;
    CHECK_FAILS(loch_stream_wrap(device, &other, &wrapped), INVALID);
    CHECK_OK(loch_stream_wrap(device, NULL, &wrapped));
    assert_ptr_equal(wrapped, loch_stream_get_default(device));
    CHECK_OK(loch_stream_wrap(device, (void *)1, &wrapped)); /* CUDA's name for it */
    assert_ptr_equal(wrapped, loch_stream_get_default(device));
    CHECK_OK(loch_stream_wrap(device, (void *)2, &wrapped)); /* CUDA's name for the thread's */
    CHECK_OK(loch_stream_require_thread_default(device, &of_thread));
    assert_ptr_equal(wrapped, of_thread);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void a_stream_waits_for_the_time_of_another_device(void **state)
{
    (void)state;
    loch_device *near = sim_open(STEPPED ",id=1"), *far = sim_open(STEPPED ",id=2");
    loch_stream *here = sim_stream(near, LOCH_STREAM_INDEPENDENT), *there = sim_stream(far, LOCH_STREAM_INDEPENDENT);
    loch_event *event = sim_event(far);
    written[0] = '\0';
    CHECK_OK(append_later(there, 400, "a"));
    CHECK_OK(loch_event_record(event, there));
    CHECK_OK(loch_stream_wait(here, event));
    CHECK_OK(append_later(here, 100, "b"));
    CHECK_OK(loch_sim_advance(near, 399));
    assert_int_equal(sim_now(far), 0);
    CHECK_OK(loch_stream_sync(here));
    assert_string_equal(written, "ab"); /* the far clock came along */
    assert_int_equal(sim_now(near), 500);
    assert_int_equal(sim_now(far), 400);
    CHECK_OK(append_later(there, 100, "c"));
    CHECK_OK(loch_event_record(event, there));
    CHECK_OK(loch_stream_wait(here, event));
    CHECK_OK(append_later(here, 100, "d"));
    loch_event_destroy(event);
    loch_stream_close(there);
    loch_device_release(far); /* closing runs c, so that d has nothing left to wait for */
    assert_string_equal(written, "abc");
    CHECK_OK(loch_stream_sync(here));
    assert_string_equal(written, "abcd");
    loch_stream_close(here);
    loch_device_release(near);
}

/* Two devices that wait for each other in turn, with operations that take no time at all. */
static void devices_that_wait_for_each_other_go_on(void **state)
{
    (void)state;
    loch_device *devices[2] = {sim_open("sim:1GiB,backed,clock=stepped,lag=0,id=1"),
                               sim_open("sim:1GiB,backed,clock=stepped,lag=0,id=2")};
    loch_stream *streams[2] = {sim_stream(devices[0], LOCH_STREAM_INDEPENDENT),
                               sim_stream(devices[1], LOCH_STREAM_INDEPENDENT)};
    loch_event *events[2] = {sim_event(devices[0]), sim_event(devices[1])};
    static const char *const letters[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    written[0] = '\0';
    CHECK_OK(sim_busy(streams[0], 100));
    for (size_t i = 0; i < 8; i++) {
        CHECK_OK(append_later(streams[i % 2], 0, letters[i]));
        CHECK_OK(loch_event_record(events[i % 2], streams[i % 2]));
        CHECK_OK(loch_stream_wait(streams[1 - i % 2], events[i % 2]));
    }
    CHECK_OK(loch_stream_sync(streams[0]));
    CHECK_OK(loch_stream_sync(streams[1]));
    assert_string_equal(written, "abcdefgh");
    for (size_t i = 0; i < 2; i++) {
        loch_event_destroy(events[i]);
        loch_stream_close(streams[i]);
        loch_device_release(devices[i]);
    }
}

static void without_async_work_is_done_at_once(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB,backed,clock=stepped,lag=1000,async=off");
    written[0] = '\0';
    CHECK_OK(append_later(loch_stream_get_default(device), 300, "a"));
    assert_string_equal(written, "a");
    assert_int_equal(sim_now(device), 300);
    unsigned char *bytes = sim_raw(device, 64);
    CHECK_OK(loch_fill_on(bytes, 64, "x", 1, loch_stream_get_default(device)));
    assert_int_equal(bytes[63], 'x');
    CHECK_OK(loch_stream_query(loch_stream_get_default(device)));
    CHECK_OK(loch_raw_free(bytes));
    loch_device_release(device);
}

/* --- events behind a queue of work that is never empty --- */

#define BUSY_DEVICE STEPPED ",event_lag=5000"

static void events_pass_a_lag_later(void **state)
{
    (void)state;
    loch_device *device = sim_open(BUSY_DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_event *first = sim_event(device), *second = sim_event(device), *third = sim_event(device);
    uint64_t ns;
    CHECK_OK(loch_stream_query(stream)); /* nothing was recorded yet */
    CHECK_OK(loch_event_record(first, stream));
    CHECK_OK(loch_event_record(second, stream)); /* at the same moment: lags do not pile up */
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(device, 1000));
    CHECK_OK(loch_event_record(third, stream));
    CHECK_OK(loch_sim_advance(device, 3999));
    CHECK_STATUS(loch_event_query(first), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(device, 1));
    CHECK_OK(loch_event_query(first));
    CHECK_OK(loch_event_query(second));
    CHECK_STATUS(loch_event_query(third), LOCH_E_BUSY);
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(stream));
    assert_int_equal(sim_now(device), 6000);
    CHECK_OK(loch_event_query(third));
    CHECK_OK(loch_event_elapsed(first, third, &ns));
    assert_int_equal(ns, 1000);
    assert_int_equal(sim_stats(device).pending, 0);
    loch_event_destroy(first);
    loch_event_destroy(second);
    loch_event_destroy(third);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void a_stream_is_free_behind_its_lag_and_its_work(void **state)
{
    (void)state;
    loch_device *device = sim_open(BUSY_DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_event *event = sim_event(device);
    CHECK_OK(sim_busy(stream, 9000));
    CHECK_OK(loch_event_record(event, stream)); /* the work ends later than the lag */
    CHECK_OK(loch_event_sync(event));
    assert_int_equal(sim_now(device), 9000);
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(sim_busy(stream, 100)); /* starts when the stream is free */
    CHECK_OK(loch_device_sync(device));
    assert_int_equal(sim_now(device), 14100);
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(loch_device_sync(device)); /* nothing but the lag is queued */
    assert_int_equal(sim_now(device), 19100);
    loch_event_destroy(event);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void lags_add_up_along_waits(void **state)
{
    (void)state;
    loch_device *device = sim_open(BUSY_DEVICE);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_event *first = sim_event(device), *second = sim_event(device), *own = sim_event(device);
    CHECK_OK(loch_event_record(first, a)); /* passes at 5000 */
    CHECK_OK(loch_stream_wait(b, first));
    CHECK_STATUS(loch_stream_query(b), LOCH_E_BUSY);
    CHECK_OK(loch_event_record(second, b)); /* at 10000 */
    CHECK_OK(loch_sim_advance(device, 1000));
    CHECK_OK(loch_event_record(second, b)); /* still at 10000: what it waits for is the later one */
    CHECK_OK(loch_stream_wait(a, first));   /* its own: nothing new */
    CHECK_OK(loch_event_record(own, a));    /* at 6000 */
    CHECK_OK(loch_event_sync(own));
    assert_int_equal(sim_now(device), 6000);
    CHECK_STATUS(loch_event_query(second), LOCH_E_BUSY);
    CHECK_OK(loch_event_sync(second));
    assert_int_equal(sim_now(device), 10000);
    CHECK_OK(loch_stream_wait(b, first)); /* has passed: holds nothing up */
    CHECK_OK(loch_event_record(second, b));
    CHECK_OK(loch_stream_sync(b));
    assert_int_equal(sim_now(device), 15000);
    loch_event_destroy(first);
    loch_event_destroy(second);
    loch_event_destroy(own);
    loch_stream_close(a);
    loch_stream_close(b);
    loch_device_release(device);
}

static void lags_are_seen_by_other_devices(void **state)
{
    (void)state;
    loch_device *near = sim_open(BUSY_DEVICE ",id=1"), *far = sim_open(BUSY_DEVICE ",id=2");
    loch_stream *here = sim_stream(near, LOCH_STREAM_INDEPENDENT), *there = sim_stream(far, LOCH_STREAM_INDEPENDENT);
    loch_event *theirs = sim_event(far), *ours = sim_event(near);
    CHECK_OK(loch_event_record(theirs, there));
    CHECK_OK(loch_stream_wait(here, theirs));
    CHECK_OK(loch_event_record(ours, here));
    CHECK_OK(loch_event_sync(ours));
    assert_int_equal(sim_now(far), 5000);
    assert_int_equal(sim_now(near), 10000);
    loch_event_destroy(theirs);
    loch_event_destroy(ours);
    loch_stream_close(here);
    loch_stream_close(there);
    loch_device_release(near);
    loch_device_release(far);
}

static void no_lag_where_work_is_done_at_once(void **state)
{
    (void)state;
    loch_device *device = sim_open(BUSY_DEVICE ",async=off");
    loch_event *event = sim_event(device);
    CHECK_OK(loch_event_record(event, loch_stream_get_default(device)));
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_stream_query(loch_stream_get_default(device)));
    assert_int_equal(sim_now(device), 0);
    loch_event_destroy(event);
    loch_device_release(device);
}

static void time_stops_at_its_largest_number(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    CHECK_OK(loch_sim_advance(device, UINT64_MAX - 5));
    CHECK_OK(sim_busy(loch_stream_get_default(device), 100));
    CHECK_STATUS(loch_stream_query(loch_stream_get_default(device)), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(loch_stream_get_default(device)));
    CHECK_OK(sim_busy(loch_stream_get_default(device), 100));
    CHECK_OK(loch_stream_query(loch_stream_get_default(device)));
    assert_true(sim_now(device) == UINT64_MAX);
    loch_device_release(device);
}

/* What a seeded program sees: the results of queries, as bits, and the time at the end. */
static uint64_t seeded_run(const char *name, uint64_t *time_ns)
{
    loch_device *device = sim_open(name);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    uint64_t seen = 0;
    for (int i = 0; i < 64; i++) {
        if (i % 4 == 0) CHECK_OK(sim_busy(stream, 0));
        seen = seen << 1 | (loch_stream_query(stream) == LOCH_OK);
    }
    *time_ns = sim_now(device);
    loch_stream_close(stream);
    loch_device_release(device);
    return seen;
}

static void the_same_seed_gives_the_same_run(void **state)
{
    (void)state;
    uint64_t time_a, time_b, time_c;
    const uint64_t a = seeded_run("sim:1GiB,seed=7", &time_a), b = seeded_run("sim:1GiB,seed=7", &time_b);
    const uint64_t c = seeded_run("sim:1GiB,seed=8", &time_c);
    assert_true(a == b && time_a == time_b);
    assert_true(a != c && time_a != time_c);
    assert_true(a != 0 && a != UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(work_ends_when_the_clock_passes),
        SIM_TEST(steps_go_operation_by_operation),
        SIM_TEST(effects_come_in_the_order_of_their_ends),
        SIM_TEST(events_are_marks_in_time),
        SIM_TEST(a_stream_waits_for_an_event),
        SIM_TEST(the_default_stream_waits_both_ways),
        SIM_TEST(every_thread_has_its_default_stream),
        SIM_TEST(destroyed_streams_run_to_their_end),
        SIM_TEST(a_wrapped_stream_is_the_stream_itself),
        SIM_TEST(a_stream_waits_for_the_time_of_another_device),
        SIM_TEST(devices_that_wait_for_each_other_go_on),
        SIM_TEST(without_async_work_is_done_at_once),
        SIM_TEST(events_pass_a_lag_later),
        SIM_TEST(a_stream_is_free_behind_its_lag_and_its_work),
        SIM_TEST(lags_add_up_along_waits),
        SIM_TEST(lags_are_seen_by_other_devices),
        SIM_TEST(no_lag_where_work_is_done_at_once),
        SIM_TEST(time_stops_at_its_largest_number),
        SIM_TEST(the_same_seed_gives_the_same_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
