/* SPDX-License-Identifier: MIT */
/* What is done for every seat: a function by its workers, the end of the workers, freezing.
 *
 * A call of a function for a seat stands in the seat's list, and is queued as a task of the seat's workers; whoever comes first runs
 * it. The first is the task, or a worker of the seat that waits in loch_engine_for_each itself: else functions that call it in turn
 * would wait for each other's workers. Calls are queued on all seats under one lock, so they are in one order everywhere, and
 * functions of different seats may wait for each other. */
#include "base/fail.h"
#include "base/heap.h"
#include "engine/engine.h"
#include "engine/workers.h"
#include <time.h>

#define EACH_LOOK_NS 10000000 /* how often a waiter looks whether its tasks were cancelled */

struct lochi_call {
    struct lochi_call *next; /* in the seat's list */
    loch_engine *engine;
    loch_engine_function *function;
    void *user;
    unsigned seat;
    enum { CALL_WAITING, CALL_RUNNING, CALL_ENDED } state; /* under each_lock */
    loch_task *task;                                       /* NULL when it could not be queued */
    loch_error outcome;                                    /* the runner's until it has ended */
};

void lochi_engine_each_init(loch_engine *engine)
{
    pthread_condattr_t attributes;
    lochi_lock_init(&engine->each_lock, LOCHI_RANK_ENGINE);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->each_ended, &attributes);
    pthread_condattr_destroy(&attributes);
}

void lochi_engine_each_fini(loch_engine *engine)
{
    pthread_cond_destroy(&engine->each_ended);
    lochi_lock_fini(&engine->each_lock);
}

/* --- one call --- */

/* Takes a call that nobody has begun off its seat's list; under each_lock. */
static void each_unlink(lochi_call *call)
{
    lochi_call **link = &call->engine->seats[call->seat].calls;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
}

static void each_begin(lochi_call *call)
{
    each_unlink(call);
    call->state = CALL_RUNNING;
}

/* The call belongs to who waits for it, and may be gone when this returns. */
static void each_run(lochi_call *call)
{
    loch_engine *engine = call->engine;
    loch_error_clear();
    const loch_status status = call->function(engine, LOCH_SEAT(call->seat), call->user);
    if (status != LOCH_OK && loch_error_get()->status != status)
        (void)loch_error_set(status, NULL, 0, "the function for seat %u gave %s, and no sentence", call->seat,
                             loch_status_name(status));
    if (status != LOCH_OK) call->outcome = lochi_error_save();
    lochi_lock_take(&engine->each_lock);
    call->state = CALL_ENDED;
    pthread_cond_broadcast(&engine->each_ended);
    lochi_lock_drop(&engine->each_lock);
}

static loch_status each_task(void *user)
{
    lochi_call *call = user;
    loch_engine *engine = call->engine;
    lochi_lock_take(&engine->each_lock);
    const bool is_first = call->state == CALL_WAITING;
    if (is_first) each_begin(call);
    lochi_lock_drop(&engine->each_lock);
    if (is_first) each_run(call);
    return LOCH_OK;
}

static void each_fail(lochi_call *call, const loch_error *error)
{
    each_unlink(call);
    call->state = CALL_ENDED;
    call->outcome = *error;
}

/* --- all of them --- */

static void each_queue(loch_engine *engine, lochi_call *calls, loch_engine_function *function, void *user)
{
    lochi_lock_take(&engine->each_lock);
    for (unsigned i = 0; i < engine->count; i++) {
        calls[i] =
            (lochi_call){.engine = engine, .function = function, .user = user, .seat = i, .outcome = {.driver = ""}};
        lochi_call **end = &engine->seats[i].calls;
        while (*end)
            end = &(*end)->next;
        *end = &calls[i];
        if (loch_workers_run(engine->seats[i].workers, each_task, &calls[i], &calls[i].task) != LOCH_OK)
            each_fail(&calls[i], loch_error_get());
    }
    lochi_lock_drop(&engine->each_lock);
}

static bool each_are_ended(const loch_engine *engine, const lochi_call *calls)
{
    bool are_ended = true;
    for (unsigned i = 0; i < engine->count; i++)
        are_ended &= calls[i].state == CALL_ENDED;
    return are_ended;
}

/* Runs a call of others on top of what this worker does. */
static void each_help(lochi_call *call)
{
    loch_engine *engine = call->engine;
    each_begin(call);
    lochi_lock_drop(&engine->each_lock);
    const loch_error saved = lochi_error_save();
    each_run(call);
    lochi_error_restore(&saved);
    lochi_lock_take(&engine->each_lock);
}

/* Who empties the queue of workers tells the tasks, not the calls. */
static void each_find_cancelled(const loch_engine *engine, lochi_call *calls)
{
    for (unsigned i = 0; i < engine->count; i++) {
        if (calls[i].state != CALL_WAITING || loch_task_query(calls[i].task) != LOCH_OK) continue;
        (void)LOCH_FAIL(CANCELLED, "the workers of seat %u were told to cancel what is queued", i);
        each_fail(&calls[i], loch_error_get());
    }
}

static void each_sleep(loch_engine *engine, lochi_call *calls)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += EACH_LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    if (pthread_cond_timedwait(&engine->each_ended, &engine->each_lock.mutex, &until))
        each_find_cancelled(engine, calls);
}

static void each_wait(loch_engine *engine, lochi_call *calls)
{
    const unsigned own = lochi_engine_find_worker(engine);
    lochi_lock_take(&engine->each_lock);
    while (!each_are_ended(engine, calls)) {
        lochi_call *call = own < engine->count ? engine->seats[own].calls : NULL;
        if (call)
            each_help(call);
        else
            each_sleep(engine, calls);
    }
    lochi_lock_drop(&engine->each_lock);
}

