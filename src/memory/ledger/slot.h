/* SPDX-License-Identifier: MIT */
/* Slots of a ledger: each thread marks in its own slot that it is inside the ledger. */
#ifndef LOCHI_LEDGER_SLOT_H
#define LOCHI_LEDGER_SLOT_H

#include "base/fence.h"
#include "memory/ledger/spin.h"
#include "memory/ledger/state.h"

/* Returns zeroed memory that starts at a cache line; NULL without memory. Pass *memory to lochi_free at the end. */
void *lochi_ledger_alloc_aligned(size_t bytes, void **memory);

/* Returns the next slot in use from *index on; NULL after the last one. Start with *index = 0. */
lochi_ledger_slot *lochi_ledger_next_slot(lochi_ledger *ledger, uint32_t *index);

/* Frees the slots when the ledger is destroyed. */
void lochi_ledger_slots_fini(lochi_ledger *ledger);

/* Enters at a thread's first call, with the shared slot, or while the ledger is stopped. Helper of
 * lochi_ledger_enter. */
lochi_ledger_slot *lochi_ledger_enter_slow(lochi_ledger *ledger);

/* Undoes lochi_ledger_enter. */
static inline void lochi_ledger_leave(lochi_ledger_slot *slot)
{
    atomic_store_explicit(&slot->inside, false, memory_order_release);
    if (LOCHI_UNLIKELY(slot->is_shared)) lochi_ledger_unlock(&slot->is_locked);
}

/* Marks the calling thread as inside the ledger. Waits while the ledger is stopped. */
static inline lochi_ledger_slot *lochi_ledger_enter(lochi_ledger *ledger)
{
    lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[lochi_thread_slot()], memory_order_relaxed);
    if (LOCHI_UNLIKELY(!slot)) return lochi_ledger_enter_slow(ledger);
    atomic_store_explicit(&slot->inside, true, memory_order_relaxed);
    lochi_fence_light();
    if (LOCHI_LIKELY(!(atomic_load_explicit(&ledger->state, memory_order_acquire) & LOCHI_LEDGER_STOPPED))) return slot;
    lochi_ledger_leave(slot);
    return lochi_ledger_enter_slow(ledger);
}

#endif
