/* SPDX-License-Identifier: MIT */
/* Prices: the size of new handles, and whether memory is created or remapped. */
#include "memory/pool/price.h"
#include <loch/host.h>

/* Size of new handles. Small handles are idle more often; large ones cost fewer driver calls. While a program
 * allocates and frees little, a new handle is a small part of the reserved memory, because it will not move soon.
 * After that the size grows with the square of the reserved bytes, from one granule at 4 GiB on, and with the square
 * of the request above PRICE_REQUEST. */
#define PRICE_GROWING_PART 64

#define PRICE_GROWING_MAX ((size_t)64 << 20)
#define PRICE_GROWING_FREED 4 /* "frees little": less than this part of the reserved bytes was freed */
#define PRICE_REQUEST ((size_t)112 << 20)
#define PRICE_HANDLE_MAX ((size_t)128 << 20)

/* New memory is taken instead of remapping free memory while the pool holds only a little more than the most in use.
 * How much more depends on the share of the program's time spent on remapping, measured with the host's clock. */
#define PRICE_EXTRA_PART 64

#define PRICE_BUSY_PERCENT 2       /* share of the time from which remapping counts as slow: */
#define PRICE_BUSY_EXTRA_PART 33   /* then this part more may be held, and */
#define PRICE_BUSY_HANDLE_PART 256 /* handles have at least this part of the reserved bytes */
#define PRICE_MAD_PERCENT 40       /* from this share on, half the share in percent may be held more */
#define PRICE_MAD_MAX 50
#define PRICE_WINDOW_NS 1000000000u
#define PRICE_WINDOW_MIN_NS 20000000u /* so that the first remaps of a program do not count as all of its time */

static size_t price_power_below(size_t value)
{
    return value ? (size_t)1 << (63 - __builtin_clzll(value)) : 0;
}

/* Returns the percentage of the time spent on remapping; 0 if the clock does not tell. */
static uint64_t price_get_share(const lochi_pool *pool)
{
    if (!pool->supply_ns) return 0;
    const uint64_t passed_ns = loch_host_now_ns() - pool->since_ns;
    return pool->supply_ns / ((passed_ns > PRICE_WINDOW_MIN_NS ? passed_ns : PRICE_WINDOW_MIN_NS) / 100);
}

size_t lochi_pool_choose_handle(const lochi_pool *pool, size_t request)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->options.handle_bytes) return pool->options.handle_bytes;
    const size_t granules = pool->reserved >> 21;
    size_t bytes = price_power_below(granules < (size_t)1 << 20 ? granules * granules : PRICE_HANDLE_MAX);
    if (price_get_share(pool) >= PRICE_BUSY_PERCENT && bytes < pool->reserved / PRICE_BUSY_HANDLE_PART)
        bytes = price_power_below(pool->reserved / PRICE_BUSY_HANDLE_PART);
    if (pool->freed_bytes < pool->reserved / PRICE_GROWING_FREED) {
        bytes = price_power_below(pool->reserved / PRICE_GROWING_PART);
        if (bytes > PRICE_GROWING_MAX) bytes = PRICE_GROWING_MAX;
    }
    const size_t times = request / (PRICE_REQUEST / 16); /* in sixteenths, so that the square stays an integer */
    const size_t by_request = price_power_below((times < 4096 ? times * times : 4096 * 4096) / 256 * pool->cell_bytes);
    if (bytes < by_request) bytes = by_request;
    if (bytes > PRICE_HANDLE_MAX) bytes = PRICE_HANDLE_MAX;
    return bytes > pool->cell_bytes ? lochi_pool_round(pool, bytes) : pool->cell_bytes;
}

bool lochi_pool_may_take_extra(const lochi_pool *pool, const pool_want *want, size_t missing)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t now = pool->used - pool->waiting_bytes + want->bytes;
    const size_t most = now > pool->peak_used ? now : pool->peak_used;
    const uint64_t share = price_get_share(pool);
    size_t extra = most / (share >= PRICE_BUSY_PERCENT ? PRICE_BUSY_EXTRA_PART : PRICE_EXTRA_PART);
    if (share >= PRICE_MAD_PERCENT) extra = most / 200 * (share < PRICE_MAD_MAX ? share : PRICE_MAD_MAX);
    return pool->reserved + pool->asleep_bytes + missing <= most + extra;
}

void lochi_pool_note_time(lochi_pool *pool, uint64_t start_ns)
{
    lochi_lock_assert_held(&pool->lock);
    const uint64_t now_ns = loch_host_now_ns();
    pool->supply_ns += now_ns - start_ns;
    if (now_ns - pool->since_ns < PRICE_WINDOW_NS) return;
    pool->supply_ns /= 2;
    pool->since_ns += (now_ns - pool->since_ns) / 2;
}
