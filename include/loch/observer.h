/* SPDX-License-Identifier: MIT */
/** @file observer.h
 *  Observers: functions that are called for every range of memory that Loch takes from a driver or gives back. For
 *  registration with network cards, and for tools.
 */
#ifndef LOCH_OBSERVER_H
#define LOCH_OBSERVER_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** What happens to a range. */
typedef enum loch_range_event {
    LOCH_RANGE_TAKEN, /**< the range can be used from now on */
    LOCH_RANGE_GOING  /**< the range is about to be given back; it can still be used during the call */
} loch_range_event;

/** A range of memory from a driver: a raw block (also pinned or managed), or a mapping. A mapping
 *  that is remapped goes at its old address and is taken at the new one. Ranges go exactly as they were taken. Not
 *  reported: host memory that a caller registered, and the scratch memory of a copy. */
typedef struct loch_range {
    loch_device *device;   /**< device of the range; borrowed */
    loch_memory_kind kind; /**< kind of memory */
    void *address;         /**< start of the range */
    size_t bytes;          /**< length in bytes */
    /** Tells mappings of one handle: equal for them, and different for other memory meanwhile. NULL for ranges that are
     *  not mappings. Not to be dereferenced. */
    const void *memory;
} loch_range;

/** Receives one event of a range. Called without locks, on the thread that takes or gives back the range, from
 *  several threads at a time. It must not take or give back memory of the devices it observes, and must not add or
 *  remove observers. If a driver refuses to take a range back, the range is reported as taken again. */
typedef void loch_range_observer(loch_range_event event, const loch_range *range, void *user);

/** Adds an observer for a device, or for all devices with NULL. The observer keeps its device open. It first receives
 *  the ranges that exist already; these are not given back until it has received them. Several observers receive a
 *  taken range in order of addition, and a going range in reverse order. `user` is borrowed until the observer is
 *  removed. E_EXISTS: the same function and `user` are added for this device already. E_HOST_MEMORY. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_observer_add(loch_device *device, loch_range_observer *function, void *user);

/** Removes an observer. Waits until no thread is inside it. The observer does not receive the end of existing ranges.
 *  Must not be called from inside an observer. E_NOT_FOUND: there is no such observer. */
LOCH_API LOCH_MUST_USE loch_status loch_observer_remove(loch_device *device, loch_range_observer *function, void *user);

LOCH_END_DECLS

#endif
