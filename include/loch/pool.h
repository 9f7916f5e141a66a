/* SPDX-License-Identifier: MIT */
/** @file pool.h
 *  The pool: the allocator that caches, splits, merges and remaps memory. The default allocator of every device is a
 *  pool.
 *
 *  A pool is a loch_allocator and follows all its rules (allocator.h). It takes memory from the device in handles
 *  (raw segments on devices without virtual memory), cuts it into blocks, and caches the memory when blocks are
 *  freed. Free physical memory is remapped to the address where it is needed. Blocks in use do not move, except
 *  movable buffers (moving.h). Small blocks and recently freed blocks are cached for the thread that freed them.
 *
 *  Streams: a freed block is reused on its own stream at once, and on another stream after an event. The pool waits
 *  on the host only after everything else was tried. While a stream is captured, the pool makes no driver call that a
 *  capture forbids. Memory that was handed out under a capture stays with the capture until
 *  loch_pool_release_capture.
 *
 *  Graphs: a pool with LOCH_POOL_CAPTURES_SHARED holds the memory of several graphs that are launched one after the
 *  other, never at the same time, because they use the same memory. Make one pool for each set of such graphs, usually
 *  a child with a quota (child.h).
 *  - A freed block serves any later request on its own stream: in the same capture, in a later one, or outside of
 *    captures. It never serves another stream. Memory of a stream that was destroyed stays unused.
 *  - Free memory stays mapped where it is, because graphs write to it. No trim, cap, limit or shortage of any pool
 *    gives it back or remaps it. Blocks do not move and do not grow: compactions and growable blocks give
 *    E_UNSUPPORTED.
 *  - Allocations do not ask whether the stream is captured, and the fast path serves all streams. New memory may be
 *    taken from the device during a capture. No call of the pool ends a capture.
 *  - A use on a further stream (loch_allocator_record_use) during a capture delays the reuse of the block until that
 *    stream is no longer captured and has passed.
 *  - The caller releases the last reference when no graph of the pool will be launched again. The release waits on the
 *    host for all work of the device; no stream of the device may be captured then. Free memory goes back at once,
 *    memory of live blocks when they are freed. With LOCH_POOL_WIPE_FREED it is filled with zeros then, not before.
 *  - A child does not inherit this setting. A range (LOCH_CHILD_RANGE) cannot have it (E_UNSUPPORTED), but may lie in a
 *    pool that has it.
 *
 *  A request that fails changes nothing: the pool holds no more than before, and has the idle memory that it had. A
 *  request above a limit or above the device's memory fails at once. For others nothing is taken from the device before
 *  all of it is there.
 *
 *  When a request does not fit, the pool tries these steps in order: its own free blocks; finished blocks of other
 *  streams; free memory mapped elsewhere; unfinished blocks of other streams with a wait on the device, if they are
 *  large; new memory up to the limit; the caches of the threads; unfinished blocks with any wait on the device;
 *  waiting on the host; moving movable buffers; memory of other pools of the same device and kind. Then the pressure
 *  functions run and the timeout passes (allocator.h). Then the request fails with E_LIMIT, E_FRAGMENTED or
 *  E_DEVICE_MEMORY; the sentence of the error record says why.
 *
 *  Alignment: a request without one is aligned to the device's alignment (loch_device_properties). On the cpu small
 *  blocks are packed more tightly, as by malloc: to 16 bytes, and to 64 bytes if the size is a multiple of 64 or at
 *  least 512. Buffers and tensors always ask for the device's alignment.
 *
 *  The functions here accept a wrapper around a pool and look through it; those for growable blocks go through it. An
 *  allocator that is not a pool gives E_INVALID.
 */
#ifndef LOCH_POOL_H
#define LOCH_POOL_H

#include <loch/allocator.h>
#include <loch/handle.h>

LOCH_BEGIN_DECLS

/** @name Create */
/** @{ */

/** Sets of settings that belong together. */
typedef enum loch_pool_preset {
    LOCH_POOL_STANDARD, /**< least memory, few driver calls */
    /** Whole blocks are cached and reused without cutting them: a block above 1 MiB serves a request that is smaller
     *  by less than 1 MiB. Without `idle_bytes`, free blocks above 1 MiB are kept, and beside them up to 1 GiB of
     *  other free memory. */
    LOCH_POOL_WHOLE_BLOCKS,
    /** Every block is a segment of its own, also a small one: memory from one call of the device or of `source`, in
     *  steps of 8 KiB. For memory that is registered or shared by the block. A freed segment serves a request that is
     *  smaller by less than 1 MiB, or fits in 1 MiB. The pool has no virtual memory. */
    LOCH_POOL_NO_SPLIT
} loch_pool_preset;

