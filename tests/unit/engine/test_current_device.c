/* SPDX-License-Identifier: MIT */
/* Guards, workers and locks make the device of their seat current in the thread, and what was current before comes
 * back, however they end. The simulator keeps a current device for each thread, as CUDA does. */
#include "context_fixture.h"
#include "device/sim/control.h"
#include "device/sim/sim.h"
#include "engine/engine_state.h"
#include <stdatomic.h>

#define CALLERS 4711 /* what the caller has made current: no device of Loch */

static uint64_t serial_of(const bench *b, unsigned seat)
{
    lochi_sim *sim;
    CHECK_OK(lochi_sim_of_device(b->devices[seat], &sim));
    return sim->serial;
}

static void expect_current(uint64_t serial)
{
    assert_int_equal(lochi_sim_get_current(), serial);
}

static int caller_has_none(void **state)
{
    lochi_sim_set_current(0);
    return sim_setup(state);
}

/* --- guards of contexts --- */

static void a_guard_makes_its_device_current(void **state)
{
    (void)state;
    const uint64_t befores[] = {0, CALLERS};
    for (size_t i = 0; i < 2; i++) {
        bench b;
        bench_open(&b);
        lochi_sim_set_current(befores[i]);
        loch_guard one, two, three;
        CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN, &one));
        expect_current(serial_of(&b, 1));
        CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(BENCH_TWIN), LOCH_SEAT_LOCKED, &two));
        expect_current(serial_of(&b, 0));
        CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(0), LOCH_SEAT_PLAIN, &three)); /* is current already */
        expect_current(serial_of(&b, 0));
        loch_guard_end(&three);
        expect_current(serial_of(&b, 0));
        loch_guard_end(&two);
        expect_current(serial_of(&b, 1));
        loch_guard_end(&one);
        expect_current(befores[i]);
        bench_close(&b);
        expect_current(befores[i]);
    }
}

/* A caller's cudaSetDevice inside a guard ends with the guard. */
static void what_was_before_comes_back_whatever_the_caller_set(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    lochi_sim_set_current(CALLERS);
    loch_guard one, two;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(0), LOCH_SEAT_PLAIN, &one));
    lochi_sim_set_current(99);
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN, &two));
    lochi_sim_set_current(98);
    loch_guard_end(&two);
    expect_current(99);
    loch_guard_end(&one);
    expect_current(CALLERS);
    bench_close(&b);
}

static void the_host_and_other_guards_leave_the_device(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    lochi_sim_set_current(CALLERS);
    loch_guard one, two, three;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(BENCH_HOST), LOCH_SEAT_LOCKED, &one));
    CHECK_OK(loch_context_begin_debug(b.context, 1, &two));
    CHECK_OK(loch_context_begin_still(b.context, &three));
    expect_current(CALLERS);
    loch_guard_end(&one);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1))); /* no guard: the caller's stays */
    loch_tensor *tensor;
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_F32, LOCH_SHAPE(1000), "tensor", 0, &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(1.0), test_context_stream(b.context)));
    loch_tensor_release(tensor);
    expect_current(CALLERS);
    bench_close(&b);
    expect_current(CALLERS);
}

static void a_guard_of_a_stream_makes_its_device_current(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream *stream = sim_stream(b.devices[1], LOCH_STREAM_INDEPENDENT);
    loch_guard one, two;
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    CHECK_OK(loch_context_begin_stream(b.context, stream, &one));
    expect_current(serial_of(&b, 1));
    CHECK_OK(loch_context_begin_stream(b.context, NULL, &two));
    expect_current(serial_of(&b, 1));
    loch_guard_end(&one);
    expect_current(0);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(0)));
    CHECK_FAILS(loch_context_begin_stream(b.context, stream, &one), INVALID); /* of another device */
    expect_current(0);
    loch_stream_close(stream);
    bench_close(&b);
}

static void the_end_of_a_context_ends_its_guards(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    lochi_sim_set_current(CALLERS);
    loch_guard one, two;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(0), LOCH_SEAT_PLAIN, &one));
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &two));
    CHECK_OK(loch_context_close(b.context));
    expect_current(CALLERS);
    b.context = NULL;
    lochi_sim_set_current(1);
    loch_guard_end(&two); /* too late: does nothing */
    loch_guard_end(&one);
    expect_current(1);
    bench_close(&b);
}

/* Guards of two contexts of one thread may cross. The device of the one begun last stays current, and the caller's
 * comes back last. */
static void guards_of_two_contexts_may_cross(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_context *other;
    CHECK_OK(loch_context_open(b.engine, NULL, &other));
    lochi_sim_set_current(CALLERS);
    loch_guard one, two;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(0), LOCH_SEAT_PLAIN, &one));
    CHECK_OK(loch_context_begin_seat(other, LOCH_SEAT(1), LOCH_SEAT_PLAIN, &two));
    loch_guard_end(&one);
    expect_current(serial_of(&b, 1));
    loch_guard_end(&two);
    expect_current(CALLERS);
    CHECK_OK(loch_context_close(other));
    bench_close(&b);
}

