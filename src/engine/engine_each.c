/* SPDX-License-Identifier: MIT */
/* Runs a function for every seat, on the seats' workers.
 *
 * A call that is made outside of other calls is the root of a family: the call itself and all calls made from inside
 * it. A call is put on its seat's list and queued as a task of the seat's workers. A family uses one thread at a time
 * on each seat: the thread of its head, which is the first call of the family that runs there. Only this thread runs
 * the other calls of the family on that seat: while it waits in one of them, or after its function has returned. So a
 * function may wait for the functions of the same call on other seats (a barrier), once it has run the calls that were
 * queued on its seat: the calls that the others made were queued here before the others ran the calls that this
 * function made.
 *
 * The number of families that run at a time is the number of threads of the seat with the fewest workers. So each
 * family finds a thread on every seat. Other families begin in the order of their calls. Calls are queued on all seats
 * with one lock held, so their order is the same on all seats. A worker that makes a call from a task occupies a thread
 * that a family could use. In return it runs calls on its seat that have no head. */
#include "engine/engine_each.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/current.h"
#include "engine/workers/workers.h"
#include <time.h>

#define EACH_LOOK_NS 10000000 /* how often a waiting thread checks whether its tasks were cancelled */

/* Returns the innermost call that this thread runs. Returns NULL if it runs none; only workers run calls. */
static const lochi_call *each_running(void)
{
    return lochi_workers_get_note();
}

void lochi_engine_each_init(loch_engine *engine)
{
    lochi_lock_init(&engine->each_lock, LOCHI_RANK_ENGINE);
    lochi_lock_init_condition(&engine->each_changed);
}

/* Empties the lists in the child. A call that the forking thread itself was running returns later, does not find itself
 * in a list, and stops. */
void lochi_engine_each_forked(loch_engine *engine)
{
    lochi_lock_init_condition(&engine->each_changed);
    engine->families = NULL;
    for (unsigned i = 0; i < engine->count; i++)
        engine->seats[i].calls = engine->seats[i].heads = NULL;
}

void lochi_engine_each_fini(loch_engine *engine)
{
    pthread_cond_destroy(&engine->each_changed);
    lochi_lock_fini(&engine->each_lock);
}

/* --- one call --- */

static lochi_seat *each_seat(const lochi_call *call)
{
    return &call->engine->seats[call->seat];
}

static void each_unlink(lochi_call **list, lochi_call *call)
{
    lochi_lock_assert_held(&call->engine->each_lock);
    while (*list && *list != call) /* not found after a fork */
        list = &(*list)->next;
    if (*list) *list = call->next;
}

/* Returns the first call of a family in a list, or NULL. */
static lochi_call *each_find_of(lochi_call *list, uint64_t family)
{
    while (list && list->family != family)
        list = list->next;
    return list;
}

/* Tells whether a call that has not begun belongs to a head: an older call of the family that runs or will run. */
static bool each_has_head(const lochi_call *call)
{
    lochi_lock_assert_held(&call->engine->each_lock);
    const lochi_seat *seat = each_seat(call);
    return each_find_of(seat->heads, call->family) || each_find_of(seat->calls, call->family) != call;
}

static void each_run(lochi_call *call);

/* Runs a call that has not begun, on top of the calls of this thread. The lock is released meanwhile. */
static void each_begin(lochi_call *call)
{
    lochi_lock_assert_held(&call->engine->each_lock);
    loch_engine *engine = call->engine;
    lochi_seat *seat = each_seat(call);
    each_unlink(&seat->calls, call);
    call->state = LOCHI_CALL_RUNNING;
    call->is_head = !each_find_of(seat->heads, call->family);
    if (call->is_head) {
        call->next = seat->heads;
        seat->heads = call;
    }
    lochi_lock_drop(&engine->each_lock);
    const loch_error saved = lochi_error_save();
    each_run(call);
    lochi_error_restore(&saved);
    lochi_lock_take(&engine->each_lock);
}

/* Runs the remaining calls of the family before their head ends. */
static void each_end_head(lochi_call *head)
{
    lochi_lock_assert_held(&head->engine->each_lock);
    lochi_seat *seat = each_seat(head);
    for (lochi_call *call; (call = each_find_of(seat->calls, head->family));)
        each_begin(call);
    each_unlink(&seat->heads, head);
}

/* Runs a call. Takes the lock itself. The waiting thread owns the call, which may be gone when this function
 * returns. */
