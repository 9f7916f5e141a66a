/* SPDX-License-Identifier: MIT */
/* Checks for threads other than the first. cmocka's leave by a jump, which such a thread may not do: these write a
 * sentence into `w->failure`, an array of characters, and return from a function without a result. The first thread
 * looks at it when it has joined the others. */
#ifndef LOCH_TEST_WORKER_H
#define LOCH_TEST_WORKER_H

#include <loch/status.h>
#include <stdio.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const loch_status try_status = (call);                                                                         \
        if (try_status != LOCH_OK) {                                                                                   \
            snprintf(w->failure, sizeof w->failure, "%s gave %s: %.200s", #call, loch_status_name(try_status),         \
                     loch_error_get()->sentence);                                                                      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            snprintf(w->failure, sizeof w->failure, "line %d: not so: %s", __LINE__, #condition);                      \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

#endif
