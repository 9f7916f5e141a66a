/* SPDX-License-Identifier: MIT */
/* What a pool says of itself: figures, a report for people, why a request failed, and a walk over the invariants. */
#include "base/fail.h"
#include "base/printing.h"
#include "memory/movable.h"
#include "memory/pool/inside.h"
#include "memory/tag.h"

/* --- figures --- */

static void report_publish_all(lochi_pool *pool)
{
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            lochi_pool_publish(pool, cache);
}

static size_t report_clamp(int64_t value)
{
    return value > 0 ? (size_t)value : 0;
}

/* The largest piece that a stream could have without a driver call. */
static size_t report_largest(const lochi_pool *pool)
{
    size_t largest = 0;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        for (const pool_block *block = lochi_pool_bins_below(&lane->bins, &bin); block; block = block->list_next)
            if (block->bytes > largest) largest = block->bytes;
    }
    return largest;
}

void lochi_pool_read_stats(lochi_pool *pool, loch_stats *out)
{
    lochi_pool_stop(pool);
    report_publish_all(pool);
    uint64_t allocs = pool->allocs, largest = pool->largest;
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            allocs += cache->allocs;
            if (cache->largest > largest) largest = cache->largest;
        }
    lochi_pool_go(pool);
    out->allocs = allocs;
    out->failures = atomic_load_explicit(&pool->failures, memory_order_relaxed);
    out->retries = pool->retries;
    out->blocks = report_clamp(pool->published[POOL_BLOCKS]);
    out->frees = allocs - out->blocks;
    out->requested_bytes = report_clamp(pool->published[POOL_REQUESTED]);
    out->allocated_bytes = report_clamp(pool->published[POOL_ALLOCATED]);
    out->peak_blocks = report_clamp(pool->top[POOL_BLOCKS]);
    out->peak_requested_bytes = report_clamp(pool->top[POOL_REQUESTED]);
    out->peak_allocated_bytes = report_clamp(pool->top[POOL_ALLOCATED]);
    out->largest_bytes = largest;
    out->limit_bytes = pool->limit;
    out->reserved_bytes = pool->reserved;
    out->peak_reserved_bytes = pool->peak_reserved;
    const size_t held = pool->reserved + pool->asleep_bytes - pool->dormant_bytes;
    out->cached_bytes = held > out->allocated_bytes ? held - out->allocated_bytes : 0;
    if (out->cached_bytes > pool->reserved) out->cached_bytes = pool->reserved; /* the rest sleeps */
    out->largest_free_bytes = report_largest(pool);
}

void lochi_pool_begin_segment(lochi_pool *pool)
{
    lochi_pool_stop(pool);
    report_publish_all(pool);
    for (int i = 0; i < POOL_METRICS; i++)
        pool->top[i] = pool->published[i];
    pool->largest = 0;
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            cache->largest = 0;
    pool->peak_reserved = pool->reserved;
    lochi_pool_go(pool);
}

void lochi_pool_read_info(lochi_pool *pool, loch_pool_info *out)
{
    lochi_pool_stop(pool);
    out->thread_bytes = lochi_pool_count_cached(pool);
    report_publish_all(pool);
    lochi_pool_go(pool);
    out->limit_bytes = pool->limit;
    out->idle_bytes = pool->idle;
    out->reserved_bytes = pool->reserved;
    out->peak_reserved_bytes = pool->peak_reserved;
    out->used_bytes = report_clamp(pool->published[POOL_ALLOCATED]);
    out->waiting_bytes = pool->waiting_bytes;
    out->captured_bytes = pool->captured_bytes;
    out->free_bytes = lochi_pool_free_bytes(pool);
    out->largest_free_bytes = report_largest(pool);
    out->handles = pool->handles_count;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        out->streams += !lane->is_closed && !lane->is_spare;
    out->handles_created = pool->handles_created;
    out->handles_moved = pool->handles_moved;
    out->handles_released = pool->handles_released;
    out->handles_revived = pool->handles_revived;
    out->events_recorded = pool->events_recorded;
    out->waits_on_device = pool->waits_on_device;
    out->waits_on_host = pool->waits_on_host;
    out->asleep_bytes = pool->asleep_bytes;
}

/* --- failing --- */

/* The figures behind every failure. */
#define REPORT_FIGURES "%s held, %s in blocks, %s free (largest piece %s), %s waiting for streams"
#define REPORT_READ(pool)                                                                                              \
    LOCHI_SIZE((pool)->reserved), LOCHI_SIZE((pool)->used - (pool)->waiting_bytes),                                    \
        LOCHI_SIZE(lochi_pool_free_bytes(pool)), LOCHI_SIZE(report_largest(pool)), LOCHI_SIZE((pool)->waiting_bytes)

