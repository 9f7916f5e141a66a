/* SPDX-License-Identifier: MIT */
/* The thread's error record, beyond what LOCH_FAIL writes (kit/fail.h). */
#ifndef LOCHI_FAIL_H
#define LOCHI_FAIL_H

#include "base/shared.h"
#include "kit/fail.h"
#include <stdbool.h>

/* Notes in the thread's error record whose memory is short, by how much, and what can help. Call it after LOCH_FAIL. */
void lochi_error_note_short(const char *owner, uint64_t missing_bytes, loch_remedy remedy);

/* Tells whether the thread's error record says that nothing can help a request that failed with `status`. */
bool lochi_error_is_final(loch_status status);

/* Notes how often a request was tried. */
void lochi_error_note_attempts(uint32_t attempts);

/* Replaces the sentence of the thread's error record, if there is one. */
void lochi_error_say(const char *sentence);

/* Appends to the sentence of the thread's error record, if there is one. */
void lochi_error_append(const char *format, ...) LOCH_PRINTF(1, 2);

/* Returns a copy of the thread's error record. Save the record before clean-up that may fail too, because the first
 * failure is the one to report. */
LOCHI_SHARED loch_error lochi_error_save(void);

/* Restores a copy that lochi_error_save returned as the thread's error record. */
LOCHI_SHARED void lochi_error_restore(const loch_error *saved);

#endif
