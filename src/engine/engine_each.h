/* SPDX-License-Identifier: MIT */
/* Runs a function for every seat (engine_each.c). */
#ifndef LOCHI_ENGINE_EACH_H
#define LOCHI_ENGINE_EACH_H

#include "engine/engine_state.h"

/* Set up and end the state for calls of an engine. */
void lochi_engine_each_init(loch_engine *engine);
void lochi_engine_each_fini(loch_engine *engine);

/* In the child of a fork: ends calls that wait in threads that do not exist in the child. */
void lochi_engine_each_forked(loch_engine *engine);

#endif
