/* SPDX-License-Identifier: MIT */
/** @file host.h
 *  What the library takes from its process: memory for its own bookkeeping, and the time. Both can be replaced.
 */
#ifndef LOCH_HOST_H
#define LOCH_HOST_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Where the library's own bookkeeping comes from. All slots are needed. Called from any thread, several at a time; they must
 *  contain no cancellation point (pthread_cancel). */
typedef struct loch_host_allocator {
    size_t size;                                                /**< sizeof(loch_host_allocator) */
    void *(*alloc)(size_t bytes, size_t alignment, void *user); /**< NULL on failure; alignment is a power of two */
    void (*free)(void *address, size_t bytes, void *user);      /**< `bytes` as asked for; address never NULL */
    void *user;                                                 /**< handed to both; borrowed */
} loch_host_allocator;

/** Replaces the allocator of the library's bookkeeping; NULL brings libc's back. The table is copied. E_BUSY while any
 *  piece taken from the present one is still out: set it before the first device is opened or after the last is
 *  released. E_INVALID when a slot is missing. */
LOCH_API LOCH_MUST_USE loch_status loch_host_set_allocator(const loch_host_allocator *allocator);

/** What the bookkeeping holds now. Consistent for one thread; other threads may change it meanwhile. */
typedef struct loch_host_usage {
    size_t size;   /**< set by the caller to sizeof(loch_host_usage) */
    size_t bytes;  /**< bytes held now */
    size_t blocks; /**< pieces held now */
} loch_host_usage;

/** Reads the bookkeeping's own use. E_INVALID for a struct whose size is not set. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_host_get_usage(loch_host_usage *out);

/** A clock: nanoseconds that never go backwards. Called from any thread; it must contain no cancellation point. */
typedef uint64_t loch_clock(void *user);

/** Replaces the clock by which the library measures and waits; NULL brings the system's monotonic one back. `user` is
 *  borrowed for as long as the clock is set. Set it while no other thread is in the library. */
LOCH_API void loch_host_set_clock(loch_clock *clock, void *user);

/** The time by the clock in force. Any thread. */
LOCH_API uint64_t loch_host_now_ns(void);

LOCH_END_DECLS

#endif
