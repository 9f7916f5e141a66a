/* SPDX-License-Identifier: MIT */
/* Checks the invariants of structs.h, for tests. */
#include "memory/pool/report/check.h"
#include "memory/movable.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/state/state.h"
#include "memory/pool/front/front.h"

/* Checks the annex of a block. */
static const char *check_annexed(const lochi_pool *pool, const pool_block *block)
{
    const pool_state state = lochi_pool_state(block);
    const pool_annex *annex = lochi_pool_find_annex(pool, block->start);
    if (!annex || annex->node.key != block->start || block->before || block->behind) return "an annex has two blocks";
    if (state != POOL_GROWABLE && state != POOL_WAITING) return "an annex has another block than a growable one";
    return block->bytes == (state == POOL_GROWABLE ? annex->bytes : block->committed) ? NULL
                                                                                      : "an annex has another size";
}

static const char *check_block(const lochi_pool *pool, const pool_block *block)
{
    const pool_state state = lochi_pool_state(block);
    const uintptr_t mask = pool->cell_bytes - 1;
    if (!block->bytes) return "a block is empty";
    if (block->behind && block->behind->before != block) return "neighbours do not know each other";
    if (block->behind && block->behind->start != block->start + block->bytes) return "blocks leave a gap or overlap";
    if (state == POOL_UNMAPPED && (block->start & mask || block->bytes & mask))
        return "an unmapped range holds part of a cell";
    if (state == POOL_UNMAPPED && block->behind && lochi_pool_state(block->behind) == POOL_UNMAPPED)
        return "two unmapped ranges are neighbours";
    if (state == POOL_FREE && block->behind && lochi_pool_state(block->behind) == POOL_FREE &&
        block->lane == block->behind->lane && block->is_arena == block->behind->is_arena && !block->is_piece &&
        !block->behind->is_piece)
        return "two free blocks of a lane are neighbours";
    const bool has_memory = state != POOL_UNMAPPED && state != POOL_STALE && state != POOL_GROWABLE;
    for (uintptr_t at = block->start & ~mask; at < block->start + block->bytes; at += pool->cell_bytes) {
        const pool_cell *cell = lochi_pool_find_cell(pool, at);
        const bool is_mapped = cell && cell->handle;
        if (has_memory && !is_mapped) return "a block lacks memory";
        if (state == POOL_FREE && cell->handle->rest != POOL_AWAKE) return "a free block sleeps";
        const uintptr_t inside =
            at > block->start ? at : block->start; /* the range of a child starts anywhere in a cell */
        if (has_memory && (inside < cell->handle->at || inside >= cell->handle->at + cell->handle->bytes))
            return "a cell knows the wrong handle";
        if ((state == POOL_UNMAPPED || state == POOL_STALE) && is_mapped) return "unmapped addresses have memory";
        if (state == POOL_UNMAPPED && block->bytes > ((size_t)1 << 32)) break; /* the rest of the address space */
    }
    if (state == POOL_DORMANT && block->behind && lochi_pool_state(block->behind) == POOL_DORMANT &&
        block->lane == block->behind->lane && block->is_arena == block->behind->is_arena)
        return "two dormant blocks of a lane are neighbours";
    if (state == POOL_SLAB && block->slab->is_asleep != lochi_pool_sleeps_at(pool, block->start, block->bytes))
        return "a slab does not know whether it sleeps";
    const uintptr_t page = lochi_pool_find_page(pool, block->start);
    if ((lochi_pool_is_out(state) || state == POOL_CACHED) && page != lochi_pool_page_of(block))
        return "an address does not lead to its block";
    if (state == POOL_SLAB && lochi_pool_page_slab(page) != block->slab) return "an address does not lead to its slab";
    const size_t bytes = state == POOL_SLAB ? pool->slab_bytes[block->slab->class]
                                            : block->bytes; /* a piece may be larger than its slab */
    if ((lochi_pool_is_out(state) || state == POOL_CACHED || state == POOL_SLAB) &&
        lochi_pool_find_around(pool, block->start + bytes - 1) != block)
        return "the end of a block does not lead to it";
    if (block->is_annex) return check_annexed(pool, block);
    const pool_block *lead = pool->leads ? lochi_pool_find_lead(pool, block->start - pool->base) : NULL;
    const bool is_led = lochi_pool_is_out(state) || state == POOL_CACHED;
    if (lead && (is_led ? lead != block : lead == block)) return "a lead leads to another block";
    return NULL;
}

