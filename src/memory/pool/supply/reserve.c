/* SPDX-License-Identifier: MIT */
/* The addresses of a pool: one reservation, the table of its pages, and the cells. A pool reserves several times the
 * memory of the device, or less if the process cannot have so much. A child with a quota reserves nothing before its
 * first block: many children live a short time, and the addresses of a device are bounded. No thread reads the range
 * of such a child without the lock, because no block was handed out. */
#include "memory/pool/supply/reserve.h"
#include "base/fail.h"
#include "kit/text.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/space.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/state/state.h"

#define RESERVE_FACTOR 8 /* bytes of addresses for each byte of the device, so that best fit has room */
#define RESERVE_MAX ((size_t)1 << 42)
#define RESERVE_ALIGNED_FROM 4 /* chunks: aligning a smaller reservation would waste a large part of its addresses */
#define RESERVE_ROOM_PART 4    /* part of the addresses left to a process with a limit */
#define RESERVE_TABLE_PART (POOL_PAGE / sizeof(uintptr_t)) /* the table of pages takes this part of the addresses */
#define RESERVE_WIDE_POOLS 16  /* pools of the process with wide reservations; later ones reserve less: */
#define RESERVE_FULL_POOLS 64  /* the memory of the device, up to this number of pools */
#define RESERVE_SOME_POOLS 256 /* a quarter of it, up to this number */
#define RESERVE_SMALL_PART 128 /* this part of it, all others, and at least: */
#define RESERVE_SMALL_MIN ((size_t)1 << 30)

/* Memory and records of blocks from which the table of pages gets large pages. With fewer blocks, few pages of the
 * table are used, and a processor has their translations at hand. */
#define RESERVE_WIDE_FROM ((size_t)1 << 30)
#define RESERVE_WIDE_RECORDS 1024

static atomic_size_t reserve_pools; /* pools with a reservation */

/* Chooses the bytes to reserve for one of very many pools: a part of the device's memory. A pool with a limit gets
 * addresses for more than the limit. */
static size_t reserve_choose_part(const lochi_pool *pool, bool is_some)
{
    const size_t total = pool->device->properties.total_bytes;
    size_t part = is_some ? total / 4 : total / RESERVE_SMALL_PART;
    if (part < RESERVE_SMALL_MIN) part = RESERVE_SMALL_MIN;
    if (pool->limit > part / 2) part = pool->limit < total / 2 ? 2 * pool->limit : total;
    return part < total ? part : total;
}

/* Chooses the bytes to reserve. Counts the reservation. */
static size_t reserve_choose_span(const lochi_pool *pool)
{
    const size_t chunk = pool->cell_bytes << POOL_CHUNK_SHIFT, total = pool->device->properties.total_bytes;
    const size_t others = atomic_fetch_add(&reserve_pools, 1);
    const size_t factor = others < RESERVE_WIDE_POOLS ? RESERVE_FACTOR : 1;
    size_t span = total > RESERVE_MAX / factor ? RESERVE_MAX : total * factor;
    if (span < total) span = total; /* the device has more memory than RESERVE_MAX */
    if (others >= RESERVE_FULL_POOLS) span = reserve_choose_part(pool, others < RESERVE_SOME_POOLS);
#if LOCHI_TSAN
    /* ThreadSanitizer leaves the process little address space, and a few pools would fill it. */
    const size_t most = (size_t)(others < RESERVE_WIDE_POOLS / 2 ? 32 : 2) << 30;
    if (loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) && span > most) span = most;
#elif defined(LOCHI_SPAN_MAX)
    /* A build for an emulator, where each page of addresses costs time: reserves at most LOCHI_SPAN_MAX, or the
     * memory of a simulated device. */
    const bool is_host = loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS);
    const size_t most = is_host || total < LOCHI_SPAN_MAX ? LOCHI_SPAN_MAX : total;
    if (span > most) span = most;
#endif
    span = (span + chunk - 1) / chunk * chunk;
    /* A process with a limit on its addresses needs some of them for other data and for further pools. */
    const size_t room = lochi_address_room();
    if (room == SIZE_MAX) return span;
    const size_t share = room / RESERVE_ROOM_PART;
    if (loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) && span > share) span = share;
    if (span / RESERVE_TABLE_PART > share) span = share * RESERVE_TABLE_PART;
    return span;
}

/* Returns the bytes of the table of pages of a reservation, and of the bits and leads behind it. */
static size_t reserve_table_bytes(size_t span)
{
    const size_t pages = lochi_pool_count_pages(span);
    return (pages + lochi_pool_count_starts(pages) + lochi_pool_count_leads(span)) * sizeof(uint64_t);
}

/* Reserves addresses for the blocks, and memory for their table of pages. On failure both are given back, and
 * `*is_too_much` tells whether less could succeed. */
