/* SPDX-License-Identifier: MIT */
/* Recordings of allocations for planned pools: what was allocated in which order, and how many allocations later each
 * block was freed. Time is counted in allocations: frees between two allocations have no order among each other. */
#ifndef LOCH_PLAN_LOG_H
#define LOCH_PLAN_LOG_H

#include <loch/loch.h>
#include <stdbool.h>

#define PLAN_LOG_STREAMS 16
#define PLAN_NEVER UINT64_MAX

/* What the program asked for: allocations with equal keys are taken for each other. */
typedef struct plan_key {
    uint64_t bytes;
    uint64_t alignment;
    loch_stream *stream; /* retained by the log or the plan that the key is in; NULL: beyond PLAN_LOG_STREAMS */
} plan_key;

typedef struct plan_entry {
    plan_key key;
    uintptr_t address;
    uint64_t freed;      /* number of allocations at the free; PLAN_NEVER if it was not freed */
    uint64_t free_order; /* number of frees before */
    bool is_shared;      /* used or freed on another stream */
} plan_entry;

typedef struct plan_log {
    plan_entry *entries;
    size_t count, capacity;
    uint64_t frees;
    size_t *steps; /* index of the first entry of each step */
    size_t steps_count, steps_capacity;
    uint32_t *map; /* live entries by address: index + 1, with linear probing; 0 is empty */
    size_t map_size, map_used;
    loch_stream *streams[PLAN_LOG_STREAMS]; /* retained */
    size_t streams_count;
} plan_log;

static inline bool plan_key_equal(const plan_key *a, const plan_key *b)
{
    return a->bytes == b->bytes && a->alignment == b->alignment && a->stream == b->stream;
}

/* Adds an allocation. Returns false without host memory. */
bool lochi_plan_log_alloc(plan_log *log, const plan_key *key, const void *address);

/* Notes the free of a block on a stream (NULL: its own). Blocks that are not in the log are ignored. */
void lochi_plan_log_free(plan_log *log, const void *address, const loch_stream *stream);

/* Notes that another stream uses a block. */
void lochi_plan_log_share(plan_log *log, const void *address);

/* Notes the start of a step. Returns false without host memory. */
bool lochi_plan_log_step(plan_log *log);

/* Forgets all. The log can be used again. */
void lochi_plan_log_clear(plan_log *log);

/* Finds the period of the last allocations: the smallest one with which at least half of the log, and at least three
 * periods, end the log. Returns 0 if there is none, or no host memory. */
size_t lochi_plan_log_find_period(const plan_log *log);

#endif
