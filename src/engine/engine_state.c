/* SPDX-License-Identifier: MIT */
/* Functions for all parts of an engine: the seat of a worker, and failures. */
#include "engine/engine_state.h"
#include "base/fail.h"

loch_status lochi_engine_fail_at(unsigned seat, loch_status status)
{
    const loch_error error = lochi_error_save();
    return loch_error_set(status, *error.driver ? error.driver : NULL, error.driver_code, "seat %u: %.240s", seat,
                          error.sentence);
}

loch_status lochi_engine_refuse_forked(const loch_engine *engine)
{
    return LOCH_FAIL(FORKED, "engine \"%.80s\" was opened before a fork: its workers do not exist in the child process",
                     engine->name);
}

unsigned lochi_engine_find_worker(const loch_engine *engine)
{
    unsigned seat = 0;
    while (seat < engine->count && loch_workers_get_current(engine->seats[seat].workers) == SIZE_MAX)
        seat++;
    return seat;
}
