/* SPDX-License-Identifier: MIT */
/** @file wrapper.h
 *  Wrappers: allocators around allocators. Limit, tracking, logging, red zones, fault injection, lock, and your own.
 *
 *  Wrappers stack in any order and forward everything that they do not change. A wrapper retains the allocator that
 *  it wraps. A NULL `name` means the name of the wrapped allocator. Release a wrapper with loch_allocator_release.
 */
#ifndef LOCH_WRAPPER_H
#define LOCH_WRAPPER_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** @name Limit */
/** @{ */

/** Called each time the bytes in use rise above the soft limit, after the allocation. No lock of the limit wrapper is
 *  held (a lock wrapper around it holds its lock). It may allocate and free. */
typedef void loch_limit_function(loch_allocator *allocator, uint64_t requested_bytes, void *user);

/** Options of loch_limit_create. Zero means default. */
typedef struct loch_limit_options {
    size_t size;                /**< sizeof(loch_limit_options) */
    size_t hard_bytes;          /**< limit of requested bytes in use, exact; 0 for none */
    size_t soft_bytes;          /**< number of requested bytes in use above which `above` is called; 0 for none */
    loch_limit_function *above; /**< called when the soft limit is exceeded; may be NULL */
    void *user;                 /**< passed to `above`; borrowed */
} loch_limit_options;

/** Creates a limit wrapper: an allocation through it beyond the hard limit fails with E_LIMIT.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_limit_create(loch_allocator *wrapped, const char *name,
                                                     const loch_limit_options *options, loch_allocator **out);

/** Sets both limits of a limit wrapper. Memory in use above the new limits stays. E_INVALID: not a limit wrapper. */
LOCH_API LOCH_MUST_USE loch_status loch_limit_set(loch_allocator *allocator, size_t hard_bytes, size_t soft_bytes);

/** @} */
/** @name Tracking */
/** @{ */

/** Options of loch_tracking_create. Zero means default. */
typedef struct loch_tracking_options {
    size_t size;    /**< sizeof(loch_tracking_options) */
    size_t records; /**< number of records of allocations and frees that the ring keeps; 0 for none */
} loch_tracking_options;

/** Creates a tracking wrapper. It knows every live block with size, id and tag, the peak, and statistics by tag. Ids
 *  are assigned when they are first read; with records, at the allocation and in order of allocation. With records,
 *  loch_allocator_find returns the time of a block as long as its record is kept; otherwise the time is 0 unless the
 *  wrapped allocator knows it.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tracking_create(loch_allocator *wrapped, const char *name,
                                                        const loch_tracking_options *options, loch_allocator **out);

/** One record of a tracking wrapper: an allocation or a growth (bytes > 0), a free or a growable block that became
 *  smaller (bytes < 0). */
typedef struct loch_tracking_record {
    int64_t bytes;    /**< requested bytes, negative for a free; of a growable block the change of its size */
    uint64_t id;      /**< id of the block */
    uint64_t time_ns; /**< time in nanoseconds (loch_host_now_ns) */
    loch_tag tag;     /**< tag of the block */
} loch_tracking_record;

/** Receives one record. Called without locks. A return value other than LOCH_OK ends the walk and becomes its
 *  result. */
typedef loch_status loch_tracking_visitor(const loch_tracking_record *record, void *user);

/** Walks the records that the ring of a tracking wrapper holds, oldest first. Records that are overwritten during the
 *  walk are left out. E_INVALID: not a tracking wrapper. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_tracking_walk(loch_allocator *allocator, loch_tracking_visitor *visitor,
                                                      void *user);

/** @} */
/** @name Logging */
/** @{ */

/** Output of a logging wrapper. */
typedef enum loch_logging_format {
    LOCH_LOGGING_HOOK, /**< lines to the log hook, level info */
    LOCH_LOGGING_CSV,  /**< a CSV file: time_ns,event,id,address,bytes,stream,tag,status; events: alloc, use, free */
    LOCH_LOGGING_TRACE /**< a file for `loch replay`: successful calls only */
} loch_logging_format;

