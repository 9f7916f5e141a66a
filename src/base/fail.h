/* SPDX-License-Identifier: MIT */
/* Reporting failures. Every failure of the library goes through LOCH_FAIL, so that the thread's error record always
 * has a sentence. LOCH_TRY is for functions that build an object: they keep a local `status` and leave through one
 * label. */
#ifndef LOCHI_FAIL_H
#define LOCHI_FAIL_H

#include <loch/status.h>
#include <stdbool.h>

/* Writes the error record and evaluates to the status: LOCH_FAIL(LIMIT, "the pool holds %zu blocks", n) is
 * LOCH_E_LIMIT. The code is repeated after the call so that compilers and analysers see that it is not LOCH_OK and
 * do not follow impossible paths. */
#define LOCH_FAIL(suffix, ...) ((void)loch_error_set(LOCH_E_##suffix, NULL, 0, __VA_ARGS__), LOCH_E_##suffix)

#define LOCH_TRY(call, label)                                                                                          \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != LOCH_OK) goto label;                                                                             \
    } while (0)

/* Returns the status of a failed call. For functions that have nothing to undo. */
#define LOCH_TRY_RETURN(call)                                                                                          \
    do {                                                                                                               \
        loch_status try_status = (call);                                                                               \
        if (try_status != LOCH_OK) return try_status;                                                                  \
    } while (0)

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
loch_error lochi_error_save(void);

/* Restores a copy that lochi_error_save returned as the thread's error record. */
void lochi_error_restore(const loch_error *saved);

#endif
