/* SPDX-License-Identifier: MIT */
/* One UMF pool on UMF's OS provider: CPU time of an operation, and what the pool holds at most. Run by bench/umf/run.
 *
 *     bench loch|scalable|jemalloc|disjoint [ROUNDS]
 *
 * Each of two threads holds 4,096 blocks of 16 bytes to 64 KiB, small ones more often, and replaces one after the
 * other: an operation is a free and a malloc.
 */
#include <loch_umf.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <umf/memory_pool.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_os_memory.h>

#define BLOCKS 4096
#define STEPS 2000000
#define THREADS 2

const umf_memory_pool_ops_t *umfJemallocPoolOps(void); /* no header in the wheel: NULL where it is not built in */

static umf_memory_pool_handle_t pool;
static int is_filled; /* all of each block is written: for the peak, not for the time */

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void *work(void *argument)
{
    uint64_t state = (uint64_t)(uintptr_t)argument;
    char **blocks = calloc(BLOCKS, sizeof *blocks);
    for (size_t i = 0; i < STEPS; i++) {
        const uint64_t random = next(&state);
        const size_t slot = random % BLOCKS,
                     size = ((size_t)16 << (random >> 32) % 8 << (random >> 40) % 6) + random % 16;
        if (blocks[slot]) umfPoolFree(pool, blocks[slot]);
        blocks[slot] = umfPoolMalloc(pool, size);
        if (!blocks[slot]) exit(1);
        memset(blocks[slot], 1, is_filled ? size : 1);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        umfPoolFree(pool, blocks[i]);
    free(blocks);
    return NULL;
}

static double read_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    const int rounds = argc > 2 ? atoi(argv[2]) : 5;
    umf_disjoint_pool_params_handle_t disjoint;
    if (umfDisjointPoolParamsCreate(&disjoint) != UMF_RESULT_SUCCESS) return 1;
    const umf_memory_pool_ops_t *ops = !strcmp(name, "loch")       ? loch_umf_pool_ops()
                                       : !strcmp(name, "scalable") ? umfScalablePoolOps()
                                       : !strcmp(name, "jemalloc") ? umfJemallocPoolOps()
                                                                   : umfDisjointPoolOps();
    umf_os_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    if (umfOsMemoryProviderParamsCreate(&params) != UMF_RESULT_SUCCESS ||
        umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, &provider) != UMF_RESULT_SUCCESS)
        return 1;
    if (!ops ||
        umfPoolCreate(ops, provider, strcmp(name, "disjoint") ? NULL : disjoint, 0, &pool) != UMF_RESULT_SUCCESS) {
        printf("%-10s not there\n", name);
        return 0;
    }
    double best = 1e18;
    for (int round = 0; round <= rounds; round++) {
        is_filled = round == rounds;
        pthread_t threads[THREADS];
        const double start = read_clock();
        for (size_t i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(88172645463325252u + i)) != 0) return 1;
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        const double took = read_clock() - start;
        best = !is_filled && took < best ? took : best;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%-10s %10.0f %10ld\n", name, best / (THREADS * (double)STEPS), usage.ru_maxrss / 1024);
    umfPoolDestroy(pool);
    umfMemoryProviderDestroy(provider);
    return 0;
}
