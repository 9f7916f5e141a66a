/* SPDX-License-Identifier: MIT */
/* Failing: every failure inside the library goes through LOCH_FAIL, so that the thread's error record always has a
 * sentence. LOCH_TRY is for functions that build: they keep a local `status` and leave through one label. */
#ifndef LOCHI_FAIL_H
#define LOCHI_FAIL_H

#include <loch/status.h>

/* LOCH_FAIL(LIMIT, "the pool holds %zu bytes", n) is LOCH_E_LIMIT after writing the record. The code is spelt out a second
 * time so that compilers and analysers see that it is not LOCH_OK, and do not follow paths that cannot be. */
#define LOCH_FAIL(suffix, ...) ((void)loch_error_set(LOCH_E_##suffix, NULL, 0, __VA_ARGS__), LOCH_E_##suffix)

#define LOCH_TRY(call, label)                                                                                          \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != LOCH_OK) goto label;                                                                             \
    } while (0)

/* Returns the failure of a call, from functions with nothing to undo. */
#define LOCH_TRY_RETURN(call)                                                                                          \
    do {                                                                                                               \
        loch_status try_status = (call);                                                                               \
        if (try_status != LOCH_OK) return try_status;                                                                  \
    } while (0)

/* Returns a copy of the thread's record, to be kept over clean-up that may fail too: the first failure is the one to report. */
loch_error lochi_error_save(void);

/* Makes a copy of lochi_error_save the thread's record again. */
void lochi_error_restore(const loch_error *saved);

#endif
