/* SPDX-License-Identifier: MIT */
/* Statistics of a ledger. Those of all blocks are in the threads' slots. */
#ifndef LOCHI_LEDGER_FIGURES_H
#define LOCHI_LEDGER_FIGURES_H

#include "kit/hint.h"
#include "memory/ledger/state.h"

/* Publishes the changes of a slot to the other threads. The caller is inside the ledger, or the ledger is stopped. */
void lochi_ledger_publish(lochi_ledger *ledger, lochi_ledger_slot *slot);

/* Counts allocated bytes, once some block has an allocated size that is not its requested size. The caller is inside
 * the ledger. */
void lochi_ledger_count_allocated(lochi_ledger *ledger, lochi_ledger_slot *slot, int64_t bytes);

/* Prepares for blocks whose allocated size is not their requested size. The caller must not be inside the ledger. */
void lochi_ledger_begin_slack(lochi_ledger *ledger);

/* Notes a growth as a request of a size, for the largest one. The caller is inside the ledger. */
void lochi_ledger_note_largest(lochi_ledger *ledger, lochi_ledger_slot *slot, loch_tag tag, size_t bytes);

/* Returns whether some block had an allocated size that is not its requested size. */
static inline bool lochi_ledger_has_slack(const lochi_ledger *ledger)
{
    return (atomic_load_explicit(&ledger->state, memory_order_relaxed) & LOCHI_LEDGER_SLACK) != 0;
}

/* Raises a peak to the present use. A peak is the use just before a block is freed, so this is called when a block
 * is taken out; reading the statistics compares with the present use too. */
static inline void lochi_ledger_raise(const lochi_ledger *ledger, lochi_ledger_slot *slot, int metric,
                                      int64_t unpublished)
{
    const int64_t now = atomic_load_explicit(&ledger->published[metric], memory_order_relaxed) + unpublished;
    if (now > slot->peak[metric]) slot->peak[metric] = now;
}

/* Counts a block in. `is_new` is false for a block that is put back after a failed free. The caller is inside the
 * ledger. */
static inline void lochi_ledger_count_in(lochi_ledger *ledger, lochi_ledger_slot *slot, size_t requested,
                                         size_t allocated, bool is_new)
{
    const int64_t blocks = atomic_load_explicit(&slot->blocks, memory_order_relaxed) + 1;
    const int64_t unpublished = slot->unpublished[LOCHI_LEDGER_REQUESTED] + (int64_t)requested;
    atomic_store_explicit(&slot->blocks, blocks, memory_order_relaxed);
    slot->unpublished[LOCHI_LEDGER_REQUESTED] = unpublished;
    if (!is_new)
        slot->frees--;
    else if (requested > slot->largest)
        slot->largest = requested;
    if (LOCHI_UNLIKELY(lochi_ledger_has_slack(ledger))) lochi_ledger_count_allocated(ledger, slot, (int64_t)allocated);
    if (LOCHI_UNLIKELY(blocks - slot->published_blocks >= LOCHI_LEDGER_BATCH_BLOCKS ||
                       unpublished >= LOCHI_LEDGER_BATCH_BYTES))
        lochi_ledger_publish(ledger, slot);
}

/* Counts a block out. The caller is inside the ledger. */
static inline void lochi_ledger_count_out(lochi_ledger *ledger, lochi_ledger_slot *slot, size_t requested,
                                          size_t allocated)
{
    const int64_t blocks = atomic_load_explicit(&slot->blocks, memory_order_relaxed);
    const int64_t unpublished_blocks = blocks - slot->published_blocks;
    const int64_t unpublished = slot->unpublished[LOCHI_LEDGER_REQUESTED];
    lochi_ledger_raise(ledger, slot, LOCHI_LEDGER_BLOCKS, unpublished_blocks);
    lochi_ledger_raise(ledger, slot, LOCHI_LEDGER_REQUESTED, unpublished);
    atomic_store_explicit(&slot->blocks, blocks - 1, memory_order_relaxed);
    slot->unpublished[LOCHI_LEDGER_REQUESTED] = unpublished - (int64_t)requested;
    slot->frees++;
    if (LOCHI_UNLIKELY(lochi_ledger_has_slack(ledger))) lochi_ledger_count_allocated(ledger, slot, -(int64_t)allocated);
    if (LOCHI_UNLIKELY(unpublished_blocks - 1 <= -LOCHI_LEDGER_BATCH_BLOCKS ||
                       unpublished - (int64_t)requested <= -LOCHI_LEDGER_BATCH_BYTES))
        lochi_ledger_publish(ledger, slot);
}

#endif
