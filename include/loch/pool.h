/* SPDX-License-Identifier: MIT */
/** @file pool.h
 *  The pool: the allocator that caches, splits, merges and remaps. Every device's default allocator is one.
 *
 *  A pool is a loch_allocator and obeys all its rules; what it adds is here. Memory comes from the device in handles
 *  (or raw segments, on devices without virtual memory), is cut into blocks, and stays with the pool when they are
 *  freed. Physical memory that lies free at one address is mapped where it is wanted; blocks do not move, but for
 *  buffers that may (moving.h). Small blocks and blocks just freed are kept for the thread that freed them.
 *
 *  Streams. A freed block is used again on its own stream at once, and elsewhere behind an event; nothing waits on the
 *  host before everything else was tried. Under stream capture nothing is called that a capture forbids, and memory
 *  handed out there stays with the capture until loch_pool_release_capture.
 *
 *  When a request does not fit, the pool looks again after each of these: own free blocks, other streams' finished
 *  blocks, free memory mapped elsewhere, other streams' unfinished blocks behind a wait on the device while they are
 *  much, new memory up to the limit, the threads' caches, unfinished blocks behind any wait, waiting on the host, moving
 *  buffers that may move, and other pools of the device and kind. Then come pressure functions and waiting
 *  (allocator.h), then a failure that says why: E_LIMIT, E_FRAGMENTED or E_DEVICE_MEMORY, with a report in the error record's sentence.
 */
#ifndef LOCH_POOL_H
#define LOCH_POOL_H

#include <loch/allocator.h>
#include <loch/raw.h>
#include <loch/virtual.h>

LOCH_BEGIN_DECLS

/** Settings that go together. */
typedef enum loch_pool_preset {
    LOCH_POOL_STANDARD, /**< least memory, few driver calls */
    /** Whole blocks are kept and handed out again, not cut: a block above 1 MiB serves a request that it exceeds by less
     *  than 1 MiB. Without `idle_bytes`, up to 1 GiB of free memory is kept beside free blocks above 1 MiB, which stay. */
    LOCH_POOL_WHOLE_BLOCKS
} loch_pool_preset;

/** Whether streams may be captured into graphs while the pool serves them. */
typedef enum loch_pool_captures {
    LOCH_POOL_CAPTURES_WATCHED, /**< streams other than the default one are asked at every allocation */
    LOCH_POOL_CAPTURES_NONE     /**< the caller promises that none is: quicker on devices with LOCH_CAN_CAPTURE */
} loch_pool_captures;

/** What happens to the contents of freed memory. */
typedef enum loch_pool_wipe {
    LOCH_POOL_WIPE_NONE, /**< they stay until somebody writes there: the next owner may read them */
    /** Every block is filled with zeros when it is freed, in the order of its stream and behind the streams that
     *  loch_allocator_record_use named: no other block, thread, session, pool or child reads what was there. The host waits for
     *  that only where the block's stream was destroyed before. Memory of a capture is filled when the capture is released. A block
     *  whose fill the driver refuses, or whose stream is being captured for another reason, stays out of use and is
     *  tried again. Costs a fill a free, and the short ways. Not wiped: what the driver hands out anew, which is the driver's, and
     *  copies that the program made. */
    LOCH_POOL_WIPE_FREED
} loch_pool_wipe;

/** How a pool is made; zero means default, NULL all defaults. */
typedef struct loch_pool_options {
    size_t size;             /**< sizeof(loch_pool_options) */
    loch_memory_kind kind;   /**< which memory: the device's own (default), LOCH_MEMORY_PINNED, LOCH_MEMORY_MANAGED */
    loch_pool_preset preset; /**< settings that go together */
    size_t limit_bytes;      /**< that it may hold from the device at a time; 0 for no limit */
    /** Free memory that it keeps; more is given back to the device as blocks are freed, in whatever order. What streams may still
     *  use goes when they have passed, at the end of the pool's next call. Above the cap stays what cannot be given back:
     *  unfinished work, handles (or segments) of which a part is in use, captures, and what threads keep for themselves,
     *  which is some MiB for each. 0 for no cap. */
    size_t idle_bytes;
    size_t handle_bytes;         /**< of new handles or segments, rounded up to granules; 0 for the pool's choice */
    size_t round_bytes;          /**< sizes are rounded up to a multiple; 0 or 1 for none */
    loch_pool_captures captures; /**< whether streams may be captured */
    loch_handle_options handle;  /**< how handles are created: sharing, RDMA; all zero for plain ones */
    loch_pool_wipe wipe;         /**< what happens to contents; a child's is never less than its parent's */
} loch_pool_options;