/* Checks that the second line of a record is clean. */
static const char *check_simple(const pool_block *block)
{
    if (block->owner) return "an ordinary block has an owner";
    if (block->frozen || block->is_protected) return "an ordinary block is frozen or protected";
    return atomic_load_explicit(&block->child, memory_order_relaxed) ? "an ordinary block has a child pool" : NULL;
}

static const char *check_bins(const pool_bins *bins, pool_state state, size_t *bytes)
{
    for (unsigned bin = 0; bin < POOL_BINS; bin++) {
        const bool is_marked = bins->words[bin / 64] >> (bin % 64) & 1;
        if (is_marked != (bins->bins[bin] != NULL)) return "a bin is marked wrongly";
        for (const pool_block *block = bins->bins[bin]; block; block = block->list_next) {
            if (lochi_pool_state(block) != state) return "a bin holds a block of another state";
            if (*block->list_link != block) return "a block does not know its place in a bin";
            *bytes += block->bytes;
        }
    }
    return NULL;
}

/* Checks that blocks and owners point to each other, and the figures about them. */
static const char *check_owners(const lochi_pool *pool)
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
    if (small != pool->moving.small) return "movable small blocks are not as many as were counted";
    if (movable != pool->moving.bytes) return "movable bytes are not those of the blocks with owners";
    if (guarded != atomic_load_explicit(&pool->moving.guarded, memory_order_relaxed))
        return "protected blocks are not as many as were counted";
    return NULL;
}

/* Checks that the cached blocks are those of the threads' caches and of the transfer caches. */
static const char *check_cached(lochi_pool *pool, size_t cached)
{
    size_t listed = 0, stored = 0;
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            listed += cache->large_bytes + atomic_load_explicit(&cache->last_bytes, memory_order_relaxed);
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        for (size_t i = 0; lane->transfer && i < POOL_TRANSFER_BATCHES; i++) {
            const pool_batch *batch = &lane->transfer->batches[i];
            const size_t bytes = atomic_load_explicit(&batch->state, memory_order_relaxed);
            if (bytes == POOL_BATCH_HELD) return "a batch is held while no thread is in a cache";
            if (!bytes) continue;
            stored += bytes * batch->count;
            if (bytes > POOL_SMALL_MAX) listed += bytes * batch->count;
            for (uint32_t k = 0; bytes > POOL_SMALL_MAX && k < batch->count; k++)
                if (batch->large[k]->lane != lane || batch->large[k]->bytes != bytes)
                    return "a batch has a block of another lane or size";
        }
    if (stored != atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed))
        return "bytes in the transfer caches are not those of the batches";
    return listed == cached ? NULL : "cached blocks are not those of the caches";
}

/* Checks that a mapped handle is listed as idle or has a live block. */
static const char *check_idle(const lochi_pool *pool, const pool_handle *handle)
{
    if (handle->idle.list && handle->idle.live_at) return "an idle handle has a live block";
    if (!pool->cap.is_obedient || !pool->cap.is_listed || pool->range || handle->idle.list) return NULL;
    if (pool->policy.is_virtual && handle->at - pool->base >= pool->span) return NULL; /* of an annex */
    const uintptr_t at = handle->idle.live_at ? handle->idle.live_at : handle->at, end = handle->at + handle->bytes;
    if (at < handle->at || at >= end) return "a handle has a live block elsewhere";
    const pool_block *block = lochi_pool_find_before(pool, pool->policy.is_virtual ? pool->first : handle->first, at);
    while (block->start + block->bytes <= at)
        block = block->behind;
    while (!handle->idle.live_at && lochi_pool_state(block) == POOL_FREE && block->start + block->bytes < end)
        block = block->behind;
    return lochi_pool_state(block) == POOL_FREE ? "an idle handle is not listed" : NULL;
}