/** Whether streams may be captured into graphs while the pool serves them. */
typedef enum loch_pool_captures {
    LOCH_POOL_CAPTURES_WATCHED, /**< every allocation on a stream other than the default one checks for a capture */
    /** The caller promises that no stream is captured; faster on devices with LOCH_CAN_CAPTURE. */
    LOCH_POOL_CAPTURES_NONE,
    /** All memory of the pool, captured or not, belongs to graphs that are launched one after the other: see "Graphs"
     *  above. */
    LOCH_POOL_CAPTURES_SHARED,
    /** Streams may be captured, but the caller asks this pool for nothing on a stream while it is captured: graphs have
     *  memory of other pools. Allocations do not ask whether the stream is captured, and the fast path serves all
     *  streams. No call of the pool ends a capture. */
    LOCH_POOL_CAPTURES_ELSEWHERE
} loch_pool_captures;

/** What happens to the contents of freed memory. */
typedef enum loch_pool_wipe {
    LOCH_POOL_WIPE_NONE, /**< contents stay until overwritten: the next owner of the memory can read them */
    /** Every freed block is filled with zeros, ordered on its stream and after the streams named by
     *  loch_allocator_record_use. No other block, thread, session, pool or child can read the old contents. The host
     *  waits only if the stream of the block was destroyed before. Memory of a capture is filled when the capture is
     *  released. A block whose fill the driver refuses, or whose stream is being captured, stays out of use, and the
     *  fill is tried again. Costs one fill for each free, and the fast path. Not wiped: new memory from the driver,
     *  and copies that the program made. */
    LOCH_POOL_WIPE_FREED
} loch_pool_wipe;

/** Whether a stream may wait on the device for another one, so that it can use memory that the other one still uses. */
typedef enum loch_pool_waits {
    LOCH_POOL_WAITS_ON_DEVICE, /**< streams wait for each other when memory is short or much of it is unfinished */
    /** No stream waits: memory serves another stream after the work on it has ended. For pinned memory that the host
     *  uses as soon as it is handed out. Ask such a pool for memory on a stream without work, and name every stream
     *  that uses a block by loch_allocator_record_use. Then no block is handed out that any work still uses. */
    LOCH_POOL_WAITS_NONE
} loch_pool_waits;

/** Options of loch_pool_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_pool_options {
    size_t size; /**< sizeof(loch_pool_options) */
    /** Kind of memory: the device's own (default), LOCH_MEMORY_PINNED or LOCH_MEMORY_MANAGED. */
    loch_memory_kind kind;
    loch_pool_preset preset; /**< settings that belong together */
    size_t limit_bytes;      /**< limit of the memory held from the device in bytes; 0 for no limit */
    /** Cap on free memory in bytes that the pool keeps; more is given back to the device when blocks are freed.
     *  Memory that streams may still use is given back when they have passed, at the end of the pool's next call. The
     *  cap does not cover memory that cannot be given back: unfinished work, handles or segments that are partly in
     *  use, captures, and the caches of the threads (some MiB each). 0 for no cap. */
    size_t idle_bytes;
    /** Size of new handles or segments in bytes, rounded up to granules; 0 for the pool's choice. */
    size_t handle_bytes;
    size_t round_bytes;          /**< sizes are rounded up to a multiple of this; 0 or 1 for no rounding */
    loch_pool_captures captures; /**< whether streams may be captured */
    loch_handle_options handle;  /**< options of new handles, with their size: sharing, RDMA; all zero for plain ones */
    /** What happens to the contents of freed memory; a child wipes at least as much as its parent. */
    loch_pool_wipe wipe;
    loch_pool_waits waits; /**< whether a stream may wait on the device for another one */
    /** Allocator from which the pool gets its memory in segments, instead of from the device; NULL for the device.
     *  Retained until the pool ends. The pool has no virtual memory then, so it does not remap and does not sleep. The
     *  source must be thread safe. It is called without locks of the pool, from the threads that use the pool: it gets
     *  requests of whole segments, aligned to 64 KiB, on the stream of the request that needs memory, and each segment
     *  back when no work uses it. It must not allocate from this pool. A child with a quota has the source of its
     *  parent, unless it names another one. `kind` says what kind of memory the source has. */
    loch_allocator *source;
    /** Bytes of the device that the pool's idle memory leaves to others: to libraries that take memory past all
     *  allocators, and to kernels that are loaded late. A call that takes memory, and finds less left, gives idle
     *  memory back, and so do frees after it. Requests may use the headroom. 0 for the option `pool_headroom`, and
     *  without that for 1 GiB on CUDA (1/32 of a device below 32 GiB) and none elsewhere. */
    size_t headroom_bytes;
    /** Bytes that the pool takes from the device at creation and keeps: a creation that does not get them fails with
     *  the status of a request of that size (E_LIMIT, E_DEVICE_MEMORY). With `limit_bytes` as well, a limit that the
     *  device does not have is refused at once. E_INVALID: more than `idle_bytes`. A child takes them from its parent's
     *  device within its limits. 0: memory is taken when it is needed. */
    size_t initial_bytes;
} loch_pool_options;

