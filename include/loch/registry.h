/* SPDX-License-Identifier: MIT */
/** @file registry.h
 *  Named allocators, found by name or by what memory is wanted, and each device's default allocator.
 *
 *  All calls work from any thread. What is found is retained for the caller, who releases it; an allocator that
 *  leaves the registry lives on for those who hold it.
 *
 *  The registry holds what was registered, what factories made and the devices' default allocators, and with them
 *  their devices: until they are removed, until loch_device_set_allocator(device, NULL) for a device's defaults, or
 *  until loch_registry_clear.
 */
#ifndef LOCH_REGISTRY_H
#define LOCH_REGISTRY_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** Makes an allocator; called once for each device and attributes, when they are first asked for, without locks;
 *  again only if it failed. It may ask the registry and devices for other allocators: it does not find itself there,
 *  so it can wrap what would be found without it. It must not remove entries or shut the registry down (E_BUSY).
 *  @param attributes  what is wanted: E_UNSUPPORTED when it cannot serve that, and the search goes on; any other
 *                     failure ends the search
 *  @param out         the reference that the registry takes over */
typedef loch_status loch_allocator_factory(loch_device *device, loch_attributes attributes, void *user,
                                           loch_allocator **out);

/** Registers an allocator. Highest priority wins, and the first registered among equals. The registry retains it; it may be
 *  there under several names. E_EXISTS when the name is taken at that priority, E_INVALID for a negative priority or a
 *  name that is too long or empty.
 *  @param name  of the entry: 1 to 63 characters, copied; NULL for the allocator's own */
LOCH_API LOCH_MUST_USE loch_status loch_registry_add(loch_allocator *allocator, const char *name, int priority);

/** Registers a factory: its allocators are made when they are first asked for, one for each device and attributes.
 *  `name` (1 to 63 characters) is copied, `user` is borrowed until it is removed. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_add_factory(const char *name, int priority,
                                                             loch_allocator_factory *factory, void *user);

/** Takes an entry out, by name and priority, and gives up what it made; returns when no thread is in its factory any
 *  more. E_NOT_FOUND, E_BUSY from inside a factory. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_remove(const char *name, int priority);

/** The allocator of that name and of the highest priority. `device` says for which device a factory is to make it, and
 *  filters allocators; NULL takes any, and asks no factory. E_NOT_FOUND, E_UNSUPPORTED when factories of that name
 *  refuse. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_acquire(const char *name, loch_device *device, loch_allocator **out);

/** The allocator of the highest priority that serves the device and the attributes: one of the device whose own
 *  attributes are at least as strict, or what a factory makes for them. Memory on the host serves only those who ask
 *  for it, unless its device is the host. `device` NULL takes allocators of any device, and asks no factory. E_NOT_FOUND,
 *  E_UNSUPPORTED. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_acquire_best(loch_device *device, loch_attributes attributes,
                                                              loch_allocator **out);

/** One entry. Its name may be another than its allocator's. */
typedef struct loch_registry_entry {
    const char *name;          /**< valid during the visit */
    int priority;              /**< as registered */
    loch_allocator *allocator; /**< borrowed; NULL for a factory */
} loch_registry_entry;

/** Called with each entry, without locks; a return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_registry_visitor(const loch_registry_entry *entry, void *user);

/** Walks the entries, highest priority first, first registered first among equals. Entries that come and go
 *  meanwhile may or may not be seen. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_walk(loch_registry_visitor *visitor, void *user);

/** Whether another kind of memory will do. */
typedef enum loch_fallback {
    LOCH_FALLBACK_NONE,    /**< what cannot be served is an error */
    LOCH_FALLBACK_PAGEABLE /**< plain host memory in place of pinned */
} loch_fallback;

/** A device's allocator for the attributes; made once under any race. The first that serves them, of: the one that
 *  loch_device_set_allocator set, what is registered (as loch_registry_acquire_best), and the library's own:
 *
 *  | attributes | memory |
 *  |---|---|
 *  | none, or GPU-compatible on a device that is not the host | the device's own |
 *  | on-host | plain host memory: the default allocator of "cpu" |
 *  | on-host + GPU-compatible or NIC-compatible | pinned host memory, where the device has it |
 *  | + track-sizes | the same: all of them do |
 *  | + a scope id | the same memory and limits, with an allocator and figures of its own for each scope |
 *
 *  E_UNSUPPORTED for anything else: never a silent substitute, but for pinned memory that cannot be had when `fallback`
 *  allows it. The library's own are pools (pool.h), unless the option `default_allocator` says "direct"; they obey the
 *  options `pool_limit` and `pool_idle`, and pinned memory `pinned` and `pinned_limit`. */
LOCH_API LOCH_MUST_USE loch_status loch_device_acquire_allocator(loch_device *device, loch_attributes attributes,
                                                                 loch_fallback fallback, loch_allocator **out);

/** Hands out a device's default allocator: the pool that serves its own memory. The short form of
 *  loch_device_acquire_allocator without attributes. @param out  the caller's reference; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_device_acquire_default(loch_device *device, loch_allocator **out);

/** Replaces a device's default allocator, for all attributes that the new one serves. NULL brings the library's own
 *  back, and gives up those that it made for the device: new ones are made when they are asked for, and meanwhile
 *  nothing here keeps the device open. Blocks of the old one stay its. E_INVALID for an allocator of another device. */
LOCH_API LOCH_MUST_USE loch_status loch_device_set_allocator(loch_device *device, loch_allocator *allocator);

/** Called with each block that is still live; the allocator is borrowed, and may be asked for its name, kind and device
 *  only. A return other than LOCH_OK ends the calls, and is no failure. */
typedef loch_status loch_leak_visitor(loch_allocator *allocator, const loch_block *block, void *user);

/** Empties the registry and gives up every default allocator, calling `visitor` (may be NULL) for each block that is
 *  still live in one of them; once, by the innermost, when one of them wraps another. Blocks and references that
 *  callers hold stay safe, and the registry can be used again. E_BUSY from inside a factory; else everything is
 *  given up, and a failure is that of an allocator that could not list its blocks. @param leaks  their number; may
 *  be NULL. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_clear(loch_leak_visitor *visitor, void *user, size_t *leaks);

LOCH_END_DECLS

#endif