static void each_run(lochi_call *call)
{
    loch_engine *engine = call->engine;
    const lochi_call *below = each_running();
    lochi_stay stay; /* for each call: the call below may have made another device current */
    lochi_workers_set_note(call);
    loch_error_clear();
    loch_status status = lochi_stay_begin(&stay, each_seat(call)->device);
    if (status == LOCH_OK) status = call->function(engine, LOCH_SEAT(call->seat), call->user);
    lochi_stay_end(&stay);
    lochi_workers_set_note(below);
    if (status != LOCH_OK && loch_error_get()->status != status)
        (void)loch_error_set(status, NULL, 0, "the function for seat %u returned %s without a sentence", call->seat,
                             loch_status_name(status));
    if (status != LOCH_OK) call->outcome = lochi_error_save();
    lochi_lock_take(&engine->each_lock);
    if (call->is_head) each_end_head(call);
    call->state = LOCHI_CALL_ENDED;
    pthread_cond_broadcast(&engine->each_changed);
    lochi_lock_drop(&engine->each_lock);
}

static loch_status each_task(void *user)
{
    lochi_call *call = user;
    loch_engine *engine = call->engine;
    lochi_lock_take(&engine->each_lock);
    call->is_left = call->state == LOCHI_CALL_WAITING && each_has_head(call);
    if (call->state == LOCHI_CALL_WAITING && !call->is_left) each_begin(call);
    lochi_lock_drop(&engine->each_lock);
    return LOCH_OK;
}

static void each_fail(lochi_call *call, const loch_error *error)
{
    lochi_lock_assert_held(&call->engine->each_lock);
    each_unlink(&each_seat(call)->calls, call);
    call->state = LOCHI_CALL_ENDED;
    call->outcome = *error;
}

/* Tells whether no thread will begin a call any more. Cancelling the queue of workers ends the task, and leaves the
 * call unchanged. */
static bool each_is_cancelled(const lochi_call *call)
{
    lochi_lock_assert_held(&call->engine->each_lock);
    if (call->state != LOCHI_CALL_WAITING || loch_task_query(call->task) != LOCH_OK) return false;
    return !call->is_left || !each_has_head(call); /* the head was cancelled before it began */
}

/* --- calls of all seats --- */

static void each_queue(loch_engine *engine, lochi_call *calls)
{
    lochi_lock_assert_held(&engine->each_lock);
    for (unsigned i = 0; i < engine->count; i++) {
        lochi_call **end = &engine->seats[i].calls;
        while (*end)
            end = &(*end)->next;
        *end = &calls[i];
        if (lochi_workers_run_bare(engine->seats[i].workers, each_task, &calls[i], &calls[i].task) != LOCH_OK)
            each_fail(&calls[i], loch_error_get());
    }
    pthread_cond_broadcast(&engine->each_changed); /* waiting threads may have to run them */
}

/* Returns the call that a worker of seat `own` runs next while it waits for a family. Returns NULL if no call is left,
 * or if the thread is not a worker. */
static lochi_call *each_find_next(const loch_engine *engine, unsigned own, uint64_t family)
{
    lochi_lock_assert_held(&engine->each_lock);
    if (own == engine->count) return NULL;
    lochi_call *call = engine->seats[own].calls;
    if (each_running()) return each_find_of(call, family);
    while (call && each_has_head(call))
        call = call->next;
    return call;
}

static void each_find_cancelled(const loch_engine *engine, lochi_call *calls)
{
    lochi_lock_assert_held(&engine->each_lock);
    for (unsigned i = 0; i < engine->count; i++) {
        if (!each_is_cancelled(&calls[i])) continue;
        (void)LOCH_FAIL(CANCELLED, "the workers of seat %u cancelled their queued tasks", i);
        each_fail(&calls[i], loch_error_get());
    }
}

/* Sleeps until something has changed, or until EACH_LOOK_NS have passed. */
static void each_sleep(loch_engine *engine)
{
    lochi_lock_assert_held(&engine->each_lock);
    LOCHI_NOT_CANCELLED;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += EACH_LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    (void)lochi_lock_wait_until(&engine->each_lock, &engine->each_changed, &until);
}

static bool each_are_ended(const loch_engine *engine, const lochi_call *calls)
{
    lochi_lock_assert_held(&engine->each_lock);
    bool are_ended = true;
    for (unsigned i = 0; i < engine->count; i++)
        are_ended &= calls[i].state == LOCHI_CALL_ENDED;
    return are_ended;
}

