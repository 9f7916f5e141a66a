/* SPDX-License-Identifier: MIT */
/** @file sleep.h
 *  Pools that give their physical memory back for a while and keep their addresses: another model runs meanwhile.
 *
 *  Asleep, every block is still out at its address, but there is nothing there: the caller has ended all work on it, and neither
 *  the host nor a device may touch it. Blocks may be freed. Wake brings memory back to the same addresses, with the
 *  contents where they were saved. A pool that sleeps as a whole hands nothing out, and no sleeping block changes its size:
 *  E_BUSY. While a tag sleeps the rest of the pool works on.
 */
#ifndef LOCH_SLEEP_H
#define LOCH_SLEEP_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** What becomes of the contents. */
typedef enum loch_sleep_contents {
    LOCH_SLEEP_DROP,   /**< undefined after wake */
    LOCH_SLEEP_PINNED, /**< kept in pinned host memory: the fastest way back */
    LOCH_SLEEP_HOST,   /**< kept in plain host memory */
    LOCH_SLEEP_FILE    /**< kept in a file */
} loch_sleep_contents;

/** How a pool sleeps; zero means default, NULL all defaults. */
typedef struct loch_sleep_options {
    size_t size;                  /**< sizeof(loch_sleep_options) */
    loch_sleep_contents contents; /**< what becomes of them */
    loch_tag tag; /**< only the memory under blocks of this tag; 0 for all. Granules that other blocks share stay */
    loch_allocator
        *allocator; /**< LOCH_SLEEP_PINNED, LOCH_SLEEP_HOST: where the contents go; NULL: the device's pinned one, the
                                       default one of "cpu". Kept until wake */
    const char *
        path; /**< LOCH_SLEEP_FILE: the file, made anew, readable by its user alone, and removed by wake; a link is not followed.
                  NULL: one without a name in TMPDIR */
} loch_sleep_options;

/** Puts a pool to sleep: waits for the work of its streams, saves the contents, gives the memory back, free memory too. All or nothing:
 *  on failure it is awake and as it was. A second sleep, of another tag, adds to the first; E_BUSY for what sleeps already.
 *  E_BUSY also for memory of captures that were not released, and for a child's range; a child with a quota sleeps by
 *  itself. A movable buffer that sleeps stays where it is, and cannot be pinned: E_BUSY. E_UNSUPPORTED without virtual memory,
 *  E_INVALID for an allocator that is no pool, or for contents kept in the pool itself, E_IO when the file cannot be written,
 *  is no regular file, or does not give back what was written: it is read before any memory is given up.
 *  Any thread.
 *  @param released  bytes that went back to the device; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_sleep(loch_allocator *pool, const loch_sleep_options *options,
                                                   size_t *released);

/** Wakes what sleeps: memory under every block that is still out, contents restored, ready when the call returns. All or nothing: on
 *  failure it sleeps as before, and nothing that was saved is lost. E_BUSY while the pool that keeps the contents sleeps itself. A pool that is
 *  awake succeeds. Any thread.
 *  @param restored  bytes of contents that came back; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_wake(loch_allocator *pool, size_t *restored);

LOCH_END_DECLS

#endif
