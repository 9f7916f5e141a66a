/* SPDX-License-Identifier: MIT */
/** @file host.h
 *  What the library needs from its process: host memory for its own bookkeeping, which a program can replace, and a
 *  clock.
 */
#ifndef LOCH_HOST_H
#define LOCH_HOST_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Host memory that the library's own bookkeeping holds now. Other threads may change the figures at any time. */
typedef struct loch_host_usage {
    size_t size;   /**< set by the caller to sizeof(loch_host_usage) */
    size_t bytes;  /**< bytes held now */
    size_t blocks; /**< number of pieces held now */
} loch_host_usage;

/** Reads how much host memory the library's own bookkeeping holds. E_INVALID: `out->size` is not set. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_host_get_usage(loch_host_usage *out);

/** Returns the time in nanoseconds on a clock that never goes backwards. Any thread. */
LOCH_API uint64_t loch_host_now_ns(void);

/** An allocator for the library's own bookkeeping. Both functions are required. They are called from any thread, from
 *  several at a time, and must contain no cancellation point (pthread_cancel). */
typedef struct loch_host_allocator {
    size_t size; /**< sizeof(loch_host_allocator) */
    /** Allocates `bytes`; returns NULL on failure; `alignment` is a power of two. */
    void *(*alloc)(size_t bytes, size_t alignment, void *user);
    /** Frees a piece; `bytes` is the size that was requested; `address` is never NULL. */
    void (*free)(void *address, size_t bytes, void *user);
    void *user; /**< passed to both functions; borrowed */
} loch_host_allocator;

/** Replaces the allocator of the library's own bookkeeping. NULL restores the one of libc. The struct is copied.
 *  E_BUSY: the library still holds memory of the present allocator; call this before the first device is opened or
 *  after the last is released. E_INVALID: a function is missing. */
LOCH_API LOCH_MUST_USE loch_status loch_host_set_allocator(const loch_host_allocator *allocator);

LOCH_END_DECLS

#endif
