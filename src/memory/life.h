/* SPDX-License-Identifier: MIT */
/* Creating and destroying allocators, one attempt to allocate, and freeing. Freeing a block may destroy the
 * allocator, and the destruction frees further blocks. */
#ifndef LOCHI_LIFE_H
#define LOCHI_LIFE_H

#include "base/thread.h"
#include "memory/allocator_state.h"

#define LOCHI_NOTE_HAS_USES 1 /* note in a ledger: further streams use the block */

/* Records that the calling thread uses an allocator. */
static inline void lochi_allocator_note_user(loch_allocator *allocator)
{
    const uint64_t own = lochi_thread_number();
    uint64_t seen = atomic_load_explicit(&allocator->user, memory_order_relaxed);
    if (__builtin_expect(seen == own || seen == LOCHI_USERS_SEVERAL, 1)) return;
    /* Release: a thread that sees the allocator in use sees it complete (owner.c). */
    if (!seen && atomic_compare_exchange_strong_explicit(&allocator->user, &seen, own, memory_order_release,
                                                         memory_order_relaxed))
        return;
    atomic_store_explicit(&allocator->user, LOCHI_USERS_SEVERAL, memory_order_release);
}

/* Creates a wrapper of the library. `account` says where its blocks are accounted for. */
loch_status lochi_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                 lochi_account account, loch_allocator **out);

/* Makes one attempt without retries, for wrappers of the library and for the retries themselves. The request is
 * complete. */
loch_status lochi_allocator_try(loch_allocator *allocator, const loch_request *request, void **out);

/* Frees a block and wakes waiters. The caller holds a reference to the allocator. */
loch_status lochi_allocator_give_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream);

/* Frees a block and leaves the allocator, which the caller entered with `mark` (base/hazard.h). May destroy the
 * allocator. */
loch_status lochi_allocator_free_inside(loch_allocator *allocator, uint32_t mark, void *address, size_t bytes,
                                        loch_stream *stream);

/* Frees a block that a failing call has allocated and cannot return. Keeps the thread's error record. If the block
 * cannot be freed now, it is kept, and freed by a later trim or by the release of the last reference. */
void lochi_allocator_abandon(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream);
/* Frees the blocks that lochi_allocator_abandon kept. The caller holds a reference. */
void lochi_allocator_free_abandoned(loch_allocator *allocator);

/* Counts out one live block of a session's allocator. Destroys that allocator if it is closing and now empty. */
void lochi_allocator_count_out(loch_allocator *wrapper);

#endif
