/* SPDX-License-Identifier: MIT */
/** @file wrapper.h
 *  Allocators around allocators: limit, tracking, logging, guard, fault injection, lock. They stack in any order, and
 *  forward all that they do not change. Each retains what it wraps. `name` may be NULL for the wrapped one's name.
 */
#ifndef LOCH_WRAPPER_H
#define LOCH_WRAPPER_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** Makes a wrapper of one's own around `wrapped`, which it retains and whose device it has. `ops` needs a size and a kind alone:
 *  empty slots forward to `wrapped`, alloc and free included. Its own alloc asks the wrapped allocator with LOCH_ALLOC_NO_RETRY set: the
 *  outermost call retries and waits, once. The library knows which blocks came through the wrapper: others are E_FOREIGN to
 *  it, also those of the wrapped allocator, and its `free` always gets the requested size. A block goes back through the allocator
 *  that handed it out.
 *  @param self  handed to every slot; `destroy` frees it. On failure it stays the caller's.
 *  @param out   the caller's reference, given back by loch_allocator_release; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_wrapper_create(loch_allocator *wrapped, const char *name,
                                                       const loch_allocator_ops *ops, void *self, loch_allocator **out);

/* --- limit --- */

/** Called when bytes in use rise above the soft limit, once for each time they do; after the allocation, without a lock
 *  of the limit's (a lock wrapper around it is held). It may allocate and free. */
typedef void loch_limit_function(loch_allocator *allocator, uint64_t requested_bytes, void *user);

/** Zero means default. */
typedef struct loch_limit_options {
    size_t size;                /**< sizeof(loch_limit_options) */
    size_t hard_bytes;          /**< requested bytes that may be in use, exact; 0 for none */
    size_t soft_bytes;          /**< above these the function is called; 0 for none */
    loch_limit_function *above; /**< may be NULL */
    void *user;                 /**< handed to it; borrowed */
} loch_limit_options;

/** A limit on bytes asked for through this wrapper: E_LIMIT beyond it. */
LOCH_API LOCH_MUST_USE loch_status loch_limit_create(loch_allocator *wrapped, const char *name,
                                                     const loch_limit_options *options, loch_allocator **out);

/** Changes both limits from now on; what is in use above them stays. E_INVALID when it is no limit wrapper. */
LOCH_API LOCH_MUST_USE loch_status loch_limit_set(loch_allocator *limit, size_t hard_bytes, size_t soft_bytes);

/* --- tracking --- */

/** Zero means default. */
typedef struct loch_tracking_options {
    size_t size;    /**< sizeof(loch_tracking_options) */
    size_t records; /**< how many ± records the ring keeps; 0 for none */
} loch_tracking_options;

/** One allocation (bytes > 0) or free (bytes < 0). */
typedef struct loch_tracking_record {
    int64_t bytes;    /**< as requested, with its sign */
    uint64_t id;      /**< of the block */
    uint64_t time_ns; /**< by loch_host_now_ns */
    loch_tag tag;     /**< of the block */
} loch_tracking_record;

/** Knows every live block: sizes, ids, tags, high-water mark; figures by tag. Ids are given when they are first
 *  asked for, with records at the allocation, in its order. With records, loch_allocator_find gives a block's time
 *  for as long as its record is kept; else it is 0, unless the wrapped allocator knows it. */
LOCH_API LOCH_MUST_USE loch_status loch_tracking_create(loch_allocator *wrapped, const char *name,
                                                        const loch_tracking_options *options, loch_allocator **out);

/** Called with each record, without locks. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_tracking_visitor(const loch_tracking_record *record, void *user);

/** Walks the records that the ring holds, oldest first; those that are overwritten meanwhile are left out. E_INVALID for an
 *  allocator that is no tracking wrapper. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_tracking_walk(loch_allocator *allocator, loch_tracking_visitor *visitor,
                                                      void *user);

/* --- logging --- */

/** What a logging wrapper writes. */
typedef enum loch_logging_format {
    LOCH_LOGGING_HOOK, /**< lines to the log hook, level info */
    LOCH_LOGGING_CSV,  /**< a file: time_ns,event,id,address,bytes,stream,tag,status; events: alloc, use, free */
    LOCH_LOGGING_TRACE /**< a file that `loch replay` reads: what succeeded */
} loch_logging_format;

