/* SPDX-License-Identifier: MIT */
/* Making and ending allocators, one attempt to allocate, and giving back: a block that goes back may be the last that keeps an
 * allocator, whose end gives back further blocks. */
#ifndef LOCHI_LIFE_H
#define LOCHI_LIFE_H

#include "base/thread.h"
#include "memory/allocator_state.h"

#define LOCHI_NOTE_USED_ELSEWHERE 1 /* in a ledger: further streams use the block */

/* Notes that the calling thread uses an allocator. */
static inline void lochi_allocator_note_user(loch_allocator *allocator)
{
    const uint64_t own = lochi_thread_number();
    uint64_t seen = atomic_load_explicit(&allocator->user, memory_order_relaxed);
    if (__builtin_expect(seen == own || seen == LOCHI_USERS_SEVERAL, 1)) return;
    /* Release: who sees that it is used sees it wholly made (owner.c). */
    if (!seen && atomic_compare_exchange_strong_explicit(&allocator->user, &seen, own, memory_order_release,
                                                         memory_order_relaxed))
        return;
    atomic_store_explicit(&allocator->user, LOCHI_USERS_SEVERAL, memory_order_release);
}

/* Makes a wrapper of the library, which knows who keeps account of its blocks. */
loch_status lochi_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                 lochi_account account, loch_allocator **out);

/* Makes one attempt without retries: for wrappers of the library, and for the retry itself. The request is complete. */
loch_status lochi_allocator_try(loch_allocator *allocator, const loch_request *request, void **out);

/* Takes a block back and wakes waiters. The caller holds a reference on the allocator. */
loch_status lochi_allocator_give_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream);

/* Takes a block back from whoever it is and leaves the allocator, which the caller has entered by `mark` (base/underway.h). */
loch_status lochi_allocator_free_inside(loch_allocator *allocator, uint32_t mark, void *address, size_t bytes,
                                        loch_stream *stream);

/* Takes back a block that the failing call which took it cannot hand out; keeps the thread's error record. One that
 * cannot be freed now is kept, and tried again by trim and when the last reference goes. */
void lochi_allocator_abandon(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream);
/* Tries again to free what was abandoned. The caller has a reference. */
void lochi_allocator_free_abandoned(loch_allocator *allocator);

/* Counts one live block of a session's own allocator out; ends a closing one. */
void lochi_allocator_count_out(loch_allocator *wrapper);

#endif
