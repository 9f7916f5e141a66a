/* SPDX-License-Identifier: MIT */
/* Figures of a pool, and a report for people. */
#include "memory/pool/report/report.h"
#include "memory/pool/front/front.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/supply/supply.h"
#include "memory/tag.h"
#include "kit/printing.h"
#include <loch/tag.h>

/* --- figures --- */

static size_t report_clamp(int64_t value)
{
    return value > 0 ? (size_t)value : 0;
}

/* Returns a peak of bytes, which is not above what the pool held at most. Memory that is asleep counts as held. */
static size_t report_peak(const lochi_pool *pool, int metric)
{
    const size_t peak = report_clamp(pool->figures.peak[metric]), held = pool->peak_reserved + pool->sleep.bytes;
    return peak < held ? peak : held;
}

void lochi_pool_read_stats(lochi_pool *pool, loch_stats *out)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_stop(pool);
    lochi_pool_publish_all(pool);
    uint64_t allocs = pool->counts.allocs, largest = pool->counts.largest;
    const uint32_t top = atomic_load_explicit(&lochi_thread_slots_top, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= top; slot++)
        for (const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            allocs += cache->allocs;
            if (cache->largest > largest) largest = cache->largest;
        }
    out->allocs = allocs;
    out->failures = atomic_load_explicit(&pool->counts.failures, memory_order_relaxed);
    out->retries = pool->counts.retries;
    out->blocks = report_clamp(pool->figures.published[POOL_BLOCKS]);
    out->frees = allocs - out->blocks;
    out->requested_bytes = report_clamp(pool->figures.published[POOL_REQUESTED]);
    out->allocated_bytes = report_clamp(pool->figures.published[POOL_ALLOCATED]);
    out->peak_blocks = report_clamp(pool->figures.peak[POOL_BLOCKS]);
    out->peak_requested_bytes = report_peak(pool, POOL_REQUESTED);
    out->peak_allocated_bytes = report_peak(pool, POOL_ALLOCATED);
    lochi_pool_go(pool); /* threads that look at the figures need no lock */
    out->largest_bytes = largest;
    out->limit_bytes = pool->limit;
    out->reserved_bytes = pool->reserved;
    out->peak_reserved_bytes = pool->peak_reserved;
    const size_t held = pool->reserved + pool->sleep.bytes - pool->sleep.dormant_bytes;
    out->cached_bytes = held > out->allocated_bytes ? held - out->allocated_bytes : 0;
    if (out->cached_bytes > pool->reserved) out->cached_bytes = pool->reserved; /* the rest is asleep */
    out->largest_free_bytes = lochi_pool_find_largest(pool);
}

void lochi_pool_begin_segment(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_stop(pool);
    lochi_pool_restart_peaks(pool);
    pool->counts.largest = 0;
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            cache->largest = 0;
            atomic_store_explicit(&cache->largest_limit, 0, memory_order_relaxed);
        }
    pool->peak_reserved = pool->reserved;
    lochi_pool_go(pool);
}

void lochi_pool_read_info(lochi_pool *pool, loch_pool_info *out)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_stop(pool);
    out->thread_bytes = lochi_pool_count_cached(pool);
    lochi_pool_publish_all(pool);
    out->used_bytes = report_clamp(pool->figures.published[POOL_ALLOCATED]);
    lochi_pool_go(pool);
    out->limit_bytes = pool->limit;
    out->idle_bytes = pool->cap.bytes;
    out->reserved_bytes = pool->reserved;
    out->peak_reserved_bytes = pool->peak_reserved;
    out->waiting_bytes = pool->waiting_bytes;
    out->captured_bytes = pool->captured_bytes;
    out->free_bytes = lochi_pool_free_bytes(pool);
    out->largest_free_bytes = lochi_pool_find_largest(pool);
    out->handles = pool->handles_count;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        out->streams += !lane->is_closed && !lane->is_spare;
    out->handles_created = pool->counts.handles_created;
    out->handles_moved = pool->counts.handles_moved;
    out->handles_released = pool->counts.handles_released;
    out->handles_revived = pool->counts.handles_revived;
    out->events_recorded = pool->counts.events_recorded;
    out->waits_on_device = pool->counts.waits_on_device;
    out->waits_on_host = pool->counts.waits_on_host;
    out->asleep_bytes = pool->sleep.bytes;
    out->excess_bytes = lochi_pool_count_excess(pool);
}

