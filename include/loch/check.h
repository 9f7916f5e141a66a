/* SPDX-License-Identifier: MIT */
/** @file check.h
 *  Three macros for callers. LOCH_RETURN returns a failure to the caller of a function. LOCH_CHECK prints a failure and
 *  ends the program. LOCH_IGNORE ignores it.
 *
 *      static loch_status load(loch_device *device)
 *      {
 *          loch_allocator *pool;
 *          LOCH_RETURN(loch_device_acquire_default(device, &pool));
 *          ...
 *      }
 *
 *      int main(void)
 *      {
 *          loch_device *device;
 *          LOCH_CHECK(loch_device_open("cuda:0", &device));
 *          ...
 *      }
 */
#ifndef LOCH_CHECK_H
#define LOCH_CHECK_H

#include <loch/status.h>
#include <stdio.h>
#include <stdlib.h>

/** Returns the status of `call` from the present function, unless it is LOCH_OK. */
#define LOCH_RETURN(call)                                                                                              \
    do {                                                                                                               \
        const loch_status loch_return_status = (call);                                                                 \
        if (loch_return_status != LOCH_OK) return loch_return_status;                                                  \
    } while (0)

/** Prints file, line, `call`, status and sentence to standard error and exits with EXIT_FAILURE, unless `call` is
 *  LOCH_OK. */
#define LOCH_CHECK(call) loch_check_status((call), #call, __FILE__, __LINE__)

/** Ignores the status of `call` on purpose. A cast to void does not: compilers warn about it. */
#define LOCH_IGNORE(call) ((void)!(call))

LOCH_BEGIN_DECLS

/** Prints a failure and exits, unless `status` is LOCH_OK. LOCH_CHECK calls it. The sentence comes from the error
 *  record of the calling thread. */
static inline void loch_check_status(loch_status status, const char *call, const char *file, int line)
{
    if (status == LOCH_OK) return;
    const loch_error *error = loch_error_get();
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, call, loch_status_name(status),
            error->status == status ? error->sentence : loch_status_text(status));
    exit(EXIT_FAILURE);
}

LOCH_END_DECLS

#endif
