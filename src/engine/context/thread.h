/* SPDX-License-Identifier: MIT */
/* Contexts and the thread that they belong to (thread.c). */
#ifndef LOCHI_CONTEXT_THREAD_H
#define LOCHI_CONTEXT_THREAD_H

#include "engine/context/state.h"

/* Checks a context; the first thing in every call. E_INVALID for NULL, E_WRONG_THREAD for another thread's. */
loch_status lochi_context_check(const loch_context *context);

/* Enter a context into the list of the calling thread, and take it out. */
void lochi_context_remember(loch_context *context);
void lochi_context_forget(const loch_context *context);

/* Tells whether the calling thread has this context, without looking into it. */
bool lochi_context_is_known(const loch_context *context);

#endif
