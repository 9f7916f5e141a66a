/* SPDX-License-Identifier: MIT */
/* Slots of threads: being inside of a ledger. */
#ifndef LOCHI_LEDGER_SLOT_H
#define LOCHI_LEDGER_SLOT_H

#include "base/fence.h"
#include "memory/ledger/spin.h"
#include "memory/ledger/state.h"

/* Returns zeroed memory that starts a line; NULL without any. What goes back to lochi_free is in *memory. */
void *lochi_ledger_alloc_aligned(size_t bytes, void **memory);

/* Returns the next slot that is in use, from *index on, which starts at 0; NULL behind the last. */
lochi_ledger_slot *lochi_ledger_next_slot(lochi_ledger *ledger, uint32_t *index);

/* Gives the slots back at the end of the ledger. */
void lochi_ledger_slots_fini(lochi_ledger *ledger);

/* Enters at a thread's first call, by the shared slot, or while the ledger is stopped. For lochi_ledger_enter. */
lochi_ledger_slot *lochi_ledger_enter_slowly(lochi_ledger *ledger);

/* Undoes lochi_ledger_enter. */
static inline void lochi_ledger_leave(lochi_ledger_slot *slot)
{
    atomic_store_explicit(&slot->inside, false, memory_order_release);
    if (LOCHI_UNLIKELY(slot->is_shared)) lochi_ledger_unlock(&slot->is_locked);
}

/* Marks the calling thread as inside; waits while the ledger is stopped. */
static inline lochi_ledger_slot *lochi_ledger_enter(lochi_ledger *ledger)
{
    lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[lochi_thread_slot()], memory_order_relaxed);
    if (LOCHI_UNLIKELY(!slot)) return lochi_ledger_enter_slowly(ledger);
    atomic_store_explicit(&slot->inside, true, memory_order_relaxed);
    lochi_fence_light();
    if (LOCHI_LIKELY(!(atomic_load_explicit(&ledger->state, memory_order_acquire) & LOCHI_LEDGER_STOPPED))) return slot;
    lochi_ledger_leave(slot);
    return lochi_ledger_enter_slowly(ledger);
}

#endif
