/* SPDX-License-Identifier: MIT */
/* The workers of an engine's seats. They are opened last and ended first, those of all seats together. */
#include "engine/engine_workers.h"
#include "base/fail.h"
#include "engine/workers/workers.h"

static loch_status staff_do_nothing(void *user)
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
    LOCH_TRY_RETURN(lochi_workers_create(&options, seat->device, &seat->workers));
    LOCH_TRY_RETURN(lochi_workers_run_bare(seat->workers, staff_do_nothing, NULL, &seat->anchor));
    /* leaves the queue empty: later counts of tasks include only tasks of the program */
    return loch_workers_wait(seat->workers, NULL);
}

/* The first failure in the order of seats. Seats may be visited more than once. */
typedef struct staff_failure {
    unsigned seat;
    loch_error error; /* LOCH_OK: no failure so far */
} staff_failure;

static void staff_note(staff_failure *first, unsigned seat, loch_status status)
{
    if (status == LOCH_OK || (first->error.status != LOCH_OK && first->seat <= seat)) return;
    first->seat = seat;
    first->error = lochi_error_save();
}

static uint64_t staff_count_queued(const loch_engine *engine)
{
    uint64_t queued = 0;
    for (unsigned i = 0; i < engine->count; i++)
        queued += lochi_workers_get_queued(engine->seats[i].workers);
    return queued;
}

/* Waits until no task is queued or runs on any seat. A task may queue another task on a seat that was waited for
 * already. So this repeats until no task was queued anywhere during one round over all seats. */
static void staff_drain(const loch_engine *engine, staff_failure *first)
{
    uint64_t before;
    do {
        before = staff_count_queued(engine);
        for (unsigned i = 0; i < engine->count; i++)
            staff_note(first, i,
                       engine->seats[i].workers ? loch_workers_wait(engine->seats[i].workers, NULL) : LOCH_OK);
    } while (staff_count_queued(engine) != before);
}

loch_status lochi_engine_end_workers(loch_engine *engine, loch_workers_closing how, size_t *cancelled)
{
    staff_failure first = {.error = {.driver = ""}};
    size_t count = 0, more;
    if (how == LOCH_WORKERS_DRAIN && !engine->is_forked) staff_drain(engine, &first);
    for (unsigned i = 0; how == LOCH_WORKERS_CANCEL && i < engine->count; i++)
        count += lochi_workers_close(engine->seats[i].workers); /* all of them, before the first is waited for */
    for (unsigned i = 0; i < engine->count; i++) {
        staff_note(&first, i, loch_workers_close(engine->seats[i].workers, how, &more));
        count += more;
    }
    for (unsigned i = 0; i < engine->count; i++) { /* no thread is left that could use them */
        loch_task_release(engine->seats[i].anchor);
        engine->seats[i].anchor = NULL;
        engine->seats[i].workers = NULL;
    }
    if (cancelled) *cancelled = count;
    if (first.error.status != LOCH_OK) lochi_error_restore(&first.error);
    return first.error.status;
}
