/* SPDX-License-Identifier: MIT */
/** @file buffer.h
 *  A buffer is shared, reference-counted ownership of one block, or of external memory. A slice is a part of a
 *  buffer.
 *
 *      loch_buffer *buffer;
 *      LOCH_CHECK(loch_buffer_create_for_device(device, 1 << 20, NULL, &buffer));
 *      ...
 *      loch_buffer_release(buffer);
 *
 *  - The last release frees the memory, ordered on the stream of its allocation and after all recorded work. Copies
 *    and fills of buffers record themselves; call loch_buffer_record_use for other work. Both buffers of an
 *    asynchronous copy may be released as soon as the copy is queued.
 *  - The reference count is safe on any thread. Contents, resize and detach are for one thread at a time.
 *  - A release does not wait on the host. Memory that work of another device still uses, and external memory that any
 *    work still uses, is kept until that work has ended. It is given back when a later buffer is created, copied or
 *    released, or by loch_buffer_collect.
 *  - A graph uses memory whenever it runs: the owner of the graph keeps the buffers of captured work.
 */
#ifndef LOCH_BUFFER_H
#define LOCH_BUFFER_H

#include <loch/allocator.h>
#include <loch/copy.h>

LOCH_BEGIN_DECLS

/** A buffer: reference-counted ownership of memory. */
typedef struct loch_buffer loch_buffer;

/** @name Create and share */
/** @{ */

/** Creates a buffer with a new block of `bytes` from `allocator`. Zero bytes give a buffer without memory. With
 *  LOCH_ALLOC_ZEROED, without a stream, and in memory that the host can access, the zeros are written when the call
 *  returns.
 *  @param allocator  retained by the buffer
 *  @param request    alignment, stream, tag, flags and timeout; its own `bytes` is ignored; may be NULL
 *  @param out        the caller's reference; give it back with loch_buffer_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_create(loch_allocator *allocator, size_t bytes,
                                                      const loch_request *request, loch_buffer **out);

/** Creates a buffer with a new block of `bytes` from the default allocator of `device` (NULL: of "cpu"). Zero bytes
 *  give a buffer without memory.
 *  @param request  alignment, stream, tag, flags and timeout; its own `bytes` is ignored; may be NULL
 *  @param out      the caller's reference; give it back with loch_buffer_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_create_for_device(loch_device *device, size_t bytes,
                                                                 const loch_request *request, loch_buffer **out);

/** Creates a buffer for `count` elements of `bytes` each from `allocator`, as loch_buffer_create. E_OVERFLOW: the
 *  product does not fit the address space. */
LOCH_MUST_USE static inline loch_status loch_buffer_create_array(loch_allocator *allocator, size_t count, size_t bytes,
                                                                 const loch_request *request, loch_buffer **out)
{
    if (!bytes || count <= SIZE_MAX / bytes) return loch_buffer_create(allocator, count * bytes, request, out);
    if (out) *out = NULL;
    return loch_error_set(LOCH_E_OVERFLOW, NULL, 0, "%zu elements of %zu bytes do not fit the address space", count,
                          bytes);
}

/** Takes another reference on a buffer and returns `buffer`. Give each reference back with loch_buffer_release. NULL
 *  returns NULL. Any thread. */
LOCH_API loch_buffer *loch_buffer_retain(loch_buffer *buffer);

/** Releases one reference on a buffer. The last release frees the memory, ordered on the stream of its allocation.
 *  NULL does nothing. Any thread. */
LOCH_API void loch_buffer_release(loch_buffer *buffer);

LOCH_DEFINE_CLEAR(buffer, loch_buffer_release(object))

/** Moves a reference out of `*slot`: returns the buffer and sets `*slot` to NULL. The caller owns the returned
 *  reference. A NULL slot returns NULL. */
static inline loch_buffer *loch_buffer_take(loch_buffer **slot)
{
    loch_buffer *taken = slot ? *slot : NULL;
    if (slot) *slot = NULL;
    return taken;
}

/** Creates a buffer that is a part of another: `bytes` from `offset` on. The slice keeps the whole buffer alive and
 *  follows its resizes. A slice that no longer fits after a resize gives E_OUT_OF_RANGE when it is used.
 *  E_OUT_OF_RANGE: the part does not lie inside the buffer.
 *  @param out  the caller's reference; give it back with loch_buffer_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_slice(loch_buffer *buffer, size_t offset, size_t bytes,
                                                     loch_buffer **out);

/** @} */
/** @name Address and properties */
/** @{ */

/** Returns the address of a buffer. Valid until the buffer is resized, detached or freed. Returns NULL for an empty
 *  buffer, for a slice that no longer fits, for a movable buffer that is not pinned, and for NULL. */
LOCH_API void *loch_buffer_get_address(const loch_buffer *buffer);

/** Returns the size of a buffer in bytes. NULL returns 0. */
LOCH_API size_t loch_buffer_get_bytes(const loch_buffer *buffer);

