/* SPDX-License-Identifier: MIT */
/* The end of streams that the library remembers: listeners are called in time, and the end waits for calls inside. */
#include "device/device.h"
#include "sim_fixture.h"

#include <pthread.h>
#include <sched.h>

#define DEVICE "sim:1GiB,granule=64KiB,backed,clock=stepped,lag=1000"

/* A listener that tries what a listener may do. */
typedef struct ear {
    lochi_stream_listener listener; /* first: a listener is its ear */
    lochi_lock lock;
    loch_event *event;
    size_t heard;
    uint64_t last_id;
    loch_status recorded;
} ear;

static void hear(lochi_stream_listener *listener, loch_stream *stream)
{
    ear *e = (ear *)listener;
    lochi_lock_take(&e->lock);
    e->heard++;
    e->last_id = loch_stream_get_id(stream);
    e->recorded = loch_event_record(e->event, stream);
    lochi_lock_drop(&e->lock);
}

static void ear_open(ear *e, loch_device *device)
{
    *e = (ear){.listener = {.device = device, .closing = hear}, .event = sim_event(device)};
    lochi_lock_init(&e->lock, LOCHI_RANK_MEMORY);
    lochi_stream_listen(&e->listener);
}

static void ear_close(ear *e)
{
    lochi_stream_unlisten(&e->listener);
    loch_event_destroy(e->event);
    lochi_lock_fini(&e->lock);
}

static void check_heard(const ear *e, size_t times, uint64_t id)
{
    assert_int_equal(e->heard, times);
    assert_int_equal(e->last_id, id);
    CHECK_OK(e->recorded);
}

static void listeners_hear_of_streams_that_go(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    ear first, second;
    ear_open(&first, device);
    ear_open(&second, device);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_stream *wrapped;
    CHECK_OK(loch_stream_wrap(device, loch_stream_get_native(a), &wrapped));
    uint64_t id = loch_stream_get_id(wrapped);
    loch_stream_close(wrapped);
    check_heard(&first, 1, id);
    check_heard(&second, 1, id);
    id = loch_stream_get_id(a);
    CHECK_OK(sim_busy(a, 500));
    loch_stream_close(a);
    check_heard(&first, 2, id);
    CHECK_STATUS(loch_event_query(first.event), LOCH_E_BUSY); /* behind the work that was queued */
    CHECK_OK(loch_event_sync(first.event));
    assert_int_equal(sim_now(device), 500);
    ear_close(&first); /* the older of the two */
    id = loch_stream_get_id(b);
    loch_stream_close(b);
    check_heard(&second, 3, id);
    loch_stream_close(loch_stream_get_default(device)); /* does nothing */
    assert_int_equal(second.heard, 3);
    ear_close(&second);
    loch_stream_close(sim_stream(device, LOCH_STREAM_INDEPENDENT)); /* no listener is left */
    loch_device_release(device);
}

static void listeners_hear_of_their_device_alone(void **state)
{
    (void)state;
    loch_device *near = sim_open(DEVICE ",id=1"), *far = sim_open(DEVICE ",id=2");
    ear e;
    ear_open(&e, near);
    loch_stream_close(sim_stream(far, LOCH_STREAM_INDEPENDENT));
    assert_int_equal(e.heard, 0);
    loch_stream_close(sim_stream(near, LOCH_STREAM_INDEPENDENT));
    assert_int_equal(e.heard, 1);
    ear_close(&e);
    loch_device_release(near);
    loch_device_release(far);
}

typedef struct visit {
    loch_device *devices[2];
    uint64_t ids[2];
    loch_status status;
} visit;

static void *visit_devices(void *argument)
{
    visit *v = argument;
    for (size_t i = 0; i < 2; i++) {
        loch_stream *stream;
        const loch_status status = loch_stream_require_thread_default(v->devices[i], &stream);
        if (status != LOCH_OK) v->status = status;
        v->ids[i] = loch_stream_get_id(stream);
    }
    return NULL;
}

static void listeners_hear_of_threads_that_end(void **state)
{
    (void)state;
    visit v = {.devices = {sim_open(DEVICE ",id=1"), sim_open(DEVICE ",id=2")}};
    ear ears[2];
    for (size_t i = 0; i < 2; i++)
        ear_open(&ears[i], v.devices[i]);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, visit_devices, &v), 0);
    pthread_join(thread, NULL);
    CHECK_OK(v.status);
    for (size_t i = 0; i < 2; i++) {
        check_heard(&ears[i], 1, v.ids[i]);
        ear_close(&ears[i]);
        loch_device_release(v.devices[i]);
    }
}

/* --- calls inside are waited for --- */

typedef struct guest {
    loch_stream *stream;
    atomic_bool is_inside, has_left;
    bool was_open;
    loch_status status;
} guest;

/* Stays inside until the stream is going, and a little longer. */
static void *stay(void *argument)
{
    guest *g = argument;
    uint32_t mark;
    g->was_open = lochi_stream_enter(g->stream, &mark);
    atomic_store(&g->is_inside, true);
    while (!atomic_load(&g->stream->is_closing))
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield();
    g->status = loch_stream_query(g->stream); /* its queue is still there */
    atomic_store(&g->has_left, true);
    lochi_stream_leave(mark);
    return NULL;
}

