/* SPDX-License-Identifier: MIT */
/* Chooses the addresses for memory when no free block fits, and the idle handles that are mapped there. */
#ifndef LOCHI_POOL_PLACE_H
#define LOCHI_POOL_PLACE_H

#include "memory/pool/heap/heap.h"
#include "memory/pool/supply/price.h"

#define PLACE_NEAR_PART 32 /* a rest below this part of a request is not worth a search */
#define PLACE_MISSES 16    /* searches for a better place that change nothing before they become rarer */
#define PLACE_RESTS 10     /* how often the requests between two searches double then */

/* A stretch of addresses for a request. */
typedef struct pool_spot {
    uintptr_t start;
    size_t missing;   /* bytes without memory */
    double cost;      /* in bytes (price.c) */
    pool_block *hint; /* the block before the hole; NULL if no spot was found */
} pool_spot;

/* An idle handle. */
typedef struct pool_origin {
    pool_handle *handle;
    pool_block *block; /* the free block it lay in when it was gathered; NULL if it is unmapped */
    uintptr_t to;      /* 0 if not planned */
} pool_origin;

/* A part of a spot without memory. */
typedef struct pool_gap {
    uintptr_t start, end;
} pool_gap;

#define POOL_PLACE_GAPS 16
#define POOL_PLACE_OLD 512

/* A plan for one request. */
typedef struct pool_place {
    uint64_t number;
    pool_spot spot;
    pool_gap gaps[POOL_PLACE_GAPS];
    size_t gaps_count, missing;
    bool is_created;                     /* new memory costs less than remapping */
    pool_block *revived[POOL_PLACE_OLD]; /* stale mappings whose handles return to them */
    pool_block *stale[POOL_PLACE_OLD];   /* stale mappings that are in the way */
    size_t revived_count, stale_count;
    pool_origin *sources;
    size_t sources_count, sources_capacity;
} pool_place;

/* Plans where memory goes and where it comes from: first with handles that return to old addresses, then without.
 * If `may_drop`, old mappings may be in the way that can be removed now: `plan->stale`; otherwise none is. The caller
 * frees `plan->sources`. Returns false if there are no free addresses. */
bool lochi_pool_plan_place(lochi_pool *pool, const pool_want *want, bool may_drop, pool_place *plan);
/* Assigns an address to each idle handle that fits into a gap, the largest first, unless new memory costs less. Gaps
 * shrink from their start. Returns the bytes that stay without memory. */
size_t lochi_pool_assign(lochi_pool *pool, const pool_want *want, pool_place *plan);
/* Returns how often mappings of the pool have changed. */
static inline uint64_t lochi_pool_count_changes(const lochi_pool *pool)
{
    return pool->counts.handles_created + pool->counts.handles_moved + pool->counts.handles_released +
           pool->counts.handles_revived;
}
/* Tells whether a request leaves out the search for a better place. While mappings stay as they are, searches become
 * rarer after PLACE_MISSES that changed nothing, down to one in 1,024: programs that repeat a step have found their
 * places. */
static inline bool lochi_pool_rests(lochi_pool *pool)
{
    const uint64_t changes = lochi_pool_count_changes(pool);
    if (pool->search.map != changes) pool->search.misses = pool->search.rest = 0;
    pool->search.map = changes;
    if (!pool->search.rest) return false;
    pool->search.rest--;
    return true;
}
/* Notes a search that changed nothing. */
static inline void lochi_pool_miss(lochi_pool *pool)
{
    if (pool->search.misses < PLACE_MISSES + PLACE_RESTS) pool->search.misses++;
    if (pool->search.misses > PLACE_MISSES) pool->search.rest = (1u << (pool->search.misses - PLACE_MISSES)) - 1;
}
/* Tells whether memory mapped elsewhere might cost less for a request than the free block that fits best, for what
 * lochi_pool_may_improve cannot answer itself. */
bool lochi_pool_may_gain(lochi_pool *pool, const pool_want *want, const pool_block *fit);
/* Tells whether memory mapped elsewhere might cost less for a request than the free block that fits best. The pool's
 * lock is enough. */
static inline bool lochi_pool_may_improve(lochi_pool *pool, const pool_want *want, const pool_block *fit)
{
    lochi_lock_assert_held(&pool->lock);
    if (fit->bytes - want->bytes < want->bytes / PLACE_NEAR_PART && !pool->is_exact) return false;
    if (want->bytes > POOL_ARENA_BLOCK_MAX && lochi_pool_is_dear(pool)) return false;
    return !lochi_pool_rests(pool) && lochi_pool_may_gain(pool, want, fit);
}
/* Finds the block that contains an address. The search starts at a block near it. */
pool_block *lochi_pool_find_near(pool_block *near, uintptr_t address);

#endif
