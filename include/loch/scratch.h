/* SPDX-License-Identifier: MIT */
/** @file scratch.h
 *  Memory for a short time: a pool of buffers that are reused, and a workspace that grows.
 *
 *  Both work from any thread and order their memory by streams: memory that one stream still uses is handed to
 *  another stream only with an order between the two.
 */
#ifndef LOCH_SCRATCH_H
#define LOCH_SCRATCH_H

#include <loch/buffer.h>

LOCH_BEGIN_DECLS

/** @name Pool of buffers */
/** @{ */

/** A cache of buffers for reuse. When the allocator is short of memory, cached buffers are freed. */
typedef struct loch_buffer_pool loch_buffer_pool;

/** Options of loch_buffer_pool_create. Zero means default. */
typedef struct loch_buffer_pool_options {
    size_t size; /**< sizeof(loch_buffer_pool_options) */
    /** Most bytes in cached buffers; beyond it the least recently used is freed; 0 for 256 MiB. */
    size_t idle_bytes_max;
    size_t idle_count_max; /**< most cached buffers; 0 for 64 */
    /** A cached buffer is used if it is at most this many percent larger than requested; 0 for 25. */
    unsigned waste_percent;
    size_t alignment; /**< alignment of the addresses: a power of two, or 0 for the allocator's own */
    loch_tag tag;     /**< tag of the blocks */
} loch_buffer_pool_options;

/** Creates a pool of buffers on an allocator, and retains the allocator.
 *  @param out  owned by the caller; destroy it with loch_buffer_pool_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_create(loch_allocator *allocator,
                                                           const loch_buffer_pool_options *options,
                                                           loch_buffer_pool **out);

/** Destroys a pool of buffers and frees its cached buffers. Buffers that are still acquired stay valid and are freed
 *  when they are released. NULL does nothing. */
LOCH_API void loch_buffer_pool_destroy(loch_buffer_pool *pool);

/** Acquires a buffer of exactly `bytes` for use on `stream` (NULL: the default stream). Prefers a cached buffer of
 *  the same stream, then one whose last stream has passed, then one that the stream waits for on the device;
 *  otherwise creates a new one. A captured stream always gets a new buffer. The contents are undefined.
 *  @param out  the caller's reference; give it back with loch_buffer_pool_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_acquire(loch_buffer_pool *pool, size_t bytes, loch_stream *stream,
                                                            loch_buffer **out);

/** Releases a buffer and the caller's reference to the pool, ordered on `stream` (NULL: the default stream). The
 *  caller has ordered `stream` after every other use. The pool caches the buffer only if it has no other reference
 *  and no added deleter, there is host memory to record it, and the stream is not captured; otherwise the buffer is
 *  released. NULL does nothing. E_FOREIGN: the buffer was not acquired from this pool. On failure the caller still
 *  holds the reference. A buffer may also be given to loch_buffer_release; the pool then does not cache it. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_release(loch_buffer_pool *pool, loch_buffer *buffer,
                                                            loch_stream *stream);

/** Frees cached buffers, least recently used first, until at most `keep_bytes` are cached.
 *  @param released  number of bytes freed; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_trim(loch_buffer_pool *pool, size_t keep_bytes, size_t *released);

/** Figures of a pool of buffers. */
typedef struct loch_buffer_pool_stats {
    size_t size;       /**< set by the caller to sizeof(loch_buffer_pool_stats) */
    uint64_t acquired; /**< number of buffers acquired so far */
    uint64_t reused;   /**< number of acquired buffers that came from the cache */
    /** Number of buffers acquired and not given back to the pool, including those released by loch_buffer_release. */
    size_t out;
    size_t idle;       /**< number of cached buffers */
    size_t idle_bytes; /**< bytes in cached buffers */
} loch_buffer_pool_stats;

/** Reads the figures of a pool of buffers. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_get_stats(loch_buffer_pool *pool, loch_buffer_pool_stats *out);

/** @} */
/** @name Workspace */
/** @{ */

/** A workspace: one buffer for the work of one stream, as large as the largest request so far. */
typedef struct loch_workspace loch_workspace;

/** Creates a workspace without memory. `stream` (NULL: the default stream) is the stream whose work uses it, and must
 *  outlive it.
 *  @param request  alignment, tag and flags; may be NULL
 *  @param out      owned by the caller; destroy it with loch_workspace_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_workspace_create(loch_allocator *allocator, loch_stream *stream,
                                                         const loch_request *request, loch_workspace **out);

/** Destroys a workspace. Its memory is freed on its stream when no reference on the buffer is left. NULL does
 *  nothing. */
LOCH_API void loch_workspace_destroy(loch_workspace *workspace);

/** Acquires the buffer of a workspace with at least `bytes`: the present one, or a larger one that replaces it. The
 *  memory of the old one is freed in the order of the stream after its last reference was released, so work queued
 *  with its address is safe. The contents are undefined. On failure the present buffer stays.
 *  @param out  the caller's reference; release it with loch_buffer_release after the work was queued. NULL on
 *              failure. */
LOCH_API LOCH_MUST_USE loch_status loch_workspace_acquire(loch_workspace *workspace, size_t bytes, loch_buffer **out);

LOCH_DEFINE_CLEAR(buffer_pool, loch_buffer_pool_destroy(object))

LOCH_DEFINE_CLEAR(workspace, loch_workspace_destroy(object))

/** @} */

LOCH_END_DECLS

#endif
