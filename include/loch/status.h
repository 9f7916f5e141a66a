/* SPDX-License-Identifier: MIT */
/** @file status.h
 *  The result of a call: a status code, its name and text, and an error record for each thread.
 *
 *  Every function that can fail returns a loch_status by value. In addition, each thread keeps one record of its last
 *  failure, with a sentence for people and, where a driver was involved, the code of the driver. No function here
 *  aborts or prints.
 */
#ifndef LOCH_STATUS_H
#define LOCH_STATUS_H

#include <loch/macros.h>
#include <stdint.h>

LOCH_BEGIN_DECLS

/** The list of all status codes: suffix of the enum value, and text. Values are stable: new codes go to the end. */
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
    X(E_FORKED, "opened before a fork: it cannot be used in the child")                                                \
    X(E_ADDRESSES, "no addresses are left to reserve")

/** The result of a call. LOCH_OK is zero. */
typedef enum loch_status {
#define LOCH_STATUS_ENUM(suffix, text) LOCH_##suffix,
    LOCH_STATUS_LIST(LOCH_STATUS_ENUM)
#undef LOCH_STATUS_ENUM
        LOCH_STATUS_COUNT
} loch_status;

/** The longest sentence of an error record in bytes, including the final zero. */
#define LOCH_ERROR_SENTENCE_MAX 512

/** The longest name of an owner in an error record in bytes, including the final zero. */
#define LOCH_ERROR_OWNER_MAX 64

/** What can help a request that failed because memory was short. */
typedef enum loch_remedy {
    LOCH_REMEDY_UNKNOWN, /**< memory was not short, or the allocator does not say */
    LOCH_REMEDY_NONE,    /**< nothing: the request is larger than a limit or than the device */
    LOCH_REMEDY_FREE     /**< memory that is freed: evict something, or wait until others free */
} loch_remedy;

/** The record of the last failure of one thread. Pointers in it are static strings. */
typedef struct loch_error {
    loch_status status; /**< status that the call returned */
    const char *driver; /**< name of the driver: "cuda"; "" if no driver was involved */
    long driver_code;   /**< error code of the driver; 0 for none */
    /** One sentence for people on one line, UTF-8; never empty after a failure. */
    char sentence[LOCH_ERROR_SENTENCE_MAX];
    /** Name of the pool or limit that is full, or of the device without memory; "" if memory was not short. */
    char owner[LOCH_ERROR_OWNER_MAX];
    uint64_t missing_bytes; /**< bytes that the owner lacks for the request; 0 if they are free, but not in one piece */
    loch_remedy remedy;     /**< what can help if memory was short */
    /** Number of attempts of a request that failed because memory was short: 1, and more with pressure functions and
     *  timeouts (allocator.h); 0 for other failures. */
    uint32_t attempts;
} loch_error;

/** Returns the error record of the calling thread. Before the first failure its status is LOCH_OK and its sentence is
 *  empty. A successful call does not clear it. Borrowed; valid until the next failing call of the thread or the end
 *  of the thread. */
LOCH_API const loch_error *loch_error_get(void);

/** Returns the name of a status: "E_LIMIT"; "E_UNKNOWN" for a number that is not in the list. Static string. Any
 *  thread. */
LOCH_API const char *loch_status_name(loch_status status);

/** Returns the general meaning of a status, without a full stop. Static string. Any thread. */
LOCH_API const char *loch_status_text(loch_status status);

/** Clears the error record of the calling thread. */
LOCH_API void loch_error_clear(void);

/** Writes the error record of the calling thread. For drivers and allocators that are implemented outside the
 *  library.
 *  @param driver       static string; NULL if no driver was involved
 *  @param driver_code  error code of the driver; 0 for none
 *  @param format       the sentence, in the format of printf
 *  @return `status`, so that a failing function can end with `return loch_error_set(...)` */
LOCH_API loch_status loch_error_set(loch_status status, const char *driver, long driver_code, const char *format, ...)
    LOCH_PRINTF(4, 5);

LOCH_END_DECLS

#endif
