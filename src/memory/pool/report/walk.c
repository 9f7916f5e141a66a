/* SPDX-License-Identifier: MIT */
/* Describes blocks: one by its address, all blocks of a pool, or those of a family. */
#include "memory/pool/report/walk.h"
#include "base/fail.h"
#include "kit/text.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/front/front.h"
#include "memory/pool/pool.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/state/state.h"
#include "memory/pool/lanes/lanes.h"
#include <stdio.h>

#define WALK_IDS 64 /* ids that a thread takes at a time */

/* Returns the id of a block. Gives the calling thread a range of ids, so that its next look-ups need no lock. */
static uint64_t walk_get_id(lochi_pool *pool, const pool_found *found)
{
    pool_id *ids = found->word ? lochi_pool_slab_ids(found->block->slab) : NULL;
    if (found->word && !ids) return 0;
    pool_cache *first =
        atomic_load_explicit(&pool->caches[lochi_thread_slot_plus_one], memory_order_relaxed); /* NULL for none */
    if (first && first->next_id == first->end_id) {
        first->next_id = pool->last_id + 1;
        first->end_id = (pool->last_id += WALK_IDS) + 1;
    }
    const uint64_t fresh = first ? first->next_id : pool->last_id + 1;
    const uint64_t id = found->word
                            ? lochi_pool_name_small(found->word, &ids[found->word - found->block->slab->words], fresh)
                            : lochi_pool_name(&found->block->id, fresh);
    if (id == fresh && first)
        first->next_id++;
    else if (id == fresh)
        pool->last_id++;
    return id;
}

static void walk_describe(lochi_pool *pool, const pool_found *found, uintptr_t address, loch_block *out)
{
    *out = (loch_block){.size = sizeof *out,
                        .address = (void *)address,
                        .requested_bytes = found->requested,
                        .allocated_bytes = found->allocated,
                        .id = walk_get_id(pool, found),
                        .tag = found->tag,
                        .stream_id = loch_stream_get_id(found->block->lane->stream)};
}

loch_status lochi_pool_find(void *self, const void *address, loch_block *out)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    pool_found found;
    const loch_status status = lochi_pool_find_live(pool, address, &found);
    if (status == LOCH_OK) walk_describe(pool, &found, (uintptr_t)address, out);
    lochi_lock_drop(&pool->lock);
    return status;
}

typedef struct walk_call {
    loch_block_visitor *visitor;
    void *user;
} walk_call;

static loch_status walk_visit(lochi_pool *pool, uintptr_t address, const walk_call *walk)
{
    pool_found found;
    const loch_error saved = lochi_error_save();
    loch_block block;
    if (lochi_pool_find_live(pool, (const void *)address, &found) != LOCH_OK) {
        lochi_error_restore(&saved);
        return LOCH_OK;
    }
    walk_describe(pool, &found, address, &block);
    return walk->visitor(&block, walk->user);
}

static loch_status walk_visit_block(lochi_pool *pool, const pool_block *block, const walk_call *walk)
{
    if (lochi_pool_state(block) != POOL_SLAB) return walk_visit(pool, block->start, walk);
    const pool_slab *slab = block->slab;
    loch_status status = LOCH_OK;
    for (uint32_t i = 0; i < slab->count && status == LOCH_OK; i++)
        if (atomic_load_explicit(&slab->words[i], memory_order_relaxed) & POOL_WORD_LIVE)
            status = walk_visit(pool, block->start + (uintptr_t)i * slab->object_bytes, walk);
    return status;
}

loch_status lochi_pool_walk(void *self, loch_block_visitor *visitor, void *user)
{
    lochi_pool *pool = self;
    const walk_call walk = {visitor, user};
    loch_status status = LOCH_OK;
    lochi_lock_take(&pool->lock);
    lochi_pool_stop(pool); /* the fast path changes what is described */
    for (const pool_block *block = NULL; status == LOCH_OK && (block = lochi_pool_next_block(pool, block));) {
        const pool_state state = lochi_pool_state(block);
        if (lochi_pool_is_out(state) || state == POOL_SLAB) status = walk_visit_block(pool, block, &walk);
    }
    lochi_pool_go(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

/* --- for people --- */

static void walk_write(const lochi_pool *pool, uintptr_t address, char *text, size_t bytes)
{
    const pool_block *block = lochi_pool_find_around(pool, address);
    const pool_state state = block ? lochi_pool_state(block) : POOL_FREE;
    uintptr_t start = block ? block->start : 0;
    size_t requested = lochi_pool_is_out(state) ? lochi_pool_requested(block) : 0;
    loch_tag tag = requested ? block->tag : 0;
    if (state == POOL_SLAB) {
        const pool_slab *slab = block->slab;
        const size_t index = (address - slab->start) / slab->object_bytes;
        const uint32_t word = index < slab->count ? atomic_load_explicit(&slab->words[index], memory_order_relaxed) : 0;
        requested = word & POOL_WORD_LIVE ? word & POOL_WORD_BYTES : 0;
        start += index * slab->object_bytes;
        tag = requested ? lochi_pool_word_tag(word) : 0;
    }
    const char *name = loch_allocator_get_name(pool->allocator);
    if (!requested)
        snprintf(text, bytes, "memory of pool \"%s\" that was freed", name);
    else
        snprintf(text, bytes, "block of %s at %p%s%s%s of pool \"%s\"", LOCHI_SIZE(requested), (void *)start,
                 tag ? " (tag \"" : "", loch_tag_name(tag), tag ? "\")" : "", name);
}

/* Tries the lock: the caller may hold locks that come after it. */
static void walk_write_locked(lochi_pool *pool, uintptr_t address, char *text, size_t bytes)
{
    const bool is_mine = lochi_lock_is_mine(&pool->lock), is_taken = !is_mine && lochi_lock_try(&pool->lock);
    if (is_mine || is_taken)
        walk_write(pool, address, text, bytes);
    else
        snprintf(text, bytes, "memory of pool \"%s\"", loch_allocator_get_name(pool->allocator));
    if (is_taken) lochi_lock_drop(&pool->lock);
}

void lochi_pool_describe(const lochi_tenant *tenant, uintptr_t address, char *text, size_t bytes)
{
    walk_write_locked(LOCHI_CONTAINER(tenant, lochi_pool, tenant), address, text, bytes);
}

void lochi_pool_describe_annex(const lochi_tenant *tenant, uintptr_t address, char *text, size_t bytes)
{
    walk_write_locked(LOCHI_CONTAINER(tenant, pool_annex, tenant)->pool, address, text, bytes);
}

/* --- families --- */

typedef struct walk_family {
    const lochi_pool *above;
    loch_block_visitor *visitor;
    void *user;
} walk_family;

static loch_status walk_visit_pool(lochi_pool *pool, void *user)
{
    const walk_family *family = user;
    if (pool == family->above || !lochi_family_is_below(pool, family->above)) return LOCH_OK;
    return lochi_pool_walk(pool, family->visitor, family->user);
}

loch_status lochi_pool_walk_family(loch_allocator *allocator, loch_block_visitor *visitor, void *user)
{
    walk_family family = {lochi_pool_of(allocator), visitor, user};
    return family.above ? lochi_pool_visit_all(walk_visit_pool, &family) : LOCH_OK;
}
