/* SPDX-License-Identifier: MIT */
/** @file child.h
 *  Child pools: pools inside a pool. A child has a part of its parent's memory, and its own statistics, streams and
 *  options.
 *
 *  A child keeps its parent alive. It may be released before or after its parent, its siblings and its own children,
 *  and while it has live blocks: they stay valid until they are freed, and then the memory goes back to the parent.
 */
#ifndef LOCH_CHILD_H
#define LOCH_CHILD_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** Which part of the parent's memory a child has. */
typedef enum loch_child_kind {
    /** Memory as needed, counted against the parent's limit: at least `minimum_bytes`, at most `limit_bytes`. */
    LOCH_CHILD_QUOTA,
    LOCH_CHILD_RANGE /**< one contiguous block of the parent, allocated at creation: `limit_bytes` long */
} loch_child_kind;

/** Options of loch_pool_create_child. Zero means default. */
typedef struct loch_child_options {
    size_t size;          /**< sizeof(loch_child_options) */
    loch_child_kind kind; /**< which part of the parent's memory */
    /** LOCH_CHILD_QUOTA: bytes that are always available to the child, whatever the parent and the siblings use;
     *  rounded up to granules. Without a limit of the parent, the size of the device's memory counts as the limit;
     *  then other users of the device may still have taken the memory. Must be 0 for a range. */
    size_t minimum_bytes;
    /** Most bytes that the child holds at a time; 0 for the parent's limit. For a range: its size, at least 16 KiB. */
    size_t limit_bytes;
    /** LOCH_CHILD_RANGE: stream on which the range is allocated and freed; NULL for the default stream. */
    loch_stream *stream;
    loch_tag tag; /**< tag of the range in the parent's statistics */
    /** Preset, idle cap (not for a range), handle options, captures and wiping of the child; limit_bytes is ignored,
     *  and the kind of memory is the parent's; NULL for defaults. A child always wipes if its parent does, and has the
     *  parent's handle options if its own have no size. */
    const loch_pool_options *pool;
} loch_child_options;

/** Creates a child of a pool. A wrapper around a pool is accepted as `parent`. Children may have children. Any
 *  thread.
 *
 *  E_LIMIT: the minimum bytes of all children would exceed the parent's limit. E_UNSUPPORTED: a quota inside a range.
 *  E_BUSY: the stream of a range is captured. A range can also fail like any allocation; it never overlaps a live
 *  block. While a range exists, its block cannot be freed or resized through the parent (E_BUSY), and the limit and
 *  the idle cap of the child cannot be changed (E_UNSUPPORTED).
 *  @param name  for people; copied; NULL for "child"
 *  @param out   the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_create_child(loch_allocator *parent, const char *name,
                                                          const loch_child_options *options, loch_allocator **out);

/** Returns the parent of a child pool; NULL for a pool without a parent. Borrowed. Any thread. */
LOCH_API loch_allocator *loch_pool_get_parent(const loch_allocator *pool);

/** Receives one child. The child is retained during the call, and the visitor may use it in any way. A return value
 *  other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_child_visitor(loch_allocator *child, void *user);

/** Walks the children of a pool in order of creation. Children that are created or released during the walk may be
 *  visited or not; children whose last reference was released are not visited. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_walk_children(loch_allocator *pool, loch_child_visitor *visitor,
                                                           void *user);

LOCH_END_DECLS

#endif
