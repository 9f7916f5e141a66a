/* SPDX-License-Identifier: MIT */
/* Growable blocks with more memory than they need: the excess is unmapped after their streams have passed, and kept
 * as unmapped handles. */
#include "memory/pool/trim/shrunk.h"
#include "memory/pool/front/front.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/state/state.h"

void lochi_pool_shrink(lochi_pool *pool, pool_block *block, size_t bytes)
{
    lochi_pool_assert_both(pool);
    while (block->committed > lochi_pool_round(pool, bytes)) {
        const uintptr_t end = block->start + block->committed;
        pool_handle *handle = lochi_pool_find_cell(pool, end - pool->cell_bytes)->handle;
        const size_t gone = handle->bytes;
        if (handle->at < block->start + bytes) return; /* the block needs a part of this handle */
        if (handle->handle) {
            if (lochi_pool_unmap_handle(pool, handle) != LOCH_OK) return;
            handle->rest = POOL_AWAKE;
            handle->nap = NULL;
        } else { /* asleep, under a block that was freed meanwhile */
            lochi_pool_set_cells(pool, handle->at, handle->bytes, NULL);
            lochi_pool_forget_asleep(pool, handle);
        }
        block->committed -= gone;
        pool->used -= gone;
    }
}

/* Takes the memory of freed blocks in annexes whose streams have passed, and ends their annexes. Other threads enter
 * further blocks at the front of the list during the driver calls. */
static void shrunk_end_annexed(lochi_pool *pool)
{
    for (pool_block *block = pool->annexes.ended, *next; block; block = next) {
        next = block->list_next;
        const size_t committed = block->committed;
        if (lochi_pool_has_passed(block->lane, block->shrink_epoch)) lochi_pool_shrink(pool, block, 0);
        pool->waiting_bytes -= committed - block->committed;
        if (block->committed) { /* tried again later */
            lochi_pool_set_bytes(block, block->committed);
            pool->has_shrunk = true;
            continue;
        }
        lochi_pool_unlist(block);
        const uintptr_t start = block->start;
        block->shrink_epoch = 0;
        lochi_pool_end_annex(pool, start); /* first: it drops the lock, and the record must not serve another block */
        lochi_pool_drop_record(pool, block);
    }
}

void lochi_pool_drop_shrunk(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    if (!pool->has_shrunk) return;
    pool->has_shrunk = false;
    shrunk_end_annexed(pool);
    for (pool_block *block = pool->growables; block; block = block->list_next) {
        if (block->committed <= lochi_pool_round(pool, lochi_pool_requested(block))) continue;
        if (!lochi_pool_has_passed(block->lane, block->shrink_epoch) ||
            lochi_pool_sleeps_at(pool, block->start, block->committed)) {
            pool->has_shrunk = true;
            continue;
        }
        const size_t committed = block->committed;
        lochi_pool_shrink(pool, block, lochi_pool_requested(block));
        lochi_pool_count_change(pool, NULL, 0, (int64_t)block->committed - (int64_t)committed);
    }
}