loch_status lochi_pool_fail_limit(lochi_pool *pool, size_t bytes)
{
    size_t limit, held;
    const lochi_pool *full = lochi_family_find_limit(pool, bytes, &limit, &held);
    const char *name = loch_allocator_get_name(pool->allocator), *other = loch_allocator_get_name(full->allocator);
    const char *with = full->is_related ? " with its children" : "";
    if (full == pool)
        return LOCH_FAIL(LIMIT, "%s more do not fit: pool \"%s\" is at its limit of %s (%s in use%s): " REPORT_FIGURES,
                         LOCHI_SIZE(bytes), name, LOCHI_SIZE(limit), LOCHI_SIZE(held), with, REPORT_READ(pool));
    return LOCH_FAIL(LIMIT,
                     "%s more for pool \"%s\" do not fit: its parent \"%s\" is at its limit of %s (%s in use%s); the "
                     "child: " REPORT_FIGURES,
                     LOCHI_SIZE(bytes), name, other, LOCHI_SIZE(limit), LOCHI_SIZE(held), with, REPORT_READ(pool));
}

/* What limits leave of whole cells: less than one is none. */
static size_t report_room(const lochi_pool *pool, bool *is_limited)
{
    size_t room = pool->limit > pool->reserved ? pool->limit - pool->reserved : 0;
    *is_limited = pool->limit != 0;
    const size_t left = pool->is_related ? lochi_family_room(pool) : SIZE_MAX;
    if (left != SIZE_MAX) {
        room = left;
        *is_limited = true;
    }
    return pool->range ? 0 : room - room % pool->cell_bytes;
}

/* Why, beyond what the step that failed last has seen. */
loch_status lochi_pool_fail(lochi_pool *pool, const pool_want *want, loch_status status)
{
    const bool is_full = status == LOCH_E_DEVICE_MEMORY; /* what the limit leaves is not there */
    bool is_limited;
    const size_t left = report_room(pool, &is_limited), room = is_full ? 0 : left;
    if (pool->is_virtual && want->bytes > pool->span)
        return LOCH_FAIL(DEVICE_MEMORY, "%s are more than the addresses of pool \"%s\", which are for %s in all",
                         LOCHI_SIZE(want->bytes), loch_allocator_get_name(pool->allocator), LOCHI_SIZE(pool->span));
    if (is_limited && !is_full && want->bytes > lochi_pool_free_bytes(pool) + room)
        return lochi_pool_fail_limit(pool, want->bytes);
    if (want->bytes <= lochi_pool_free_bytes(pool) + room)
        return LOCH_FAIL(FRAGMENTED, "%s are not free in one piece in pool \"%s\": " REPORT_FIGURES,
                         LOCHI_SIZE(want->bytes), loch_allocator_get_name(pool->allocator), REPORT_READ(pool));
    return LOCH_FAIL(DEVICE_MEMORY, "%s has no %s more for pool \"%s\": " REPORT_FIGURES, pool->device->name,
                     LOCHI_SIZE(want->bytes), loch_allocator_get_name(pool->allocator), REPORT_READ(pool));
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
        lochi_text_write(out, "  tag \"%s\": %llu bytes\n", loch_tag_name(top[i].tag),
                         (unsigned long long)top[i].bytes);
}

static void report_write_family(const lochi_pool *pool, lochi_text *out)
{
    const lochi_pool *parent = pool->family.parent;
    size_t bytes;
    const size_t children = lochi_family_count(pool, &bytes);
    if (parent && pool->range)
        lochi_text_write(out, "  a range of \"%s\"\n", loch_allocator_get_name(parent->allocator));
    else if (parent)
        lochi_text_write(out, "  a quota of \"%s\", minimum %zu bytes\n", loch_allocator_get_name(parent->allocator),
                         pool->family.minimum);
    if (children) lochi_text_write(out, "  children: %zu, for which %zu bytes count in the limit\n", children, bytes);
}

