/* SPDX-License-Identifier: MIT */
/* Engines in the child of a fork (engine_fork.c). */
#ifndef LOCHI_ENGINE_FORK_H
#define LOCHI_ENGINE_FORK_H

#include "engine/engine_state.h"

/* Registers the engine with the fork handlers, until lochi_fork_leave. */
void lochi_engine_enter_forks(loch_engine *engine);

#endif
