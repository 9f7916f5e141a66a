/* SPDX-License-Identifier: MIT */
/* Records of blocks: allocated in batches, used again, freed with the pool. */
#include "memory/pool/heap/records.h"
#include "base/heap.h"

#define RECORDS_BATCH 31 /* records allocated at a time */

typedef struct pool_records {
    struct pool_records *next;
    pool_block blocks[RECORDS_BATCH];
} pool_records;

static bool records_add(lochi_pool *pool)
{
    pool_records *records = lochi_zalloc_aligned(_Alignof(pool_records), sizeof *records);
    if (!records) return false;
    records->next = pool->records;
    pool->records = records;
    pool->records_count += RECORDS_BATCH;
    for (size_t i = 0; i < RECORDS_BATCH; i++)
        lochi_pool_drop_record(pool, &records->blocks[i]);
    return true;
}

bool lochi_pool_stock_records(lochi_pool *pool, size_t count)
{
    lochi_lock_assert_held(&pool->lock);
    const pool_block *block = pool->spare;
    while (block && count) {
        block = block->list_next;
        count--;
    }
    return !count || records_add(pool); /* no caller needs more than one batch */
}

void lochi_pool_close_records(lochi_pool *pool)
{
    while (pool->records) {
        pool_records *next = pool->records->next;
        lochi_free_aligned(pool->records);
        pool->records = next;
    }
}
