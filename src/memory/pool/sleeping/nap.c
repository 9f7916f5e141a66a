/* SPDX-License-Identifier: MIT */
/* One sleep: the saved ranges, by address, and where their contents are kept. */
#include "memory/pool/sleeping/nap.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/sleeping/keep.h"
#include "memory/pool/sleeping/rest.h"

/* Adds memory to the ranges. Memory of two reservations is no range, also where one begins at the end of the other. */
static loch_status nap_add_range(pool_nap *nap, uintptr_t start, size_t bytes, bool is_new)
{
    pool_range *last = nap->ranges_count ? &nap->ranges[nap->ranges_count - 1] : NULL;
    if (last && last->start + last->bytes == start && !is_new) {
        last->bytes += bytes;
    } else {
        if (nap->ranges_count == nap->ranges_capacity) {
            const size_t capacity = nap->ranges_capacity ? 2 * nap->ranges_capacity : 64;
            pool_range *grown = lochi_realloc(nap->ranges, capacity * sizeof *grown);
            if (!grown) return LOCH_FAIL(HOST_MEMORY, "no host memory for the list of saved contents");
            nap->ranges = grown;
            nap->ranges_capacity = capacity;
        }
        nap->ranges[nap->ranges_count++] = (pool_range){start, bytes, nap->bytes};
    }
    nap->bytes += bytes;
    return LOCH_OK;
}

loch_status lochi_nap_find_ranges(const lochi_pool *pool, pool_nap *nap)
{
    lochi_lock_assert_held(&pool->lock);
    nap->ranges_count = nap->bytes = 0;
    if (nap->keep.contents == LOCH_SLEEP_DROP) return LOCH_OK;
    pool_part part;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        for (uintptr_t at = block->start;
             lochi_rest_next_part(pool, block, lochi_rest_count_live(block), POOL_CHOSEN, &at, &part);)
            LOCH_TRY_RETURN(
                nap_add_range(nap, part.start, part.bytes, lochi_rest_begins_range(pool, block, part.start)));
    return LOCH_OK;
}

loch_status lochi_nap_save(pool_nap *nap, pool_stage *stage)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < nap->ranges_count && status == LOCH_OK; i++)
        status = lochi_keep_save(&nap->keep, stage, nap->ranges[i].start, nap->ranges[i].bytes, nap->ranges[i].offset);
    if (status == LOCH_OK && nap->ranges_count) status = lochi_keep_finish(&nap->keep, stage);
    return status;
}

size_t lochi_nap_find_offset(const pool_nap *nap, uintptr_t address)
{
    size_t low = 0, high = nap->ranges_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (nap->ranges[middle].start <= address)
            low = middle;
        else
            high = middle;
    }
    return nap->ranges[low].offset + (address - nap->ranges[low].start);
}

void lochi_nap_destroy(pool_nap *nap)
{
    lochi_keep_close(&nap->keep);
    lochi_free(nap->ranges);
    lochi_free(nap);
}

void lochi_nap_destroy_all(pool_nap *nap)
{
    while (nap) {
        pool_nap *next = nap->next;
        lochi_nap_destroy(nap);
        nap = next;
    }
}

void lochi_pool_close_naps(lochi_pool *pool)
{
    lochi_nap_destroy_all(pool->sleep.naps);
    pool->sleep.naps = NULL;
}