/** Makes a pool. @param out  the caller's reference, given back by loch_allocator_release; NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_create(loch_device *device, const char *name,
                                                    const loch_pool_options *options, loch_allocator **out);

/** What only a pool knows. All at one moment. */
typedef struct loch_pool_info {
    size_t size;                /**< set by the caller to sizeof(loch_pool_info) */
    size_t limit_bytes;         /**< 0 for none */
    size_t idle_bytes;          /**< cap on free memory; 0 for none */
    size_t reserved_bytes;      /**< held from the device, each handle once */
    size_t peak_reserved_bytes; /**< the most since it was made or its statistics were reset */
    size_t used_bytes;          /**< in blocks, rounding included */
    size_t free_bytes;          /**< free to any stream or to its own */
    size_t waiting_bytes;       /**< freed, but still used by a stream as far as is known */
    size_t thread_bytes;        /**< free, kept for single threads */
    size_t captured_bytes;      /**< with captures that were not released */
    size_t largest_free_bytes;  /**< one piece */
    size_t handles;             /**< handles or raw segments */
    size_t streams;             /**< streams that have memory here */
    uint64_t handles_created;   /**< since it was made */
    uint64_t handles_moved;     /**< times that free memory was mapped elsewhere */
    uint64_t handles_released;  /**< given back to the device */
    uint64_t events_recorded;   /**< marks put into streams */
    uint64_t waits_on_device;   /**< streams made to wait for others */
    uint64_t waits_on_host;     /**< times that a thread waited for streams */
    uint64_t handles_revived;   /**< times that free memory went back to an old address, without a driver call */
    size_t asleep_bytes;        /**< given back by loch_pool_sleep: addresses with nothing there */
} loch_pool_info;

/** Reads them. E_INVALID for an allocator that is no pool; wrappers are looked through. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_get_info(loch_allocator *pool, loch_pool_info *out);

/** Changes how much the pool may hold from the device, 0 for no limit. What is above it is given back where it is free;
 *  blocks in use stay. E_LIMIT below what is promised to children as minima (child.h). Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_limit(loch_allocator *pool, size_t limit_bytes);

/** Changes how much free memory the pool keeps, 0 for no cap. Waits for streams and gives back what is above it. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_idle(loch_allocator *pool, size_t idle_bytes);

/** Prints for people what the pool holds and why a request may not fit (loch_stats_print). E_INVALID for an allocator that is no
 *  pool. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_print(loch_allocator *pool, char *text, size_t bytes, size_t *length);

/** Says that no graph of the capture with this id will be launched any more: its memory serves everybody again once its
 *  blocks are freed. With LOCH_POOL_WIPE_FREED what is free is filled with zeros first; when that fails, nothing was released.
 *  E_NOT_FOUND for an id that the pool has no memory for. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_release_capture(loch_allocator *pool, uint64_t capture_id);

/** @name Growable blocks
 *  Blocks whose addresses are reserved at once and whose memory comes and goes at the end: for key/value caches. */
/** @{ */

/** Makes a block with addresses for `max_bytes` and memory for `request->bytes` (may be 0). It is freed like any other,
 *  and its requested size is what it holds now. E_UNSUPPORTED on devices without virtual memory. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_alloc_growable(loch_allocator *pool, size_t max_bytes,
                                                            const loch_request *request, void **out);

/** Makes the block hold `bytes`, at the same address; contents up to the smaller size stay. What goes is taken in the
 *  order of the block's stream. E_OUT_OF_RANGE beyond what was reserved; on any failure it is as it was. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_resize_growable(loch_allocator *pool, void *address, size_t bytes);

/** @} */

LOCH_END_DECLS

#endif
