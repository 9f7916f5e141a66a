/* SPDX-License-Identifier: MIT */
/* Contexts and their owner threads. */
#include "engine/context/thread.h"
#include "base/thread.h"

/* The contexts of this thread. A guard may end after its context was destroyed, for example at the end of the block
 * that destroyed it: loch_guard_end looks for the context here first. */
static _Thread_local loch_context *context_first;

bool lochi_context_is_known(const loch_context *context)
{
    const loch_context *at = context_first;
    while (at && at != context)
        at = at->next;
    return at != NULL;
}

void lochi_context_remember(loch_context *context)
{
    context->next = context_first;
    context_first = context;
}

void lochi_context_forget(const loch_context *context)
{
    loch_context **link = &context_first;
    while (*link && *link != context)
        link = &(*link)->next;
    if (*link) *link = context->next;
}

loch_status lochi_context_check(const loch_context *context)
{
    if (!context) return LOCH_FAIL(INVALID, "the context is NULL");
    if (context->thread == lochi_thread_number()) return LOCH_OK;
    return LOCH_FAIL(WRONG_THREAD,
                     "the context \"%.64s\" belongs to the thread that created it; create a context for each thread",
                     context->name);
}