/** Which allocations a logging wrapper writes. */
typedef enum loch_logging_filter {
    LOCH_LOGGING_ALL,    /**< all of them */
    LOCH_LOGGING_FLAGGED /**< those with LOCH_ALLOC_LOGGED, and their frees */
} loch_logging_filter;

/** Zero means default. */
typedef struct loch_logging_options {
    size_t size;                /**< sizeof(loch_logging_options) */
    loch_logging_format format; /**< what to write */
    const char *path; /**< the file; needed unless the format is the hook. A regular file there is replaced by a new one
                                     that its user alone may read; a pipe or terminal is written to; E_IO for a link */
    loch_logging_filter filter; /**< which allocations */
} loch_logging_options;

/** Writes down every allocation, further use and free: times since the wrapper was made, ids of its own that are never
 *  used twice, streams as small numbers (0: the default stream), blanks, commas and quotes in tags as '_'. The file is
 *  made anew; E_IO when that fails. One that cannot be written any more is E_IO from loch_logging_flush; the
 *  allocations go on. */
LOCH_API LOCH_MUST_USE loch_status loch_logging_create(loch_allocator *wrapped, const char *name,
                                                       const loch_logging_options *options, loch_allocator **out);

/** Writes out what is buffered. E_IO when part of the file could not be written; E_HOST_MEMORY when events could not be
 *  noted. E_INVALID when it is no logging wrapper. E_FORKED in the child of a fork, where nothing is written to the file. */
LOCH_API LOCH_MUST_USE loch_status loch_logging_flush(loch_allocator *logging);

/* --- guard --- */

/** Zero means default. */
typedef struct loch_redzone_options {
    size_t size;           /**< sizeof(loch_redzone_options) */
    size_t red_zone_bytes; /**< on each side, in front rounded up to the alignment; 0 for 64; at most 1 GiB */
    uint8_t poison_new;    /**< fills new blocks; 0 for 0xcd */
    uint8_t poison_freed;  /**< fills freed blocks; 0 for 0xdd */
} loch_redzone_options;

/** Red zones around every block, and poison in it. E_CORRUPT at free, or from loch_redzone_check, when a zone was
 *  written; the block is freed all the same, and the record names it. Free waits for all streams that used the block.
 *  When there is no host memory to look at a block on a device, it is freed unseen, and the log says so. Not kept of
 *  the wrapped allocator's traits: LOCH_TRAIT_STREAM_ORDERED and LOCH_TRAIT_ZEROES. */
LOCH_API LOCH_MUST_USE loch_status loch_redzone_create(loch_allocator *wrapped, const char *name,
                                                       const loch_redzone_options *options, loch_allocator **out);

/** Checks the red zones of all live blocks, waiting for their streams. E_CORRUPT names the first bad one. E_INVALID
 *  when it is no guard. */
LOCH_API LOCH_MUST_USE loch_status loch_redzone_check(loch_allocator *guard);

/* --- fault injection --- */

/** Which allocations fail. Each attempt counts, those of retries too. */
typedef struct loch_fault_options {
    size_t size;        /**< sizeof(loch_fault_options) */
    uint64_t after;     /**< how many allocations succeed first */
    uint64_t count;     /**< how many fail then; 0 for all */
    uint32_t one_in;    /**< instead: each fails with a chance of one in this many; 0 for not */
    uint64_t seed;      /**< where chance starts */
    size_t above_bytes; /**< only requests larger than this */
    loch_status status; /**< what they return; LOCH_OK means E_DEVICE_MEMORY */
} loch_fault_options;

/** Makes allocations fail that would have succeeded. NULL options: none, until loch_fault_set. */
LOCH_API LOCH_MUST_USE loch_status loch_fault_create(loch_allocator *wrapped, const char *name,
                                                     const loch_fault_options *options, loch_allocator **out);

/** Sets new faults, counting from now; NULL for none. E_INVALID when it is no fault wrapper. */
LOCH_API LOCH_MUST_USE loch_status loch_fault_set(loch_allocator *fault, const loch_fault_options *options);

/* --- lock --- */

/** Lets several threads use an allocator that is not thread safe: one at a time. Functions that the wrapped allocator
 *  calls run under the lock: they may allocate from this allocator and free, but not ask for its figures. */
LOCH_API LOCH_MUST_USE loch_status loch_locked_create(loch_allocator *wrapped, const char *name, loch_allocator **out);

LOCH_END_DECLS

#endif
