/* SPDX-License-Identifier: MIT */
/* A pool with a limit holds the weights of a model and its key/value cache. The cache is one growable block that keeps
 * its address while it grows with the sequence. Memory that the cache no longer needs serves the next request. */
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (256 * MIB)
#define TOKEN (MIB / 4) /* bytes of the cache for each token */

/* Writes one token at a time until the pool is full. Returns the number of tokens. */
static size_t decode(loch_allocator *pool, char *cache)
{
    size_t tokens = 0;
    while (loch_pool_resize_growable(pool, cache, (tokens + 1) * TOKEN) == LOCH_OK) {
        if (loch_fill(cache + tokens * TOKEN, TOKEN, "k", 1) != LOCH_OK) break;
        tokens++;
    }
    return tokens;
}

/* Returns the number of tokens that fitted; 0 if the limit was not kept. */
static size_t serve(loch_allocator *pool)
{
    void *weights, *cache, *scratch;
    const loch_request empty = {.size = sizeof empty};
    /* a little less than 100 MiB, in whole MiB: a later block fits exactly into its place */
    const loch_request whole = {.size = sizeof whole, .bytes = 100 * MIB - 12345, .round_bytes = MIB};
    loch_block block = {.size = sizeof block};
    LOCH_CHECK(loch_allocator_alloc(pool, &whole, &weights));
    LOCH_CHECK(loch_allocator_find(pool, weights, &block));
    printf("weights: %zu bytes asked for, %zu taken\n", block.requested_bytes, block.allocated_bytes);
    /* addresses for far more memory than there is */
    LOCH_CHECK(loch_pool_alloc_growable(pool, 1024 * MIB, &empty, &cache));
    const size_t tokens = decode(pool, cache);
    printf("%zu tokens, then %s: %s\n", tokens, loch_status_name(loch_error_get()->status), loch_error_get()->sentence);
    if (loch_alloc(pool, 64 * MIB, &scratch) != LOCH_E_LIMIT) return 0; /* the pool is at its limit */
    LOCH_CHECK(loch_pool_resize_growable(pool, cache, 16 * TOKEN));     /* the sequence was cut */
    LOCH_CHECK(loch_alloc(pool, 64 * MIB, &scratch));
    LOCH_CHECK(loch_free(pool, scratch));
    LOCH_CHECK(loch_free(pool, cache));
    LOCH_CHECK(loch_free(pool, weights));
    return tokens;
}

/* Another program needs memory: the pool keeps less free memory and gets a lower limit. */
static void shrink(loch_allocator *pool, loch_pool_info *info)
{
    LOCH_CHECK(loch_pool_set_idle(pool, 16 * MIB)); /* gives back what is above the limit */
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