static loch_status reserve_try(lochi_pool *pool, size_t span, bool *is_too_much)
{
    const size_t chunk = pool->cell_bytes << POOL_CHUNK_SHIFT;
    const size_t alignment = span >= RESERVE_ALIGNED_FROM * chunk ? chunk : pool->cell_bytes;
    void *base = NULL, *pages = NULL;
    lochi_pool_go_outside(pool);
    loch_status status = loch_virtual_reserve(pool->device, span, alignment, &base);
    *is_too_much = status == LOCH_E_DEVICE_MEMORY;
    if (status == LOCH_OK && !(pages = lochi_map(reserve_table_bytes(span)))) {
        if (loch_virtual_unreserve(base) != LOCH_OK) LOCHI_LOG(ERROR, "%s of addresses are lost", LOCHI_SIZE(span));
        *is_too_much = true;
        status = LOCH_FAIL(HOST_MEMORY, "no host memory for the tables of a pool's addresses");
    }
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) return status;
    pool->pages = pages;
    pool->base = (uintptr_t)base;
    pool->span = span;
    lochi_ranges_let(base, &pool->tenant);
    if (pool->allocator) lochi_span_add(&pool->in_index, pool->base, span, pool->allocator);
    return LOCH_OK;
}

/* Reserves as much as the process can get. */
static loch_status reserve_addresses(lochi_pool *pool)
{
    size_t span = reserve_choose_span(pool) & ~(pool->cell_bytes - 1);
    if (span < pool->cell_bytes) span = pool->cell_bytes;
    bool is_too_much;
    loch_status status = reserve_try(pool, span, &is_too_much);
    while (status != LOCH_OK && is_too_much && span > pool->cell_bytes) {
        span = lochi_pool_round(pool, span / 2);
        status = reserve_try(pool, span, &is_too_much);
    }
    if (status == LOCH_OK) return LOCH_OK;
    const size_t others = atomic_fetch_sub(&reserve_pools, 1) - 1;
    if (status != LOCH_E_DEVICE_MEMORY) return status;
    const loch_error why = lochi_error_save();
    return loch_error_set(LOCH_E_ADDRESSES, why.driver, why.driver_code,
                          "%s has no addresses left for the first block of a pool; %zu pools of the process have "
                          "reserved some: end pools that are not used",
                          pool->device->name, others);
}

loch_status lochi_pool_open_addresses(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    if (!pool->policy.is_virtual || pool->first) return LOCH_OK;
    if (!pool->span) LOCH_TRY_RETURN(reserve_addresses(pool));
    if (!pool->unmapped_ranges) pool->unmapped_ranges = lochi_zalloc(sizeof *pool->unmapped_ranges);
    if (!pool->unmapped_ranges || (!pool->chunks && !lochi_pool_open_cells(pool)) || !lochi_pool_stock_records(pool, 1))
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the tables of a pool's addresses");
    const size_t pages = lochi_pool_count_pages(pool->span);
    lochi_pool_open_starts(pool, (_Atomic uint64_t *)(pool->pages + pages), pages);
    const bool is_host = loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS); /* frees of small blocks come first */
    if (!is_host) pool->leads = pool->pages + pages + lochi_pool_count_starts(pages);
    pool->wide_from = is_host ? SIZE_MAX : RESERVE_WIDE_FROM;
    pool_block *all = lochi_pool_take_record(pool);
    all->start = pool->base;
    lochi_pool_set_bytes(all, pool->span);
    all->before = all->behind = NULL;
    pool->first = all;
    lochi_pool_make_unmapped(pool, all);
    return LOCH_OK;
}

void lochi_pool_widen_table(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->policy.is_virtual || pool->reserved < pool->wide_from || pool->records.count < RESERVE_WIDE_RECORDS)
        return;
    const size_t span = pool->reserved < pool->span / 2 ? 2 * pool->reserved : pool->span;
    lochi_map_largely((void *)pool->pages, lochi_pool_count_pages(span) * sizeof *pool->pages);
    pool->wide_from = 2 * pool->reserved;
}

void lochi_pool_close_addresses(lochi_pool *pool)
{
    lochi_pool_close_cells(pool);
    lochi_span_remove(&pool->in_index);
    lochi_free(pool->unmapped_ranges);
    if (!pool->policy.is_virtual) return;
    if (pool->span) lochi_ranges_let((void *)pool->base, NULL); /* a mapping that was lost may still be there */
    lochi_unmap((void *)pool->pages, reserve_table_bytes(pool->span));
    if (!pool->span) return;
    atomic_fetch_sub(&reserve_pools, 1);
    const loch_status status = loch_virtual_unreserve((void *)pool->base);
    if (status != LOCH_OK) LOCHI_LOG(ERROR, "a pool's addresses are lost: %s", loch_error_get()->sentence);
}
