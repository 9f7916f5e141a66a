/* SPDX-License-Identifier: MIT */
/* Benchmarks that compare Loch with other allocators.
 *
 * Each allocator is measured in a separate process. The program runs itself again, with the peer's library preloaded if
 * the peer replaces malloc, and reads the results. The allocators alternate in every round; the median of each result
 * counts. Peers that are not installed or cannot be run are absent.
 *
 * A benchmark is a list of numbered cases. The parent calls peers_run. The child gets the name of its peer by the
 * hidden option --as, opens the memory of that name and reports one result for each case. */
#ifndef LOCH_TOOL_PEERS_H
#define LOCH_TOOL_PEERS_H

#include "bench.h"
#include "json.h"

#include <stdlib.h>

#define PEERS_MAX 6
#define PEER_CASES_MAX 64
#define PEER_ROUNDS_MAX 5

/* --- in the child: the memory under test --- */

typedef enum peer_kind {
    PEER_POOL,   /* Loch's pool */
    PEER_MALLOC, /* the malloc of this process */
    PEER_RAW,    /* the driver's own allocations (cuMemAlloc) */
    PEER_ORDERED /* the driver's own stream-ordered allocator (cuMemAllocAsync) */
} peer_kind;

/* Access of one thread to the memory under test; each thread has a copy. */
typedef struct peer_memory {
    peer_kind kind;
    loch_device *device; /* NULL for PEER_MALLOC */
    loch_allocator *allocator;
    const loch_driver *driver;
    void *self; /* function of the driver */
    loch_request request;
} peer_memory;

/* Opens the memory of a peer on the device. Returns false, after a line on standard error, if it is not available. */
bool peer_memory_open(peer_memory *memory, const char *name, const char *device);

void peer_memory_close(peer_memory *memory);

/* Returns whether a call takes microseconds, so that fewer calls are enough. */
static inline bool peer_memory_is_slow(const peer_memory *memory)
{
    return memory->kind == PEER_RAW || memory->kind == PEER_ORDERED;
}

/* Returns a block, or NULL on failure. */
static inline void *peer_alloc(peer_memory *memory, size_t bytes)
{
    void *block = NULL;
    if (memory->kind == PEER_POOL) {
        memory->request.bytes = bytes;
        if (loch_allocator_alloc(memory->allocator, &memory->request, &block) != LOCH_OK) return NULL;
    } else if (memory->kind == PEER_MALLOC) {
        block = malloc(bytes);
    } else if (memory->kind == PEER_RAW) {
        if (loch_raw_alloc(memory->device, LOCH_MEMORY_DEVICE, bytes, 0, &block) != LOCH_OK) return NULL;
    } else if (memory->driver->ordered_alloc(memory->self, bytes, NULL, &block) != LOCH_OK) {
        return NULL;
    }
    /* keeps the compiler from removing a pair of calls whose result is not used */
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

/* Frees a block. Returns false on failure. */
static inline bool peer_free(peer_memory *memory, void *block, size_t bytes)
{
    if (memory->kind == PEER_POOL) return loch_free(memory->allocator, block) == LOCH_OK;
    if (memory->kind == PEER_RAW) return loch_raw_free(block) == LOCH_OK;
    if (memory->kind == PEER_ORDERED) return memory->driver->ordered_free(memory->self, block, bytes, NULL) == LOCH_OK;
    free(block);
    return true;
}

/* Reports the result of a case to the parent; a negative number means no result. */
void peer_report(size_t which, double figure);

/* Returns the median of a few numbers and sorts them. */
double peer_median(double *figures, size_t count);

/* --- in the parent --- */

typedef struct peer_bench {
    const char *name; /* name of the benchmark */
    const tool_bench_options *options;
    size_t cases, rounds;
    bool higher_is_better;
    /* Filled by peers_run. Loch is the first. */
    const char *peers[PEERS_MAX];
    bool is_absent[PEERS_MAX];
    size_t peers_count;
    double figures[PEERS_MAX][PEER_CASES_MAX]; /* medians; negative if there is no result */
    double samples[PEERS_MAX][PEER_CASES_MAX][PEER_ROUNDS_MAX];
} peer_bench;

/* Measures all peers. Returns a TOOL_ code, after a line on standard error if Loch itself failed. */
int peers_run(peer_bench *bench);

/* Returns the peer (not Loch) that is best at a case; 0 if none has a result. */
size_t peers_best(const peer_bench *bench, size_t which);

/* Returns Loch's result divided by the best peer's; negative if one of them is missing. */
double peers_ratio(const peer_bench *bench, size_t which);

/* Prints the heads and the numbers of a table: Loch, every peer, and the ratio to the best peer. */
void peers_print_heads(const peer_bench *bench);
void peers_print_row(const peer_bench *bench, size_t which, double scale);

/* Writes the members "benchmark", "device" and "peers" of the open JSON object. */
void peers_print_json(const peer_bench *bench, json_writer *json);

#endif
