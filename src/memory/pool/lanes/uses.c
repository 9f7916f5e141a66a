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

static void uses_drop(pool_recorded_uses *recorded)
{
    while (recorded->uses) {
        pool_use *next = recorded->uses->next;
        lochi_free(recorded->uses);
        recorded->uses = next;
    }
    lochi_free(recorded);
}

loch_status lochi_pool_note_use(lochi_pool *pool, uintptr_t address, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->recorded_uses, address);
    pool_recorded_uses *recorded =
        node && node->key == address ? LOCHI_CONTAINER(node, pool_recorded_uses, node) : NULL;
    for (const pool_use *use = recorded ? recorded->uses : NULL; use; use = use->next)
        if (use->lane == lane) return LOCH_OK;
    pool_use *use = lochi_alloc(sizeof *use);
    if (!use) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a use on a further stream");
    if (!recorded) {
        recorded = lochi_zalloc(sizeof *recorded);
        if (!recorded) {
            lochi_free(use);
            return LOCH_FAIL(HOST_MEMORY, "no host memory to record a use on a further stream");
        }
        recorded->node.key = address;
        lochi_tree_insert(&pool->recorded_uses, &recorded->node);
    }
    *use = (pool_use){recorded->uses, lane, 0};
    recorded->uses = use;
    return LOCH_OK;
}

void lochi_pool_forget_uses(lochi_pool *pool, uintptr_t address)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->recorded_uses, address);
    lochi_tree_remove(&pool->recorded_uses, node);
    uses_drop(LOCHI_CONTAINER(node, pool_recorded_uses, node));
}

void lochi_pool_wait_for_uses(lochi_pool *pool, uintptr_t address, pool_block *block, pool_word *word)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->recorded_uses, address);
    pool_recorded_uses *recorded = LOCHI_CONTAINER(node, pool_recorded_uses, node);
    lochi_tree_remove(&pool->recorded_uses, node);
    const size_t bytes = word ? block->slab->object_bytes : block->bytes;
    recorded->block = block;
    recorded->word = word;
    recorded->epoch = block->lane->freed = block->lane->epoch;
    recorded->next = NULL;
    for (pool_use *use = recorded->uses; use; use = use->next) {
        use->epoch = use->lane->freed = use->lane->epoch;
        lochi_pool_note_bytes(pool, use->lane, bytes);
    }
    pool->cap.has_freed = true;
    *pool->waiting_end = recorded;
    pool->waiting_end = &recorded->next;
    pool->waiting_bytes += bytes;
    if (word) {
        atomic_store_explicit(word, POOL_WORD_FREED | POOL_WORD_HAS_USES, memory_order_relaxed);
        return;
    }
    lochi_pool_set_state(block, POOL_WAITING);
    if (!block->is_annex) lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
}

/* Takes a waiting block out of the list, and frees its memory at an epoch of its own lane. */
static void uses_free(lochi_pool *pool, pool_recorded_uses **link, uint64_t epoch)
{
    pool_recorded_uses *recorded = *link;
    *link = recorded->next;
    if (!recorded->next) pool->waiting_end = link;
    pool_block *block = recorded->block;
    if (recorded->word) {
        pool->waiting_bytes -= block->slab->object_bytes;
        if (lochi_pool_wipe_word(pool, block->slab, recorded->word))
            lochi_pool_slab_give(pool, block->slab, recorded->word);
    } else {
        pool->waiting_bytes -= block->bytes;
        if (lochi_pool_wipe_block(pool, block)) {
            lochi_pool_uncount(pool, block);
            lochi_pool_make_free(pool, block,
                                 pool->policy.is_wiped ? block->lane->epoch : epoch); /* ordered after the fill */
        }
    }
    uses_drop(recorded);
}

/* Tells whether all uses of a block are over. A use in the present epoch is not over until an event ends that epoch. */
static bool uses_are_over(const pool_recorded_uses *recorded)
{
    for (const pool_use *use = recorded->uses; use; use = use->next)
        if (use->lane != recorded->block->lane && !lochi_pool_has_passed(use->lane, use->epoch)) return false;
    return true;
}

/* Records the events that waiting blocks need, on streams that were captured when the blocks were freed. */
static void uses_mark_again(lochi_pool *pool)
{
    for (const pool_recorded_uses *recorded = pool->waiting; recorded; recorded = recorded->next)
        for (const pool_use *use = recorded->uses; use; use = use->next)
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
    for (pool_recorded_uses **link = &pool->waiting; *link;) {
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
    for (pool_recorded_uses **link = &pool->waiting; *link; link = &(*link)->next) {
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
        pool_recorded_uses *next = pool->waiting->next;
        uses_drop(pool->waiting);
        pool->waiting = next;
    }
}
