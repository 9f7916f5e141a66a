/* SPDX-License-Identifier: MIT */
/** @file stream_pool.h
 *  A cache of streams of a device, and of the events that contexts need. Creating them is a slow driver call.
 *
 *  A stream that is given back may still have work in progress. It is not handed out again before that work
 *  has ended. The number of cached objects is limited.
 */
#ifndef LOCH_STREAM_POOL_H
#define LOCH_STREAM_POOL_H

#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** A cache of streams of one device. Any thread. */
typedef struct loch_stream_pool loch_stream_pool;

/** Options of loch_stream_pool_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_stream_pool_options {
    size_t size;                /**< sizeof(loch_stream_pool_options) */
    size_t kept_streams;        /**< most cached streams; 0 for 16 */
    size_t kept_events;         /**< most cached events of each kind; 0 for 64 */
    loch_stream_options stream; /**< options of new streams; all zero for defaults */
} loch_stream_pool_options;

/** Creates a stream pool on a device. The pool keeps the device open.
 *  @param out  owned by the caller; destroy it with loch_stream_pool_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_create(loch_device *device, const loch_stream_pool_options *options,
                                                           loch_stream_pool **out);

/** Destroys a stream pool and its cached streams and events. Acquired streams stay valid; close them with
 *  loch_stream_close then. NULL does nothing. */
LOCH_API void loch_stream_pool_destroy(loch_stream_pool *pool);
LOCH_DEFINE_CLEAR(stream_pool, loch_stream_pool_destroy(object))

/** Acquires a stream without work: a cached one, otherwise a new one.
 *  @param out  owned by the caller; give it back with loch_stream_pool_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_acquire(loch_stream_pool *pool, loch_stream **out);

/** Gives a stream back to its pool. The stream may still have work in progress. A stream that others still retain
 *  (loch_stream_retain) is neither handed out again nor closed: it ends with the last of them. E_INVALID: the stream is
 *  captured, belongs to another device, or is a default or wrapped stream. E_FOREIGN: it was not acquired from this
 *  pool. On failure the stream still belongs to the caller. A NULL stream does nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_release(loch_stream_pool *pool, loch_stream *stream);

/** Figures of a stream pool. */
typedef struct loch_stream_pool_info {
    size_t size;            /**< set by the caller to sizeof(loch_stream_pool_info) */
    size_t streams_kept;    /**< number of cached streams now */
    size_t streams_out;     /**< number of acquired streams now */
    size_t events_kept;     /**< number of cached events now */
    size_t events_out;      /**< number of acquired events now */
    uint64_t streams_made;  /**< number of streams created by the driver so far */
    uint64_t streams_again; /**< number of streams handed out from the cache so far */
    uint64_t events_made;   /**< number of events created by the driver so far */
    uint64_t events_again;  /**< number of events handed out from the cache so far */
} loch_stream_pool_info;

/** Reads the figures of a stream pool. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_pool_get_info(loch_stream_pool *pool, loch_stream_pool_info *out);

LOCH_END_DECLS

#endif
