/* SPDX-License-Identifier: MIT */
/** @file buffer.h
 *  A buffer is shared, counted ownership of one block, or of memory from outside; sub-buffers are parts of one.
 *
 *  - The last reference frees the memory: in the order of the stream of its allocation, and behind all work that was said to
 *    use it. Copies made here say so by themselves, loch_buffer_record_use says it of other work. So both sides of an
 *    asynchronous copy may be released right after it was queued.
 *  - The count is safe in any thread. Contents, resize and detach are for one thread at a time to change, as with any memory.
 *  - Memory that queued work of another device still uses, and memory from outside, waits for that work's events: it goes
 *    with the next buffer that is made, copied or released after they have passed, or with loch_buffer_collect.
 *  - Work that is captured into a graph uses memory whenever the graph runs: its owner keeps the buffers.
 */
#ifndef LOCH_BUFFER_H
#define LOCH_BUFFER_H

#include <loch/allocator.h>
#include <loch/copy.h>
#include <loch/raw.h>

LOCH_BEGIN_DECLS

/** Counted ownership of memory. */
typedef struct loch_buffer loch_buffer;

/** @name Making and sharing */
/** @{ */

/** Makes a buffer with a block of its own. Zero bytes give a buffer without memory.
 *  @param allocator  retained by the buffer
 *  @param request    alignment, stream, tag, flags (LOCH_ALLOC_ZEROED) and patience; its own bytes are ignored; may be NULL.
 *                    Zeroes of memory that the host reaches are there at once where no stream is named
 *  @param out        the caller's reference, given back by loch_buffer_release; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_create(loch_allocator *allocator, size_t bytes,
                                                      const loch_request *request, loch_buffer **out);

/** The same from the default allocator of a device; NULL: of "cpu". */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_create_for_device(loch_device *device, size_t bytes,
                                                                 const loch_request *request, loch_buffer **out);

/** Called once, when the last reference on memory has gone, and for memory from outside when no work uses it any more; by the
 *  thread that sees to that, without locks. It may call Loch. */
typedef void loch_buffer_deleter(void *address, size_t bytes, void *user);

/** About memory from outside; zero means default. */
typedef struct loch_external {
    size_t size;                  /**< sizeof(loch_external) */
    loch_device *device;          /**< where it is; NULL: found out, and the host where no device knows it */
    loch_buffer_deleter *deleter; /**< NULL: it stays the caller's, who keeps it as long as the buffer and its work */
    void *user;                   /**< handed to the deleter */
    loch_buffer *owner;           /**< a buffer that is kept alive as long as this one; may be NULL */
    loch_access access;           /**< whether it may be written */
} loch_external;

/** Makes a buffer of memory from outside. `external` may be NULL. E_INVALID when the memory is known to be elsewhere than
 *  said. On failure nothing is taken over, and the deleter is not called. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_wrap(void *address, size_t bytes, const loch_external *external,
                                                    loch_buffer **out);

/** Makes a buffer of a live block, which becomes the buffer's to free. Errors of the address as for a free. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_adopt(loch_allocator *allocator, void *address, loch_buffer **out);

/** Makes a buffer of a part of another, which it keeps alive. It follows the other one's resizes; one that then no
 *  longer fits is E_OUT_OF_RANGE to use. E_OUT_OF_RANGE. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_slice(loch_buffer *buffer, size_t offset, size_t bytes,
                                                     loch_buffer **out);

/** Adds a function that runs once, when the memory goes: with the last reference of the buffer and its parts, and after those
 *  added later. Then the block is freed, or the deleter of loch_external runs. Any buffer may have any number of them; on a part
 *  it is added to the whole. It gets the address and the bytes of the whole as they are then, and runs by the thread that gives
 *  the memory back, without locks; it may call Loch. A block of an allocator is freed in the order of its stream, so work on
 *  streams of its device may still be under way: a function that needs its end waits for it (loch_stream_sync). A buffer
 *  with such functions cannot be detached, and ends when it goes back into a pool of buffers. `user` is borrowed until it has
 *  run. E_HOST_MEMORY, and nothing is added. Any thread that holds a reference. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_add_deleter(loch_buffer *buffer, loch_buffer_deleter *deleter,
                                                           void *user);

/** Takes another reference; returns `buffer`. NULL gives NULL. Any thread. */
LOCH_API loch_buffer *loch_buffer_retain(loch_buffer *buffer);

/** Gives a reference back. NULL does nothing. Any thread. */
LOCH_API void loch_buffer_release(loch_buffer *buffer);

/** Releases what `*slot` holds and sets it to NULL; NULL and an empty slot do nothing. */
LOCH_API void loch_buffer_clear(loch_buffer **slot);

/** Moves a reference out: returns what `*slot` held, and sets it to NULL. */
LOCH_API loch_buffer *loch_buffer_take(loch_buffer **slot);

/** Takes the block out of a buffer, which is empty then; the caller frees it with the buffer's allocator. Waits for a move that is under
 *  way. E_BUSY when
 *  others hold the buffer or a part of it, or work of another device still uses it; E_UNSUPPORTED for memory from outside,
 *  for a part, and for a buffer with added deleters. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_detach(loch_buffer *buffer, void **out);

/** Releases memory that waited for work to end. @param wait  LOCH_WAIT_END waits for all of it; anything else takes what
 *  has ended. @param waiting  how many are still waiting; may be NULL. What another thread is giving back just then may take
 *  until that thread's call returns. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_collect(loch_wait wait, size_t *waiting);

/** @} */
/** @name Questions */
/** @{ */

