/* SPDX-License-Identifier: MIT */
/** @file allocator.h
 *  Anything that hands out blocks: one interface for the library's allocators, for wrappers around them, and for yours.
 *
 *  Rules that hold for every allocator, and that one suite checks on all of them:
 *  - Zero bytes give LOCH_OK and NULL, or a unique address if the allocator has LOCH_TRAIT_ALLOCATES_EMPTY.
 *  - Freeing NULL succeeds. A block freed twice is E_DOUBLE_FREE (E_FOREIGN once so much was freed since that it is
 *    forgotten), an address inside a block E_INTERIOR, any other E_FOREIGN; nothing changes then. In release builds too.
 *  - Sizes and alignments are checked; what does not fit the address space is E_OVERFLOW.
 *  - Memory is handed out and taken back in the order of a stream. A plain free means the stream of the allocation;
 *    freeing on another promises that the caller has ordered the two. loch_allocator_record_use names further streams.
 *  - Calls work from any thread unless the allocator lacks LOCH_TRAIT_THREAD_SAFE.
 *  - Allocators are counted. Blocks keep their allocator alive: the last reference may go before the last block.
 */
#ifndef LOCH_ALLOCATOR_H
#define LOCH_ALLOCATOR_H

#include <loch/attributes.h>
#include <loch/stats.h>
#include <loch/stream.h>
#include <loch/tag.h>

LOCH_BEGIN_DECLS

/** Something that hands out blocks. */
typedef struct loch_allocator loch_allocator;

/** How to do one allocation; a set. */
typedef enum loch_allocation_flag {
    LOCH_ALLOC_NO_RETRY = 1 << 0, /**< fail at once: no callbacks, no waiting */
    LOCH_ALLOC_LOGGED = 1 << 1,   /**< a logging wrapper writes it even when it is filtering */
    LOCH_ALLOC_ZEROED = 1 << 2,   /**< contents are zero, in the order of the stream */
    LOCH_ALLOC_MOVABLE =
        1 << 3 /**< of buffers and tensors alone: the pool may move it while it is not pinned (moving.h);
                                       E_INVALID for an allocation that gives an address */
} loch_allocation_flag;

/** What is wanted; zero means default. */
typedef struct loch_request {
    size_t size;         /**< sizeof(loch_request) */
    size_t bytes;        /**< how much */
    size_t alignment;    /**< of the address: a power of two, or 0 for the allocator's own */
    loch_stream *stream; /**< the stream that uses it first; NULL for the default stream */
    loch_tag tag;        /**< for the statistics; 0 for none */
    uint32_t flags;      /**< set of loch_allocation_flag */
    uint64_t
        timeout_ns;     /**< how long to wait for another thread's free when memory is short; 0 for not at all. Fails at
                              once when no other thread has ever used the allocator or one that it wraps */
    size_t round_bytes; /**< the size is rounded up to a multiple of these before memory is taken; 0 or 1 for not. The
                             block still has `bytes` (requested_bytes); what was taken for it is in allocated_bytes */
} loch_request;

/** What is known of a live block; 0 where the allocator does not know. */
typedef struct loch_block {
    size_t size;            /**< sizeof(loch_block); set by the caller of loch_allocator_find */
    void *address;          /**< where */
    size_t requested_bytes; /**< as asked for */
    size_t allocated_bytes; /**< as taken: at least that */
    uint64_t id;            /**< unique in its allocator; 0 only for want of host memory to give it one */
    loch_tag tag;           /**< as asked for */
    uint64_t stream_id;     /**< of the stream of the allocation */
    uint64_t time_ns;       /**< when, by loch_host_now_ns */
} loch_block;

/** Called with each live block; a return other than LOCH_OK ends the walk and becomes its result. Must not call the
 *  allocator. */
typedef loch_status loch_block_visitor(const loch_block *block, void *user);

