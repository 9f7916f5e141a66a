/* SPDX-License-Identifier: MIT */
/* What the files of the library share: failures, cancellation, and structs of callers. */
#ifndef COMM_COMMON_H
#define COMM_COMMON_H

#include <loch/comm.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* Sets the error record and returns the status. */
#define COMM_FAIL(status, ...) loch_error_set(LOCH_E_##status, NULL, 0, __VA_ARGS__)

/* Evaluates a call, and returns its status if it failed. */
#define COMM_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const loch_status tried = (call);                                                                              \
        if (tried != LOCH_OK) return tried;                                                                            \
    } while (0)

static inline void comm_cancel_restore(const int *before)
{
    int held;
    pthread_setcancelstate(*before, &held);
}

static inline int comm_cancel_hold(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

/* Declares a variable that disables cancellation of the thread until the end of the block: the engines below wait and
 * take locks inside. */
#define COMM_NOT_CANCELLED                                                                                             \
    __attribute__((cleanup(comm_cancel_restore), unused)) const int cancel_before = comm_cancel_hold()

/* Copies a caller's struct, which may be shorter, over `out`, whose other members have their defaults. */
static inline loch_status comm_read_options(const void *given, void *out, size_t bytes)
{
    if (!given) return LOCH_OK;
    const size_t size = *(const size_t *)given;
    if (size < sizeof size) return COMM_FAIL(INVALID, "the size member of the options of a communicator is not set");
    memcpy(out, given, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return LOCH_OK;
}

/* Copies a result into a caller's struct, whose size member says how much of it the caller knows. */
static inline loch_status comm_write_result(const void *result, size_t bytes, void *out, const char *what)
{
    if (!out) return COMM_FAIL(INVALID, "the output pointer for %s is NULL", what);
    const size_t size = *(const size_t *)out;
    if (size < sizeof size) return COMM_FAIL(INVALID, "the size member of %s is not set", what);
    const size_t copied = size < bytes ? size : bytes;
    memcpy((char *)out + sizeof size, (const char *)result + sizeof size, copied - sizeof size);
    return LOCH_OK;
}

#endif
