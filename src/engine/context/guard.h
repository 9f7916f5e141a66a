/* SPDX-License-Identifier: MIT */
/* Guards of contexts (guard.c). */
#ifndef LOCHI_CONTEXT_GUARD_H
#define LOCHI_CONTEXT_GUARD_H

#include "engine/context/state.h"

/* Undoes all guards of a context, the newest first. */
void lochi_context_end_guards(loch_context *context);

#endif
