/* SPDX-License-Identifier: MIT */
/** @file child.h
 *  Child pools: pools inside a pool, with a part of its memory, and with statistics, streams and options of their own.
 *
 *  A child keeps its parent alive. It may be released before or after its parent, its siblings and its own children, and while
 *  blocks of it are out: they stay valid until they are freed, and then its memory goes back to the parent.
 */
#ifndef LOCH_CHILD_H
#define LOCH_CHILD_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** What part of the parent a child has. */
typedef enum loch_child_kind {
    LOCH_CHILD_QUOTA, /**< memory as it is needed, counted against the parent's limit: at least `minimum_bytes`, at most `limit_bytes` */
    LOCH_CHILD_RANGE /**< one contiguous block of the parent, taken at once: `limit_bytes` of it */
} loch_child_kind;

/** How a child is made; zero means default. */
typedef struct loch_child_options {
    size_t size;          /**< sizeof(loch_child_options) */
    loch_child_kind kind; /**< what part */
    /** LOCH_CHILD_QUOTA: always there for it, whatever the parent and the siblings take; rounded up to granules. Of a
     *  parent without a limit that of the device stands for it: others may have taken that all the same. */
    size_t minimum_bytes;
    /** What it may hold at a time; 0: as much as the parent. Of a range: its size, 16 KiB at least. */
    size_t limit_bytes;
    loch_stream
        *stream;  /**< LOCH_CHILD_RANGE: in whose order the range is taken and given back; NULL: the default stream */
    loch_tag tag; /**< of the range in the parent's statistics */
    /** Preset, idle cap (not of a range), handles, captures, wiping, which it has if its parent has; its limit is ignored, and
     *  the kind is the parent's; NULL: defaults. */
    const loch_pool_options *pool;
} loch_child_options;

/** Makes a child of a pool (wrappers are looked through). E_LIMIT when the minima of all children would exceed the parent's limit; for a
 *  range the errors of an allocation: it never overlaps a live block, and E_BUSY while its stream is captured. Children may
 *  have children; E_UNSUPPORTED for a quota in a range. While a range lives its block cannot be freed or resized through
 *  the parent (E_BUSY), nor its own limit or idle cap be changed (E_UNSUPPORTED). Any thread.
 *  @param out  the caller's reference, given back by loch_allocator_release; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_pool_create_child(loch_allocator *parent, const char *name,
                                                          const loch_child_options *options, loch_allocator **out);

/** A child's parent. Borrowed; NULL for a pool that is none's child. Any thread. */
LOCH_API loch_allocator *loch_pool_get_parent(const loch_allocator *pool);

/** Called with each child; a return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_child_visitor(loch_allocator *child, void *user);

/** Walks a pool's children, in order of making. Those made or ended meanwhile may or may not be seen; those that nobody has a
 *  reference to any more are not. The visitor may do anything with the child; it is retained meanwhile. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_walk_children(loch_allocator *pool, loch_child_visitor *visitor,
                                                           void *user);

LOCH_END_DECLS

#endif
