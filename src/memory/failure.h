/* SPDX-License-Identifier: MIT */
/* Counts requests that failed. An attempt that failed may be tried again, so an allocator that fails one notes its counter
 * in the thread's room; the outermost call counts the notes of the last attempt when the request has ended, and drops those
 * of attempts before it. A failure outside such a call, or on a thread without a room, is counted at once. */
#ifndef LOCHI_FAILURE_H
#define LOCHI_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCHI_FAILURE_UNMARKED UINT32_MAX /* the mark of a request on a thread without a room */

/* Counts one failure, now or when the request has ended. The counter lives as long as the request. */
void lochi_failure_count(_Atomic uint64_t *counter);

/* Begins a request; returns the mark for what follows. */
uint32_t lochi_failure_begin(void);

/* Drops what was noted since `mark`: the request is tried again. */
void lochi_failure_drop(uint32_t mark);

/* Ends a request. One that a wrapper made for a request of its own, which may be tried again, leaves its notes to that. */
void lochi_failure_end(uint32_t mark, bool is_inner);

/* Lets functions of users run between two attempts: what they ask for is not part of the request. What it returns goes to
 * lochi_failure_resume. */
uint32_t lochi_failure_pause(void);
void lochi_failure_resume(uint32_t depth);

#endif