/* Waits for calls. A wait inside of a call ends only after the last call of the family on the seat was run. */
static void each_wait(loch_engine *engine, lochi_call *calls, unsigned own)
{
    lochi_lock_assert_held(&engine->each_lock);
    while (!engine->is_forked) {
        lochi_call *call = each_find_next(engine, own, calls->family);
        const bool are_ended = each_are_ended(engine, calls);
        if (call && (each_running() || !are_ended)) {
            each_begin(call);
        } else if (are_ended) {
            return;
        } else {
            each_sleep(engine);
            each_find_cancelled(engine, calls); /* after every wake-up: other calls may wake this thread all the time */
        }
    }
    for (unsigned i = 0; i < engine->count; i++) /* in the child of a fork: the function that forked has returned */
        if (calls[i].state != LOCHI_CALL_ENDED && lochi_engine_refuse_forked(engine) != LOCH_OK)
            each_fail(&calls[i], loch_error_get());
}

/* Returns how many families may run at a time. Each needs a thread on every seat. */
static size_t each_count_places(const loch_engine *engine)
{
    size_t places = SIZE_MAX;
    for (unsigned i = 0; i < engine->count; i++) {
        const size_t threads = loch_workers_get_threads(engine->seats[i].workers);
        if (threads < places) places = threads;
    }
    return places;
}

static size_t each_count_before(const loch_engine *engine, const lochi_family *family)
{
    lochi_lock_assert_held(&engine->each_lock);
    size_t before = 0;
    for (const lochi_family *it = engine->families; it != family; it = it->next)
        before++;
    return before;
}

/* Waits until a family may begin: until few enough families are before it. */
static void each_enter(loch_engine *engine, lochi_family *family, unsigned own)
{
    lochi_lock_assert_held(&engine->each_lock);
    lochi_family **end = &engine->families;
    while (*end)
        end = &(*end)->next;
    *end = family;
    while (!engine->is_forked && each_count_before(engine, family) >= each_count_places(engine)) {
        lochi_call *call = each_find_next(engine, own, 0);
        if (call)
            each_begin(call);
        else
            each_sleep(engine);
    }
}

static void each_leave(loch_engine *engine, const lochi_family *family)
{
    lochi_lock_assert_held(&engine->each_lock);
    lochi_family **link = &engine->families;
    while (*link && *link != family)
        link = &(*link)->next;
    if (*link) *link = family->next;
    pthread_cond_broadcast(&engine->each_changed); /* the next family may begin */
}

/* Calls a function for all seats, and waits. */
static void each_call(loch_engine *engine, lochi_call *calls, loch_engine_function *function, void *user)
{
    const bool is_inside = each_running() && each_running()->engine == engine;
    const unsigned own = lochi_engine_find_worker(engine);
    lochi_family family = {NULL};
    lochi_lock_take(&engine->each_lock);
    if (!is_inside) each_enter(engine, &family, own);
    const uint64_t number = is_inside ? each_running()->family : ++engine->last_family;
    for (unsigned i = 0; i < engine->count; i++)
        calls[i] = (lochi_call){.engine = engine,
                                .function = function,
                                .user = user,
                                .family = number,
                                .seat = i,
                                .outcome = {.driver = ""}};
    each_queue(engine, calls);
    each_wait(engine, calls, own);
    if (!is_inside) each_leave(engine, &family);
    lochi_lock_drop(&engine->each_lock);
}

/* Gives a task back. If another thread has run its call, the task may still be queued behind a task that waits for this
 * thread: it is cancelled then. */
static void each_give_back(loch_task *task)
{
    if (!task) return;
    if (loch_task_cancel(task) == LOCH_OK || loch_task_query(task) == LOCH_OK)
        loch_task_release(task);
    else if (loch_task_wait(task) != LOCH_OK) /* the task is about to end and has no result of its own */
        return;
}

loch_status loch_engine_for_each(loch_engine *engine, loch_engine_function *function, void *user, size_t *failed)
{
    if (failed) *failed = 0;
    if (!engine || !function) return LOCH_FAIL(INVALID, "loch_engine_for_each needs an engine and a function");
    if (engine->is_forked) {
        if (failed) *failed = engine->count;
        return lochi_engine_refuse_forked(engine);
    }
    lochi_call *calls = lochi_alloc_array(engine->count, sizeof *calls);
    if (!calls) {
        if (failed) *failed = engine->count;
        return LOCH_FAIL(HOST_MEMORY, "no host memory for calls on %u seats", engine->count);
    }
    loch_error record = lochi_error_save();
    loch_status status = LOCH_OK;
    each_call(engine, calls, function, user);
    for (unsigned i = 0; i < engine->count; i++) {
        each_give_back(calls[i].task);
        if (calls[i].outcome.status == LOCH_OK) continue;
        if (status == LOCH_OK) record = calls[i].outcome;
        status = record.status;
        if (failed) (*failed)++;
    }
    lochi_free(calls);
    lochi_error_restore(&record);
    return status;
}
