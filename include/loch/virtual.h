/* SPDX-License-Identifier: MIT */
/** @file virtual.h
 *  Virtual memory: addresses and physical memory apart. Reserve addresses, create handles (physical memory), map
 *  handles at addresses.
 *
 *  A handle is a number of granules that are created together. It is mapped, remapped and unmapped as a whole, and
 *  keeps its contents while unmapped. Devices with LOCH_CAN_ALIAS map one handle at several addresses at once with
 *  the same contents; other devices return E_BUSY for the second mapping. A destroyed handle that is still mapped
 *  stays usable until its last mapping is removed. So "destroy, then unmap" gives the memory back without saving the
 *  contents.
 *
 *  None of these calls waits for streams. Unmapping memory that queued work still uses breaks that work. All calls
 *  work from any thread; calls on the same addresses must not overlap in time.
 */
#ifndef LOCH_VIRTUAL_H
#define LOCH_VIRTUAL_H

#include <loch/handle.h>

LOCH_BEGIN_DECLS

/** A handle: physical memory of a device. */
typedef struct loch_handle loch_handle;

/** @name Reserve and map */
/** @{ */

/** Reserves addresses without memory. The reservation keeps its device open. E_DEVICE_MEMORY: the address space has
 *  no room for `bytes`; request less.
 *  @param bytes      size in bytes, a multiple of the granule
 *  @param alignment  a power of two, or 0 for the granule
 *  @param out        start of the reservation; give it back with loch_virtual_unreserve. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_reserve(loch_device *device, size_t bytes, size_t alignment,
                                                        void **out);

/** Gives a reservation back, by its start address. E_BUSY: something is still mapped in it. E_INTERIOR,
 *  E_FOREIGN: the address is not the start of a reservation. NULL succeeds. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_unreserve(void *address);

/** Creates a handle: allocates physical memory. On the CPU, pages are allocated when they are first touched. The
 *  handle keeps its device open.
 *  @param bytes  size in bytes, a multiple of the granule and not 0
 *  @param out    owned by the caller; destroy it with loch_handle_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_handle_create(loch_device *device, size_t bytes,
                                                      const loch_handle_options *options, loch_handle **out);

/** Destroys a handle. Its memory goes back to the device when no mapping of it is left. NULL does nothing. */
LOCH_API void loch_handle_destroy(loch_handle *handle);
LOCH_DEFINE_CLEAR(handle, loch_handle_destroy(object))

/** Returns the size of a handle in bytes. NULL returns 0. */
LOCH_API size_t loch_handle_get_bytes(const loch_handle *handle);

/** Maps a handle at an address, readable and writable for its device and for `peers` (devices of the same driver).
 *  E_INVALID: the address is not a multiple of the granule. E_OUT_OF_RANGE: the range does not lie in one reservation
 *  of the handle's device. E_EXISTS: something is mapped there. E_BUSY: the handle is mapped already and the device
 *  lacks LOCH_CAN_ALIAS. E_UNSUPPORTED: there are peers and the device lacks LOCH_CAN_PEER. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_map(void *address, loch_handle *handle, loch_device *const *peers,
                                                    size_t peers_count);

/** Removes a mapping, by its start address. E_INTERIOR: the address is inside a mapping. E_NOT_FOUND: nothing is
 *  mapped there. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_unmap(void *address);

/** A mapping. */
typedef struct loch_virtual_info {
    size_t size;         /**< set by the caller to sizeof(loch_virtual_info) */
    void *start;         /**< start of the mapping */
    size_t bytes;        /**< length of the mapping in bytes: the size of the handle */
    loch_handle *handle; /**< handle that is mapped; borrowed, valid as long as the mapping */
    loch_device *device; /**< device of the handle; borrowed, valid as long as the mapping */
    uint32_t share;      /**< ways in which the handle can be exported: a set of loch_share */
} loch_virtual_info;

/** Finds the mapping around an address, of a pool's memory too. Set `out->size` before the call. The mapping under a
 *  live block stays until the block is freed, is moved (a movable buffer that is not pinned), or sleeps. E_NOT_FOUND:
 *  no handle is mapped at the address: a raw block, or memory that Loch does not know. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_find(const void *address, loch_virtual_info *out);

/** @} */
/** @name Sharing between processes */
/** @{ */

/** Size of a fabric handle in bytes: the most that loch_handle_export writes. */
#define LOCH_SHARE_BYTES_MAX 64

/** Writes to `out` what another process needs to import a handle: an int file descriptor (the receiver closes it), or
 *  LOCH_SHARE_BYTES_MAX bytes of fabric handle. E_INVALID: the handle was not created with this kind of sharing, or
 *  `out_bytes` is too small. */
LOCH_API LOCH_MUST_USE loch_status loch_handle_export(loch_handle *handle, loch_share share, size_t out_bytes,
                                                      void *out);

/** Creates a handle from data that another process exported. The caller keeps the file descriptor and closes it. The
 *  handle shares the exporter's physical memory.
 *  @param bytes  size in bytes that the handle was created with
 *  @param out    owned by the caller; destroy it with loch_handle_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_handle_import(loch_device *device, loch_share share, const void *shared,
                                                      size_t bytes, loch_handle **out);

/** @} */

LOCH_END_DECLS

#endif
