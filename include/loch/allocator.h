/* SPDX-License-Identifier: MIT */
/** @file allocator.h
 *  Allocators hand out blocks of memory. One interface serves the library's allocators, wrappers around them, and
 *  your own.
 *
 *      void *block;
 *      LOCH_CHECK(loch_alloc(allocator, 1 << 20, &block));
 *      ...
 *      LOCH_CHECK(loch_free(allocator, block));
 *
 *  Rules of every allocator (one test suite checks them on all of them, in release builds too):
 *  - A request of zero bytes returns LOCH_OK and NULL, or a unique address if the allocator has
 *    LOCH_TRAIT_ALLOCATES_EMPTY.
 *  - Freeing NULL succeeds. Freeing a block twice gives E_DOUBLE_FREE (E_FOREIGN once the allocator no longer
 *    remembers the block), an address inside a block gives E_INTERIOR, any other wrong address gives E_FOREIGN.
 *    Nothing changes then.
 *  - Sizes and alignments are checked. A size that does not fit the address space gives E_OVERFLOW.
 *  - Allocation and free are ordered on a stream. A plain free is ordered on the stream of the allocation. When
 *    freeing on another stream, the caller has already ordered that stream after every other use.
 *    loch_allocator_record_use names further streams that use a block.
 *  - Calls work from any thread, unless the allocator lacks LOCH_TRAIT_THREAD_SAFE.
 *  - Allocators are reference counted. Live blocks keep their allocator alive: the last reference may be released
 *    before the last block is freed.
 */
#ifndef LOCH_ALLOCATOR_H
#define LOCH_ALLOCATOR_H

#include <loch/attributes.h>
#include <loch/stats.h>
#include <loch/stream.h>
#include <loch/tag.h>
#include <string.h>

LOCH_BEGIN_DECLS

/** An allocator: hands out blocks. Reference counted. */
typedef struct loch_allocator loch_allocator;

/** Takes another reference on an allocator and returns `allocator`. Give each reference back with
 *  loch_allocator_release. NULL returns NULL. Any thread. */
LOCH_API loch_allocator *loch_allocator_retain(loch_allocator *allocator);

/** Releases one reference on an allocator. Live blocks stay valid and can still be freed; the allocator ends with the
 *  last of them. NULL does nothing. Any thread. */
LOCH_API void loch_allocator_release(loch_allocator *allocator);

/** @name Blocks */
/** @{ */

/** Allocates a block of `bytes` with the default alignment, on the default stream, without a tag. Short form of
 *  loch_allocator_alloc.
 *  @param out  owned by the caller; free it with loch_free. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_alloc(loch_allocator *allocator, size_t bytes, void **out);

/** Frees a block, ordered on the stream of its allocation. A NULL address succeeds, even with a NULL allocator, so
 *  members of half-built objects can be freed without a test. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN: `address` is not
 *  a live block; nothing changes. E_CORRUPT (with red zones): the block was freed, and a write outside of it was
 *  detected. */
LOCH_API LOCH_MUST_USE loch_status loch_free(loch_allocator *allocator, void *address);
#define loch_allocator_free loch_free /**< the name of loch_free in programs for 0.1 */

/** Flags of one allocation. loch_request.flags is a set of these. */
typedef enum loch_allocation_flag {
    /** Fail when the allocator itself cannot serve the request: no pressure functions, no waiting for frees. A pool
     *  still takes all of its own steps, and so may wait for the device and take unused memory of other pools
     *  (pool.h). */
    LOCH_ALLOC_NO_RETRY = 1 << 0,
    LOCH_ALLOC_LOGGED = 1 << 1, /**< a logging wrapper with LOCH_LOGGING_FLAGGED writes this allocation */
    LOCH_ALLOC_ZEROED = 1 << 2, /**< contents are zero, ordered on the stream of the request */
    /** For buffers and tensors only: the pool may move the block while it is not pinned (moving.h); E_INVALID for an
     *  allocation that returns an address. */
    LOCH_ALLOC_MOVABLE = 1 << 3,
    /** The block is the whole of one handle, so the driver reports one mapping for it: what libraries that register
     *  memory for network cards or other processes look at. Its memory is rounded up to granules. Freed memory serves
     *  such blocks of the same size, or goes back. E_UNSUPPORTED: the allocator is not a pool of virtual memory. */
    LOCH_ALLOC_ONE_HANDLE = 1 << 4
} loch_allocation_flag;