static const char *check_all(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t handles = pool->unmapped_handle_bytes, asleep = 0, free = 0, big = 0, dormant = 0, listed = 0, unmapped = 0,
           cached = 0;
    const char *wrong = NULL;
    for (const pool_block *block = NULL; !wrong && (block = lochi_pool_next_block(pool, block));) {
        wrong = check_block(pool, block);
        if (!wrong && lochi_pool_state(block) != POOL_SPECIAL) wrong = check_simple(block);
        if (lochi_pool_state(block) == POOL_FREE) {
            free += block->bytes;
            if (block->is_piece && block->bytes > POOL_WHOLE_BIG) big += block->bytes;
        }
        if (lochi_pool_state(block) == POOL_DORMANT) dormant += block->bytes;
        if (lochi_pool_state(block) == POOL_CACHED) cached += block->bytes;
    }
    for (const pool_block *block = pool->records.spare; !wrong && block; block = block->list_next)
        wrong = check_simple(block);
    for (const pool_handle *handle = pool->sleep.handles; handle; handle = handle->next) {
        asleep += handle->bytes;
        if (handle->handle || !handle->nap || handle->rest != POOL_ASLEEP) wrong = "a sleeping handle is not asleep";
        for (uintptr_t at = handle->at; at < handle->at + handle->bytes; at += pool->cell_bytes)
            if (lochi_pool_find_cell(pool, at)->handle != handle) wrong = "a handle's cells do not know it";
    }
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next) {
        handles += handle->handle ? handle->bytes : handle->raw_bytes;
        if (!wrong) wrong = check_idle(pool, handle);
        for (uintptr_t at = handle->at & ~(uintptr_t)(pool->cell_bytes - 1); at < handle->at + handle->bytes;
             at += pool->cell_bytes)
            if (lochi_pool_find_cell(pool, at)->handle != handle) wrong = "a handle's cells do not know it";
    }
    for (const pool_lane *lane = pool->lanes; !wrong && lane; lane = lane->next)
        if (!(wrong = check_bins(&lane->bins, POOL_FREE, &listed)))
            wrong = check_bins(&lane->arenas, POOL_FREE, &listed);
    if (!wrong && pool->unmapped_ranges) wrong = check_bins(pool->unmapped_ranges, POOL_UNMAPPED, &unmapped);
    if (!wrong && big != pool->cap.pieces_bytes) wrong = "free pieces are not as much as was counted";
    if (!wrong && listed != free) wrong = "not all free blocks are in bins";
    if (!wrong && handles != pool->reserved) wrong = "reserved bytes are not those of the handles";
    if (!wrong && (asleep != pool->sleep.bytes || dormant != pool->sleep.dormant_bytes))
        wrong = "bytes asleep are not those of the handles and blocks";
    if (!wrong && pool->policy.is_virtual &&
        pool->reserved + asleep != pool->used + free + dormant + pool->unmapped_handle_bytes)
        wrong = "reserved bytes are not those of the blocks";
    if (!wrong) wrong = check_cached(pool, cached);
    if (!wrong) wrong = check_owners(pool);
    if (!wrong && pool->is_related && !lochi_family_check(pool)) wrong = "the family's sum is not what its pools hold";
    return wrong;
}

const char *lochi_pool_check(lochi_pool *pool)
{
    const bool is_mine = lochi_lock_is_mine(&pool->lock);
    if (!is_mine) lochi_lock_take(&pool->lock);
    const char *wrong = check_all(pool);
    if (!is_mine) lochi_lock_drop(&pool->lock);
    return wrong;
}
