/* SPDX-License-Identifier: MIT */
#include "memory/pool/trim/discard.h"
#include "base/fail.h"
#include "device/driver.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"

#define DISCARD_MIN ((size_t)16 << 10) /* smaller blocks are not worth a call */

/* Finds the whole pages inside a block. Returns their bytes. */
static size_t discard_find_pages(const pool_block *block, size_t page, uintptr_t *start)
{
    const uintptr_t end = (block->start + block->bytes) & ~(uintptr_t)(page - 1);
    *start = (block->start + page - 1) & ~(uintptr_t)(page - 1);
    return end > *start ? end - *start : 0;
}

static bool discard_may(const pool_block *block)
{
    return lochi_pool_is_idle(block) && block->bytes >= DISCARD_MIN && !block->lane->capture &&
           lochi_pool_has_passed(block->lane, lochi_pool_epoch(block));
}

void lochi_pool_discard(lochi_pool *pool, size_t most)
{
    lochi_pool_assert_both(pool);
    if (!pool->policy.is_virtual || !lochi_device_discards(pool->device)) return;
    const size_t page = lochi_device_page_bytes();
    const loch_error saved = lochi_error_save();
    loch_status status = LOCH_OK;
    pool_block *block = NULL, *held = NULL;
    for (size_t gone = 0; status == LOCH_OK && gone < most && (block = lochi_pool_next_block(pool, block));) {
        uintptr_t start;
        const size_t bytes = discard_may(block) ? discard_find_pages(block, page, &start) : 0;
        if (!bytes) continue;
        lochi_pool_hold(pool, block, &held);
        lochi_pool_go_outside(pool);
        status = lochi_device_discard(pool->device, (void *)start, bytes);
        lochi_pool_come_back(pool);
        block = lochi_pool_put_back(pool, block);
        gone += bytes;
    }
    lochi_error_restore(&saved);
}
