/* SPDX-License-Identifier: MIT */
/* Finds the live block at an address, and marks it. */
#include "memory/pool/heap/find.h"
#include "base/fail.h"
#include "memory/pool/heap/bounds.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"

/* Tells whether an address lies inside a live block, for the error sentence. */
static bool find_is_inside(const lochi_pool *pool, uintptr_t address)
{
    const pool_block *block = lochi_pool_find_around(pool, address);
    return block && (lochi_pool_is_out(lochi_pool_state(block)) || lochi_pool_state(block) == POOL_SLAB);
}

static loch_status find_refuse(lochi_pool *pool, const void *address, uintptr_t page)
{
    if (page & POOL_IS_FREED && page == POOL_MARK((uintptr_t)address))
        return LOCH_FAIL(DOUBLE_FREE, "the block at %p was already freed", address);
    if (find_is_inside(pool, (uintptr_t)address)) return LOCH_FAIL(INTERIOR, "%p lies inside a block", address);
    return LOCH_FAIL(FOREIGN, "pool \"%s\" has no block at %p", loch_allocator_get_name(pool->allocator), address);
}

static loch_status find_small(lochi_pool *pool, const void *address, pool_slab *slab, pool_found *out)
{
    pool_word *word = lochi_pool_slab_word(slab, (uintptr_t)address);
    if (!word) { /* may point into a live block */
        const uint32_t index = (uint32_t)(((uintptr_t)address - slab->start) / slab->object_bytes);
        const bool is_live =
            index < slab->count && atomic_load_explicit(&slab->words[index], memory_order_relaxed) & POOL_WORD_LIVE;
        return is_live ? LOCH_FAIL(INTERIOR, "%p lies inside a block", address)
                       : LOCH_FAIL(FOREIGN, "pool \"%s\" has no block at %p", loch_allocator_get_name(pool->allocator),
                                   address);
    }
    const uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen & POOL_WORD_FREED) return LOCH_FAIL(DOUBLE_FREE, "the block at %p was already freed", address);
    if (!(seen & POOL_WORD_LIVE))
        return LOCH_FAIL(FOREIGN, "pool \"%s\" has no block at %p", loch_allocator_get_name(pool->allocator), address);
    *out = (pool_found){slab->block, word, seen & POOL_WORD_BYTES, slab->object_bytes, lochi_pool_word_tag(seen)};
    return LOCH_OK;
}

loch_status lochi_pool_find_live(lochi_pool *pool, const void *address, pool_found *out)
{
    lochi_lock_assert_held(&pool->lock);
    const uintptr_t page = lochi_pool_find_page(pool, (uintptr_t)address);
    pool_slab *slab = lochi_pool_page_slab(page);
    if (slab) return find_small(pool, address, slab, out);
    pool_block *block = lochi_pool_page_block(page);
    if (!block) return find_refuse(pool, address, page);
    const pool_state state = lochi_pool_state(block);
    if (block->start != (uintptr_t)address) return find_refuse(pool, address, 0);
    if (state == POOL_CACHED || state == POOL_WAITING)
        return LOCH_FAIL(DOUBLE_FREE, "the block at %p was already freed", address);
    if (!lochi_pool_is_out(state)) return find_refuse(pool, address, 0);
    *out = (pool_found){block, NULL, lochi_pool_requested(block),
                        state == POOL_GROWABLE ? block->committed : block->bytes, block->tag};
    return LOCH_OK;
}

void lochi_pool_set_uses(const pool_found *found)
{
    if (found->word) {
        atomic_fetch_or_explicit(found->word, POOL_WORD_HAS_USES, memory_order_relaxed);
    } else {
        found->block->has_uses = true;
        if (lochi_pool_state(found->block) == POOL_USED) lochi_pool_set_state(found->block, POOL_SPECIAL);
    }
}

void lochi_pool_keep_range(lochi_pool *pool, const void *address, lochi_pool *child)
{
    pool_found found;
    lochi_lock_take(&pool->lock);
    if (lochi_pool_find_live(pool, address, &found) == LOCH_OK) {
        atomic_store_explicit(&found.block->child, child, memory_order_release);
        /* The child pool marks its own contents for valgrind. */
        if (pool->policy.checker == POOL_CHECKER_VALGRIND && child) lochi_poison_take_back(pool, (uintptr_t)address, 0);
        if (pool->policy.checker == POOL_CHECKER_VALGRIND && !child)
            lochi_poison_hand_out(pool, (uintptr_t)address, found.requested);
        if (child) lochi_pool_set_state(found.block, POOL_SPECIAL); /* a free takes the slow path, which refuses it */
    }
    lochi_lock_drop(&pool->lock);
}

void lochi_pool_keep_off(lochi_pool *pool, const void *address)
{
    lochi_lock_take(&pool->lock);
    pool_found found = {.block = NULL}; /* gcc at -O3 does not see that a failure is not LOCH_OK */
    if (lochi_pool_find_live(pool, address, &found) == LOCH_OK) {
        if (found.word)
            atomic_fetch_or_explicit(found.word, POOL_WORD_KEPT_OFF, memory_order_relaxed);
        else if (lochi_pool_state(found.block) == POOL_USED)
            lochi_pool_set_state(found.block, POOL_SPECIAL);
    }
    lochi_lock_drop(&pool->lock);
}
