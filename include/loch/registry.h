/* SPDX-License-Identifier: MIT */
/** @file registry.h
 *  The registry: named allocators, found by name or by attributes, and the default allocators of each device.
 *
 *  All calls work from any thread. An allocator that is found is retained for the caller, which releases it. An
 *  allocator that is removed from the registry lives on while references exist. The registry keeps registered
 *  allocators, allocators made by factories, default allocators, and their devices, until one of:
 *  loch_registry_remove, loch_device_set_allocator(device, NULL) for the defaults of a device, loch_registry_clear.
 */
#ifndef LOCH_REGISTRY_H
#define LOCH_REGISTRY_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** @name Default allocators */
/** @{ */

/** Acquires the default allocator of a device: the pool of its own memory. Short form of
 *  loch_device_acquire_allocator without attributes. Any thread.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_device_acquire_default(loch_device *device, loch_allocator **out);

/** Whether another kind of memory is acceptable. */
typedef enum loch_fallback {
    LOCH_FALLBACK_NONE,    /**< no: a kind of memory that the device does not have is an error */
    LOCH_FALLBACK_PAGEABLE /**< plain host memory is acceptable instead of pinned memory */
} loch_fallback;

/** Acquires the allocator of a device for given attributes. It is created once, even if several threads race. The
 *  first that matches is used: the one set by loch_device_set_allocator; a registered one
 *  (loch_registry_acquire_best); the library's own:
 *
 *  | attributes | memory |
 *  |---|---|
 *  | none, or GPU-compatible on a device that is not the host | the device's own |
 *  | on-host | plain host memory: the default allocator of "cpu" |
 *  | on-host + GPU-compatible or NIC-compatible | pinned host memory, if the device has it |
 *  | + track-sizes | no change: all of these allocators track sizes |
 *  | + a scope | same memory and limits; one allocator with its own statistics for each scope |
 *
 *  E_UNSUPPORTED: no allocator matches. There is no silent substitute, except plain host memory for pinned memory if
 *  `fallback` allows it. The library's own allocators are pools (pool.h), unless the option `default_allocator` is
 *  "direct". They follow the options `pool_limit` and `pool_idle`, and for pinned memory `pinned` and `pinned_limit`.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_device_acquire_allocator(loch_device *device, loch_attributes attributes,
                                                                 loch_fallback fallback, loch_allocator **out);

/** Sets the default allocator of a device, for all attributes that it matches. NULL restores the library's own and
 *  drops those that the library created for the device; they are created again when needed, and until then the
 *  registry does not keep the device open. Blocks of the old allocator stay valid. E_INVALID: the allocator belongs
 *  to another device. */
LOCH_API LOCH_MUST_USE loch_status loch_device_set_allocator(loch_device *device, loch_allocator *allocator);

/** @} */
/** @name Named allocators */
/** @{ */

/** Registers an allocator under a name. A search prefers the highest priority, and among equals the first registered.
 *  The registry retains the allocator. One allocator may have several names. E_EXISTS: the name is taken at this
 *  priority. E_INVALID: the priority is negative, or the name is empty or too long.
 *  @param name  1 to 63 characters, copied; NULL for the allocator's own name */
LOCH_API LOCH_MUST_USE loch_status loch_registry_add(loch_allocator *allocator, const char *name, int priority);

/** Removes an entry by name and priority, and releases the allocators that its factory made. Waits until no thread is
 *  inside the factory. E_NOT_FOUND: there is no such entry. E_BUSY: called from inside a factory. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_remove(const char *name, int priority);

/** Acquires the allocator with a name and the highest priority. `device` selects the device, and a factory creates
 *  the allocator for it; with NULL an allocator of any device is returned and no factory is called. E_NOT_FOUND:
 *  there is no such name. E_UNSUPPORTED: the factories with this name refused.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_acquire(const char *name, loch_device *device, loch_allocator **out);

/** Acquires the allocator with the highest priority that matches a device and attributes: one of the device whose own
 *  attributes are at least as strict, or one that a factory creates. Host memory matches only if the attributes ask
 *  for it, or if the device is the host. With a NULL device, allocators of any device match and no factory is called.
 *  E_NOT_FOUND: nothing matches. E_UNSUPPORTED: the factories refused.
 *  @param out  the caller's reference; give it back with loch_allocator_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_acquire_best(loch_device *device, loch_attributes attributes,
                                                              loch_allocator **out);

/** One entry of the registry. Its name may differ from the name of its allocator. */
typedef struct loch_registry_entry {
    const char *name;          /**< name of the entry; valid during the visit */
    int priority;              /**< priority of the entry */
    loch_allocator *allocator; /**< the allocator, borrowed; NULL for a factory */
} loch_registry_entry;

/** Receives one entry of the registry. Called without locks. A return value other than LOCH_OK ends the walk and
 *  becomes its result. */
typedef loch_status loch_registry_visitor(const loch_registry_entry *entry, void *user);

/** Walks the entries of the registry, highest priority first, and among equals the first registered first. Entries
 *  that are added or removed during the walk may be visited or not. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_walk(loch_registry_visitor *visitor, void *user);

/** @} */
/** @name Factories and the end */
/** @{ */

/** Creates an allocator for a device and attributes. Called without locks, once for each pair of device and
 *  attributes when an allocator is first requested; again only after a failure. It may request other allocators from
 *  the registry and from devices: a search from inside the factory does not find the factory itself, so it can wrap
 *  what is found without it. It must not remove entries or clear the registry (E_BUSY).
 *  @param attributes  the requested attributes. Return E_UNSUPPORTED to refuse: the search continues. Any other
 *                     failure ends the search.
 *  @param out         a reference that the registry takes over */
typedef loch_status loch_allocator_factory(loch_device *device, loch_attributes attributes, void *user,
                                           loch_allocator **out);

/** Registers a factory under a name. It creates one allocator for each pair of device and attributes when it is first
 *  requested. `name` (1 to 63 characters) is copied; `user` is borrowed until the entry is removed. E_EXISTS: the
 *  name is taken at this priority. E_INVALID: the priority is negative, or the name is empty or too long. */
LOCH_API LOCH_MUST_USE loch_status loch_registry_add_factory(const char *name, int priority,
                                                             loch_allocator_factory *factory, void *user);

/** Receives one block that is still live. `allocator` is borrowed; only its name, kind and device may be read. A
 *  return value other than LOCH_OK ends the visits and is not a failure. */
typedef loch_status loch_leak_visitor(loch_allocator *allocator, const loch_block *block, void *user);

/** Empties the registry and releases every default allocator. `visitor` (may be NULL) receives each block that is
 *  still live in one of them; a block under several wrappers is visited once, for the innermost allocator. Blocks and
 *  references that callers hold stay valid, and the registry can be used again. E_BUSY, nothing changed: called from
 *  inside a factory. Any other failure comes from an allocator that could not list its blocks; the registry is empty
 *  then too.
 *  @param leaks  number of live blocks; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_registry_clear(loch_leak_visitor *visitor, void *user, size_t *leaks);

/** @} */

LOCH_END_DECLS

#endif
