/* SPDX-License-Identifier: MIT */
/* Contexts and their owner threads (thread.c). */
#ifndef LOCHI_CONTEXT_THREAD_H
#define LOCHI_CONTEXT_THREAD_H

#include "engine/context/state.h"

/* Checks a context. Every call does this first. E_INVALID: NULL. E_WRONG_THREAD: another thread owns the context. */
loch_status lochi_context_check(const loch_context *context);

/* Add a context to the list of the calling thread, and remove it. */
void lochi_context_remember(loch_context *context);
void lochi_context_forget(const loch_context *context);

/* Tells whether the calling thread owns this context. Does not read the context, which may be destroyed. */
bool lochi_context_is_known(const loch_context *context);

#endif