static void a_guard_that_cannot_begin_leaves_the_device(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    lochi_sim_set_current(CALLERS);
    const loch_sim_fault fault = {.size = sizeof fault, .call = "enter", .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(b.devices[1], &fault));
    loch_guard guard = {.number = 1};
    CHECK_FAILS(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &guard), DRIVER);
    assert_true(!guard.context && !guard.number);
    CHECK_FAILS(loch_context_begin_seat(b.context, LOCH_SEAT(9), LOCH_SEAT_LOCKED, &guard), NOT_FOUND);
    CHECK_FAILS(loch_engine_lock(b.engine, LOCH_SEAT(1)), DRIVER);
    expect_current(CALLERS);
    assert_int_equal(loch_context_get_seat(b.context).number, 0);
    assert_int_equal(atomic_load(&b.engine->seats[1].lock.owner), 0);
    loch_stream *before = test_context_stream(b.context);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    loch_stream *stream = sim_stream(b.devices[1], LOCH_STREAM_INDEPENDENT);
    loch_stream *own = test_context_stream(b.context);
    CHECK_FAILS(loch_context_begin_stream(b.context, stream, &guard), DRIVER);
    assert_ptr_equal(test_context_stream(b.context), own);
    assert_ptr_not_equal(before, own);
    CHECK_OK(loch_sim_set_fault(b.devices[1], NULL));
    loch_stream_close(stream);
    bench_close(&b);
}

/* --- locks of engines --- */

static void a_lock_makes_its_device_current(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    lochi_sim_set_current(CALLERS);
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(0)));
    expect_current(serial_of(&b, 0));
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(1)));
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(BENCH_HOST)));
    expect_current(serial_of(&b, 1));
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(0))); /* again */
    expect_current(serial_of(&b, 0));
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(0)));
    expect_current(serial_of(&b, 1));
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(0))); /* the first one, below the lock of seat 1 */
    expect_current(serial_of(&b, 1));
    CHECK_FAILS(loch_engine_unlock(b.engine, LOCH_SEAT(0)), WRONG_THREAD);
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(1)));
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(BENCH_HOST)));
    expect_current(CALLERS);
    bench_close(&b);
}

static void locks_and_guards_nest(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard guard;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(0), LOCH_SEAT_LOCKED, &guard));
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(0)));
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(1)));
    loch_guard_end(&guard);
    expect_current(serial_of(&b, 1));
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(1)));
    expect_current(serial_of(&b, 0));
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(0)));
    expect_current(0);
    bench_close(&b);
}

/* --- workers --- */

typedef struct task_view {
    bench *b;
    unsigned seat;
    uint64_t expected;
    atomic_uint wrong;
} task_view;

static loch_status look_and_change(void *user)
{
    task_view *view = user;
    atomic_fetch_add(&view->wrong, lochi_sim_get_current() != view->expected);
    lochi_sim_set_current(77); /* the next task has its own again */
    return LOCH_OK;
}

/* Waits for a task of its own workers, which it runs itself. */
static loch_status wait_for_another(void *user)
{
    task_view *view = user;
    loch_task *task;
    atomic_fetch_add(&view->wrong, lochi_sim_get_current() != view->expected);
    lochi_sim_set_current(78);
    loch_status status =
        loch_workers_run(loch_engine_get_workers(view->b->engine, LOCH_SEAT(view->seat)), look_and_change, view, &task);
    if (status == LOCH_OK) status = loch_task_wait(task);
    atomic_fetch_add(&view->wrong, lochi_sim_get_current() != 78);
    return status;
}

static void workers_have_the_device_of_their_seat(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    for (unsigned seat = 0; seat < b.count; seat++) {
        const bool is_host = seat == BENCH_HOST;
        task_view view = {.b = &b, .seat = seat, .expected = is_host ? 0 : serial_of(&b, seat)};
        loch_workers *workers = loch_engine_get_workers(b.engine, LOCH_SEAT(seat));
        for (int i = 0; i < 3 && !is_host; i++)
            CHECK_OK(loch_workers_run(workers, look_and_change, &view, NULL));
        if (!is_host) CHECK_OK(loch_workers_run(workers, wait_for_another, &view, NULL));
        CHECK_OK(loch_workers_wait(workers, NULL));
        assert_int_equal(atomic_load(&view.wrong), 0);
    }
    bench_close(&b);
}

static loch_status count_a_run(void *user)
{
    atomic_fetch_add((atomic_uint *)user, 1);
    return LOCH_OK;
}

