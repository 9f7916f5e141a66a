/* SPDX-License-Identifier: MIT */
/** @file observer.h
 *  Hearing of every range of memory that is taken from a driver or given back: for registration with network cards, and
 *  for tools.
 */
#ifndef LOCH_OBSERVER_H
#define LOCH_OBSERVER_H

#include <loch/raw.h>

LOCH_BEGIN_DECLS

/** What happens to a range. */
typedef enum loch_range_event {
    LOCH_RANGE_TAKEN, /**< it can be used from now on */
    LOCH_RANGE_GOING  /**< it is about to go: still usable during the call */
} loch_range_event;

/** A range of memory that came from a driver: a raw block (pinned and managed ones too), a mapping, or committed
 *  memory. A mapping that moves goes at its old address and is taken at the new one. Raw blocks and mappings go as
 *  they were taken; committed memory may go in parts, or in one piece that was taken in several. Host memory that a
 *  caller registered is the caller's and not told of, nor is the scratch memory of a copy. */
typedef struct loch_range {
    loch_device *device;   /**< borrowed */
    loch_memory_kind kind; /**< what it is */
    void *address;         /**< start */
    size_t bytes;          /**< length */
} loch_range;

/** Called outside all locks, by the thread that takes or gives back; several threads at a time. Must not take or
 *  give back memory of the devices that it was added for, nor add or remove visitors. When a driver refuses to take
 *  a range back, the range is taken again. */
typedef void loch_range_observer(loch_range_event event, const loch_range *range, void *user);

/** Adds a visitor for a device, which it keeps open, or for all devices with NULL. It first hears of the ranges that
 *  are there already; those wait with going until it has. Of a range that is taken the visitors hear in order of
 *  addition, of one that goes in reverse order. `user` is borrowed until it is removed. E_EXISTS, E_HOST_MEMORY. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_observer_add(loch_device *device, loch_range_observer *visitor, void *user);

/** Removes it; returns when no thread is inside it any more. It does not hear of the end of what is there.
 *  E_NOT_FOUND. Not from inside a visitor. */
LOCH_API LOCH_MUST_USE loch_status loch_observer_remove(loch_device *device, loch_range_observer *visitor, void *user);

LOCH_END_DECLS

#endif
