/* SPDX-License-Identifier: MIT */
/* Reporting failures. Every failure goes through LOCH_FAIL, so that the thread's error record always has a sentence.
 * LOCH_TRY is for functions that build an object: they keep a local `status` and leave through one label. Functions
 * that have nothing to undo return with LOCH_RETURN (<loch/check.h>). */
#ifndef LOCHI_KIT_FAIL_H
#define LOCHI_KIT_FAIL_H

#include <loch/check.h>

/* Writes the error record and evaluates to the status: LOCH_FAIL(LIMIT, "the pool holds %zu blocks", n) is
 * LOCH_E_LIMIT. The code is repeated after the call so that compilers and analysers see that it is not LOCH_OK and
 * do not follow impossible paths. LOCH_FAIL_CODE adds the name of a driver and its own error number. */
#define LOCH_FAIL(suffix, ...) LOCH_FAIL_CODE(suffix, NULL, 0, __VA_ARGS__)
#define LOCH_FAIL_CODE(suffix, driver, code, ...)                                                                      \
    ((void)loch_error_set(LOCH_E_##suffix, (driver), (code), __VA_ARGS__), LOCH_E_##suffix)

#define LOCH_TRY(call, label)                                                                                          \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != LOCH_OK) goto label;                                                                             \
    } while (0)

#define LOCH_TRY_RETURN(call) LOCH_RETURN(call)

#endif