/** Returns the device of a buffer; NULL for plain host memory that was wrapped. Borrowed. */
LOCH_API loch_device *loch_buffer_get_device(const loch_buffer *buffer);

/** Returns the allocator of a buffer's block; NULL for external memory. Borrowed. */
LOCH_API loch_allocator *loch_buffer_get_allocator(const loch_buffer *buffer);

/** Returns the kind of memory of a buffer. NULL returns LOCH_MEMORY_HOST. */
LOCH_API loch_memory_kind loch_buffer_get_kind(const loch_buffer *buffer);

/** Returns whether a buffer may be written: LOCH_READ_ONLY for read-only external memory, for frozen and protected
 *  memory (moving.h), and for NULL. */
LOCH_API loch_access loch_buffer_get_access(const loch_buffer *buffer);

/** Returns non-zero if the host may read and write the buffer in place. NULL returns 0. */
LOCH_API int loch_buffer_is_on_host(const loch_buffer *buffer);

/** Returns the number of references on this object now. Each slice holds one reference on the whole. Other threads
 *  may change the number at any time: for tests and debugging only. NULL returns 0. */
LOCH_API size_t loch_buffer_get_references(const loch_buffer *buffer);

/** Returns the id of a buffer's memory: a number that is never used for another buffer of this process. Slices share
 *  the id of the whole. NULL returns 0. */
LOCH_API uint64_t loch_buffer_get_id(const loch_buffer *buffer);

/** Returns the version of a buffer's contents. Every write through Loch raises it: copies and fills into the buffer
 *  or its tensors, written elements, the end of a mapping for writing, resizes, the return to a pool of buffers,
 *  loch_buffer_touch, and a sleep that drops the contents of the buffer's tag (LOCH_SLEEP_DROP), whether its own
 *  memory was released or not. While the version is unchanged, the contents are unchanged, except for writes that
 *  were not reported by loch_buffer_touch. The version rises when a write is queued, even if the write fails. Slices
 *  share the version of the whole. NULL returns 0. Any thread. */
LOCH_API uint64_t loch_buffer_get_version(const loch_buffer *buffer);

/** Raises the version of a buffer after a write that Loch did not see: by a kernel, by the host at an address, by a
 *  graph, or by another user of memory shared through DLPack. Import and export through DLPack are not writes. NULL
 *  does nothing. Any thread. */
LOCH_API void loch_buffer_touch(loch_buffer *buffer);

/** @} */
/** @name Contents */
/** @{ */

/** Whether the sizes of a copy must be equal. */
typedef enum loch_fit {
    LOCH_FIT_EXACT, /**< sizes must be equal; E_INVALID if they are not */
    LOCH_FIT_CLIP   /**< copies the smaller of the two sizes */
} loch_fit;

/** Options of loch_buffer_copy. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_buffer_copy_options {
    size_t size;         /**< sizeof(loch_buffer_copy_options) */
    loch_stream *stream; /**< stream of one of the two devices; NULL for the default stream, and the call waits */
    loch_wait wait;      /**< when the call returns */
    loch_fit fit;        /**< whether the sizes must be equal */
} loch_buffer_copy_options;

/** Copies the contents of one buffer to another, between any two devices. Both buffers stay alive until the copy has
 *  ended, even if the caller releases them. The two may overlap. E_INVALID: the sizes differ (LOCH_FIT_EXACT), or
 *  `to` is read-only. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_copy(loch_buffer *to, loch_buffer *from,
                                                    const loch_buffer_copy_options *options);

/** Fills a buffer with a repeated pattern of 1, 2 or 4 bytes, ordered on `stream`. A NULL stream means the default
 *  stream, and the call waits. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_fill(loch_buffer *buffer, const void *pattern, size_t pattern_bytes,
                                                    loch_stream *stream);

/** Records that work queued so far on `stream` uses a buffer: its memory is not freed before that work has ended.
 *  Call it after queuing the work and before releasing the buffer. The stream may belong to any device; NULL means
 *  the default stream. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_record_use(loch_buffer *buffer, loch_stream *stream);

/** What a resize does with the contents. */
typedef enum loch_contents {
    LOCH_CONTENTS_KEEP, /**< kept up to the smaller size; new bytes are undefined */
    LOCH_CONTENTS_DROP  /**< undefined; nothing is copied */
} loch_contents;

/** Changes the size of a buffer, in place if the allocator can do so. The address may change; slices and tensors
 *  follow. On failure the buffer is unchanged. E_UNSUPPORTED: external memory, or a slice. E_BUSY: work of another
 *  device still uses the buffer, or the buffer is movable and pinned.
 *  @param stream  a stream that the caller has ordered after every other use of the buffer. NULL: the stream of the
 *                 allocation, if it still exists; otherwise the default stream, after waiting for the device
 *                 (loch_allocator_realloc) */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_resize(loch_buffer *buffer, size_t bytes, loch_contents contents,
                                                      loch_stream *stream);

