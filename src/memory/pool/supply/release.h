/* SPDX-License-Identifier: MIT */
/* Finds handles that lie wholly in free blocks, and gives them back to the device. */
#ifndef LOCHI_POOL_RELEASE_H
#define LOCHI_POOL_RELEASE_H

#include "memory/pool/heap/heap.h"

/* A handle or segment that was given back. */
typedef struct pool_given_part {
    size_t bytes;
    pool_lane *lane; /* NULL for a handle */
} pool_given_part;

/* All that was given back for a request: the pool takes as many of these sizes if the request fails. Zeroed at
 * first. */
typedef struct pool_given {
    pool_given_part *parts;
    size_t count, capacity;
} pool_given;

/* Gives idle handles back to the device until `bytes` have gone or none is left. Adds them to `given`, which may be
 * NULL. Returns the bytes given back. */
size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes, pool_given *given);
/* Gives free segments back, those first whose sizes are nearest to what is left, until `bytes` have gone or none is
 * left, and adds them to `given`. For pools whose segments have the sizes of requests. */
void lochi_pool_make_way(lochi_pool *pool, size_t bytes, pool_given *given);
/* Takes new memory of the sizes that were given back, as far as the device has it. Ends `given`. The error record
 * stays. */
void lochi_pool_take_back(lochi_pool *pool, pool_given *given);
/* Ends `given` after a request that succeeded. */
void lochi_pool_forget_given(pool_given *given);
/* Returns the bytes of handles that are unmapped or lie wholly in free blocks; with `has_passed` only those that
 * lochi_pool_give_back gives back now. */
size_t lochi_pool_count_idle(lochi_pool *pool, bool has_passed);
/* Returns the bytes of handles that are unmapped or lie wholly under free memory, of whatever streams: those that can
 * be given back once all streams have passed. */
size_t lochi_pool_count_whole(lochi_pool *pool);
/* Gives unmapped handles and those listed as idle back to the device until `bytes` have gone or none is left. Merges
 * the free blocks on a handle first: they may be pieces, parts of arenas, or blocks of several streams. Visits listed
 * handles only. `is_small`: leaves handles under pieces above 1 MiB. `*is_unfinished` tells whether streams may still
 * use a listed handle: it can go back when they have passed. */
void lochi_pool_give_back_listed(lochi_pool *pool, size_t bytes, bool is_small, bool *is_unfinished);
/* Finds an idle handle of at most `max_bytes` that lies wholly in a free block of a lane; NULL for none. */
pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out);

#endif