/** A request for one block. Zero means default. */
typedef struct loch_request {
    size_t size;         /**< sizeof(loch_request) */
    size_t bytes;        /**< size of the block in bytes */
    size_t alignment;    /**< alignment of the address: a power of two, or 0 for the allocator's own */
    loch_stream *stream; /**< stream that uses the block first; NULL for the default stream */
    loch_tag tag;        /**< tag for the statistics; 0 for none */
    uint32_t flags;      /**< set of loch_allocation_flag */
    /** How long to wait, in nanoseconds, for memory that others free when memory is short; 0 for no waiting. It does
     *  not matter where it is freed: in another thread, in another pool of the device, in another process of a budget.
     *  The time of pressure functions counts.
     *  A request that is larger than a limit, or than the device, does not wait. */
    uint64_t timeout_ns;
    /** The size is rounded up to a multiple of this; 0 or 1 for no rounding. requested_bytes of the block stays
     *  `bytes`; the rounded size is in allocated_bytes. */
    size_t round_bytes;
    /** For a growable block (pool.h): addresses to reserve, in bytes, at least `bytes`, which may be 0. 0 for an
     *  ordinary block. E_UNSUPPORTED: the allocator is not a pool of virtual memory, or a wrapper around it has no
     *  growable blocks. E_OUT_OF_RANGE: `bytes` is more. */
    size_t max_bytes;
    /** Places the block exactly at this address of a pool; NULL for any address. For blocks that have to come back to
     *  the addresses that they had: all of it must be free on the stream of the request, or have no memory yet. A
     *  block that the pool handed out fits there again with its old size and alignment: up to 8 KiB always in a pool
     *  of graphs (LOCH_POOL_CAPTURES_SHARED), elsewhere while no small blocks of other sizes were there. E_BUSY: a
     *  part of it is in use, waits for streams, or is asleep. E_OUT_OF_RANGE: not the pool's addresses. E_INVALID: no
     *  block of this size and alignment can start there, or the block is growable. E_UNSUPPORTED: the allocator is
     *  not a pool, or a wrapper around it moves blocks (red zones). Nothing changes then. */
    void *address;
} loch_request;

/** A pointer to a request with the named members, for one call: loch_allocator_alloc(pool, LOCH_REQUEST(.bytes = n,
 *  .alignment = 64), &block). It lives until the end of the block around it. C only. */
#ifndef __cplusplus
#define LOCH_REQUEST(...) (&(loch_request){.size = sizeof(loch_request), __VA_ARGS__})
#endif

/** Allocates a block as `request` says. E_INVALID: the request is not valid. E_OVERFLOW: the size does not fit the
 *  address space. E_DEVICE_MEMORY, E_LIMIT, E_FRAGMENTED, E_HOST_MEMORY: memory is short.
 *  @param out  owned by the caller; free it with loch_free. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_alloc(loch_allocator *allocator, const loch_request *request,
                                                        void **out);

/** Allocates `count` elements of `bytes` each. E_OVERFLOW: the product does not fit the address space.
 *  @param request  alignment, stream, tag and flags; its own `bytes` is ignored; may be NULL
 *  @param out      owned by the caller; free it with loch_free. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_alloc_array(loch_allocator *allocator, size_t count, size_t bytes,
                                                    const loch_request *request, void **out);

/** Frees a block, ordered on `stream` (NULL: the default stream). The caller has already ordered `stream` after every
 *  other use of the block. A NULL address succeeds. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_free_on(loch_allocator *allocator, void *address,
                                                          loch_stream *stream);

/** Frees a block and checks its size, ordered on the stream of its allocation. E_INVALID, nothing freed: the
 *  requested size is not `bytes`. A NULL address succeeds. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_free_sized(loch_allocator *allocator, void *address, size_t bytes);

/** Frees a block by its address alone, ordered on the stream of its allocation. Finds the outermost allocator that
 *  handed the block out, so wrappers around an allocator see the free. Slower than loch_free by a look-up, which does
 *  not depend on the number of allocators; allocators of users that have their own `find` are asked each time. NULL
 *  succeeds. Any thread, as far as the allocator allows.
 *
 *  E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN: `address` is not a live block. E_UNSUPPORTED: two allocators have a block at
 *  this address and neither wraps the other (one of them splits up blocks of the other). An allocator that is not
 *  thread safe and has its own `find` is searched only from the single thread that uses it. */
LOCH_API LOCH_MUST_USE loch_status loch_address_free(void *address);

