/* SPDX-License-Identifier: MIT */
/* Benchmarks of Loch beside other allocators.
 *
 * Each allocator is measured in a process of its own: the program runs itself again, with the peer's library loaded first
 * where the peer stands in for malloc, and reads figures from it. The allocators take turns, round by round, and of each
 * figure the median counts. What is not installed, or cannot be run, is absent.
 *
 * A benchmark is a list of numbered cases. The parent calls peers_run; the child, told its name by the hidden option
 * --as, opens the memory of that name and reports one figure a case. */
#ifndef LOCH_TOOL_PEERS_H
#define LOCH_TOOL_PEERS_H

#include "json.h"
#include "tool.h"

#include <stdlib.h>

#define PEERS_MAX 6
#define PEER_CASES_MAX 64
#define PEER_ROUNDS_MAX 5

/* --- in the child: the memory under test --- */

typedef enum peer_kind {
    PEER_POOL,   /* Loch's pool */
    PEER_MALLOC, /* whatever malloc is in this process */
    PEER_RAW,    /* the driver's own allocations (cuMemAlloc) */
    PEER_ORDERED /* the driver's own stream-ordered allocator (cuMemAllocAsync) */
} peer_kind;

/* One thread's way to the memory: copied for each of them. */
typedef struct peer_memory {
    peer_kind kind;
    loch_device *device; /* NULL for PEER_MALLOC */
    loch_allocator *allocator;
    const loch_driver *driver;
    void *self; /* the driver's */
    loch_request request;
} peer_memory;

/* Opens the memory of a peer on the device. False, after a line on standard error, when it cannot be had. */
bool peer_memory_open(peer_memory *memory, const char *name, const char *device);

void peer_memory_close(peer_memory *memory);

/* Whether a call takes microseconds, so that fewer of them have to do. */
static inline bool peer_memory_is_slow(const peer_memory *memory)
{
    return memory->kind == PEER_RAW || memory->kind == PEER_ORDERED;
}

/* NULL when there is none. */
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
    __asm__ volatile("" : : "r"(block) : "memory"); /* a pair of calls that nobody uses must not vanish */
    return block;
}

/* False when it failed. */
static inline bool peer_free(peer_memory *memory, void *block, size_t bytes)
{
    if (memory->kind == PEER_POOL) return loch_allocator_free(memory->allocator, block) == LOCH_OK;
    if (memory->kind == PEER_RAW) return loch_raw_free(block) == LOCH_OK;
    if (memory->kind == PEER_ORDERED) return memory->driver->ordered_free(memory->self, block, bytes, NULL) == LOCH_OK;
    free(block);
    return true;
}

/* Reports the figure of a case to the parent; a negative one says that there is none. */
void peer_report(size_t which, double figure);

/* The median of a few figures, which are sorted. */
double peer_median(double *figures, size_t count);

/* --- in the parent --- */

typedef struct peer_bench {
    const char *name; /* of the benchmark */
    const tool_bench_options *options;
    size_t cases, rounds;
    bool higher_is_better;
    /* Filled by peers_run. Loch is the first. */
    const char *peers[PEERS_MAX];
    bool is_absent[PEERS_MAX];
    size_t peers_count;
    double figures[PEERS_MAX][PEER_CASES_MAX]; /* medians; negative where there is none */
    double samples[PEERS_MAX][PEER_CASES_MAX][PEER_ROUNDS_MAX];
} peer_bench;

/* Measures everybody; a TOOL_ code, after a line on standard error when Loch itself failed. */
int peers_run(peer_bench *bench);

/* The peer (not Loch) that is best at a case; 0 when none has a figure. */
size_t peers_best(const peer_bench *bench, size_t which);

/* Loch's figure over the best peer's; negative when one of them is missing. */
double peers_ratio(const peer_bench *bench, size_t which);

/* The heads and the figures of a table: Loch, every peer, and the ratio to the best. */
void peers_print_heads(const peer_bench *bench);
void peers_print_row(const peer_bench *bench, size_t which, double scale);

/* The members "benchmark", "device" and "peers" of the object that is open. */
void peers_print_json(const peer_bench *bench, json_writer *json);

#endif
