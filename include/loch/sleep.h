/* SPDX-License-Identifier: MIT */
/** @file sleep.h
 *  Sleeping pools: a pool gives its physical memory back for a while and keeps its addresses, so that another model
 *  can run.
 *
 *  While asleep, every live block keeps its address, but there is no memory at it. End all work on the memory first:
 *  neither the host nor a device may access it. Blocks may be freed. Waking maps memory at the same addresses again,
 *  with the saved contents. A pool that sleeps as a whole allocates nothing, and a sleeping block cannot be resized:
 *  E_BUSY. While only one tag sleeps, the rest of the pool works.
 *
 *  Graphs: memory of captures, and pools with LOCH_POOL_CAPTURES_SHARED, sleep too. No graph may be launched that uses
 *  memory which is asleep. After the wake all memory that graphs use is mapped at its address, including free memory;
 *  graphs can be launched again, and give what they gave before. The contents of free memory are not kept: it is
 *  zero, and a graph writes to it before it reads from it. While one tag sleeps, free memory of captures stays.
 */
#ifndef LOCH_SLEEP_H
#define LOCH_SLEEP_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** What happens to the contents. */
typedef enum loch_sleep_contents {
    /** Saved in pinned host memory: fastest to restore. Saved in plain host memory if there is no pinned memory. */
    LOCH_SLEEP_PINNED,
    LOCH_SLEEP_HOST, /**< saved in plain host memory */
    LOCH_SLEEP_FILE, /**< saved in a file */
    /** Dropped: every byte is zero after waking; 0xFF, which is NaN in floating-point types, while the option sleep_nan
     *  is on. With a tag, parts of blocks that shared granules with other blocks did not sleep and are unchanged. */
    LOCH_SLEEP_DROP
} loch_sleep_contents;

/** Options of loch_pool_sleep. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_sleep_options {
    size_t size;                  /**< sizeof(loch_sleep_options) */
    loch_sleep_contents contents; /**< what happens to the contents; kept in pinned memory by default */
    /** Only memory of blocks with this tag sleeps; 0 for all. Granules that are shared with other blocks stay. */
    loch_tag tag;
    /** LOCH_SLEEP_PINNED, LOCH_SLEEP_HOST: allocator for the saved contents, retained until waking; NULL for the
     *  device's pinned allocator or the default allocator of "cpu". */
    loch_allocator *allocator;
    /** LOCH_SLEEP_FILE: path of the file. It is created anew, readable by its user only, and removed by waking; a
     *  symbolic link is not followed. A path that ends in a slash is a folder for a file without a name. NULL for such
     *  a file in TMPDIR. */
    const char *path;
} loch_sleep_options;

/** Puts a pool to sleep: waits on the host for the work of its streams, saves the contents, and gives the memory back
 *  to the device, including free memory. All or nothing: on failure the pool is awake and unchanged. A second sleep
 *  with another tag adds to the first. A child with a quota sleeps on its own. A movable buffer that sleeps does not
 *  move and cannot be pinned (E_BUSY). Any thread.
 *
 *  E_BUSY: the memory sleeps already, or holds a child's range, or a stream is being captured: a stream of the pool,
 *  or, if the pool has memory of captures, any stream of the device. The sleep then waits for all work of the device.
 *  E_UNSUPPORTED: the pool has no virtual memory. E_INVALID: the allocator is not a pool, the tag does not exist,
 *  or the contents would be saved in the pool itself. E_IO: the file cannot be written, is not a regular file, or does
 *  not return what was written (it is read back before any memory is given up).
 *  @param released  number of bytes given back to the device; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_sleep(loch_allocator *pool, const loch_sleep_options *options,
                                                   size_t *released);

/** Wakes a pool: maps memory under every live block and under free memory of captures again, restores the saved
 *  contents, and fills blocks whose contents were dropped with zeros. They are ready when the call returns. All or
 *  nothing: on failure the pool sleeps as before and nothing saved is lost. A pool that is awake succeeds. E_BUSY: the
 *  pool that keeps the saved contents sleeps itself. E_DEVICE_MEMORY, E_LIMIT: memory is short. Any thread.
 *  @param restored  number of bytes of contents restored; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_wake(loch_allocator *pool, size_t *restored);

LOCH_END_DECLS

#endif