/** Changes the size of a block to `bytes`. The contents are kept up to the smaller size; new bytes are undefined. The
 *  block is resized in place if the allocator can do so and `stream` is the block's own stream. Otherwise a new block
 *  with the same tag and the allocator's own alignment is allocated, the contents are copied, and the old block is
 *  freed, all ordered on the stream. A NULL address allocates; 0 bytes frees.
 *
 *  E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN: `address` is not a live block. E_CORRUPT: the call succeeded, but a red zone
 *  of the old block was found overwritten when the block was freed.
 *  @param stream  a stream that the caller has ordered after every other use of the block; it must exist until the
 *                 call returns. NULL: the stream of the allocation, if the allocator knows it (loch_block.stream_id)
 *                 and it still exists; otherwise the default stream, after waiting for the device. Streams recorded
 *                 with loch_allocator_record_use for the old block are not recorded for a new one.
 *  @param out     the block, at the same or another address. NULL on failure; the old block is then unchanged. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_realloc(loch_allocator *allocator, void *address, size_t bytes,
                                                          loch_stream *stream, void **out);

/** Records that `stream` (NULL: the default stream) also uses a block. The free of the block is then ordered after
 *  all work that was queued on `stream` before the free, too. Call it before the free. E_INVALID: the stream belongs
 *  to another device. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN: `address` is not a live block. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_record_use(loch_allocator *allocator, void *address,
                                                             loch_stream *stream);

/** @} */
/** @name Properties and live blocks */
/** @{ */

/** Returns the name of an allocator. Borrowed. NULL returns "". */
LOCH_API const char *loch_allocator_get_name(const loch_allocator *allocator);

/** Returns the device of an allocator. Borrowed. NULL returns NULL. */
LOCH_API loch_device *loch_allocator_get_device(const loch_allocator *allocator);

/** Returns the allocator that a wrapper wraps; NULL for an allocator that is not a wrapper. Borrowed. */
LOCH_API loch_allocator *loch_allocator_get_wrapped(const loch_allocator *allocator);

/** Properties of an allocator. loch_allocator_get_traits returns a set of these. */
typedef enum loch_trait {
    LOCH_TRAIT_THREAD_SAFE = 1 << 0,     /**< calls may come from several threads at a time */
    LOCH_TRAIT_TRACKS_SIZES = 1 << 1,    /**< requested sizes and ids of blocks are known and found quickly */
    LOCH_TRAIT_ALLOCATES_EMPTY = 1 << 2, /**< a request of zero bytes returns a unique address */
    LOCH_TRAIT_STREAM_ORDERED = 1 << 3,  /**< a free does not wait on the host for the stream */
    /** The allocator itself does LOCH_ALLOC_ZEROED; the library queues no fill. */
    LOCH_TRAIT_ZEROES = 1 << 4
} loch_trait;

/** Returns the set of loch_trait of an allocator. NULL returns 0. */
LOCH_API uint32_t loch_allocator_get_traits(const loch_allocator *allocator);

/** Returns the attributes of the memory that an allocator hands out. NULL returns all zero. */
LOCH_API loch_attributes loch_allocator_get_attributes(const loch_allocator *allocator);

/** A live block. A member is 0 if the allocator does not know it. */
typedef struct loch_block {
    size_t size;            /**< sizeof(loch_block); set by the caller of loch_allocator_find */
    void *address;          /**< address of the block */
    size_t requested_bytes; /**< requested size in bytes */
    size_t allocated_bytes; /**< size in bytes that the block takes up: at least the requested size */
    uint64_t id;            /**< id, unique within the allocator; 0 only if there was no host memory to assign one */
    loch_tag tag;           /**< tag of the request */
    uint64_t stream_id;     /**< id of the stream of the allocation (loch_stream_get_id) */
    uint64_t time_ns;       /**< time of the allocation in nanoseconds (loch_host_now_ns) */
} loch_block;

/** Reads what is known of the live block that starts at `address`. Set `out->size` before the call: to
 *  sizeof(loch_block), or to offsetof(loch_block, id) for the sizes alone, which a pool reads without a lock and with
 *  hardly more work than malloc_usable_size. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN: `address` is not the start of a live
 *  block. An allocator without LOCH_TRAIT_TRACKS_SIZES may have to search. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_find(loch_allocator *allocator, const void *address, loch_block *out);

/** Receives one live block. Must not call the allocator. A return value other than LOCH_OK ends the walk and becomes
 *  its result. */
typedef loch_status loch_block_visitor(const loch_block *block, void *user);

/** Walks the live blocks of an allocator in no particular order. Blocks that are allocated or freed during the walk
 *  may be visited or not. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_walk(loch_allocator *allocator, loch_block_visitor *visitor,
                                                       void *user);

/** @} */
/** @name Statistics */
/** @{ */