/** Where it is; NULL for an empty buffer, for a part that its storage no longer holds, and for one that may move and is not pinned. Valid until the buffer is
 *  resized, detached or ends. */
LOCH_API void *loch_buffer_get_address(const loch_buffer *buffer);

/** How many bytes. */
LOCH_API size_t loch_buffer_get_bytes(const loch_buffer *buffer);

/** The device; NULL for plain host memory from outside. Borrowed. */
LOCH_API loch_device *loch_buffer_get_device(const loch_buffer *buffer);

/** The allocator of its block; NULL for memory from outside. Borrowed. */
LOCH_API loch_allocator *loch_buffer_get_allocator(const loch_buffer *buffer);

/** The kind of memory. */
LOCH_API loch_memory_kind loch_buffer_get_kind(const loch_buffer *buffer);

/** Whether it may be written; not while it is frozen and protected (moving.h). */
LOCH_API loch_access loch_buffer_get_access(const loch_buffer *buffer);

/** Non-zero if the host may read and write it in place. */
LOCH_API int loch_buffer_is_on_host(const loch_buffer *buffer);

/** References now, of this object; parts hold one each on the whole. For tests and curiosity: other threads may change it. */
LOCH_API size_t loch_buffer_get_references(const loch_buffer *buffer);

/** A number that no other buffer's memory of this process has or will have; parts share it. */
LOCH_API uint64_t loch_buffer_get_id(const loch_buffer *buffer);

/** A number that every write through Loch raises: copies and fills into it or into tensors on it, written elements, the end of a mapping
 *  for writing, resizes, the way back into a pool of buffers, loch_buffer_touch; and a sleep of its pool that drops the contents of its tag
 *  (LOCH_SLEEP_DROP), whether its own memory went or not. Parts share it. While it is the same, so are the contents, unless somebody wrote
 *  them and did not say so. It is raised when the write was queued, whether it
 *  succeeds or not. 0 for NULL. Any thread. */
LOCH_API uint64_t loch_buffer_get_version(const loch_buffer *buffer);

/** Says that the contents were written by other means: a kernel, the host at an address, a graph, or who shares the memory by DLPack,
 *  where importing and exporting are no writes. Any thread. NULL does nothing. */
LOCH_API void loch_buffer_touch(loch_buffer *buffer);

/** Non-zero if its pool may move it: made with LOCH_ALLOC_MOVABLE. */
LOCH_API int loch_buffer_is_movable(const loch_buffer *buffer);

/** How often it has moved: an address that was had at another number is stale. */
LOCH_API uint64_t loch_buffer_get_generation(const loch_buffer *buffer);

/** @} */
/** @name Pins. Counted. Any buffer can be pinned; it matters for those that may move (moving.h). */
/** @{ */

/** The address, for work on `stream` (of the buffer's device; NULL: the default stream), until it is unpinned. The stream waits, on the
 *  device, for a move that is under way. E_INVALID for a stream of another device, if it may move. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_pin(loch_buffer *buffer, loch_stream *stream, void **out);

/** Undoes one pin, after the work with the address was queued on `stream`: a move comes behind it, and so does the end of the memory.
 *  Work on further streams, of any device, is said by loch_buffer_record_use before. E_INVALID when it is not pinned. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_unpin(loch_buffer *buffer, loch_stream *stream);

/** @} */
/** @name Contents */
/** @{ */

/** What becomes of the contents. */
typedef enum loch_contents {
    LOCH_CONTENTS_KEEP, /**< as far as they fit; what comes behind them is undefined */
    LOCH_CONTENTS_DROP  /**< undefined; nothing is copied */
} loch_contents;

/** Changes the size, in place where the allocator can. The address may change: parts and tensors follow. On failure the
 *  buffer is as it was.
 *  @param stream  ordered by the caller behind every other use, as for loch_allocator_realloc; NULL likewise
 *  E_UNSUPPORTED for memory from outside and for a part, E_BUSY while work of another device uses it. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_resize(loch_buffer *buffer, size_t bytes, loch_contents contents,
                                                      loch_stream *stream);

/** Whether sizes have to agree. */
typedef enum loch_fit {
    LOCH_FIT_EXACT, /**< E_INVALID when they do not */
    LOCH_FIT_CLIP   /**< as much as both have */
} loch_fit;

/** How to copy between buffers; zero means default, NULL all defaults. */
typedef struct loch_buffer_copy_options {
    size_t size;         /**< sizeof(loch_buffer_copy_options) */
    loch_stream *stream; /**< of one of the devices involved; NULL: the default stream, and waits */
    loch_wait wait;      /**< when to return */
    loch_fit fit;        /**< whether sizes have to agree */
} loch_buffer_copy_options;

/** Copies a buffer's contents, between any two devices. Both sides stay alive until an asynchronous copy has ended, whatever
 *  the caller does. They may overlap. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_copy(loch_buffer *to, loch_buffer *from,
                                                    const loch_buffer_copy_options *options);

/** Fills a buffer with a pattern of 1, 2 or 4 bytes, in the order of `stream`; NULL: the default stream, and waits. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_fill(loch_buffer *buffer, const void *pattern, size_t pattern_bytes,
                                                    loch_stream *stream);

/** Says that work queued so far on `stream` uses the buffer: its memory stays until that work has ended. To be called
 *  after the work was queued and before the reference is released. Streams of any device. */
LOCH_API LOCH_MUST_USE loch_status loch_buffer_record_use(loch_buffer *buffer, loch_stream *stream);

/** @} */

LOCH_END_DECLS

#endif