/** What holds for an allocator; a set. */
typedef enum loch_trait {
    LOCH_TRAIT_THREAD_SAFE = 1 << 0,     /**< calls may come from several threads at a time */
    LOCH_TRAIT_TRACKS_SIZES = 1 << 1,    /**< requested sizes and ids are known, and found quickly */
    LOCH_TRAIT_ALLOCATES_EMPTY = 1 << 2, /**< zero bytes give an address of their own */
    LOCH_TRAIT_STREAM_ORDERED = 1 << 3,  /**< free does not wait for the stream */
    LOCH_TRAIT_ZEROES = 1 << 4           /**< LOCH_ALLOC_ZEROED is done by the allocator itself, not by a fill */
} loch_trait;

/** What an allocator supplies. Checked once, when the allocator is made, copied, and empty slots filled, so that callers
 *  never test one. A wrapper is made by loch_wrapper_create, whose empty slots forward to the wrapped allocator (but resize). What
 *  each slot may rely on: arguments are checked, sizes are not 0 (unless LOCH_TRAIT_ALLOCATES_EMPTY), streams are never NULL,
 *  except that free gets NULL for "the stream of the allocation". The functions must contain no cancellation point
 *  (pthread_cancel), or disable cancellation. */
typedef struct loch_allocator_ops {
    size_t size;          /**< sizeof(loch_allocator_ops) */
    const char *kind;     /**< "direct", "limit": static string */
    uint32_t traits;      /**< set of loch_trait; a wrapper's are those it adds, see `lost_traits` */
    uint32_t lost_traits; /**< wrappers: traits of the wrapped allocator that no longer hold */

    /** Needed, unless it is a wrapper's. */
    loch_status (*alloc)(void *self, const loch_request *request, void **out);
    /** Needed, unless it is a wrapper's. Errors as above. `bytes` is the requested size if the caller knows it, else 0. E_CORRUPT, unlike every other error,
     *  means that the block was freed, and found to be written around. */
    loch_status (*free)(void *self, void *address, size_t bytes, loch_stream *stream);
    /** Called once, when the last reference and the last block are gone. */
    void (*destroy)(void *self);

    /** optional: fills what is known of the live block at `address`. E_FOREIGN and so on. Default: a table that the
     *  library keeps. */
    loch_status (*find)(void *self, const void *address, loch_block *out);
    /** optional: walks the live blocks. Default: from that table. */
    loch_status (*walk)(void *self, loch_block_visitor *visitor, void *user);
    /** optional: marks a further stream. Default: remembered in that table, and waited for at free. */
    loch_status (*record_use)(void *self, void *address, loch_stream *stream);
    /** optional: counts since it was made; peaks and largest of the present segment. `tag` 0 means all blocks.
     *  Default: figures that the library keeps. */
    loch_status (*get_stats)(void *self, loch_tag tag, loch_stats *out);
    /** optional, with get_stats: starts a new segment: peaks := now, largest := 0. Scopes and resets stand on it. */
    void (*new_segment)(void *self);
    /** optional: gives cached memory back until no more than `keep_bytes` are cached. Default: has none, 0. */
    loch_status (*trim)(void *self, size_t keep_bytes, size_t *released);
    /** optional: what memory this is. Default: what the device's own memory is. */
    loch_attributes (*get_attributes)(void *self);
    /** optional: changes the size of a live block in place; it stays one allocation, whose size the figures follow.
     *  E_UNSUPPORTED or a shortage (E_DEVICE_MEMORY, E_HOST_MEMORY, E_LIMIT, E_FRAGMENTED) when it cannot, nothing changed
     *  then. Called only for allocators that keep their own account (find, walk and get_stats), and for wrappers with find.
     *  Default: cannot. A wrapper without the slot does not forward it.
     *  @param allocated  as taken now */
    loch_status (*resize)(void *self, void *address, size_t bytes, size_t *allocated);
} loch_allocator_ops;

