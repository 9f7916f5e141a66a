/* SPDX-License-Identifier: MIT */
/* Statistics of a ledger: of all blocks, and of each tag. Peaks are counted in segments. A segment is the time
 * between two calls of lochi_ledger_new_segment. */
#include "memory/ledger/figures.h"
#include "base/heap.h"
#include "memory/failure.h"
#include "memory/tag.h"
#include "memory/ledger/ledger.h"
#include "memory/ledger/slot.h"
#include "memory/ledger/stop.h"
#include <string.h>

/* --- of all blocks --- */

LOCHI_RARE void lochi_ledger_publish(lochi_ledger *ledger, lochi_ledger_slot *slot)
{
    const int64_t blocks = atomic_load_explicit(&slot->blocks, memory_order_relaxed);
    slot->unpublished[LOCHI_LEDGER_BLOCKS] = blocks - slot->published_blocks;
    slot->published_blocks = blocks;
    for (int i = 0; i < LOCHI_LEDGER_METRICS; i++) {
        atomic_fetch_add_explicit(&ledger->published[i], slot->unpublished[i], memory_order_relaxed);
        slot->unpublished[i] = 0;
    }
}

LOCHI_RARE void lochi_ledger_count_allocated(lochi_ledger *ledger, lochi_ledger_slot *slot, int64_t bytes)
{
    int64_t *unpublished = &slot->unpublished[LOCHI_LEDGER_ALLOCATED];
    if (bytes < 0) lochi_ledger_raise(ledger, slot, LOCHI_LEDGER_ALLOCATED, *unpublished);
    *unpublished += bytes;
    if (*unpublished >= LOCHI_LEDGER_BATCH_BYTES || *unpublished <= -LOCHI_LEDGER_BATCH_BYTES)
        lochi_ledger_publish(ledger, slot);
}

LOCHI_RARE void lochi_ledger_begin_slack(lochi_ledger *ledger)
{
    lochi_ledger_stop(ledger);
    if (!lochi_ledger_has_slack(ledger)) { /* so far every allocated size was equal to the requested one */
        uint32_t index = 0;
        for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));) {
            slot->unpublished[LOCHI_LEDGER_ALLOCATED] = slot->unpublished[LOCHI_LEDGER_REQUESTED];
            slot->peak[LOCHI_LEDGER_ALLOCATED] = slot->peak[LOCHI_LEDGER_REQUESTED];
        }
        const int64_t requested =
            atomic_load_explicit(&ledger->published[LOCHI_LEDGER_REQUESTED], memory_order_relaxed);
        atomic_store_explicit(&ledger->published[LOCHI_LEDGER_ALLOCATED], requested, memory_order_relaxed);
        ledger->start[LOCHI_LEDGER_ALLOCATED] = ledger->start[LOCHI_LEDGER_REQUESTED];
        atomic_fetch_or_explicit(&ledger->state, LOCHI_LEDGER_SLACK, memory_order_relaxed);
    }
    lochi_ledger_resume(ledger);
}

void lochi_ledger_count_failure(lochi_ledger *ledger)
{
    lochi_failure_count(&ledger->failures);
}

uint64_t lochi_ledger_count_live(lochi_ledger *ledger)
{
    int64_t live = 0;
    uint32_t index = 0;
    /* Orders the takes of this thread before its reads of the other threads' counts. */
    atomic_thread_fence(memory_order_seq_cst);
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
        live += atomic_load_explicit(&slot->blocks, memory_order_relaxed);
    return live > 0 ? (uint64_t)live : 0;
}

/* --- of tags --- */

/* Returns the statistics of a tag. NULL: the tag has none and `make` is false, or there is no memory for them. */
static lochi_ledger_tag *figures_of_tag(lochi_ledger *ledger, loch_tag tag, bool make)
{
    _Atomic(lochi_ledger_tag *) *place = &ledger->tags[tag / LOCHI_LEDGER_TAG_CHUNK];
    lochi_ledger_tag *chunk = atomic_load_explicit(place, memory_order_acquire);
    if (!chunk && make) {
        lochi_ledger_tag *made = lochi_zalloc(LOCHI_LEDGER_TAG_CHUNK * sizeof *made);
        if (!made) return NULL;
        for (size_t i = 0; i < LOCHI_LEDGER_TAG_CHUNK; i++)
            atomic_flag_clear_explicit(&made[i].is_locked, memory_order_relaxed);
        if (atomic_compare_exchange_strong_explicit(place, &chunk, made, memory_order_acq_rel, memory_order_acquire))
            chunk = made;
        else
            lochi_free(made);
    }
    return chunk ? &chunk[tag % LOCHI_LEDGER_TAG_CHUNK] : NULL;
}

void lochi_ledger_count_tag(lochi_ledger *ledger, const lochi_entry *entry, int sign, bool is_new)
{
    lochi_ledger_tag *figures = figures_of_tag(ledger, entry->tag, sign > 0);
    if (!figures) return;
    lochi_ledger_lock(&figures->is_locked);
    figures->requested += sign * (int64_t)entry->requested;
    figures->blocks += sign;
    if (sign > 0) {
        figures->allocs += is_new;
        if (figures->requested > figures->peak_requested) figures->peak_requested = figures->requested;
        if (figures->blocks > figures->peak_blocks) figures->peak_blocks = figures->blocks;
        if (is_new && entry->requested > figures->largest) figures->largest = entry->requested;
    }
    lochi_ledger_unlock(&figures->is_locked);
}

