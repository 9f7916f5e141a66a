/* SPDX-License-Identifier: MIT */
/* A function for every seat (engine_each.c). */
#ifndef LOCHI_ENGINE_EACH_H
#define LOCHI_ENGINE_EACH_H

#include "engine/engine_state.h"

/* Set up and end what an engine needs for it. */
void lochi_engine_each_init(loch_engine *engine);
void lochi_engine_each_fini(loch_engine *engine);

/* In the child of a fork: ends calls that wait for each other in other threads. */
void lochi_engine_each_forked(loch_engine *engine);

#endif
