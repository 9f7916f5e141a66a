/* SPDX-License-Identifier: MIT */
/* Host memory of the planner. */
#ifndef LOCH_PLAN_MEMORY_H
#define LOCH_PLAN_MEMORY_H

#include <stddef.h>

/* Returns zeroed memory for `count` things of `bytes`, or NULL. Never NULL for a count of 0. */
void *lochi_plan_alloc(size_t count, size_t bytes);

/* Frees memory of lochi_plan_alloc. NULL does nothing. */
void lochi_plan_free(void *memory);

/* Grows an array to at least `count` things. Returns false, and keeps the array, without memory. */
int lochi_plan_grow(void **array, size_t *capacity, size_t count, size_t bytes);

/* Makes the allocation after the next `count` ones fail, once; for tests. A negative number switches that off. */
void lochi_plan_fail_after(long count);

/* Tells whether that allocation has failed. */
int lochi_plan_failed(void);

#endif