/* --- for people --- */

#define REPORT_TAGS 5

typedef struct report_tag {
    loch_tag tag;
    uint64_t bytes;
} report_tag;

static void report_write_tags(lochi_pool *pool, lochi_text *out)
{
    report_tag top[REPORT_TAGS] = {{0, 0}};
    for (loch_tag tag = 1; tag < lochi_tag_count(); tag++) {
        loch_stats stats = {.size = sizeof stats};
        lochi_ledger_get_stats(pool->tags, tag, &stats);
        report_tag entry = {tag, stats.requested_bytes};
        for (size_t i = 0; i < REPORT_TAGS; i++) {
            if (entry.bytes <= top[i].bytes) continue;
            const report_tag lower = top[i];
            top[i] = entry;
            entry = lower;
        }
    }
    for (size_t i = 0; i < REPORT_TAGS && top[i].bytes; i++)
        lochi_text_write(out, "  tag \"%s\": %s\n", loch_tag_name(top[i].tag), LOCHI_SIZE(top[i].bytes));
}

static void report_write_family(const lochi_pool *pool, lochi_text *out)
{
    const lochi_pool *parent = pool->family.parent;
    if (parent && pool->range)
        lochi_text_write(out, "  a range of \"%s\"\n", loch_allocator_get_name(parent->allocator));
    else if (parent)
        lochi_text_write(out, "  a quota of \"%s\", minimum %s\n", loch_allocator_get_name(parent->allocator),
                         LOCHI_SIZE(pool->family.minimum));
}

loch_status loch_pool_print(loch_allocator *pool, char *text, size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(pool, text, bytes, length));
    lochi_text out = lochi_text_begin(text, bytes);
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "\"%s\" is not a pool", loch_allocator_get_name(pool));
    loch_pool_info info = {.size = sizeof info};
    lochi_lock_take(&self->lock);
    lochi_pool_try_obey(self, true);
    lochi_pool_read_info(self, &info);
    const size_t idle = lochi_pool_count_idle(self, false);
    size_t for_children;
    const size_t children = lochi_family_count(self, &for_children);
    lochi_pool_drop_locks(self);
    lochi_text_write(&out, "pool \"%s\" on %s\n", loch_allocator_get_name(pool), self->device->name);
    lochi_text_write(&out, "  held from the device: %s in %zu %s, peak %s, ", LOCHI_SIZE(info.reserved_bytes),
                     info.handles, info.handles == 1 ? "handle" : "handles", LOCHI_SIZE(info.peak_reserved_bytes));
    if (children) /* what they hold or are promised counts in the limit */
        lochi_text_write(&out, "and %s for %zu %s, ", LOCHI_SIZE(for_children), children,
                         children == 1 ? "child" : "children");
    lochi_text_write(&out, "limit %s\n", info.limit_bytes ? LOCHI_SIZE(info.limit_bytes) : "none");
    lochi_text_write(&out, "  in blocks: %s\n", LOCHI_SIZE(info.used_bytes));
    lochi_text_write(&out, "  free: %s, largest piece %s, in whole handles %s\n", LOCHI_SIZE(info.free_bytes),
                     LOCHI_SIZE(info.largest_free_bytes), LOCHI_SIZE(idle));
    if (info.excess_bytes)
        lochi_text_write(&out, "  above the cap: %s that cannot go back now\n", LOCHI_SIZE(info.excess_bytes));
    lochi_text_write(&out, "  cached by threads: %s; waiting for streams: %s; kept for captures: %s\n",
                     LOCHI_SIZE(info.thread_bytes), LOCHI_SIZE(info.waiting_bytes), LOCHI_SIZE(info.captured_bytes));
    report_write_family(self, &out);
    if (info.asleep_bytes) lochi_text_write(&out, "  asleep: %s\n", LOCHI_SIZE(info.asleep_bytes));
    report_write_tags(self, &out);
    return lochi_printing_end(&out, length);
}
