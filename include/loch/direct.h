/* SPDX-License-Identifier: MIT */
/** @file direct.h
 *  The direct allocator: one driver call a block. Slow, exact, and what memory checkers understand best.
 */
#ifndef LOCH_DIRECT_H
#define LOCH_DIRECT_H

#include <loch/allocator.h>
#include <loch/raw.h>

LOCH_BEGIN_DECLS

/** When blocks go back to the driver. */
typedef enum loch_direct_free {
    LOCH_DIRECT_FREE_NOW,     /**< at free, after waiting for the streams that used them, and for no others */
    LOCH_DIRECT_FREE_DEFERRED /**< at the end of the session: nothing waits, addresses are not used again before, and
                               *   trimming leaves them alone; the last session ends with the allocator */
} loch_direct_free;

/** Zero means default, NULL all defaults. */
typedef struct loch_direct_options {
    size_t size;           /**< sizeof(loch_direct_options) */
    loch_memory_kind kind; /**< device (default), pinned or managed memory */
    size_t limit_bytes;    /**< requested bytes in use and deferred, exact; 0 for none */
    loch_direct_free when; /**< now or at the end of the session */
    size_t red_zone_bytes; /**< bytes on each side that are checked at free, in front of the block rounded up to its
                            *   alignment; at most 1 GiB; 0 for none */
    uint8_t poison;        /**< what new and freed blocks are filled with, in stream order; 0 for nothing */
} loch_direct_options;

/** Makes one. `name` may be NULL: "direct". Frees give E_CORRUPT when a red zone was written: the block is freed all
 *  the same, and the record names it. When there is no host memory to look at a block on a device, it is freed unseen,
 *  and the log says so. A free that fails otherwise (a stream that cannot be waited for) leaves the block as it was.
 *  E_UNSUPPORTED for a kind that the device has not. @param out  given back by loch_allocator_release; NULL on
 *  failure. */
LOCH_API LOCH_MUST_USE loch_status loch_direct_create(loch_device *device, const char *name,
                                                      const loch_direct_options *options, loch_allocator **out);

/** Ends the session: waits for the streams, gives every deferred block back, and starts the next session. Poisoned
 *  blocks and red zones are checked: E_CORRUPT names the first bad one, and all go back all the same. (Not poisoned are
 *  blocks whose stream was destroyed before they were freed.) Blocks whose streams cannot be waited for stay for the
 *  next end: the driver's status.
 *  @param released  bytes that went back, as requested; may be NULL. E_INVALID for an allocator that is not direct. */
LOCH_API LOCH_MUST_USE loch_status loch_direct_free_deferred(loch_allocator *allocator, size_t *released);

LOCH_END_DECLS

#endif