/** @} */
/** @name External memory */
/** @{ */

/** Called once, after the last reference on the memory was released; for external memory, after the last work on it
 *  has ended. Runs without locks, on the thread that gives the memory back. It may call Loch. */
typedef void loch_buffer_deleter(void *address, size_t bytes, void *user);

/** A description of external memory. Zero means default. */
typedef struct loch_external {
    size_t size;         /**< sizeof(loch_external) */
    loch_device *device; /**< device of the memory; NULL: found by its address, host memory if no device knows it */
    /** Frees the memory; NULL: the caller keeps ownership, and keeps the memory valid as long as the buffer and its
     *  work. */
    loch_buffer_deleter *deleter;
    void *user;         /**< passed to the deleter */
    loch_buffer *owner; /**< a buffer that is kept alive as long as the new one; may be NULL */
    loch_access access; /**< whether the memory may be written */
} loch_external;

/** Creates a buffer on external memory without copying it. E_INVALID: the memory is known to be on another device
 *  than stated. On failure the deleter is not called, and the memory still belongs to the caller.
 *  @param external  may be NULL: all defaults
 *  @param out       the caller's reference; give it back with loch_buffer_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_wrap(void *address, size_t bytes, const loch_external *external,
                                                    loch_buffer **out);

/** Creates a buffer from a live block of `allocator`. The buffer takes ownership of the block and frees it.
 *  E_INVALID: the address is NULL. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN: `address` is not a live block of the
 *  allocator. E_UNSUPPORTED: the allocator does not know the size of the block. On failure the block still belongs to
 *  the caller.
 *  @param out  the caller's reference; give it back with loch_buffer_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_adopt(loch_allocator *allocator, void *address, loch_buffer **out);

/** Takes the block out of a buffer. The buffer is empty afterwards; the caller owns the block and frees it with the
 *  buffer's allocator. Waits for a move in progress. E_BUSY: other references on the buffer or slices of it exist,
 *  work of another device still uses it, or the buffer is movable and pinned. E_UNSUPPORTED: external memory, a
 *  slice, or a buffer with added deleters.
 *  @param out  address of the block; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_detach(loch_buffer *buffer, void **out);

/** Adds a function that runs once when a buffer's memory is given back: after the last reference on the buffer
 *  and its slices was released. Added functions run in reverse order of addition, before the block is freed or
 *  the deleter of loch_external runs. On a slice the function is added to the whole. It receives the address and
 *  size of the whole at that time, and runs without locks on the thread that gives the memory back; it may call
 *  Loch. A block is freed in stream order, so work on the block may still be in progress: a function that needs
 *  the end of the work calls loch_stream_sync. A buffer with added functions cannot be detached, and a pool of
 *  buffers does not keep it. `user` is borrowed until the function has run. E_HOST_MEMORY: nothing is added. Any
 *  thread that holds a reference. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_add_deleter(loch_buffer *buffer, loch_buffer_deleter *deleter,
                                                           void *user);

/** Gives back the memory of released buffers whose work has ended. Memory that another thread is giving back at this
 *  moment may be counted as waiting until that thread's call returns. Any thread.
 *  @param wait     LOCH_WAIT_END waits on the host for all such work; any other value gives back only what has ended
 *  @param waiting  number of buffers whose work has not ended; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_collect(loch_wait wait, size_t *waiting);

/** @} */
/** @name Movable buffers and pins */
/** @{ */

/** Returns non-zero if the pool may move the buffer: it was created with LOCH_ALLOC_MOVABLE (moving.h). NULL returns
 *  0. */
LOCH_API int loch_buffer_is_movable(const loch_buffer *buffer);

/** Pins a buffer and returns its address for work on `stream` (NULL: the default stream) until the matching
 *  loch_buffer_unpin. Pins are counted. Any buffer can be pinned; only movable ones need it. The stream waits on the
 *  device for a move in progress. E_INVALID: the buffer is movable and the stream belongs to another device. E_BUSY:
 *  the buffer is movable and asleep (sleep.h). Any thread.
 *  @param out  the address; NULL for an empty buffer and on failure */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pin(loch_buffer *buffer, loch_stream *stream, void **out);

/** Removes one pin after the work with the address was queued on `stream` (NULL: the default stream). A later move,
 *  and the free of the memory, are ordered after that work. Call loch_buffer_record_use first if another stream used
 *  the buffer. If the work can neither be recorded nor waited for, the call fails and the pin stays. E_INVALID: a
 *  movable buffer is not pinned. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_unpin(loch_buffer *buffer, loch_stream *stream);

/** Returns how often a movable buffer has moved. An address obtained at another generation is stale. 0 for a buffer
 *  that is not movable. */
LOCH_API uint64_t loch_buffer_get_generation(const loch_buffer *buffer);

/** @} */

LOCH_END_DECLS

#endif