/** Reads the statistics of an allocator as one consistent snapshot. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_get_stats(loch_allocator *allocator, loch_stats *out);

/** Returns the statistics of an allocator, for one figure: loch_stats_of(pool).requested_bytes. All zero for NULL and
 *  if loch_allocator_get_stats fails; the thread's error record says why. */
static inline loch_stats loch_stats_of(loch_allocator *allocator)
{
    loch_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    if (loch_allocator_get_stats(allocator, &stats) != LOCH_OK) memset(&stats, 0, sizeof stats);
    return stats;
}

/** Reads the statistics of the blocks with one tag. Set `out->size` before the call. E_INVALID: `tag` is 0 or not a
 *  tag. E_UNSUPPORTED: the allocator keeps no statistics by tag. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_get_tag_stats(loch_allocator *allocator, loch_tag tag,
                                                                loch_stats *out);

/** Resets the statistics that this allocator shows: peaks become the present use, the largest request and all counts
 *  become 0. Memory in use stays counted. Each allocator has its own reset: resetting a wrapper does not change what
 *  the wrapped allocator or other wrappers of it show, and resetting a pool does not change its parent or children.
 *  Two figures are shared and do change for all of them: peaks by tag, and `peak_reserved_bytes` of
 *  loch_pool_get_info. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_reset_stats(loch_allocator *allocator);

/** Gives cached memory back to the device until at most `keep_bytes` are cached. On the CPU the system then also gets
 *  the pages of cached memory back that lies between live blocks: the pool keeps and counts it as before.
 *  @param released  number of bytes given back; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_trim(loch_allocator *allocator, size_t keep_bytes, size_t *released);

/** Histograms of the calls of an allocator while it was measured. */
typedef struct loch_measurements {
    size_t size;             /**< set by the caller to sizeof(loch_measurements) */
    loch_histogram bytes;    /**< requested sizes in bytes */
    loch_histogram alloc_ns; /**< duration of allocations in nanoseconds, including retries */
    loch_histogram free_ns;  /**< duration of frees in nanoseconds */
} loch_measurements;

/** Turns the measuring of sizes and durations on or off for an allocator, and sets its histograms to zero. While on,
 *  every call reads the clock twice and leaves the fast path. E_HOST_MEMORY: no memory for the histograms. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_measure(loch_allocator *allocator, loch_measure measure);

/** Copies the histograms of an allocator to `out`. E_INVALID: `out->size` is smaller than sizeof(loch_measurements).
 *  E_UNSUPPORTED: the allocator was never measured. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_get_measurements(loch_allocator *allocator, loch_measurements *out);

/** @} */
/** @name When memory is short */
/** @{ */

/** Frees memory when an allocation has failed. Returns the number of bytes freed, or an estimate; 0 means that it can
 *  free no more. It is called again while it frees something and the request does not fit yet, so it may evict one
 *  entry at a time. If other threads take all that it frees, it is called until the request's time is over, and 65,536
 *  times at most. Called without locks, on the thread whose allocation failed; loch_error_get has the failure. It may
 *  free blocks of any allocator: what it frees on its thread counts wherever it was, and so does memory of the device
 *  that it frees by other means. It must not allocate from `allocator`. If it returns 0, it may set the sentence of the
 *  failure by loch_error_set with the same status; calls that fail inside it do not change the failure.
 *  @param bytes  size of the request */
typedef size_t loch_pressure_function(loch_allocator *allocator, size_t bytes, void *user);

/** Returns how long the request may still wait that the calling thread's pressure function was called for, in
 *  nanoseconds; UINT64_MAX if the request has no timeout_ns, or if no pressure function runs. A function that waits
 *  itself must not wait longer. Any thread. */
LOCH_API uint64_t loch_pressure_get_left_ns(void);

/** Adds a pressure function to an allocator. When an allocation fails because memory is short and a retry is allowed,
 *  the functions of the allocator are called in order of addition, then those of the allocators that it wraps or got
 *  memory from, then those of a child's parents, the nearest first, up to the pool whose limit is reached. No function
 *  is called for a request that is larger than a limit or than the device. Functions of a wrapper around a parent are
 *  not called for its children, which do not use the wrapper. `user` is borrowed until
 *  loch_allocator_remove_pressure. E_EXISTS: the same function and `user` are added already. E_HOST_MEMORY. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_add_pressure(loch_allocator *allocator,
                                                               loch_pressure_function *function, void *user);

/** Removes a pressure function. Waits until no thread is inside the function. From inside the function it does not
 *  wait: the function is not called again, and `user` is borrowed until it has returned. E_NOT_FOUND: the function and
 *  `user` were not added. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_remove_pressure(loch_allocator *allocator,
                                                                  loch_pressure_function *function, void *user);

/** @} */
/** @name Your own allocator */
/** @{ */

