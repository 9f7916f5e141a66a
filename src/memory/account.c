/* SPDX-License-Identifier: MIT */
/* Statistics of an allocator over three spans of time: since creation (kept by the implementation), since the last
 * reset, and inside measuring scopes.
 *
 * Implementations keep the peaks of the present segment only. A call that needs a fresh start ends the segment. The
 * peaks of the ended segment then raise the peaks of everything that spans it (the time since the last reset, and
 * every open scope), and a new segment begins. So scopes may nest and overlap in any order, and cost nothing while
 * no scope begins or ends.
 *
 * The keeper of an allocator is the allocator whose statistics it shows: itself, or, for a wrapper without
 * statistics of its own, the nearest wrapped allocator that keeps some. The scope of the wrapper's own last reset is
 * in the list of the keeper, so that the wrapper loses no peak when another caller ends a segment there. */
#include "memory/account.h"
#include "base/fail.h"
#include "kit/sized.h"
#include "memory/tag.h"
#include <loch/tag.h>
#include <string.h>

#define ACCOUNT_PEAKS(X)                                                                                               \
    X(peak_blocks) X(peak_requested_bytes) X(peak_allocated_bytes) X(peak_reserved_bytes) X(largest_bytes)
#define ACCOUNT_COUNTS(X) X(allocs) X(frees) X(failures) X(retries)

static void account_raise(loch_stats *peaks, const loch_stats *seen)
{
#define ACCOUNT_RAISE(name)                                                                                            \
    if (seen->name > peaks->name) peaks->name = seen->name;
    ACCOUNT_PEAKS(ACCOUNT_RAISE)
#undef ACCOUNT_RAISE
}

/* Raises the peaks that a wrapper forwards by the peaks of segments that ended in the allocator below it since the
 * wrapper's own segment began. */
static void account_raise_forwarded(loch_allocator *allocator, loch_stats *stats)
{
    loch_allocator *below = allocator->wrapped->keeper;
    lochi_lock_take(&below->lock);
    const loch_stats peaks = allocator->below.peaks;
    lochi_lock_drop(&below->lock);
    if (allocator->forwards == LOCHI_FORWARDS_ALL)
        account_raise(stats, &peaks);
    else if (peaks.peak_reserved_bytes > stats->peak_reserved_bytes)
        stats->peak_reserved_bytes = peaks.peak_reserved_bytes;
}

loch_status lochi_allocator_read_stats(loch_allocator *allocator, loch_tag tag, loch_stats *out)
{
    if (allocator->ops.get_stats) {
        LOCH_TRY_RETURN(allocator->ops.get_stats(allocator->self, tag, out));
        if (!tag && allocator->forwards != LOCHI_FORWARDS_NOTHING) account_raise_forwarded(allocator, out);
        return LOCH_OK;
    }
    if (allocator->wrapped) return lochi_allocator_read_stats(allocator->wrapped, tag, out);
    if (!allocator->ledger) return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" keeps no statistics", allocator->name);
    lochi_ledger_get_stats(allocator->ledger, tag, out);
    if (!tag) { /* there is no cache, so the reserved bytes are the allocated bytes */
        out->reserved_bytes = out->allocated_bytes;
        out->peak_reserved_bytes = out->peak_allocated_bytes;
    }
    return LOCH_OK;
}

uint64_t lochi_allocator_count_live(loch_allocator *allocator)
{
    if (allocator->ledger) return lochi_ledger_count_live(allocator->ledger);
    if (allocator->account == LOCHI_ACCOUNT_NOTES) return atomic_load_explicit(&allocator->live, memory_order_relaxed);
    if (allocator->account == LOCHI_ACCOUNT_BELOW) return lochi_allocator_count_live(allocator->wrapped);
    loch_stats stats = {.size = sizeof stats};
    return lochi_allocator_read_stats(allocator, 0, &stats) == LOCH_OK ? stats.blocks : UINT64_MAX;
}

/* Takes the lock of the keeper if the keeper is another allocator. The rank of that lock is higher. */
static void account_lock(loch_allocator *allocator)
{
    lochi_lock_assert_held(&allocator->lock);
    if (allocator->keeper != allocator) lochi_lock_take(&allocator->keeper->lock);
}

static void account_unlock(loch_allocator *allocator)
{
    if (allocator->keeper != allocator) lochi_lock_drop(&allocator->keeper->lock);
}

static void account_link(loch_allocator *keeper, lochi_scope *scope)
{
    lochi_lock_take(&keeper->lock);
    scope->next = keeper->scopes;
    keeper->scopes = scope;
    lochi_lock_drop(&keeper->lock);
}

static void account_unlink(loch_allocator *keeper, lochi_scope *scope)
{
    lochi_lock_take(&keeper->lock);
    lochi_scope **link = &keeper->scopes;
    while (*link != scope)
        link = &(*link)->next;
    *link = scope->next;
    lochi_lock_drop(&keeper->lock);
}

static bool account_has_below(const loch_allocator *allocator)
{
    return allocator->wrapped && allocator->keeper == allocator;
}