static void a_task_without_its_device_fails_and_does_not_run(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    const loch_sim_fault fault = {.size = sizeof fault, .call = "enter", .mode = LOCH_SIM_FAULT_ONCE};
    atomic_uint runs = 0;
    loch_task *task;
    CHECK_OK(loch_sim_set_fault(b.devices[1], &fault));
    loch_workers *workers = loch_engine_get_workers(b.engine, LOCH_SEAT(1));
    CHECK_OK(loch_workers_run(workers, count_a_run, &runs, &task));
    CHECK_FAILS(loch_task_wait(task), DRIVER);
    assert_int_equal(atomic_load(&runs), 0);
    CHECK_OK(loch_workers_run(workers, count_a_run, &runs, &task));
    CHECK_OK(loch_task_wait(task));
    assert_int_equal(atomic_load(&runs), 1);
    bench_close(&b);
}

/* Memory on a lost device is given back by tasks and in guards as ever. */
static void a_lost_device_can_be_current(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    atomic_uint runs = 0;
    loch_guard guard;
    CHECK_OK(loch_sim_lose(b.devices[1]));
    CHECK_OK(loch_workers_run(loch_engine_get_workers(b.engine, LOCH_SEAT(1)), count_a_run, &runs, NULL));
    CHECK_OK(loch_workers_wait(loch_engine_get_workers(b.engine, LOCH_SEAT(1)), NULL));
    assert_int_equal(atomic_load(&runs), 1);
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN, &guard));
    loch_guard_end(&guard);
    bench_close(&b);
}

/* --- for each seat --- */

static bool is_current_of(const bench *b, unsigned seat)
{
    return lochi_sim_get_current() == (seat == BENCH_HOST ? 0 : serial_of(b, seat));
}

static loch_status look_inside(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine;
    task_view *view = user;
    atomic_fetch_add(&view->wrong, seat.number != BENCH_HOST && !is_current_of(view->b, seat.number));
    lochi_sim_set_current(55);
    return LOCH_OK;
}

/* A function that calls again runs the inner one of its own seat on its own thread. */
static loch_status look_twice(loch_engine *engine, loch_seat seat, void *user)
{
    task_view *view = user;
    atomic_fetch_add(&view->wrong, !is_current_of(view->b, seat.number));
    lochi_sim_set_current(66);
    const loch_status status = loch_engine_for_each(engine, look_inside, user, NULL);
    if (seat.number != BENCH_HOST) atomic_fetch_add(&view->wrong, lochi_sim_get_current() != 66);
    lochi_sim_set_current(0); /* of the host's thread, which is not restored */
    return status;
}

static void functions_for_each_seat_have_its_device(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    task_view view = {.b = &b};
    lochi_sim_set_current(CALLERS);
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_engine_for_each(b.engine, look_twice, &view, NULL));
    assert_int_equal(atomic_load(&view.wrong), 0);
    expect_current(CALLERS);
    bench_close(&b);
}

static loch_status count_seats(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine, (void)seat;
    return count_a_run(user);
}

static void a_seat_without_its_device_fails_alone(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    const loch_sim_fault fault = {.size = sizeof fault, .call = "enter", .mode = LOCH_SIM_FAULT_ONCE};
    atomic_uint runs = 0;
    size_t failed;
    CHECK_OK(loch_sim_set_fault(b.devices[1], &fault));
    CHECK_FAILS(loch_engine_for_each(b.engine, count_seats, &runs, &failed), DRIVER);
    assert_non_null(strstr(loch_error_get()->sentence, "enter"));
    assert_int_equal(failed, 1);
    assert_int_equal(atomic_load(&runs), b.count - 1);
    CHECK_OK(loch_engine_for_each(b.engine, count_seats, &runs, &failed));
    bench_close(&b);
}

int main(void)
{
#define CURRENT_TEST(test) cmocka_unit_test_setup_teardown(test, caller_has_none, tensor_teardown)
    const struct CMUnitTest tests[] = {
        CURRENT_TEST(a_guard_makes_its_device_current),
        CURRENT_TEST(what_was_before_comes_back_whatever_the_caller_set),
        CURRENT_TEST(the_host_and_other_guards_leave_the_device),
        CURRENT_TEST(a_guard_of_a_stream_makes_its_device_current),
        CURRENT_TEST(the_end_of_a_context_ends_its_guards),
        CURRENT_TEST(guards_of_two_contexts_may_cross),
        CURRENT_TEST(a_guard_that_cannot_begin_leaves_the_device),
        CURRENT_TEST(a_lock_makes_its_device_current),
        CURRENT_TEST(locks_and_guards_nest),
        CURRENT_TEST(workers_have_the_device_of_their_seat),
        CURRENT_TEST(a_task_without_its_device_fails_and_does_not_run),
        CURRENT_TEST(a_lost_device_can_be_current),
        CURRENT_TEST(functions_for_each_seat_have_its_device),
        CURRENT_TEST(a_seat_without_its_device_fails_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