/* A task whose call somebody else has run may still be queued behind one that waits for this thread. */
static void each_give_back(loch_task *task)
{
    if (!task) return;
    if (loch_task_cancel(task) == LOCH_OK || loch_task_query(task) == LOCH_OK)
        loch_task_release(task);
    else if (loch_task_wait(task) != LOCH_OK) /* it is on its way out, and has no result of its own */
        return;
}

loch_status loch_engine_for_each(loch_engine *engine, loch_engine_function *function, void *user, size_t *failed)
{
    if (failed) *failed = 0;
    if (!engine || !function) return LOCH_FAIL(INVALID, "doing something for each seat needs an engine and a function");
    lochi_call *calls = lochi_alloc_array(engine->count, sizeof *calls);
    if (!calls) {
        if (failed) *failed = engine->count;
        return LOCH_FAIL(HOST_MEMORY, "no host memory for calls on %u seats", engine->count);
    }
    loch_error record = lochi_error_save();
    loch_status status = LOCH_OK;
    each_queue(engine, calls, function, user);
    each_wait(engine, calls);
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

/* --- the workers themselves --- */

static loch_status each_do_nothing(void *user)
{
    (void)user;
    return LOCH_OK;
}

loch_status lochi_engine_open_workers(lochi_seat *seat, const loch_engine_device *wish, const char *name)
{
    const loch_workers_options options = {.size = sizeof options,
                                          .name = name,
                                          .threads = wish->workers,
                                          .cpus = wish->cpus,
                                          .cpus_count = wish->cpus_count};
    LOCH_TRY_RETURN(loch_workers_create(&options, &seat->workers));
    return loch_workers_run(seat->workers, each_do_nothing, NULL, &seat->anchor);
}

/* The first failure, by seat, while seats are looked at more than once. */
typedef struct each_failure {
    unsigned seat;
    loch_error error; /* LOCH_OK: none so far */
} each_failure;

static void each_note(each_failure *first, unsigned seat, loch_status status)
{
    if (status == LOCH_OK || (first->error.status != LOCH_OK && first->seat <= seat)) return;
    first->seat = seat;
    first->error = lochi_error_save();
}

static uint64_t each_count_queued(const loch_engine *engine)
{
    uint64_t queued = 0;
    for (unsigned i = 0; i < engine->count; i++)
        queued += lochi_workers_get_queued(engine->seats[i].workers);
    return queued;
}

/* Waits until nothing is queued or runs on any seat. A task may queue others on a seat that was waited for before: all is done when
 * nothing was queued anywhere while every seat was waited for once. */
static void each_drain(const loch_engine *engine, each_failure *first)
{
    uint64_t before;
    do {
        before = each_count_queued(engine);
        for (unsigned i = 0; i < engine->count; i++)
            each_note(first, i, engine->seats[i].workers ? loch_workers_wait(engine->seats[i].workers, NULL) : LOCH_OK);
    } while (each_count_queued(engine) != before);
}

loch_status lochi_engine_end_workers(loch_engine *engine, loch_workers_end how, size_t *cancelled)
{
    each_failure first = {.error = {.driver = ""}};
    size_t count = 0, more;
    if (how == LOCH_WORKERS_DRAIN) each_drain(engine, &first);
    for (unsigned i = 0; how == LOCH_WORKERS_CANCEL && i < engine->count; i++)
        count += lochi_workers_close(engine->seats[i].workers); /* all, before the first is waited for */
    for (unsigned i = 0; i < engine->count; i++) {
        each_note(&first, i, loch_workers_destroy(engine->seats[i].workers, how, &more));
        count += more;
    }
    for (unsigned i = 0; i < engine->count; i++) { /* no thread is left that could ask them for anything */
        loch_task_release(engine->seats[i].anchor);
        engine->seats[i].anchor = NULL;
        engine->seats[i].workers = NULL;
    }
    if (cancelled) *cancelled = count;
    if (first.error.status != LOCH_OK) lochi_error_restore(&first.error);
    return first.error.status;
}

/* --- freezing --- */

static loch_status each_freeze(lochi_seat *seat, loch_tag tag, size_t *bytes)
{
    loch_stream *stream;
    loch_freeze_report report = {.size = sizeof report};
    LOCH_TRY_RETURN(loch_stream_pool_take(seat->streams, &stream));
    const loch_freeze_options options = {.size = sizeof options, .tag = tag, .stream = stream};
    loch_status status = loch_pool_freeze(seat->allocator, &options, &report);
    *bytes += report.bytes;
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    const loch_error saved = lochi_error_save();
    if (loch_stream_pool_give(seat->streams, stream) != LOCH_OK) loch_stream_destroy(stream);
    lochi_error_restore(&saved);
    return status;
}

loch_status loch_engine_freeze(loch_engine *engine, loch_tag tag, size_t *bytes)
{
    size_t frozen = 0;
    loch_status status = LOCH_OK;
    if (bytes) *bytes = 0;
    if (!engine) return LOCH_FAIL(INVALID, "there is no engine to freeze memory of");
    for (unsigned i = 0; i < engine->count && !engine->is_direct && status == LOCH_OK; i++) {
        status = each_freeze(&engine->seats[i], tag, &frozen);
        if (status != LOCH_OK) status = lochi_engine_fail_at(i, status);
    }
    if (bytes) *bytes = frozen;
    return status;
}