void lochi_account_open(loch_allocator *allocator)
{
    const bool is_forwarding = allocator->wrapped && !allocator->ops.get_stats;
    allocator->keeper = is_forwarding ? allocator->wrapped->keeper : allocator;
    account_link(allocator->keeper, &allocator->since_reset);
    if (account_has_below(allocator)) account_link(allocator->wrapped->keeper, &allocator->below);
}

void lochi_account_close(loch_allocator *allocator)
{
    if (account_has_below(allocator)) account_unlink(allocator->wrapped->keeper, &allocator->below);
    account_unlink(allocator->keeper, &allocator->since_reset);
}

static void account_forget_below(loch_allocator *keeper)
{
    loch_allocator *below = keeper->wrapped->keeper;
    lochi_lock_take(&below->lock);
    memset(&keeper->below.peaks, 0, sizeof keeper->below.peaks);
    lochi_lock_drop(&below->lock);
}

static loch_status account_end_segment(loch_allocator *keeper)
{
    lochi_lock_assert_held(&keeper->lock);
    loch_stats seen = {.size = sizeof seen};
    LOCH_TRY_RETURN(lochi_allocator_read_stats(keeper, 0, &seen));
    for (lochi_scope *scope = keeper->scopes; scope; scope = scope->next)
        account_raise(&scope->peaks, &seen);
    if (keeper->ops.get_stats) {
        if (keeper->ops.new_segment) keeper->ops.new_segment(keeper->self);
        if (account_has_below(keeper)) account_forget_below(keeper);
    } else if (keeper->ledger) {
        lochi_ledger_new_segment(keeper->ledger);
    }
    return LOCH_OK;
}

loch_status lochi_allocator_end_segment(loch_allocator *allocator)
{
    lochi_lock_assert_held(&allocator->lock);
    account_lock(allocator);
    const loch_status status = account_end_segment(allocator->keeper);
    account_unlock(allocator);
    return status;
}

static loch_status account_check(const loch_allocator *allocator, const loch_stats *out)
{
    if (allocator && lochi_sized_is_set(out)) return LOCH_OK;
    return LOCH_FAIL(INVALID, "statistics need an allocator and a struct whose size is set");
}

loch_status loch_allocator_get_stats(loch_allocator *allocator, loch_stats *out)
{
    LOCH_TRY_RETURN(account_check(allocator, out));
    loch_stats stats = {.size = sizeof stats};
    lochi_lock_take(&allocator->lock);
    account_lock(allocator);
    const loch_status status = lochi_allocator_read_stats(allocator, 0, &stats);
    if (status == LOCH_OK) account_raise(&stats, &allocator->since_reset.peaks);
    account_unlock(allocator);
    if (status == LOCH_OK) {
#define ACCOUNT_SINCE(name) stats.name -= allocator->base.name;
        ACCOUNT_COUNTS(ACCOUNT_SINCE)
#undef ACCOUNT_SINCE
        stats.retries += allocator->retries; /* the retries of the implementation are in `stats` already */
        stats.waits_ns = allocator->waits_ns;
    }
    lochi_lock_drop(&allocator->lock);
    if (status == LOCH_OK) lochi_sized_write(out, &stats, sizeof stats);
    return status;
}

loch_status loch_allocator_get_tag_stats(loch_allocator *allocator, loch_tag tag, loch_stats *out)
{
    LOCH_TRY_RETURN(account_check(allocator, out));
    if (!tag || tag >= lochi_tag_count()) return LOCH_FAIL(INVALID, "tag %u does not exist", (unsigned)tag);
    loch_stats stats = {.size = sizeof stats};
    LOCH_TRY_RETURN(lochi_allocator_read_stats(allocator, tag, &stats));
    lochi_sized_write(out, &stats, sizeof stats);
    return LOCH_OK;
}

loch_status loch_allocator_reset_stats(loch_allocator *allocator)
{
    if (!allocator) return LOCH_FAIL(INVALID, "there is no allocator to reset");
    loch_stats stats = {.size = sizeof stats};
    lochi_lock_take(&allocator->lock);
    account_lock(allocator);
    loch_status status = account_end_segment(allocator->keeper);
    if (status == LOCH_OK) status = lochi_allocator_read_stats(allocator, 0, &stats);
    if (status == LOCH_OK) memset(&allocator->since_reset.peaks, 0, sizeof allocator->since_reset.peaks);
    account_unlock(allocator);
    if (status == LOCH_OK) {
        allocator->base = stats;
        allocator->retries = 0;
        allocator->waits_ns = 0;
    }
    lochi_lock_drop(&allocator->lock);
    return status;
}

/* --- ledgers as blocks --- */

typedef struct account_walk {
    loch_block_visitor *visitor;
    void *user;
} account_walk;

static loch_status account_visit(const lochi_entry *entry, void *user)
{
    const account_walk *walk = user;
    loch_block block;
    lochi_ledger_to_block(entry, &block);
    return walk->visitor(&block, walk->user);
}

loch_status lochi_ledger_walk_blocks(lochi_ledger *ledger, loch_block_visitor *visitor, void *user)
{
    account_walk walk = {visitor, user};
    return lochi_ledger_walk(ledger, account_visit, &walk);
}
