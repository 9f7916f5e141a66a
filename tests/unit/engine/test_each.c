/* SPDX-License-Identifier: MIT */
/* Functions for each seat of an engine, and locks on seats. */
#include "engine_fixture.h"

/* --- for each seat --- */

typedef struct each {
    loch_engine *engine;
    pthread_barrier_t all; /* of seats */
    atomic_uint calls, nested;
    unsigned failing; /* set of seats */
    unsigned depth;
    bool is_met[8];
} each;

static loch_status each_meets(loch_engine *engine, loch_seat seat, void *user)
{
    each *e = user;
    if (loch_workers_get_current(loch_engine_get_workers(engine, seat)) == SIZE_MAX)
        return loch_error_set(LOCH_E_WRONG_THREAD, NULL, 0, "not by a worker of seat %u", seat.number);
    pthread_barrier_wait(&e->all); /* all run at the same time, or this waits for ever */
    e->is_met[seat.number] = true;
    atomic_fetch_add(&e->calls, 1);
    if (e->failing >> seat.number & 1) return loch_error_set(LOCH_E_IO, NULL, 0, "seat %u has had enough", seat.number);
    return LOCH_OK;
}

static void runs_for_all_seats_at_the_same_time(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    each e = {.engine = engine};
    size_t failed = 9;
    pthread_barrier_init(&e.all, NULL, 3);
    for (int i = 0; i < 20; i++)
        CHECK_OK(loch_engine_for_each(engine, each_meets, &e, &failed));
    assert_int_equal(failed, 0);
    assert_int_equal(atomic_load(&e.calls), 60);
    assert_true(e.is_met[0] && e.is_met[1] && e.is_met[2]);
    e.failing = 6;
    CHECK_FAILS(loch_engine_for_each(engine, each_meets, &e, &failed), IO);
    assert_int_equal(failed, 2);
    assert_string_equal(loch_error_get()->sentence, "seat 1 has had enough"); /* the first by seat, not by time */
    CHECK_FAILS(loch_engine_for_each(engine, each_meets, &e, NULL), IO);
    CHECK_FAILS(loch_engine_for_each(engine, NULL, &e, NULL), INVALID);
    CHECK_FAILS(loch_engine_for_each(NULL, each_meets, &e, NULL), INVALID);
    e.failing = 0;
    CHECK_OK(loch_engine_for_each(engine, each_meets, &e, NULL));
    pthread_barrier_destroy(&e.all);
    end_engine(engine);
}

static loch_status each_without_a_word(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine, (void)user;
    return seat.number == 2 ? LOCH_E_CORRUPT : LOCH_OK;
}

static void a_failure_without_a_sentence_gets_one(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    size_t failed;
    CHECK_FAILS(loch_engine_for_each(engine, each_without_a_word, NULL, &failed), CORRUPT);
    expect_sentence("seat 2");
    assert_int_equal(failed, 1);
    end_engine(engine);
}

/* Each seat calls for all seats, which do the same: every worker waits for every other, and one thread a seat does. */
static loch_status each_goes_deeper(loch_engine *engine, loch_seat seat, void *user)
{
    each *e = user;
    atomic_fetch_add(&e->calls, 1);
    if (e->depth == 0) return LOCH_OK;
    each below = {.engine = engine, .depth = e->depth - 1, .failing = e->failing};
    const loch_status status = loch_engine_for_each(engine, each_goes_deeper, &below, NULL);
    atomic_fetch_add(&e->nested, atomic_load(&below.calls) + atomic_load(&below.nested));
    if (status == LOCH_OK && e->depth == 1 && e->failing >> seat.number & 1)
        return loch_error_set(LOCH_E_IO, NULL, 0, "deep down at seat %u", seat.number);
    return status;
}

static void for_each_may_be_called_from_its_own_workers(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    each e = {.engine = engine, .depth = 3};
    CHECK_OK(loch_engine_for_each(engine, each_goes_deeper, &e, NULL));
    assert_int_equal(atomic_load(&e.calls) + atomic_load(&e.nested), 3 + 9 + 27 + 81);
    each bad = {.engine = engine, .depth = 3, .failing = 2};
    size_t failed;
    CHECK_FAILS(loch_engine_for_each(engine, each_goes_deeper, &bad, &failed), IO);
    assert_int_equal(failed, 3);
    assert_string_equal(loch_error_get()->sentence, "deep down at seat 1");
    end_engine(engine);
}

typedef struct canceller {
    loch_engine *engine;
    atomic_bool is_done;
} canceller;

static void *cancel_seat_one(void *user)
{
    canceller *c = user;
    while (!atomic_load(&c->is_done))
        (void)loch_workers_cancel(loch_engine_get_workers(c->engine, LOCH_SEAT(1)));
    return NULL;
}