/** Which allocations a logging wrapper writes. */
typedef enum loch_logging_filter {
    LOCH_LOGGING_ALL,    /**< all allocations */
    LOCH_LOGGING_FLAGGED /**< allocations with LOCH_ALLOC_LOGGED, and their frees */
} loch_logging_filter;

/** Options of loch_logging_create. Zero means default. */
typedef struct loch_logging_options {
    size_t size;                /**< sizeof(loch_logging_options) */
    loch_logging_format format; /**< what to write */
    /** Path of the file; required unless the format is the hook. A regular file is replaced by a new one that only
     *  its user may read; a pipe or a terminal is written to; a symbolic link gives E_IO. */
    const char *path;
    loch_logging_filter filter; /**< which allocations to write */
} loch_logging_options;

/** Creates a logging wrapper: it writes every allocation, recorded use and free, and every resize of a growable block:
 *  as `resize`, or in a trace as a free and an allocation with a new id. Times count from the creation of the
 *  wrapper. Ids are the wrapper's own and are never reused. Streams are small numbers (0: the default stream).
 *  Blanks, commas and quotes in tags are written as '_'. The file is created anew; E_IO if that fails. If the file
 *  cannot be written later, allocations continue and loch_logging_flush returns E_IO.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_logging_create(loch_allocator *wrapped, const char *name,
                                                       const loch_logging_options *options, loch_allocator **out);

/** Writes the buffered lines of a logging wrapper to its file. E_IO: a part of the file could not be written.
 *  E_HOST_MEMORY: events could not be recorded. E_INVALID: not a logging wrapper. E_FORKED: in the child of a fork,
 *  where nothing is written to the file. */
LOCH_API LOCH_MUST_USE loch_status loch_logging_flush(loch_allocator *allocator);

/** @} */
/** @name Red zones */
/** @{ */

/** Options of loch_redzone_create. Zero means default. */
typedef struct loch_redzone_options {
    size_t size; /**< sizeof(loch_redzone_options) */
    /** Bytes on each side of a block, in front rounded up to the alignment; 0 for 64; at most 1 GiB. */
    size_t red_zone_bytes;
    uint8_t poison_new;   /**< byte that fills new blocks; 0 for 0xcd */
    uint8_t poison_freed; /**< byte that fills freed blocks; 0 for 0xdd */
} loch_redzone_options;

/** Creates a red-zone wrapper: it puts red zones around every block and fills blocks with poison. If a red zone was
 *  overwritten, the free returns E_CORRUPT; the block is freed anyway, and the error record names it. A free
 *  waits on the host for all streams that used the block. If there is no host memory to check a block on a device,
 *  the block is freed unchecked, and the log says so. The wrapper does not have LOCH_TRAIT_STREAM_ORDERED and
 *  LOCH_TRAIT_ZEROES.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_redzone_create(loch_allocator *wrapped, const char *name,
                                                       const loch_redzone_options *options, loch_allocator **out);

/** Checks the red zones of all live blocks, and waits on the host for their streams. E_CORRUPT: a red zone was
 *  overwritten; the error record names the first bad block. E_INVALID: not a red-zone wrapper. */
LOCH_API LOCH_MUST_USE loch_status loch_redzone_check(loch_allocator *allocator);

/** @} */
/** @name Fault injection */
/** @{ */

/** Which allocations fail. Every attempt counts, including retries. */
typedef struct loch_fault_options {
    size_t size;    /**< sizeof(loch_fault_options) */
    uint64_t after; /**< number of allocations that succeed first */
    uint64_t count; /**< number of allocations that fail then; 0 for all */
    /** Instead of `after` and `count`: each allocation fails with a chance of one in this many; 0 for off. */
    uint32_t one_in;
    uint64_t seed;      /**< seed of the random numbers */
    size_t above_bytes; /**< only requests larger than this many bytes fail */
    loch_status status; /**< status of a failing allocation; LOCH_OK means E_DEVICE_MEMORY */
} loch_fault_options;

