/* SPDX-License-Identifier: MIT */
/** @file status.h
 *  What a call came to: a code, its name and text, and a thread's record of the last failure.
 *
 *  Every call that can fail returns a loch_status by value; the code is the truth. Beside it each thread keeps one
 *  record with a sentence for people and, where a driver was involved, the driver's own code. Nothing here aborts
 *  or prints.
 */
#ifndef LOCH_STATUS_H
#define LOCH_STATUS_H

#include <loch/macros.h>

LOCH_BEGIN_DECLS

/** The one list of codes: enumerator suffix, text. Values are stable: new ones go to the end. */
#define LOCH_STATUS_LIST(X)                                                                                            \
    X(OK, "success")                                                                                                   \
    X(E_INVALID, "an argument is not valid")                                                                           \
    X(E_OVERFLOW, "a size computation would overflow")                                                                 \
    X(E_HOST_MEMORY, "out of host memory for the library's own bookkeeping")                                           \
    X(E_DEVICE_MEMORY, "the device is out of memory")                                                                  \
    X(E_LIMIT, "a limit that was set would be exceeded")                                                               \
    X(E_FRAGMENTED, "enough bytes are free, but not in one piece")                                                     \
    X(E_NOT_FOUND, "nothing has that name or address")                                                                 \
    X(E_EXISTS, "that name or address is taken")                                                                       \
    X(E_UNSUPPORTED, "this device or build cannot do that")                                                            \
    X(E_BUSY, "not finished yet, or still in use")                                                                     \
    X(E_TIMEOUT, "the time allowed has passed")                                                                        \
    X(E_DOUBLE_FREE, "that memory was freed before")                                                                   \
    X(E_FOREIGN, "that address was not handed out here")                                                               \
    X(E_INTERIOR, "that address points into a block, not at its start")                                                \
    X(E_OUT_OF_RANGE, "the range reaches beyond its memory")                                                           \
    X(E_MOVING_FORBIDDEN, "memory would have to move, and moving is forbidden now")                                    \
    X(E_WRONG_THREAD, "this object belongs to another thread")                                                         \
    X(E_DRIVER, "the driver reported an error")                                                                        \
    X(E_DEVICE_LOST, "the device is lost until the process ends")                                                      \
    X(E_CORRUPT, "memory or a file is damaged")                                                                        \
    X(E_IO, "reading or writing a file failed")                                                                        \
    X(E_CANCELLED, "the work was cancelled")                                                                           \
    X(E_FORKED, "opened before a fork: it cannot be used in the child")

/** A call's outcome; LOCH_OK is zero. */
typedef enum loch_status {
#define LOCH_STATUS_ENUM(suffix, text) LOCH_##suffix,
    LOCH_STATUS_LIST(LOCH_STATUS_ENUM)
#undef LOCH_STATUS_ENUM
        LOCH_STATUS_COUNT
} loch_status;

/** The longest sentence that an error record keeps, with its final zero. */
#define LOCH_ERROR_SENTENCE_MAX 256

/** One thread's record of its last failure. Pointers in it are static strings. */
typedef struct loch_error {
    loch_status status; /**< the code that was returned */
    const char *driver; /**< "cuda" or "" when no driver was involved */
    long driver_code;   /**< the driver's own code, 0 when none */
    char sentence
        [LOCH_ERROR_SENTENCE_MAX]; /**< one sentence for people on one line, UTF-8, never empty after a failure */
} loch_error;

/** "E_LIMIT" and the like; "E_UNKNOWN" for a number outside the list. Static string. Any thread. */
LOCH_API const char *loch_status_name(loch_status status);

/** The general meaning of a code, without a full stop. Static string. Any thread. */
LOCH_API const char *loch_status_text(loch_status status);

/** The calling thread's record of its last failure; before the first one status is LOCH_OK and the sentence empty.
 *  Borrowed: valid until the thread's next failing call or its end. Success does not clear it. */
LOCH_API const loch_error *loch_error_get(void);

/** Forgets the calling thread's record. */
LOCH_API void loch_error_clear(void);

/** Writes the calling thread's record: for drivers and allocators that live outside the library.
 *  @param driver       static string, or NULL when no driver was involved
 *  @param driver_code  the driver's own code, 0 for none
 *  @return `status`, so that a failing function can end with `return loch_error_set(...)`. */
LOCH_API loch_status loch_error_set(loch_status status, const char *driver, long driver_code, const char *format, ...)
    LOCH_PRINTF(4, 5);

LOCH_END_DECLS

#endif
