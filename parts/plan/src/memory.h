/* SPDX-License-Identifier: MIT */
/* Host memory of the planner. */
#ifndef LOCH_PLAN_MEMORY_H
#define LOCH_PLAN_MEMORY_H

#include <stddef.h>

/* Returns zeroed memory for `count` things of `bytes`, or NULL. Never NULL for a count of 0. */
void *plan_alloc(size_t count, size_t bytes);

/* Frees memory of plan_alloc. NULL does nothing. */
void plan_free(void *memory);

/* Grows an array to at least `count` things. Returns false, and keeps the array, without memory. */
int plan_grow(void **array, size_t *capacity, size_t count, size_t bytes);

/* Makes the allocation after the next `count` ones fail, once; for tests. A negative number switches that off. */
void plan_fail_after(long count);

/* Tells whether that allocation has failed. */
int plan_failed(void);

#endif