/** Makes an allocator out of a table. It retains the device.
 *  @param name  for people and the registry; copied; at most 63 characters
 *  @param self  handed to every slot; `destroy` frees it. On failure it stays the caller's.
 *  @param out   the caller's reference, given back by loch_allocator_release; NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_create(loch_device *device, const char *name,
                                                         const loch_allocator_ops *ops, void *self,
                                                         loch_allocator **out);

/** Takes another reference; returns `allocator`. NULL gives NULL. Any thread. */
LOCH_API loch_allocator *loch_allocator_retain(loch_allocator *allocator);

/** Gives a reference back. Blocks that are still out stay valid, and can be freed, until the last of them goes.
 *  NULL does nothing. Any thread. */
LOCH_API void loch_allocator_release(loch_allocator *allocator);

/** @name Blocks */
/** @{ */

/** Hands out a block. @param out  NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_alloc(loch_allocator *allocator, const loch_request *request,
                                                        void **out);

/** Takes a block back, in the order of the stream of its allocation. NULL for the address does nothing, here and in the
 *  other frees, also where there is no allocator: what half-built things hold can be freed without a look. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_free(loch_allocator *allocator, void *address);

/** Takes a block back in the order of `stream` (NULL: the default stream), which the caller has ordered behind every
 *  other use. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_free_on(loch_allocator *allocator, void *address,
                                                          loch_stream *stream);

/** Takes a block back whose requested size the caller knows: E_INVALID, nothing freed, when it is another. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_free_sized(loch_allocator *allocator, void *address, size_t bytes);

/** Makes a block hold `bytes`, with the contents that it had as far as they fit; what comes behind them is undefined. In
 *  place where the allocator can and the stream is the block's own; else a new block with the same tag and the
 *  allocator's own alignment, the contents copied in the order of the stream, and the old one freed in that order. NULL
 *  for an address allocates, 0 bytes free.
 *  @param stream  that the caller has ordered behind every other use of the block, as for loch_allocator_free_on. NULL: the
 *                 stream of the allocation, where the allocator knows it (loch_block) and it was not destroyed; else
 *                 the default stream, after waiting for the device. It must stay until the call returns. Streams that were
 *                 recorded for the old block are not for a new one.
 *  @param out     the block, at the same or at another address; NULL on failure, and the old block is as it was. E_CORRUPT
 *                 alone means that it was done, and that the old block was found to be written around when it was freed.
 *  Errors of the address as for a free. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_realloc(loch_allocator *allocator, void *address, size_t bytes,
                                                          loch_stream *stream, void **out);

/** Says that `stream` uses the block too, until it is freed. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_record_use(loch_allocator *allocator, void *address,
                                                             loch_stream *stream);

/** The short form: default alignment, default stream, no tag. */
LOCH_API LOCH_MUST_USE loch_status loch_alloc(loch_allocator *allocator, size_t bytes, void **out);

/** The short form of loch_allocator_free. */
LOCH_API LOCH_MUST_USE loch_status loch_free(loch_allocator *allocator, void *address);

/** Takes a block back whose allocator the caller does not know, in the order of the stream of its allocation: finds the
 *  device and the outermost allocator that handed it out, so that wrappers around it hear of the free. Asks the
 *  allocators of the process one after another: slower than loch_allocator_free, and the more so the more there are.
 *  E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN; E_UNSUPPORTED when two allocators of which neither wraps the other have a block
 *  there (one cuts up blocks of the other). An allocator that is not thread safe and has a `find` of its own is asked only
 *  by the one thread that uses it. NULL succeeds. Any thread, as far as the owner allows. */
LOCH_API LOCH_MUST_USE loch_status loch_address_free(void *address);

/** `count` elements of `bytes` each, the product checked: E_OVERFLOW. `request` (may be NULL) says the rest; its own
 *  bytes are ignored. */
LOCH_API LOCH_MUST_USE loch_status loch_alloc_array(loch_allocator *allocator, size_t count, size_t bytes,
                                                    const loch_request *request, void **out);