void lochi_ledger_note_largest(lochi_ledger *ledger, lochi_ledger_slot *slot, loch_tag tag, size_t bytes)
{
    if (bytes > slot->largest) slot->largest = bytes;
    lochi_ledger_tag *figures = tag ? figures_of_tag(ledger, tag, false) : NULL;
    if (!figures) return;
    lochi_ledger_lock(&figures->is_locked);
    if (bytes > figures->largest) figures->largest = bytes;
    lochi_ledger_unlock(&figures->is_locked);
}

/* --- questions --- */

/* Returns 0 for a negative figure. A figure is negative only if a block was not counted in because there was no
 * memory. */
static uint64_t figures_clamp(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

static void figures_get_tag(lochi_ledger *ledger, loch_tag tag, loch_stats *out)
{
    lochi_lock_assert_held(&ledger->lock);
    lochi_ledger_tag *figures = figures_of_tag(ledger, tag, false);
    if (!figures) return;
    lochi_ledger_lock(&figures->is_locked); /* a pool counts only tags here, and does not enter the ledger */
    out->allocs = figures->allocs;
    out->blocks = figures_clamp(figures->blocks);
    out->frees = figures->allocs - out->blocks;
    out->peak_blocks = figures_clamp(figures->peak_blocks);
    out->requested_bytes = figures_clamp(figures->requested);
    out->peak_requested_bytes = figures_clamp(figures->peak_requested);
    out->largest_bytes = figures->largest;
    lochi_ledger_unlock(&figures->is_locked);
}

/* Publishes the changes of all threads, and sums what is in use. */
static void figures_sum(lochi_ledger *ledger, int64_t now[LOCHI_LEDGER_METRICS])
{
    lochi_lock_assert_held(&ledger->lock);
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
        lochi_ledger_publish(ledger, slot);
    for (int i = 0; i < LOCHI_LEDGER_METRICS; i++)
        now[i] = atomic_load_explicit(&ledger->published[i], memory_order_relaxed);
    if (!lochi_ledger_has_slack(ledger)) now[LOCHI_LEDGER_ALLOCATED] = now[LOCHI_LEDGER_REQUESTED];
}

static void figures_get_all(lochi_ledger *ledger, loch_stats *out)
{
    lochi_lock_assert_held(&ledger->lock);
    int64_t now[LOCHI_LEDGER_METRICS], peak[LOCHI_LEDGER_METRICS];
    figures_sum(ledger, now);
    for (int i = 0; i < LOCHI_LEDGER_METRICS; i++)
        peak[i] = ledger->start[i] > now[i] ? ledger->start[i] : now[i];
    uint64_t frees = 0, largest = 0;
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));) {
        frees += slot->frees;
        if (slot->largest > largest) largest = slot->largest;
        for (int i = 0; i < LOCHI_LEDGER_METRICS; i++)
            if (slot->peak[i] > peak[i]) peak[i] = slot->peak[i];
    }
    if (!lochi_ledger_has_slack(ledger)) peak[LOCHI_LEDGER_ALLOCATED] = peak[LOCHI_LEDGER_REQUESTED];
    out->blocks = (uint64_t)now[LOCHI_LEDGER_BLOCKS];
    out->frees = frees;
    out->allocs = frees + out->blocks;
    out->failures = atomic_load_explicit(&ledger->failures, memory_order_relaxed);
    out->requested_bytes = (uint64_t)now[LOCHI_LEDGER_REQUESTED];
    out->allocated_bytes = (uint64_t)now[LOCHI_LEDGER_ALLOCATED];
    out->peak_blocks = (uint64_t)peak[LOCHI_LEDGER_BLOCKS];
    out->peak_requested_bytes = (uint64_t)peak[LOCHI_LEDGER_REQUESTED];
    out->peak_allocated_bytes = (uint64_t)peak[LOCHI_LEDGER_ALLOCATED];
    out->largest_bytes = largest;
}

void lochi_ledger_get_stats(lochi_ledger *ledger, loch_tag tag, loch_stats *out)
{
    lochi_ledger_stop(ledger);
    if (tag)
        figures_get_tag(ledger, tag, out);
    else
        figures_get_all(ledger, out);
    lochi_ledger_resume(ledger);
}

void lochi_ledger_new_segment(lochi_ledger *ledger)
{
    lochi_ledger_stop(ledger);
    figures_sum(ledger, ledger->start);
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));) {
        memset(slot->peak, 0, sizeof slot->peak);
        slot->largest = 0;
    }
    for (loch_tag tag = 1; tag < lochi_tag_count(); tag++) {
        lochi_ledger_tag *figures = figures_of_tag(ledger, tag, false);
        if (!figures) continue;
        lochi_ledger_lock(&figures->is_locked);
        figures->peak_requested = figures->requested;
        figures->peak_blocks = figures->blocks;
        figures->largest = 0;
        lochi_ledger_unlock(&figures->is_locked);
    }
    lochi_ledger_resume(ledger);
}
