/* SPDX-License-Identifier: MIT */
/* Annexes: reservations beside a pool's range.
 *
 * A pool's own range is a few times the memory of its device and has a table with an entry for each page. Growable
 * blocks need addresses for what they may become, which can be far more than that: each large one has a reservation of
 * its own, without a table. So the addresses that a device has are the only bound on their number.
 *
 *   range:  | blocks, free and unmapped addresses ... |        annexes:  | growable |   | growable |   | ended |
 *           table of pages, cells                                    tree by address, cells
 *
 * Invariants, with both locks of the pool held:
 *  1. An annex in the tree has one block, which starts with it, has no neighbours and has `is_annex`. The block is
 *     growable and as long as the annex, or it was freed and is as long as its memory.
 *  2. No other block gets memory there. A freed block waits in the list `ended` until its stream has passed; then its
 *     handles become unmapped and the annex ends. So no free, unmapped, stale or dormant block lies in an annex.
 *  3. A spare annex has no block and nothing is mapped in it. At most ANNEX_SPARES are kept, so that a program that
 *     makes and frees blocks of one size calls the driver for memory only. A trim gives them back.
 *
 * An address finds its annex in the tree with the pool's lock held. Copies are checked without a lock: each reservation
 * has a tenant of its own, which is a part of the annex's record. Records are kept until the pool ends. */
#include "memory/pool/heap/annex.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "kit/text.h"
#include "memory/pool/heap/cells.h"
#include "memory/pool/state/state.h"

#define ANNEX_SPARES 64

/* --- spare annexes --- */

/* Takes a spare annex of exactly `bytes` at a multiple of `alignment`; NULL for none. */
static pool_annex *annex_take_spare(lochi_pool *pool, size_t bytes, size_t alignment)
{
    for (pool_annex **link = &pool->annexes.spare, *annex; (annex = *link); link = &annex->next) {
        if (annex->bytes != bytes || annex->node.key & (alignment - 1)) continue;
        *link = annex->next;
        pool->annexes.spare_count--;
        return annex;
    }
    return NULL;
}

static void annex_drop_record(lochi_pool *pool, pool_annex *annex)
{
    annex->next = pool->annexes.unused;
    pool->annexes.unused = annex;
}

/* Gives the addresses of an annex that is in no list back, outside the lock. */
static void annex_unreserve(lochi_pool *pool, pool_annex *annex)
{
    void *start = (void *)annex->node.key;
    const loch_error saved = lochi_error_save();
    lochi_ranges_let(start, NULL);
    lochi_span_remove(&annex->span);
    lochi_pool_free_annex_cells(pool, annex);
    lochi_pool_go_outside(pool);
    if (loch_virtual_unreserve(start) != LOCH_OK)
        LOCHI_LOG(ERROR, "%s of addresses are lost: %s", LOCHI_SIZE(annex->bytes), loch_error_get()->sentence);
    lochi_pool_come_back(pool);
    lochi_error_restore(&saved);
    pool->annexes.held_bytes -= annex->bytes;
    annex_drop_record(pool, annex);
}

void lochi_pool_drop_annexes(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    for (pool_annex *annex; (annex = pool->annexes.spare);) {
        pool->annexes.spare = annex->next;
        pool->annexes.spare_count--;
        annex_unreserve(pool, annex);
    }
}

/* --- making and ending --- */

/* Returns a record without addresses; NULL without host memory. */
static pool_annex *annex_take_record(lochi_pool *pool)
{
    pool_annex *annex = pool->annexes.unused;
    if (!annex) return lochi_zalloc(sizeof *annex);
    pool->annexes.unused = annex->next;
    return annex;
}

static loch_status annex_reserve(lochi_pool *pool, size_t bytes, size_t alignment, void **out)
{
    lochi_pool_go_outside(pool);
    const loch_status status = loch_virtual_reserve(pool->device, bytes, alignment, out);
    lochi_pool_come_back(pool);
    return status;
}