/** @} */
/** @name Questions */
/** @{ */

/** The name that it was given. Borrowed. */
LOCH_API const char *loch_allocator_get_name(const loch_allocator *allocator);

/** "direct", "limit", "pool". Static string. */
LOCH_API const char *loch_allocator_get_kind(const loch_allocator *allocator);

/** Its device. Borrowed. */
LOCH_API loch_device *loch_allocator_get_device(const loch_allocator *allocator);

/** The allocator that a wrapper stands around; NULL for others. Borrowed. */
LOCH_API loch_allocator *loch_allocator_get_wrapped(const loch_allocator *allocator);

/** Set of loch_trait. */
LOCH_API uint32_t loch_allocator_get_traits(const loch_allocator *allocator);

/** What memory it hands out. */
LOCH_API loch_attributes loch_allocator_get_attributes(const loch_allocator *allocator);

/** What is known of a live block, by its start. E_FOREIGN and so on. An allocator that does not track sizes may have to
 *  search for it. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_find(loch_allocator *allocator, const void *address, loch_block *out);

/** Walks the live blocks, in no order. Blocks made or freed meanwhile may or may not be seen. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_walk(loch_allocator *allocator, loch_block_visitor *visitor,
                                                       void *user);

/** A consistent snapshot of the figures. `out->size` has to be set. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_get_stats(loch_allocator *allocator, loch_stats *out);

/** The figures of the blocks with one tag, not 0; E_UNSUPPORTED when the allocator does not keep them. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_get_tag_stats(loch_allocator *allocator, loch_tag tag,
                                                                loch_stats *out);

/** Resets the figures as this allocator shows them: peak := in use, largest := 0, counts := 0. What is in use stays. Each allocator
 *  has its own last reset: through a wrapper, what the wrapped allocator and other wrappers of it show since theirs stays,
 *  and so do the figures of a pool's parent and children. Two figures have one beginning for all who share an
 *  implementation: peaks by tag, and `peak_reserved_bytes` of loch_pool_get_info. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_reset_stats(loch_allocator *allocator);

/** Gives cached memory back to the device until no more than `keep_bytes` are cached.
 *  @param released  how much went back; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_trim(loch_allocator *allocator, size_t keep_bytes, size_t *released);

/** What an allocator's calls have asked for and how long they took, while it is measured. */
typedef struct loch_measurements {
    size_t size;             /**< set by the caller to sizeof(loch_measurements) */
    loch_histogram bytes;    /**< requested sizes */
    loch_histogram alloc_ns; /**< time of allocations, retries included */
    loch_histogram free_ns;  /**< time of frees */
} loch_measurements;

/** Switches the measuring of sizes and latencies, and sets the histograms to zero. It costs two clock readings a call while
 *  it is on. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_measure(loch_allocator *allocator, loch_measure measure);

/** Copies the histograms. E_UNSUPPORTED when it was never measured. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_get_measurements(loch_allocator *allocator, loch_measurements *out);

/** @} */
/** @name When memory is short */
/** @{ */

/** Asked to give memory back: returns how many bytes it freed, or a guess; 0 ends its turn. Called without locks, from
 *  the thread whose allocation failed; may free blocks of any allocator, and must not allocate from this one. */
typedef size_t loch_pressure_function(loch_allocator *allocator, size_t bytes, void *user);

/** Adds a function that is asked, in order of addition, when an allocation fails for want of memory and may be retried.
 *  `user` is borrowed until it is removed. E_EXISTS for a pair that is there already. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_add_pressure(loch_allocator *allocator,
                                                               loch_pressure_function *function, void *user);

/** Removes it; returns when no thread is inside it any more. E_NOT_FOUND. Not from inside the function. */
LOCH_API LOCH_MUST_USE loch_status loch_allocator_remove_pressure(loch_allocator *allocator,
                                                                  loch_pressure_function *function, void *user);

/** @} */

LOCH_END_DECLS

#endif