/** Creates a fault wrapper: it makes allocations fail that would succeed. With NULL options nothing fails until
 *  loch_fault_set.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_fault_create(loch_allocator *wrapped, const char *name,
                                                     const loch_fault_options *options, loch_allocator **out);

/** Sets which allocations of a fault wrapper fail, counted from now; NULL for none. E_INVALID: not a fault wrapper. */
LOCH_API LOCH_MUST_USE loch_status loch_fault_set(loch_allocator *allocator, const loch_fault_options *options);

/** @} */
/** @name Lock */
/** @{ */

/** Creates a lock wrapper: several threads may then use an allocator that is not thread safe, one at a time.
 *  Functions that the wrapped allocator calls run with the lock held: they may allocate and free through the wrapper,
 *  but must not read its statistics.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_locked_create(loch_allocator *wrapped, const char *name, loch_allocator **out);

/** @} */
/** @name Arena */
/** @{ */

/** Options of loch_arena_create. Zero means default. */
typedef struct loch_arena_options {
    size_t size;         /**< sizeof(loch_arena_options) */
    size_t piece_bytes;  /**< length of the first piece in bytes; 0 for 1 MiB. Later ones are up to 64 MiB long */
    size_t limit_bytes;  /**< most bytes in pieces; 0 for no limit */
    loch_stream *stream; /**< the stream of all blocks; NULL for the default stream */
    loch_tag tag;        /**< tag of the pieces in the statistics of the wrapped allocator */
} loch_arena_options;

/** Creates an arena: blocks are cut one after the other from pieces of the wrapped allocator, and loch_arena_reset
 *  drops all of them at once. A block costs a few nanoseconds and no memory besides its own. One thread at a time may
 *  use an arena; loch_locked_create makes one for several.
 *
 *  A free gives no memory back: it only counts its block out, and finds addresses outside of the arena (E_FOREIGN).
 *  Blocks are on the arena's stream, also those of requests without a stream or for the default stream. A request for
 *  another one makes that stream wait for the arena's, and records its use. Sizes, tags and ids of blocks are not
 *  known: loch_allocator_find and loch_allocator_walk give E_UNSUPPORTED. A recording has the pieces, and the blocks
 *  of the time in which it runs. Like every allocator, an arena lives until its last reference and its last block are
 *  gone: reset it before the release to drop blocks that are not freed.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_arena_create(loch_allocator *wrapped, const char *name,
                                                     const loch_arena_options *options, loch_allocator **out);

/** Drops all blocks of an arena. The next blocks may have their memory; they are ordered after all work that is queued
 *  on the arena's stream, on the streams of loch_allocator_record_use, and on `stream`, if one is named. The host waits
 *  only if one of these was destroyed. The first resets may give pieces back to the wrapped allocator; a program that
 *  repeats itself keeps one. Buffers and tensors on such blocks must have ended. E_INVALID: not an arena. Other
 *  failures drop nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_arena_reset(loch_allocator *allocator, loch_stream *stream);

/** @} */
/** @name Your own wrapper */
/** @{ */

/** Creates your own wrapper around `wrapped`, on the same device. `ops` needs only a size and a kind: empty slots
 *  forward to `wrapped`, including alloc and free. Your alloc calls the wrapped allocator with LOCH_ALLOC_NO_RETRY
 *  set; the outermost call alone retries and waits. The library knows which blocks came through the wrapper: other
 *  addresses give E_FOREIGN, including blocks of the wrapped allocator. Your `free` always receives the requested
 *  size. A block is freed through the allocator that handed it out.
 *  @param self  passed to every slot; the slot `destroy` frees it. On failure `self` still belongs to the caller.
 *  @param out   the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_wrapper_create(loch_allocator *wrapped, const char *name,
                                                       const loch_allocator_ops *ops, void *self, loch_allocator **out);

/** @} */

LOCH_END_DECLS

#endif