static void the_end_waits_for_those_inside(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    guest g = {.stream = sim_stream(device, LOCH_STREAM_INDEPENDENT)};
    lochi_stream_retain(g.stream);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stay, &g), 0);
    while (!atomic_load(&g.is_inside))
        sched_yield();
    loch_stream_close(g.stream);
    assert_true(atomic_load(&g.has_left));
    pthread_join(thread, NULL);
    assert_true(g.was_open);
    CHECK_OK(g.status);
    uint32_t mark;
    assert_false(lochi_stream_enter(g.stream, &mark)); /* the object is still there */
    CHECK_FAILS(loch_stream_query(g.stream), INVALID);
    lochi_stream_release(g.stream);
    loch_device_release(device);
}

/* --- several owners --- */

static uint64_t live_streams(loch_device *device)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(device, &stats));
    return stats.streams;
}

static void the_last_owner_ends_a_stream(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    ear e;
    ear_open(&e, device);
    const uint64_t before = live_streams(device);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const uint64_t id = loch_stream_get_id(stream);
    assert_ptr_equal(loch_stream_retain(stream), stream);
    loch_stream_release(stream);
    CHECK_OK(loch_stream_query(stream));
    assert_int_equal(live_streams(device), before + 1);
    assert_int_equal(e.heard, 0);
    loch_stream_release(stream);
    check_heard(&e, 1, id);
    assert_int_equal(live_streams(device), before);
    ear_close(&e);
    loch_device_release(device);
}

/* Closing a stream ends it for all references: the others keep only the object and the device. */
static void a_destroy_ends_a_stream_for_all(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    ear e;
    ear_open(&e, device);
    const uint64_t before = live_streams(device);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT), *wrapped;
    loch_stream *owned = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(loch_stream_wrap(device, loch_stream_get_native(owned), &wrapped));
    loch_stream_retain(stream);
    loch_stream_retain(stream);
    loch_stream_retain(wrapped);
    loch_stream_close(stream);
    loch_stream_close(wrapped);
    loch_stream_close(owned);
    assert_int_equal(e.heard, 3);
    assert_int_equal(live_streams(device), before);
    CHECK_FAILS(loch_stream_sync(stream), INVALID);
    CHECK_FAILS(loch_stream_sync(wrapped), INVALID);
    CHECK_FAILS(loch_fill_on((char[1]){0}, 1, "", 1, stream), INVALID);
    assert_null(loch_stream_get_native(wrapped));
    loch_stream_close(stream); /* the second owner's: it has ended already */
    assert_int_equal(e.heard, 3);
    ear_close(&e);
    loch_device_release(device);
    assert_ptr_equal(loch_stream_get_device(stream), device);
    assert_string_equal(loch_device_get_name(loch_stream_get_device(stream)), loch_device_get_name(device));
    loch_stream_release(wrapped);
    loch_stream_release(stream);
}

static void default_streams_are_not_counted(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_stream *own = loch_stream_get_default(device), *of_thread;
    CHECK_OK(loch_stream_require_thread_default(device, &of_thread));
    loch_stream *const streams[] = {own, of_thread};
    for (size_t i = 0; i < 2; i++) {
        assert_ptr_equal(loch_stream_retain(streams[i]), streams[i]);
        for (size_t times = 0; times < 3; times++)
            loch_stream_release(streams[i]);
        loch_stream_close(streams[i]);
        CHECK_OK(loch_stream_query(streams[i]));
    }
    assert_null(loch_stream_retain(NULL));
    loch_stream_release(NULL);
    loch_device_release(device);
}

#define OWNERS 4

static void *owner_runs(void *user)
{
    loch_stream *stream = user;
    for (int i = 0; i < 2000; i++) {
        loch_stream *held = loch_stream_retain(stream);
        CHECK_OK(loch_stream_query(held));
        loch_stream_release(held);
    }
    loch_stream_release(stream);
    return NULL;
}

static void the_last_of_many_owners_in_threads_ends_a_stream(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    const uint64_t before = live_streams(device);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    pthread_t threads[OWNERS];
    for (size_t i = 0; i < OWNERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, owner_runs, loch_stream_retain(stream)), 0);
    loch_stream_release(stream);
    for (size_t i = 0; i < OWNERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(live_streams(device), before);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(listeners_hear_of_streams_that_go),  SIM_TEST(listeners_hear_of_their_device_alone),
        SIM_TEST(listeners_hear_of_threads_that_end), SIM_TEST(the_end_waits_for_those_inside),
        SIM_TEST(the_last_owner_ends_a_stream),       SIM_TEST(a_destroy_ends_a_stream_for_all),
        SIM_TEST(default_streams_are_not_counted),    SIM_TEST(the_last_of_many_owners_in_threads_ends_a_stream),
    };
    return cmocka_run_group_tests_name("stream_close", tests, NULL, NULL);
}