/** Creates a pool on a device. E_INVALID: an option is not valid, or the source is not thread safe, of another device
 *  or a parent of the pool. E_UNSUPPORTED: the device does not have this kind of memory.
 *  @param name  for people; copied; NULL for "pool"
 *  @param out   the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_create(loch_device *device, const char *name,
                                                    const loch_pool_options *options, loch_allocator **out);

/** @} */
/** @name Figures and limits */
/** @{ */

/** Figures of a pool, all taken at one moment. */
typedef struct loch_pool_info {
    size_t size;                /**< set by the caller to sizeof(loch_pool_info) */
    size_t limit_bytes;         /**< limit of the memory held from the device in bytes; 0 for none */
    size_t idle_bytes;          /**< cap on free memory in bytes; 0 for none */
    size_t reserved_bytes;      /**< bytes held from the device; each handle counts once */
    size_t peak_reserved_bytes; /**< most bytes held from the device since creation or loch_allocator_reset_stats */
    size_t used_bytes;          /**< bytes in live blocks, including rounding */
    size_t free_bytes;          /**< bytes that are free for any stream or for their own stream */
    size_t waiting_bytes;       /**< bytes that are freed but, as far as is known, still used by a stream */
    size_t thread_bytes;        /**< free bytes in the caches of the threads */
    size_t captured_bytes;      /**< bytes of captures that were not released */
    size_t largest_free_bytes;  /**< largest free piece in bytes */
    size_t handles;             /**< number of handles or raw segments */
    size_t streams;             /**< number of streams that have memory in the pool */
    uint64_t handles_created;   /**< number of handles created since creation of the pool */
    uint64_t handles_moved;     /**< number of times that free memory was mapped at another address */
    uint64_t handles_released;  /**< number of handles given back to the device */
    uint64_t events_recorded;   /**< number of events recorded */
    uint64_t waits_on_device;   /**< number of waits of one stream for another */
    uint64_t waits_on_host;     /**< number of times that a thread waited on the host for streams */
    /** Number of times that free memory returned to an old address without a driver call. */
    uint64_t handles_revived;
    size_t asleep_bytes; /**< bytes given back by loch_pool_sleep; their addresses have no memory */
    /** Free bytes above the cap, or above a limit that was lowered, that cannot go back now: they share handles with
     *  live blocks, belong to captures, or streams still use them. */
    size_t excess_bytes;
} loch_pool_info;

/** Reads the figures of a pool. Set `out->size` before the call. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_get_info(loch_allocator *pool, loch_pool_info *out);

/** Prints for people what a pool holds and why a request may not fit. `text`, `bytes` and `length` work as in
 *  loch_stats_print. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_print(loch_allocator *pool, char *text, size_t bytes, size_t *length);

/** Sets the limit of the memory that a pool holds from the device, in bytes; 0 for no limit. Free memory above the
 *  limit is given back; blocks in use stay. E_LIMIT: the limit is below the minimum bytes promised to children
 *  (child.h). E_UNSUPPORTED: the pool is a child with a range. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_limit(loch_allocator *pool, size_t limit_bytes);

/** Sets how much of its limit a pool may use now, in bytes, for code that shares memory between pools and raises the
 *  grant in a pressure function. Free memory above the grant is given back. A request above the grant waits and calls
 *  pressure functions; one above the limit fails at once. loch_pool_set_limit ends the grant. E_LIMIT, E_UNSUPPORTED:
 *  as for loch_pool_set_limit. Any thread.
 *  @param limit_bytes  the most that the grant can become; 0 for no such limit */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_grant(loch_allocator *pool, size_t granted_bytes, size_t limit_bytes);

/** Sets the cap on free memory that a pool keeps, in bytes; 0 for no cap. Waits on the host for streams, and gives
 *  back what is above the cap. E_UNSUPPORTED: the pool is a child with a range. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_idle(loch_allocator *pool, size_t idle_bytes);

/** What a piece of a pool's memory is. */
typedef enum loch_piece_state {
    LOCH_PIECE_USED,    /**< a live block */
    LOCH_PIECE_FREE,    /**< free in the order of its stream, or in the cache of a thread */
    LOCH_PIECE_WAITING, /**< freed, but further streams still use it, or it is not wiped yet */
    LOCH_PIECE_ASLEEP   /**< its memory is asleep, at least in part: a live block if requested_bytes is not 0 */
} loch_piece_state;

