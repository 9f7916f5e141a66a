/* SPDX-License-Identifier: MIT */
/* Counts failed requests, and knows whose memory was short. A failed attempt may be retried, so it must not be counted
 * at once: an allocator that fails an attempt notes its counter in the thread's room. When the request ends, the
 * outermost call counts the notes of the last attempt; the notes of earlier attempts were dropped. A failure outside
 * such a call, or on a thread without a room, is counted at once.
 *
 * Only the outermost request is retried. Requests that an attempt makes (a wrapper of the user that forwards, the
 * source of a pool) note their allocator instead: the outermost call asks its pressure functions too. */
#ifndef LOCHI_FAILURE_H
#define LOCHI_FAILURE_H

#include <loch/allocator.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCHI_FAILURE_UNMARKED UINT32_MAX /* mark of a request on a thread without a room */

/* Counts one failure, now or when the request ends. The counter must live until the request ends. */
void lochi_failure_count(_Atomic uint64_t *counter);

/* Tells whether the thread is inside an attempt of an outer request, which retries. */
bool lochi_failure_is_inner(void);

/* Begins a request. Returns the mark for the calls that follow. */
uint32_t lochi_failure_begin(void);

/* Drops the notes since `mark`, because the request is retried. */
void lochi_failure_drop(uint32_t mark);

/* Ends a request and counts its notes. An inner request, which a wrapper made for a request that may be retried,
 * leaves its notes to the outer one. */
void lochi_failure_end(uint32_t mark, bool is_inner);

/* Notes that an allocator inside an attempt had no memory for `request`. Retained until the attempt is dropped or the
 * request ends. */
void lochi_failure_note_dry(loch_allocator *allocator, const loch_request *request);

/* Notes that a wrapper refused an attempt by a limit of its own: memory that is freed below it does not help. */
void lochi_failure_note_refusal(const loch_allocator *wrapper);

/* Tells whether a wrapper has refused the last attempt by a limit of its own. */
bool lochi_failure_is_refused_by(const loch_allocator *wrapper);

/* Suspends the notes while functions of the user run between two attempts: their requests are counted on their own.
 * Returns the depth to pass to lochi_failure_resume. */
uint32_t lochi_failure_pause(void);
void lochi_failure_resume(uint32_t depth);

#endif