/* Another thread cancels the queue of a seat: the call on that seat fails, the others have run, and no thread waits
 * forever. */
static void a_cancelled_call_fails_and_the_others_run(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    gate g = GATE_CLOSED;
    canceller c = {.engine = engine};
    pthread_t thread;
    atomic_uint calls = 0;
    size_t failed;
    CHECK_OK(loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(1)), task_at_gate, &g, NULL));
    gate_await(&g);
    pthread_create(&thread, NULL, cancel_seat_one, &c);
    CHECK_FAILS(loch_engine_for_each(engine, each_counts, &calls, &failed), CANCELLED);
    atomic_store(&c.is_done, true);
    pthread_join(thread, NULL);
    expect_sentence("seat 1");
    assert_int_equal(failed, 1);
    assert_int_equal(atomic_load(&calls), 2);
    gate_open(&g);
    end_engine(engine);
}

/* --- locks --- */

typedef struct locker {
    loch_engine *engine;
    loch_status unlocked, locked, again;
    pthread_t thread;
    gate before, after;
    atomic_bool is_in;
} locker;

static void *lock_in_turn(void *user)
{
    locker *l = user;
    l->unlocked = loch_engine_unlock(l->engine, LOCH_SEAT(1)); /* the lock of another thread */
    gate_pass(&l->before);
    l->locked = loch_engine_lock(l->engine, LOCH_SEAT(1));
    atomic_store(&l->is_in, true);
    gate_pass(&l->after);
    l->again = loch_engine_unlock(l->engine, LOCH_SEAT(1));
    return NULL;
}

static void locks_belong_to_the_thread_that_took_them(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    locker l = {.engine = engine, .before = GATE_CLOSED, .after = GATE_CLOSED};
    CHECK_FAILS(loch_engine_unlock(engine, LOCH_SEAT(1)), WRONG_THREAD); /* a lock that is not held */
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_engine_lock(engine, LOCH_SEAT(1)));
    pthread_create(&l.thread, NULL, lock_in_turn, &l);
    gate_await(&l.before);
    assert_int_equal(l.unlocked, LOCH_E_WRONG_THREAD); /* and it is still held: */
    gate_open(&l.before);
    CHECK_OK(loch_engine_lock(engine, LOCH_SEAT(0))); /* another seat's is another lock */
    CHECK_OK(loch_engine_unlock(engine, LOCH_SEAT(0)));
    for (int i = 0; i < 3; i++) {
        assert_false(atomic_load(&l.is_in));
        CHECK_OK(loch_engine_unlock(engine, LOCH_SEAT(1)));
    }
    CHECK_FAILS(loch_engine_unlock(engine, LOCH_SEAT(1)), WRONG_THREAD);
    gate_await(&l.after);
    assert_int_equal(l.locked, LOCH_OK);
    CHECK_FAILS(loch_engine_unlock(engine, LOCH_SEAT(1)), WRONG_THREAD);
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL), BUSY);
    gate_open(&l.after);
    pthread_join(l.thread, NULL);
    assert_int_equal(l.again, LOCH_OK);
    CHECK_OK(loch_engine_lock(engine, LOCH_SEAT(1)));
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL), BUSY); /* tasks may wait for it */
    CHECK_OK(loch_engine_unlock(engine, LOCH_SEAT(1)));
    end_engine(engine);
}

typedef struct holder {
    loch_engine *engine;
    gate gate;
    loch_status status;
} holder;

static loch_status task_with_lock(void *user)
{
    holder *h = user;
    h->status = loch_engine_lock(h->engine, LOCH_SEAT(0));
    gate_pass(&h->gate);
    if (h->status == LOCH_OK) h->status = loch_engine_unlock(h->engine, LOCH_SEAT(0));
    return h->status;
}

/* The original left a device locked for ever when making it current failed. Here nothing comes between the two, and a
 * task that fails while it holds a lock is no different from one that does not. */
static void locks_of_tasks_do_not_hold_up_the_end(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    holder h = {.engine = engine, .gate = GATE_CLOSED};
    pthread_t thread;
    CHECK_OK(loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(2)), task_with_lock, &h, NULL));
    gate_await(&h.gate);
    pthread_create(&thread, NULL, open_gate, &h.gate);
    end_engine(engine);
    pthread_join(thread, NULL);
    assert_int_equal(h.status, LOCH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(runs_for_all_seats_at_the_same_time),         TEST(a_failure_without_a_sentence_gets_one),
        TEST(for_each_may_be_called_from_its_own_workers), TEST(a_cancelled_call_fails_and_the_others_run),
        TEST(locks_belong_to_the_thread_that_took_them),   TEST(locks_of_tasks_do_not_hold_up_the_end),
    };
    return cmocka_run_group_tests_name("engine: each seat", tests, NULL, NULL);
}
