/* SPDX-License-Identifier: MIT */
/* Blocks that further streams use. While a block is live, its uses are in a tree by address. After its free it waits
 * in a list until those streams have passed; then its memory becomes free. */
#include "memory/pool/lanes/uses.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/lanes/block.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lane.h"
#include "memory/pool/lanes/slab.h"
#include "memory/pool/lanes/wipe.h"

static void uses_drop(pool_elsewhere *elsewhere)
{
    while (elsewhere->uses) {
        pool_use *next = elsewhere->uses->next;
        lochi_free(elsewhere->uses);
        elsewhere->uses = next;
    }
    lochi_free(elsewhere);
}

loch_status lochi_pool_note_use(lochi_pool *pool, uintptr_t address, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->elsewhere, address);
    pool_elsewhere *elsewhere = node && node->key == address ? LOCHI_CONTAINER(node, pool_elsewhere, node) : NULL;
    for (const pool_use *use = elsewhere ? elsewhere->uses : NULL; use; use = use->next)
        if (use->lane == lane) return LOCH_OK;
    pool_use *use = lochi_alloc(sizeof *use);
    if (!use) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a use on a further stream");
    if (!elsewhere) {
        elsewhere = lochi_zalloc(sizeof *elsewhere);
        if (!elsewhere) {
            lochi_free(use);
            return LOCH_FAIL(HOST_MEMORY, "no host memory to record a use on a further stream");
        }
        elsewhere->node.key = address;
        lochi_tree_insert(&pool->elsewhere, &elsewhere->node);
    }
    *use = (pool_use){elsewhere->uses, lane, 0};
    elsewhere->uses = use;
    return LOCH_OK;
}

void lochi_pool_forget_uses(lochi_pool *pool, uintptr_t address)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->elsewhere, address);
    lochi_tree_remove(&pool->elsewhere, node);
    uses_drop(LOCHI_CONTAINER(node, pool_elsewhere, node));
}

void lochi_pool_wait_for_uses(lochi_pool *pool, uintptr_t address, pool_block *block, pool_word *word)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->elsewhere, address);
    pool_elsewhere *elsewhere = LOCHI_CONTAINER(node, pool_elsewhere, node);
    lochi_tree_remove(&pool->elsewhere, node);
    const size_t bytes = word ? block->slab->object_bytes : block->bytes;
    elsewhere->block = block;
    elsewhere->word = word;
    elsewhere->epoch = block->lane->freed = block->lane->epoch;
    elsewhere->next = NULL;
    for (pool_use *use = elsewhere->uses; use; use = use->next) {
        use->epoch = use->lane->freed = use->lane->epoch;
        lochi_pool_note_bytes(pool, use->lane, bytes);
    }
    pool->has_freed = true;
    *pool->waiting_end = elsewhere;
    pool->waiting_end = &elsewhere->next;
    pool->waiting_bytes += bytes;
    if (word) {
        atomic_store_explicit(word, POOL_WORD_FREED | POOL_WORD_ELSEWHERE, memory_order_relaxed);
        return;
    }
    lochi_pool_set_state(block, POOL_WAITING);
    if (!block->is_annex) lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
}

/* Takes a waiting block out of the list, and frees its memory at an epoch of its own lane. */
static void uses_free(lochi_pool *pool, pool_elsewhere **link, uint64_t epoch)
{
    pool_elsewhere *elsewhere = *link;
    *link = elsewhere->next;
    if (!elsewhere->next) pool->waiting_end = link;
    pool_block *block = elsewhere->block;
    if (elsewhere->word) {
        pool->waiting_bytes -= block->slab->object_bytes;
        if (lochi_pool_wipe_word(pool, block->slab, elsewhere->word))
            lochi_pool_slab_give(pool, block->slab, elsewhere->word);
    } else {
        pool->waiting_bytes -= block->bytes;
        if (lochi_pool_wipe_block(pool, block)) {
            lochi_pool_uncount(pool, block);
            lochi_pool_make_free(pool, block, pool->is_wiped ? block->lane->epoch : epoch); /* ordered after the fill */
        }
    }
    uses_drop(elsewhere);
}

/* Tells whether all uses of a block are over. A use in the present epoch is not over until an event ends that epoch. */
static bool uses_are_over(const pool_elsewhere *elsewhere)
{
    for (const pool_use *use = elsewhere->uses; use; use = use->next)
        if (use->lane != elsewhere->block->lane && !lochi_pool_has_passed(use->lane, use->epoch)) return false;
    return true;
}

/* Records the events that waiting blocks need, on streams that were captured when the blocks were freed. */
static void uses_mark_again(lochi_pool *pool)
{
    for (const pool_elsewhere *elsewhere = pool->waiting; elsewhere; elsewhere = elsewhere->next)
        for (const pool_use *use = elsewhere->uses; use; use = use->next)
            if (use->epoch == use->lane->epoch && !use->lane->is_closed) lochi_pool_mark(pool, use->lane);
}

bool lochi_pool_collect(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    bool has_freed = lochi_pool_wipe_again(pool);
    if (!pool->waiting) return has_freed;
    if (pool->is_of_graphs) uses_mark_again(pool);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        lochi_pool_poll(pool, lane);
    for (pool_elsewhere **link = &pool->waiting; *link;) {
        if (!uses_are_over(*link)) {
            link = &(*link)->next;
            continue;
        }
        uses_free(pool, link, (*link)->epoch);
        has_freed = true;
    }
    return has_freed;
}

bool lochi_pool_collect_behind_wait(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_error saved = lochi_error_save();
    for (pool_elsewhere **link = &pool->waiting; *link; link = &(*link)->next) {
        if ((*link)->block->lane != lane) continue;
        loch_status status = LOCH_OK;
        for (const pool_use *use = (*link)->uses; use && status == LOCH_OK; use = use->next)
            status = lochi_pool_wait_on_device(pool, lane, use->lane, use->epoch);
        if (status != LOCH_OK) continue;
        uses_free(pool, link,
                  lane->epoch); /* the lane waits on the device: the memory is free in its own order from now on */
        return true;
    }
    lochi_error_restore(&saved);
    return false;
}

void lochi_pool_close_uses(lochi_pool *pool)
{
    while (pool->waiting) {
        pool_elsewhere *next = pool->waiting->next;
        uses_drop(pool->waiting);
        pool->waiting = next;
    }
}
