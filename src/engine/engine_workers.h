/* SPDX-License-Identifier: MIT */
/* The workers of the seats of an engine (engine_workers.c). */
#ifndef LOCHI_ENGINE_WORKERS_H
#define LOCHI_ENGINE_WORKERS_H

#include "engine/engine_state.h"

/* Opens the workers of one seat. `name` is the name of the threads. */
loch_status lochi_engine_open_workers(lochi_seat *seat, const loch_engine_device *wish, const char *name);

/* Ends and joins the workers of all seats, and forgets them. Returns the first failure, in the order of seats, of a
 * task that was not waited for.
 * @param cancelled  number of tasks that did not run; may be NULL */
loch_status lochi_engine_end_workers(loch_engine *engine, loch_workers_closing how, size_t *cancelled);

#endif