/** The functions of an allocator. loch_allocator_create checks and copies this table once, and fills empty optional
 *  slots, so no call tests a slot later. For a wrapper use loch_wrapper_create: its empty slots, except resize,
 *  forward to the wrapped allocator. The library guarantees to each slot: arguments are checked; sizes are not 0
 *  (unless LOCH_TRAIT_ALLOCATES_EMPTY); streams are not NULL, except that `free` receives NULL for the stream of the
 *  allocation. The functions must contain no cancellation point (pthread_cancel), or must disable cancellation. */
typedef struct loch_allocator_ops {
    size_t size;          /**< sizeof(loch_allocator_ops) */
    const char *kind;     /**< kind of the allocator: "direct", "limit"; static string */
    uint32_t traits;      /**< set of loch_trait; for a wrapper, the traits that it adds */
    uint32_t lost_traits; /**< for wrappers: traits of the wrapped allocator that no longer hold */
    /** Required (optional for a wrapper): allocates a block. */
    loch_status (*alloc)(void *self, const loch_request *request, void **out);
    /** Required (optional for a wrapper): frees a block. `bytes` is the requested size if the caller knows it,
     *  otherwise 0. Returns E_DOUBLE_FREE, E_INTERIOR or E_FOREIGN for a wrong address, and frees nothing. E_CORRUPT
     *  is different: the block was freed, and a write outside the block was detected. */
    loch_status (*free)(void *self, void *address, size_t bytes, loch_stream *stream);
    /** Called once, after the last reference was released and the last block was freed. */
    void (*destroy)(void *self);
    /** Optional: fills in what is known of the live block at `address`; E_FOREIGN, E_INTERIOR or E_DOUBLE_FREE if
     *  there is none. Default: a table that the library keeps. */
    loch_status (*find)(void *self, const void *address, loch_block *out);
    /** Optional: walks the live blocks. Default: walks the table that the library keeps. */
    loch_status (*walk)(void *self, loch_block_visitor *visitor, void *user);
    /** Optional: records a further stream that uses the block. Default: the table that the library keeps remembers
     *  it, and the free waits for the device. */
    loch_status (*record_use)(void *self, void *address, loch_stream *stream);
    /** Optional: statistics since creation; peaks and largest request since the last new_segment. `tag` 0 means all
     *  blocks. Default: statistics that the library keeps. */
    loch_status (*get_stats)(void *self, loch_tag tag, loch_stats *out);
    /** Optional, together with get_stats: starts a new segment: sets the peaks to the present use and the largest
     *  request to 0. Profiles and loch_allocator_reset_stats depend on it. */
    void (*new_segment)(void *self);
    /** Optional: gives cached memory back until at most `keep_bytes` are cached. Default: there is no cache, 0 bytes
     *  released. */
    loch_status (*trim)(void *self, size_t keep_bytes, size_t *released);
    /** Optional: attributes of the memory. Default: those of the device's own memory. */
    loch_attributes (*get_attributes)(void *self);
    /** Optional: changes the size of a live block in place; statistics follow the new size. Returns E_UNSUPPORTED,
     *  E_DEVICE_MEMORY, E_HOST_MEMORY, E_LIMIT or E_FRAGMENTED if it cannot, and changes nothing. Sets `allocated` to
     *  the bytes that the block takes up now. Called only for allocators that supply find, walk and get_stats, and
     *  for wrappers that supply find; for a growable block for every wrapper, which forwards it by
     *  loch_pool_resize_growable: only the outermost call retries. Default: E_UNSUPPORTED; a wrapper without this slot
     *  does not forward it. */
    loch_status (*resize)(void *self, void *address, size_t bytes, size_t *allocated);
} loch_allocator_ops;

/** Creates an allocator from a table of functions. The allocator keeps its device open.
 *  @param name  for people and for the registry; copied; at most 63 characters
 *  @param self  passed to every slot; the slot `destroy` frees it. On failure `self` still belongs to the caller.
 *  @param out   the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_create(loch_device *device, const char *name,
                                                         const loch_allocator_ops *ops, void *self,
                                                         loch_allocator **out);

/** @} */

LOCH_END_DECLS

#endif
