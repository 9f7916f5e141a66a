/* SPDX-License-Identifier: MIT */
/* Prices. The pool chooses between actions that waste memory and actions that take time of the program. Both are
 * counted in bytes: an action costs the bytes that it wastes, plus its time at the price of time. The action that costs
 * least is taken.
 *
 * The price of time follows a budget, the part of the program's time that driver calls may take. If they take just
 * that part, a microsecond of them is worth PRICE_PART of the memory that the pool holds. Otherwise it is worth more
 * or less, with the square of the part that they take. So a program that maps memory seldom gets small handles and
 * tight memory. One that would map memory all the time gets large handles, and holds a little more. */
#include "memory/pool/supply/price.h"
#include "device/driver.h"

#define PRICE_BUDGET 0.01            /* part of the program's time */
#define PRICE_PART 4e-6              /* of the memory held, for a microsecond */
#define PRICE_SHARE_MIN 0.25         /* of the budget: the price does not fall below that of this share */
#define PRICE_START_NS 20000000u     /* counts as passed before the first call, which would take all of the time */
#define PRICE_WINDOW_NS 20000000000u /* older times count less and less */
#define PRICE_HANDLE_NS 30000u       /* time for mapping a handle, before the first one was measured */
#define PRICE_SEARCH_NS 5000u        /* time for a search for a better place */
#define PRICE_HANDLE_MAX ((size_t)128 << 20)
#define PRICE_HELD_MIN ((size_t)64 << 20) /* a smaller pool counts as this large */
#define PRICE_EXTRA_MIN (1.0 / 64)        /* part more than the most in use that may be held to save time, and */
#define PRICE_EXTRA_MAX (1.0 / 4)         /* its maximum: between them, the part of the time that driver calls take */
#define PRICE_DEAR_MAX ((size_t)1 << 40)
#define PRICE_LOOKS 64 /* uses of a price before it is computed again */

/* Returns the time for mapping one handle. */
static double price_handle_ns(const lochi_pool *pool)
{
    return pool->handle_ns ? (double)pool->handle_ns : PRICE_HANDLE_NS;
}

/* Returns the price of mapping one handle if driver calls had taken `spent_ns`. */
static double price_at(const lochi_pool *pool, double spent_ns)
{
    double share = spent_ns / pool->passed_ns / PRICE_BUDGET;
    if (share < PRICE_SHARE_MIN) share = PRICE_SHARE_MIN;
    const size_t held = pool->reserved > PRICE_HELD_MIN ? pool->reserved : PRICE_HELD_MIN;
    return (double)held * PRICE_PART * share * share * price_handle_ns(pool) / 1000;
}

/* Returns the average size of handles from which on twice that size and a cell are as much as the price, rounded up. */
static size_t price_dear_bytes(const lochi_pool *pool)
{
    const double most = (pool->price - (double)pool->cell_bytes) / 2;
    if (!lochi_pool_may_place(pool) || most <= 0) return 0;
    const size_t bytes = most < (double)PRICE_DEAR_MAX ? (size_t)most : PRICE_DEAR_MAX;
    return bytes + ((double)bytes < most);
}

/* Computes the price of mapping one handle. */
static void price_update(lochi_pool *pool)
{
    const uint64_t now_ns = lochi_device_now_ns(pool->device);
    if (!pool->since_ns) { /* the program has run before the pool was made */
        const uint64_t age_ns = lochi_device_age_ns(pool->device);
        pool->since_ns = now_ns - (age_ns < PRICE_WINDOW_NS ? age_ns : PRICE_WINDOW_NS);
    }
    if (now_ns - pool->since_ns >= PRICE_WINDOW_NS) {
        pool->spent_ns /= 2;
        pool->since_ns += (now_ns - pool->since_ns) / 2;
    }
    pool->passed_ns = (double)(now_ns - pool->since_ns) + PRICE_START_NS;
    pool->extra = (double)pool->spent_ns / pool->passed_ns;
    if (pool->extra < PRICE_EXTRA_MIN) pool->extra = PRICE_EXTRA_MIN;
    if (pool->extra > PRICE_EXTRA_MAX) pool->extra = PRICE_EXTRA_MAX;
    pool->price = price_at(pool, (double)pool->spent_ns);
    pool->dear_bytes = price_dear_bytes(pool);
    pool->price_looks = PRICE_LOOKS;
}