loch_status loch_pool_print(loch_allocator *allocator, char *text, size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(allocator, text, bytes, length));
    lochi_text out = lochi_text_begin(text, bytes);
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_FAIL(INVALID, "\"%s\" is no pool", loch_allocator_get_name(allocator));
    loch_pool_info info = {.size = sizeof info};
    lochi_lock_take(&pool->lock);
    lochi_pool_obey_idle(pool, true);
    lochi_pool_read_info(pool, &info);
    const size_t idle = lochi_pool_count_idle(pool);
    lochi_lock_drop(&pool->lock);
    lochi_text_write(&out, "pool \"%s\" on %s\n", loch_allocator_get_name(allocator), pool->device->name);
    lochi_text_write(&out, "  held from the device: %zu bytes in %zu handles, peak %zu, limit %zu%s\n",
                     info.reserved_bytes, info.handles, info.peak_reserved_bytes, info.limit_bytes,
                     info.limit_bytes ? "" : " (none)");
    lochi_text_write(&out, "  in blocks: %zu bytes\n", info.used_bytes);
    lochi_text_write(&out, "  free: %zu bytes, the largest piece %zu, whole handles %zu\n", info.free_bytes,
                     info.largest_free_bytes, idle);
    lochi_text_write(&out, "  kept by threads: %zu bytes; waiting for streams: %zu; with captures: %zu\n",
                     info.thread_bytes, info.waiting_bytes, info.captured_bytes);
    report_write_family(pool, &out);
    if (info.asleep_bytes) lochi_text_write(&out, "  asleep: %zu bytes\n", info.asleep_bytes);
    report_write_tags(pool, &out);
    return lochi_printing_end(&out, length);
}

/* --- invariants --- */

static const char *report_check_block(const lochi_pool *pool, const pool_block *block)
{
    const pool_state state = lochi_pool_state(block);
    const uintptr_t mask = pool->cell_bytes - 1;
    if (!block->bytes) return "a block is empty";
    if (block->behind && block->behind->before != block) return "neighbours do not know each other";
    if (block->behind && block->behind->start != block->start + block->bytes) return "blocks leave a gap or overlap";
    if (state == POOL_BARE && (block->start & mask || block->bytes & mask)) return "a bare block holds part of a cell";
    if (state == POOL_BARE && block->behind && lochi_pool_state(block->behind) == POOL_BARE)
        return "two bare blocks are neighbours";
    if (state == POOL_FREE && block->behind && lochi_pool_state(block->behind) == POOL_FREE &&
        block->lane == block->behind->lane && block->is_nest == block->behind->is_nest && !block->is_piece &&
        !block->behind->is_piece)
        return "two free blocks of a lane are neighbours";
    const bool has_memory = state != POOL_BARE && state != POOL_FADING && state != POOL_GROWABLE;
    for (uintptr_t at = block->start & ~mask; at < block->start + block->bytes; at += pool->cell_bytes) {
        const pool_cell *cell = lochi_pool_find_cell(pool, at);
        const bool is_mapped = cell && cell->handle;
        if (has_memory && !is_mapped) return "a block lacks memory";
        if (state == POOL_FREE && cell->handle->rest != POOL_AWAKE) return "a free block sleeps";
        const uintptr_t inside = at > block->start ? at : block->start; /* a child's range begins anywhere in a cell */
        if (has_memory && (inside < cell->handle->at || inside >= cell->handle->at + cell->handle->bytes))
            return "a cell knows the wrong handle";
        if ((state == POOL_BARE || state == POOL_FADING) && is_mapped) return "bare addresses have memory";
        if (state == POOL_BARE && block->bytes > ((size_t)1 << 32)) break; /* the rest of the addresses */
    }
    if (state == POOL_DORMANT && block->behind && lochi_pool_state(block->behind) == POOL_DORMANT)
        return "two dormant blocks are neighbours";
    if (state == POOL_SLAB && block->slab->is_asleep != lochi_pool_sleeps_at(pool, block->start, block->bytes))
        return "a slab does not know whether it sleeps";
    const uintptr_t page = lochi_pool_find_page(pool, block->start);
    if ((lochi_pool_is_out(state) || state == POOL_CACHED) && page != lochi_pool_page_of(block))
        return "an address does not lead to its block";
    if (state == POOL_SLAB && lochi_pool_page_slab(page) != block->slab) return "an address does not lead to its slab";
    const size_t bytes = state == POOL_SLAB ? pool->slab_bytes[block->slab->class] : block->bytes; /* of a piece more */
    if ((lochi_pool_is_out(state) || state == POOL_CACHED || state == POOL_SLAB) &&
        lochi_pool_find_around(pool, block->start + bytes - 1) != block)
        return "the end of a block does not lead to it";
    return NULL;
}

