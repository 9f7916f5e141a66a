/* SPDX-License-Identifier: MIT */
/* A pool with a limit holds the weights of a model and its key/value cache: one growable block, which keeps its address
 * while it grows with the sequence. What the cache no longer needs serves the next request. */
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (256 * MIB)
#define TOKEN (MIB / 4) /* bytes of the cache for each token */

/* Writes a token at a time until the pool is full; returns how many there are. */
static size_t decode(loch_allocator *pool, char *cache)
{
    size_t tokens = 0;
    while (loch_pool_resize_growable(pool, cache, (tokens + 1) * TOKEN) == LOCH_OK) {
        if (loch_fill(cache + tokens * TOKEN, TOKEN, "k", 1) != LOCH_OK) break;
        tokens++;
    }
    return tokens;
}

/* Returns how many tokens fitted; 0 when the limit did not hold. */
static size_t serve(loch_allocator *pool)
{
    void *weights, *cache, *scratch;
    const loch_request empty = {.size = sizeof empty};
    /* a little less than 100 MiB, in whole MiB: what takes its place later fits exactly */
    const loch_request whole = {.size = sizeof whole, .bytes = 100 * MIB - 12345, .round_bytes = MIB};
    loch_block block = {.size = sizeof block};
    LOCH_CHECK(loch_allocator_alloc(pool, &whole, &weights));
    LOCH_CHECK(loch_allocator_find(pool, weights, &block));
    printf("weights: %zu bytes asked for, %zu taken\n", block.requested_bytes, block.allocated_bytes);
    LOCH_CHECK(loch_pool_alloc_growable(pool, 1024 * MIB, &empty, &cache)); /* addresses for far more than there is */
    const size_t tokens = decode(pool, cache);
    printf("%zu tokens, then %s: %s\n", tokens, loch_status_name(loch_error_get()->status), loch_error_get()->sentence);
    if (loch_alloc(pool, 64 * MIB, &scratch) != LOCH_E_LIMIT) return 0; /* there is no room for more */
    LOCH_CHECK(loch_pool_resize_growable(pool, cache, 16 * TOKEN));     /* the sequence was cut */
    LOCH_CHECK(loch_alloc(pool, 64 * MIB, &scratch));
    LOCH_CHECK(loch_free(pool, scratch));
    LOCH_CHECK(loch_free(pool, cache));
    LOCH_CHECK(loch_free(pool, weights));
    return tokens;
}

/* Another program wants memory: the pool keeps less of what is free, and may hold less from now on. */
static void shrink(loch_allocator *pool, loch_pool_info *info)
{
    LOCH_CHECK(loch_pool_set_idle(pool, 16 * MIB)); /* gives back what is above it */
    LOCH_CHECK(loch_pool_set_limit(pool, 32 * MIB));
    LOCH_CHECK(loch_pool_get_info(pool, info));
    printf("shrunk: %zu MiB held, of at most %zu\n", info->reserved_bytes / MIB, info->limit_bytes / MIB);
}

int main(void)
{
    loch_device *device;
    loch_allocator *pool;
    char text[1024];
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    loch_pool_info info = {.size = sizeof info}, shrunk = {.size = sizeof shrunk};
    LOCH_CHECK(loch_device_open("sim:8GiB", &device));
    LOCH_CHECK(loch_pool_create(device, "model", &options, &pool));
    const size_t tokens = serve(pool);
    LOCH_CHECK(loch_pool_get_info(pool, &info));
    LOCH_CHECK(loch_pool_print(pool, text, sizeof text, NULL));
    fputs(text, stdout);
    shrink(pool, &shrunk);
    loch_allocator_release(pool);
    loch_device_release(device);
    return tokens == (LIMIT - 100 * MIB) / TOKEN && info.peak_reserved_bytes <= LIMIT &&
                   shrunk.reserved_bytes <= 16 * MIB
               ? 0
               : 1;
}