/** A piece of the memory of a pool: a block, or free memory. Pieces tile a range without gaps. A range is the longest
 *  run of addresses with memory (or with memory that is asleep) and no hole, and on a device without virtual memory
 *  one segment. So no piece lies in two ranges. */
typedef struct loch_memory_piece {
    void *address;          /**< address of the piece */
    size_t bytes;           /**< size of the piece in bytes; for a growable block those that have memory */
    size_t requested_bytes; /**< requested size of a live block in bytes; 0 for others */
    loch_piece_state state; /**< what the piece is */
    loch_tag tag;           /**< tag of a live block; 0 for none */
    uint64_t stream_id;     /**< id of the stream in whose order the piece is used or free (loch_stream_get_id) */
    /** Id of a live block (loch_block.id); 0 for a small block whose id was never read by loch_allocator_find. */
    uint64_t id;
    void *range_address; /**< address of the range around the piece */
    size_t range_bytes;  /**< size of the range in bytes */
    /** In a pool with a source: how many segments the source gave the pool before this one; else 0. Such a pool places
     *  blocks in the order of its segments: processes that make equal requests see equal numbers and offsets. */
    uint64_t range_number;
} loch_memory_piece;

/** Receives one piece of memory. Called without locks: it may use the pool in any way. A return value other than
 *  LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_memory_visitor(const loch_memory_piece *piece, void *user);

/** Walks the memory of a pool in order of address, as it was at one moment. Small blocks are pieces of their own, and
 *  free neighbours of them may be one piece. Children are not visited: the range of a child is a used piece of its
 *  parent, and a child with a quota has memory of its own. Addresses without memory are not visited. E_INVALID: `pool`
 *  is not a pool, or no visitor. E_HOST_MEMORY: no memory for the copy of the pool's records. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_walk_memory(loch_allocator *pool, loch_memory_visitor *visitor,
                                                         void *user);

/** @} */
/** @name Captures */
/** @{ */

/** Releases the memory of a capture. The caller promises that no graph of this capture will be launched again. Waits
 *  on the host for all work of the device. The memory serves every stream again once its blocks are freed. With
 *  LOCH_POOL_WIPE_FREED the free part is filled with zeros first; if that fails, nothing is released. E_NOT_FOUND:
 *  the pool has no memory for this capture id; with LOCH_POOL_CAPTURES_SHARED, for every id. E_BUSY: a stream of the
 *  device is being captured. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_release_capture(loch_allocator *pool, uint64_t capture_id);

/** @} */
/** @name Growable blocks
 *  Blocks whose addresses are reserved at creation and whose memory grows and shrinks at the end: for key/value
 *  caches. They are blocks like others: wrappers and sessions count them with their present size. Growing is an
 *  attempt to allocate the added bytes: when memory is short, the pressure functions are called and the timeout of
 *  the block's request passes, and a failure is counted once. A limit counts the growth, fault injection can fail it,
 *  and a wrapper of your own sees it in its slot `resize`. Red zones have no growable blocks (E_UNSUPPORTED).
 *  loch_allocator_realloc resizes such a block in place; beyond its reservation it moves the block to a reservation
 *  that is at least twice as long. */
/** @{ */

/** Allocates a block with addresses for `max_bytes` and memory for `request->bytes` (may be 0). Short form of
 *  loch_allocator_alloc with loch_request.max_bytes. It is freed like any other block; its requested size is the size
 *  that it has now. LOCH_ALLOC_NO_RETRY and timeout_ns of the request hold for its growth too. E_INVALID: `pool` is
 *  not a pool. E_OUT_OF_RANGE: `request->bytes` is more than `max_bytes`. E_BUSY: the stream is captured or the pool
 *  is asleep. E_UNSUPPORTED: the device has no virtual memory, or a wrapper has no growable blocks.
 *  @param request  size, alignment, stream, tag, flags and timeout; may be NULL
 *  @param out      owned by the caller; free it with loch_free. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_alloc_growable(loch_allocator *pool, size_t max_bytes,
                                                            const loch_request *request, void **out);

/** Sets the size of a growable block to `bytes` at the same address. Contents up to the smaller size are kept. Memory
 *  is removed in the order of the block's stream. `pool` is the allocator that handed the block out. E_OUT_OF_RANGE:
 *  `bytes` is more than was reserved. E_FOREIGN: there is no growable block at `address`. E_INVALID: `pool` is not a
 *  pool. E_UNSUPPORTED: a wrapper of your own has no slot `resize`. E_DEVICE_MEMORY, E_LIMIT, E_FRAGMENTED: memory is
 *  short. On failure the block is unchanged. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_resize_growable(loch_allocator *pool, void *address, size_t bytes);

/** @} */

LOCH_END_DECLS

#endif
