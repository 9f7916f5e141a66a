/* SPDX-License-Identifier: MIT */
/** @file direct.h
 *  The direct allocator: one driver call for each block. Slow and exact; memory checkers understand it best.
 */
#ifndef LOCH_DIRECT_H
#define LOCH_DIRECT_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** When freed blocks go back to the driver. */
typedef enum loch_direct_free {
    /** At the free, after waiting on the host for the streams that used the block, and for no others. */
    LOCH_DIRECT_FREE_NOW,
    /** At the next loch_direct_free_deferred, or with the allocator: a free does not wait, addresses are not reused
     *  before, and trimming does not release the blocks. */
    LOCH_DIRECT_FREE_DEFERRED
} loch_direct_free;

/** Options of loch_direct_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_direct_options {
    size_t size;           /**< sizeof(loch_direct_options) */
    loch_memory_kind kind; /**< kind of memory: device (default), pinned or managed */
    size_t limit_bytes;    /**< limit in bytes of requested memory that is in use or deferred, exact; 0 for none */
    loch_direct_free when; /**< when freed blocks go back to the driver */
    /** Bytes on each side of a block that are checked at the free; in front rounded up to the alignment; at most 1
     *  GiB; 0 for none. */
    size_t red_zone_bytes;
    uint8_t poison; /**< byte that fills new and freed blocks, in stream order; 0 for no fill */
} loch_direct_options;

/** Creates a direct allocator. E_UNSUPPORTED: the device does not have this kind of memory.
 *
 *  A free returns E_CORRUPT if a red zone was overwritten; the block is freed anyway, and the error record
 *  names it. If there is no host memory to check a block on a device, the block is freed unchecked, and the log says
 *  so. A free that fails for another reason (a stream cannot be waited for) leaves the block as it was.
 *  @param name  for people; copied; NULL for "direct"
 *  @param out   the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_direct_create(loch_device *device, const char *name,
                                                      const loch_direct_options *options, loch_allocator **out);

/** Frees the deferred blocks of a direct allocator with LOCH_DIRECT_FREE_DEFERRED: waits on the host for the streams
 *  and gives every deferred block back to the driver. Poison and red zones are checked; E_CORRUPT names the first bad
 *  block, and all blocks go back anyway. Blocks whose stream was destroyed before they were freed are not poisoned.
 *  Blocks whose streams cannot be waited for stay until the next call, and the status of the driver is returned.
 *  E_INVALID: the allocator is not a direct one.
 *  @param released  requested bytes of the blocks that went back; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_direct_free_deferred(loch_allocator *allocator, size_t *released);

LOCH_END_DECLS

#endif
