/* SPDX-License-Identifier: MIT */
/** @file stream_pool.h
 *  Streams and events of a device that are kept and handed out again: making them is a slow driver call.
 *
 *  What is given back may still have work to do. It is not handed out again before that has ended; more than a bounded number is not
 *  kept.
 */
#ifndef LOCH_STREAM_POOL_H
#define LOCH_STREAM_POOL_H

#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** A device's kept streams and events. Safe in any thread. */
typedef struct loch_stream_pool loch_stream_pool;

/** How a pool of streams is made; zero means default, NULL all defaults. */
typedef struct loch_stream_pool_options {
    size_t size;                /**< sizeof(loch_stream_pool_options) */
    size_t kept_streams;        /**< that are kept at most; 0: 16 */
    size_t kept_events;         /**< of each kind; 0: 64 */
    loch_stream_options stream; /**< how streams are made; all zero: defaults */
} loch_stream_pool_options;

/** Makes one; it keeps the device alive. @param out  the caller's, ended by loch_stream_pool_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_create(loch_device *device, const loch_stream_pool_options *options,
                                                           loch_stream_pool **out);

/** Ends it, and what it keeps. What is out stays with who has it, and is then to be destroyed, not given back. NULL does nothing. */
LOCH_API void loch_stream_pool_destroy(loch_stream_pool *pool);

/** A stream without work: a kept one, else a new one. @param out  the caller's, given back by loch_stream_pool_release */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_acquire(loch_stream_pool *pool, loch_stream **out);

/** Gives a stream back, busy or not. One that is being captured, of another device, a default or a wrapped one is E_INVALID, one
 *  that is not out of this pool E_FOREIGN; when it fails, the stream stays the caller's. NULL does nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_release(loch_stream_pool *pool, loch_stream *stream);

/** An event that is free to be recorded, as if it were new. @param out  the caller's, given back by loch_stream_pool_release_event */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_acquire_event(loch_stream_pool *pool, loch_event_kind kind,
                                                                  loch_event **out);

/** Gives an event back, passed or not. One that is not out of this pool stays the caller's. NULL does nothing. */
LOCH_API void loch_stream_pool_release_event(loch_stream_pool *pool, loch_event *event);

/** What it keeps. */
typedef struct loch_stream_pool_info {
    size_t size;            /**< set by the caller to sizeof(loch_stream_pool_info) */
    size_t streams_kept;    /**< now */
    size_t streams_out;     /**< handed out now */
    size_t events_kept;     /**< now */
    size_t events_out;      /**< handed out now */
    uint64_t streams_made;  /**< by the driver, since the beginning */
    uint64_t streams_again; /**< handed out again instead */
    uint64_t events_made;   /**< by the driver */
    uint64_t events_again;  /**< handed out again instead */
} loch_stream_pool_info;

/** Reads it. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_get_info(loch_stream_pool *pool, loch_stream_pool_info *out);

LOCH_END_DECLS

#endif