/* Reserves addresses. Gives spare ones back first if the device has no more. */
static loch_status annex_get_addresses(lochi_pool *pool, size_t bytes, size_t alignment, void **out)
{
    const loch_error saved = lochi_error_save();
    loch_status status = annex_reserve(pool, bytes, alignment, out);
    if (status == LOCH_E_DEVICE_MEMORY && pool->annexes.spare) {
        lochi_pool_drop_annexes(pool);
        status = annex_reserve(pool, bytes, alignment, out);
    }
    if (status == LOCH_OK) lochi_error_restore(&saved);
    if (status != LOCH_E_DEVICE_MEMORY) return status;
    const loch_error why = lochi_error_save();
    return loch_error_set(LOCH_E_ADDRESSES, why.driver, why.driver_code,
                          "%s has no %s of addresses left; pool \"%s\" has reserved %s for %zu growable blocks: free "
                          "some, or reserve less for each",
                          pool->device->name, LOCHI_SIZE(bytes), loch_allocator_get_name(pool->allocator),
                          LOCHI_SIZE(pool->annexes.held_bytes), pool->annexes.tree.count);
}

loch_status lochi_pool_open_annex(lochi_pool *pool, size_t bytes, size_t alignment, pool_annex **out)
{
    lochi_pool_assert_both(pool);
    *out = annex_take_spare(pool, bytes, alignment);
    if (*out) return LOCH_OK;
    pool_annex *annex = annex_take_record(pool);
    if (!annex) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a reservation");
    void *start;
    const loch_status status = annex_get_addresses(pool, bytes, alignment, &start);
    if (status != LOCH_OK) {
        annex_drop_record(pool, annex);
        return status;
    }
    annex->node.key = (uintptr_t)start;
    annex->bytes = bytes;
    annex->pool = pool;
    annex->tenant = pool->annexes.tenant;
    pool->annexes.held_bytes += bytes;
    lochi_ranges_let(start, &annex->tenant);
    lochi_span_add(&annex->span, annex->node.key, bytes, pool->allocator);
    *out = annex;
    return LOCH_OK;
}

void lochi_pool_enter_annex(lochi_pool *pool, pool_annex *annex, pool_block *block)
{
    lochi_pool_assert_both(pool);
    atomic_store_explicit(&annex->block, block, memory_order_release);
    lochi_tree_insert(&pool->annexes.tree, &annex->node);
}

void lochi_pool_return_annex(lochi_pool *pool, pool_annex *annex)
{
    lochi_pool_assert_both(pool);
    if (pool->annexes.spare_count < ANNEX_SPARES) {
        annex->next = pool->annexes.spare;
        pool->annexes.spare = annex;
        pool->annexes.spare_count++;
    } else {
        annex_unreserve(pool, annex);
    }
}

void lochi_pool_end_annex(lochi_pool *pool, uintptr_t start)
{
    lochi_pool_assert_both(pool);
    pool_annex *annex = lochi_pool_find_annex(pool, start);
    lochi_tree_remove(&pool->annexes.tree, &annex->node);
    atomic_store_explicit(&annex->block, NULL, memory_order_relaxed);
    lochi_pool_return_annex(pool, annex);
}

void lochi_pool_close_annexes(lochi_pool *pool)
{
    for (lochi_tree_node *node; (node = pool->annexes.tree.root);) {
        lochi_tree_remove(&pool->annexes.tree, node);
        pool_annex *annex = LOCHI_CONTAINER(node, pool_annex, node);
        annex->next = pool->annexes.spare;
        pool->annexes.spare = annex;
    }
    for (pool_annex *annex; (annex = pool->annexes.spare);) {
        pool->annexes.spare = annex->next;
        lochi_ranges_let((void *)annex->node.key, NULL);
        lochi_span_remove(&annex->span);
        if (loch_virtual_unreserve((void *)annex->node.key) != LOCH_OK)
            LOCHI_LOG(ERROR, "a pool's addresses are lost: %s", loch_error_get()->sentence);
        lochi_pool_free_annex_cells(pool, annex);
        lochi_free(annex);
    }
    for (pool_annex *annex; (annex = pool->annexes.unused);) {
        pool->annexes.unused = annex->next;
        lochi_free(annex);
    }
}