static const char *report_check_bins(const pool_bins *bins, pool_state state, size_t *bytes)
{
    for (unsigned bin = 0; bin < POOL_BINS; bin++) {
        const bool is_marked = bins->words[bin / 64] >> (bin % 64) & 1;
        if (is_marked != (bins->bins[bin] != NULL)) return "a bin is marked wrongly";
        for (const pool_block *block = bins->bins[bin]; block; block = block->list_next) {
            if (lochi_pool_state(block) != state) return "a bin holds a block of another state";
            *bytes += block->bytes;
        }
    }
    return NULL;
}

/* Blocks and their owners know each other, and the figures on them are right. */
static const char *report_check_owners(const lochi_pool *pool)
{
    size_t movable = 0, guarded = 0;
    for (const pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        guarded += block->is_protected;
        if (!block->owner) continue;
        movable += block->bytes;
        if ((uintptr_t)block->owner->address != block->start) return "an owner has another address than its block";
        const bool has_tail = block->behind && lochi_pool_state(block->behind) == POOL_WAITING;
        if (block->owner->torn_from && !has_tail) return "a torn block has nothing behind it";
    }
    size_t small = 0;
    for (const pool_slab *slab = pool->slabs; slab; slab = slab->all_next)
        for (uint32_t i = 0; slab->owners && i < slab->count; i++) {
            if (!slab->owners[i]) continue;
            small++;
            if ((uintptr_t)slab->owners[i]->address != slab->start + (uintptr_t)i * slab->object_bytes)
                return "an owner has another address than its small block";
        }
    if (small != pool->movable_small) return "movable small blocks are not as many as were counted";
    if (movable != pool->movable_bytes) return "movable bytes are not those of the blocks with owners";
    if (guarded != atomic_load_explicit(&pool->guarded, memory_order_relaxed))
        return "protected blocks are not as many as were counted";
    return NULL;
}

const char *lochi_pool_check(lochi_pool *pool)
{
    size_t handles = pool->loose_bytes, asleep = 0, free = 0, big = 0, dormant = 0, listed = 0, bare = 0;
    const char *wrong = NULL;
    for (const pool_block *block = NULL; !wrong && (block = lochi_pool_next_block(pool, block));) {
        wrong = report_check_block(pool, block);
        if (lochi_pool_state(block) == POOL_FREE) {
            free += block->bytes;
            if (block->is_piece && block->bytes > POOL_WHOLE_BIG) big += block->bytes;
        }
        if (lochi_pool_state(block) == POOL_DORMANT) dormant += block->bytes;
    }
    for (const pool_handle *handle = pool->asleep; handle; handle = handle->next) {
        asleep += handle->bytes;
        if (handle->handle || !handle->nap || handle->rest != POOL_ASLEEP) wrong = "a sleeping handle is not asleep";
        for (uintptr_t at = handle->at; at < handle->at + handle->bytes; at += pool->cell_bytes)
            if (lochi_pool_find_cell(pool, at)->handle != handle) wrong = "a handle's cells do not know it";
    }
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next) {
        handles += handle->handle ? handle->bytes : handle->raw_bytes;
        for (uintptr_t at = handle->at & ~(uintptr_t)(pool->cell_bytes - 1); at < handle->at + handle->bytes;
             at += pool->cell_bytes)
            if (lochi_pool_find_cell(pool, at)->handle != handle) wrong = "a handle's cells do not know it";
    }
    for (const pool_lane *lane = pool->lanes; !wrong && lane; lane = lane->next)
        if (!(wrong = report_check_bins(&lane->bins, POOL_FREE, &listed)))
            wrong = report_check_bins(&lane->nests, POOL_FREE, &listed);
    if (!wrong) wrong = report_check_bins(&pool->bare, POOL_BARE, &bare);
    if (!wrong && big != pool->big_idle) wrong = "free pieces are not as much as was counted";
    if (!wrong && listed != free) wrong = "not all free blocks are in bins";
    if (!wrong && handles != pool->reserved) wrong = "reserved bytes are not those of the handles";
    if (!wrong && (asleep != pool->asleep_bytes || dormant != pool->dormant_bytes))
        wrong = "bytes asleep are not those of the handles and blocks";
    if (!wrong && pool->is_virtual && pool->reserved + asleep != pool->used + free + dormant + pool->loose_bytes)
        wrong = "reserved bytes are not those of the blocks";
    if (!wrong) wrong = report_check_owners(pool);
    if (!wrong && pool->is_related && !lochi_family_check(pool)) wrong = "the family's sum is not what its pools hold";
    return wrong;
}
