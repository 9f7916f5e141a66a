/* SPDX-License-Identifier: MIT */
/** @file scratch.h
 *  Memory for a short time: a pool of buffers that are used again and again, and a workspace that grows.
 *
 *  Both are safe in any thread, and order what they hand out by streams: memory that one stream still works on is not
 *  handed to another without order between the two.
 */
#ifndef LOCH_SCRATCH_H
#define LOCH_SCRATCH_H

#include <loch/buffer.h>

LOCH_BEGIN_DECLS

/** Buffers that are kept for the next one who needs one. What is kept goes when the allocator is short of memory. */
typedef struct loch_buffer_pool loch_buffer_pool;

/** How buffers are kept; zero means default. */
typedef struct loch_buffer_pool_options {
    size_t size;            /**< sizeof(loch_buffer_pool_options) */
    size_t idle_bytes_max;  /**< kept at most; beyond it the one unused longest goes; 0 for 256 MiB */
    size_t idle_count_max;  /**< 0 for 64 */
    unsigned waste_percent; /**< a kept buffer serves when it is at most that much larger than asked for; 0 for 25 */
    size_t alignment;       /**< of the addresses; a power of two, or 0 for the allocator's own */
    loch_tag tag;           /**< of the blocks */
} loch_buffer_pool_options;

/** Makes a pool of buffers from an allocator, which it retains.
 *  @param out  the caller's, given back by loch_buffer_pool_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_create(loch_allocator *allocator,
                                                           const loch_buffer_pool_options *options,
                                                           loch_buffer_pool **out);

/** Ends a pool and what it keeps; buffers that are out stay valid, and are freed when they are released. NULL does
 *  nothing. */
LOCH_API void loch_buffer_pool_destroy(loch_buffer_pool *pool);

/** Hands out a buffer of exactly that many bytes for use on `stream` (NULL: the default stream): a kept one where one fits,
 *  preferring those of the same stream, then those whose last stream has passed, then those that it has to wait for on the
 *  device; else a new one. A stream that is being captured gets new ones alone. Contents are undefined. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_acquire(loch_buffer_pool *pool, size_t bytes, loch_stream *stream,
                                                            loch_buffer **out);

/** Gives a buffer back, and the caller's reference with it, in the order of `stream` (NULL: the default stream), which the
 *  caller has ordered behind every other use. It is kept only if nobody else holds it and there is host memory to note it, and
 *  not while the stream is captured. NULL does nothing. On failure nothing is released, and the caller still has it: E_FOREIGN
 *  for a buffer that is not out of this pool. A buffer may also simply be released: then it is not kept. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_release(loch_buffer_pool *pool, loch_buffer *buffer,
                                                            loch_stream *stream);

/** Frees kept buffers, those unused longest first, until at most `keep_bytes` are kept. @param released  may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_trim(loch_buffer_pool *pool, size_t keep_bytes, size_t *released);

/** What a pool of buffers did. */
typedef struct loch_buffer_pool_stats {
    size_t size;       /**< set by the caller to sizeof(loch_buffer_pool_stats) */
    uint64_t acquired; /**< buffers handed out so far */
    uint64_t reused;   /**< of them, kept ones */
    size_t out;        /**< buffers handed out and not given back here; also those that were simply released */
    size_t idle;       /**< buffers that are kept */
    size_t idle_bytes; /**< and their bytes */
} loch_buffer_pool_stats;

/** Reads them. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pool_get_stats(loch_buffer_pool *pool, loch_buffer_pool_stats *out);

/** One buffer that grows to the largest size asked for, for the work of one stream. */
typedef struct loch_workspace loch_workspace;

/** Makes a workspace, without memory yet. `stream` (NULL: the default stream) is the one whose work uses it, and has to
 *  outlive it. `request` (may be NULL) says alignment, tag and flags.
 *  @param out  the caller's, given back by loch_workspace_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_workspace_create(loch_allocator *allocator, loch_stream *stream,
                                                         const loch_request *request, loch_workspace **out);

/** Ends a workspace; its memory is freed in the order of its stream, once nobody holds it. NULL does nothing. */
LOCH_API void loch_workspace_destroy(loch_workspace *workspace);

/** The workspace's buffer, with at least that many bytes: the present one, or a larger one in its place. The old one's memory
 *  goes in the order of the stream, when the last who holds it lets go: work that was queued with its address is safe.
 *  Contents are undefined. On failure the present one stays.
 *  @param out  retained for the caller, who releases it after the work was queued */
LOCH_API LOCH_MUST_USE loch_status loch_workspace_acquire(loch_workspace *workspace, size_t bytes, loch_buffer **out);

/** How much it has now. */
LOCH_API size_t loch_workspace_get_bytes(loch_workspace *workspace);

/** Shrinks it to at most `keep_bytes`, contents lost. On failure it has no memory until the next loch_workspace_acquire. */
LOCH_API LOCH_MUST_USE loch_status loch_workspace_trim(loch_workspace *workspace, size_t keep_bytes);

LOCH_END_DECLS

#endif
