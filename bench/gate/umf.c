/* SPDX-License-Identifier: MIT */
/* Calls a Loch pool as UMF calls it, through the table of libloch_umf, for scripts/gate, which counts the instructions
 * of `measured`: umf BYTES COUNT. The first COUNT rounds fill caches and are not measured. UMF itself is not needed. */
#include <interface.h>
#include <loch_umf.h>

#include <stdio.h>
#include <stdlib.h>

static int repeat(void *pool, size_t bytes, long count)
{
    const struct umf_memory_pool_ops_t *ops = loch_umf_pool_ops();
    int bad = 0;
    for (long i = 0; i < count; i++) {
        void *block = ops->malloc(pool, bytes);
        bad |= !block || ops->free(pool, block) != LOCHI_UMF_SUCCESS;
    }
    return bad;
}

static __attribute__((noinline)) int measured(void *pool, size_t bytes, long count)
{
    return repeat(pool, bytes, count);
}

int main(int argc, char **argv)
{
    const loch_umf_options options = {.size = sizeof options, .source = LOCH_UMF_DEVICE};
    const struct umf_memory_pool_ops_t *ops = loch_umf_pool_ops();
    static char provider; /* has to be there, and is not asked */
    void *pool;
    if (argc != 3) return 2;
    const size_t bytes = strtoul(argv[1], NULL, 10);
    const long count = strtol(argv[2], NULL, 10);
    if (ops->initialize((lochi_umf_provider *)(void *)&provider, &options, &pool) != LOCHI_UMF_SUCCESS) {
        fprintf(stderr, "umf: %s\n", loch_error_get()->sentence);
        return 1;
    }
    const int bad = repeat(pool, bytes, count) | measured(pool, bytes, count);
    ops->finalize(pool);
    return bad;
}
