/* SPDX-License-Identifier: MIT */
/* Problems: checks of what a caller gives, their fingerprint, and the stretches of time in which buffers use bytes. */
#ifndef LOCH_PLAN_PROBLEM_H
#define LOCH_PLAN_PROBLEM_H

#include <loch/plan.h>
#include <stdbool.h>

/* Limit of the bytes of all buffers together, so that sums cannot overflow. */
#define PLAN_BYTES_MAX (UINT64_C(1) << 62)

/* A stretch of time in which a buffer uses the bytes [low, high) of itself. */
typedef struct plan_stretch {
    uint64_t first, last;
    uint64_t low, high;
} plan_stretch;

/* Checks a problem. E_INVALID, E_OVERFLOW. */
loch_status lochi_plan_problem_check(const loch_plan_problem *problem);

/* Returns a number that stands for the buffers of a problem. */
uint64_t lochi_plan_problem_fingerprint(const loch_plan_problem *problem);

/* Walks the stretches of a buffer: start with *state 0; returns false after the last one. Gaps in which no byte is in
 * use have no stretch. */
bool lochi_plan_stretch_next(const loch_plan_buffer *buffer, uint32_t *state, plan_stretch *out);

/* Returns the alignment of a buffer, at least 1. */
static inline uint64_t plan_alignment(const loch_plan_buffer *buffer)
{
    return buffer->alignment ? buffer->alignment : 1;
}

/* Rounds up to a multiple of an alignment. */
static inline uint64_t plan_align(uint64_t value, uint64_t alignment)
{
    if (alignment <= 1) return value;
    const uint64_t rest = value % alignment;
    return rest ? value + alignment - rest : value;
}

/* Computes the height that no plan goes below, from live bytes and fixed offsets. False without memory. */
bool lochi_plan_problem_bound(const loch_plan_problem *problem, uint64_t *out);

#endif
