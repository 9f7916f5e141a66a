/* SPDX-License-Identifier: MIT */
/* Engines in the child of a fork. Devices and memory behave as their drivers define. The workers do not exist in the
 * child: calls that need them return E_FORKED. Closing the engine gives everything back. */
#include "engine/engine_fork.h"
#include "engine/engine_each.h"
#include "engine/engine_lock.h"
#include <stddef.h>

static lochi_fork_part engine_part;

static void engine_forked(void)
{
    for (lochi_fork_item *item = engine_part.items; item; item = item->next) {
        loch_engine *engine = (loch_engine *)((char *)item - offsetof(loch_engine, in_forks));
        engine->is_forked = true;
        lochi_engine_each_forked(engine);
        lochi_engine_lock_forked(engine);
    }
}

static lochi_fork_part engine_part = {.child = engine_forked};

void lochi_engine_enter_forks(loch_engine *engine)
{
    lochi_fork_enter(&engine_part, &engine->in_forks);
}
