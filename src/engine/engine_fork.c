/* SPDX-License-Identifier: MIT */
/* Engines in the child of a fork: devices and memory are what the drivers say, workers are not there. Calls that need them answer
 * E_FORKED; a shutdown gives everything back. */
#include "base/fail.h"
#include "engine/context.h"
#include "engine/engine.h"
#include <stddef.h>

static lochi_fork_part engine_part;

/* Contexts belong to threads: those of others will never be ended here. */
static void engine_forked(void)
{
    for (lochi_fork_item *item = engine_part.items; item; item = item->next) {
        loch_engine *engine = (loch_engine *)((char *)item - offsetof(loch_engine, in_forks));
        engine->is_forked = true;
        engine->contexts = lochi_context_count_own(engine);
        lochi_engine_each_forked(engine);
        for (unsigned i = 0; i < engine->count; i++)
            lochi_seat_lock_forked(&engine->seats[i].lock);
    }
}

static lochi_fork_part engine_part = {.child = engine_forked};

void lochi_engine_enter_forks(loch_engine *engine)
{
    lochi_fork_enter(&engine_part, &engine->in_forks);
}

loch_status lochi_engine_refuse_forked(const loch_engine *engine)
{
    return LOCH_FAIL(FORKED, "engine \"%.80s\" was made before a fork: its workers are not in the child", engine->name);
}