double lochi_pool_price(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->price_looks)
        price_update(pool);
    else
        pool->price_looks--;
    return pool->price;
}

double lochi_pool_search_price(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    return pool->price * (1 + PRICE_SEARCH_NS / price_handle_ns(pool));
}

/* Returns the square root, to a few percent. (The library does not use libm.) */
static double price_root(double value)
{
    double root = (double)PRICE_HANDLE_MAX;
    for (unsigned i = 0; i < 32 && root * root > value * 1.05; i++)
        root = (root + value / root) / 2;
    return root;
}

/* Returns the size of handles at a price. With handles of h bytes, filling `bytes` costs bytes / h calls, and about
 * h / 2 bytes are wasted where a live block ends inside of a handle. The sum is least at the square root of twice the
 * product of price and bytes. */
static double price_size(double price, size_t bytes)
{
    const double best = price_root(2 * price * (double)bytes);
    return best < (double)PRICE_HANDLE_MAX ? best : (double)PRICE_HANDLE_MAX;
}

/* Filling much memory takes time that raises the price. So the size is chosen at the price that it would have then. */
size_t lochi_pool_choose_handle(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->options.handle_bytes) return pool->options.handle_bytes;
    const double price = lochi_pool_price(pool), cell = (double)pool->cell_bytes;
    double size = price_size(price, bytes);
    const double calls = (double)bytes / (size > cell ? size : cell);
    const double spent_ns = (double)pool->spent_ns + calls * price_handle_ns(pool);
    const size_t chosen = (size_t)price_size(price_at(pool, spent_ns), bytes);
    return chosen > pool->cell_bytes ? (size_t)1 << (63 - __builtin_clzll(chosen)) : pool->cell_bytes;
}

size_t lochi_pool_usual_handle(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    return pool->handles_count ? pool->reserved / pool->handles_count : pool->cell_bytes;
}

bool lochi_pool_may_create(lochi_pool *pool, size_t bytes, size_t count)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t most = pool->peak_used > pool->used ? pool->peak_used : pool->used;
    if ((double)(pool->reserved + pool->asleep_bytes + bytes) > (double)most * (1 + pool->extra)) return false;
    const size_t handle = lochi_pool_choose_handle(pool, bytes), created = (bytes + handle - 1) / handle;
    return (double)bytes + pool->price * (double)created < pool->price * (double)count;
}

/* The part more is fixed: pinned memory is the host's, and each byte that is pinned is one that no other process can
 * use. */
size_t lochi_pool_may_hold(const lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t now = pool->used + bytes, most = pool->peak_used > now ? pool->peak_used : now;
    return most + (size_t)((double)most * PRICE_EXTRA_MIN);
}

void lochi_pool_forget_peak(lochi_pool *pool, size_t keep)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t now = pool->used - pool->waiting_bytes;
    if (now < pool->peak_used && keep < pool->peak_used - now) pool->peak_used = now + keep;
}

void lochi_pool_note_time(lochi_pool *pool, uint64_t start_ns, uint64_t handles)
{
    lochi_lock_assert_held(&pool->lock);
    const uint64_t passed_ns = lochi_device_now_ns(pool->device) - start_ns;
    pool->spent_ns += passed_ns;
    if (handles)
        pool->handle_ns = pool->handle_ns ? (pool->handle_ns * 15 + passed_ns / handles) / 16 : passed_ns / handles;
    price_update(pool);
}
