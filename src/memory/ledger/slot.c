/* SPDX-License-Identifier: MIT */
/* Slots of a ledger: the functions that run once a thread, or while the ledger is stopped. */
#include "memory/ledger/slot.h"
#include "kit/backoff.h"
#include "base/heap.h"

void *lochi_ledger_alloc_aligned(size_t bytes, void **memory)
{
    *memory = lochi_zalloc(bytes + LOCHI_LEDGER_LINE);
    const uintptr_t end = (uintptr_t)*memory + LOCHI_LEDGER_LINE - 1;
    return *memory ? (void *)(end & ~(uintptr_t)(LOCHI_LEDGER_LINE - 1)) : NULL;
}

/* Creates the slot at `index`; called by the thread that owns it. Returns the shared slot without memory. */
static lochi_ledger_slot *slot_make(lochi_ledger *ledger, uint32_t index)
{
    void *memory;
    lochi_ledger_slot *slot = lochi_ledger_alloc_aligned(sizeof *slot, &memory);
    if (!slot) return &ledger->shared;
    slot->memory = memory;
    atomic_store_explicit(&ledger->slots[index], slot, memory_order_release);
    unsigned count = atomic_load_explicit(&ledger->slot_count, memory_order_relaxed);
    while (count <= index && !atomic_compare_exchange_weak_explicit(&ledger->slot_count, &count, index + 1,
                                                                    memory_order_seq_cst, memory_order_relaxed)) {}
    return slot;
}

lochi_ledger_slot *lochi_ledger_next_slot(lochi_ledger *ledger, uint32_t *index)
{
    const uint32_t count = atomic_load_explicit(&ledger->slot_count, memory_order_acquire);
    while (*index < count) {
        lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[(*index)++], memory_order_acquire);
        if (slot) return slot;
    }
    if (*index == LOCHI_SLOT_COUNT) return NULL;
    *index = LOCHI_SLOT_COUNT;
    return &ledger->shared;
}

/* Enters the ledger on the slow path: at a thread's first call, with the shared slot, or while the ledger is
 * stopped. */
LOCHI_RARE lochi_ledger_slot *lochi_ledger_enter_slow(lochi_ledger *ledger)
{
    const uint32_t index = lochi_thread_slot();
    lochi_ledger_slot *slot = &ledger->shared;
    if (index != LOCHI_SLOT_SHARED) {
        slot = atomic_load_explicit(&ledger->slots[index], memory_order_relaxed);
        if (!slot) slot = slot_make(ledger, index);
    }
    bool is_kept_out = false;
    for (;;) {
        if (slot->is_shared) lochi_ledger_lock(&slot->is_locked);
        atomic_store_explicit(&slot->inside, true, memory_order_relaxed);
        lochi_fence_light();
        if (!(atomic_load_explicit(&ledger->state, memory_order_acquire) & LOCHI_LEDGER_STOPPED)) break;
        lochi_ledger_leave(slot);
        if (!is_kept_out) atomic_fetch_add_explicit(&ledger->kept_out, 1, memory_order_relaxed);
        is_kept_out = true;
        for (unsigned turn = 0; atomic_load_explicit(&ledger->state, memory_order_relaxed) & LOCHI_LEDGER_STOPPED;)
            lochi_backoff(&turn);
    }
    if (is_kept_out) atomic_fetch_sub_explicit(&ledger->kept_out, 1, memory_order_relaxed);
    return slot;
}

void lochi_ledger_slots_fini(lochi_ledger *ledger)
{
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++) {
        lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[i], memory_order_relaxed);
        if (slot) lochi_free(slot->memory);
    }
}
