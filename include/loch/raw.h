/* SPDX-License-Identifier: MIT */
/** @file raw.h
 *  Raw memory: blocks taken directly from a driver, one driver call for each block. Allocators are built on this;
 *  programs normally use an allocator (pool.h).
 *
 *  Loch keeps a table of every range that it took from a driver. The table gives copies their direction, detects
 *  wrong frees, and answers loch_address_query.
 */
#ifndef LOCH_RAW_H
#define LOCH_RAW_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** Allocates one block with one driver call. The contents are undefined. Zero bytes return LOCH_OK and NULL. The
 *  block keeps its device open. E_INVALID: the alignment is not a power of two. E_UNSUPPORTED: the device does not
 *  have this kind of memory or cannot give the alignment. E_DEVICE_MEMORY, E_HOST_MEMORY: memory is short. Any
 *  thread.
 *  @param alignment  a power of two, or 0 for the device's own
 *  @param out        owned by the caller; free it with loch_raw_free. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_alloc(loch_device *device, loch_memory_kind kind, size_t bytes,
                                                  size_t alignment, void **out);

/** Frees a raw block immediately. The caller has made sure that no work uses it any more. NULL succeeds. E_INTERIOR:
 *  the address is inside a block. E_FOREIGN: the address is not a raw block. Nothing changes on failure. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_free(void *address);

/** Page-locks host memory of the caller for a device. The caller keeps ownership, and unregisters the memory before
 *  freeing it. E_EXISTS: a part of the range is registered already. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_register(loch_device *device, void *address, size_t bytes);

/** Undoes loch_raw_register. E_FOREIGN: the address was not registered. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_unregister(void *address);

/** What is known of an address. */
typedef struct loch_address_info {
    size_t size; /**< set by the caller to sizeof(loch_address_info) */
    /** Device of the memory; borrowed, valid as long as the memory; NULL for plain host memory. */
    loch_device *device;
    loch_memory_kind kind; /**< kind of memory; LOCH_MEMORY_HOST if no device knows the address */
    void *base;            /**< start of the block, mapping or registration; the address itself if unknown */
    size_t bytes;          /**< length in bytes from `base`; 0 if unknown */
} loch_address_info;

/** Finds out what memory an address belongs to. Looks in the table of Loch first, then asks the driver of every open
 *  device (for memory that another library allocated). Set `out->size` before the call. E_NOT_FOUND: the address is
 *  reserved and nothing is mapped there. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_address_query(const void *address, loch_address_info *out);

LOCH_END_DECLS

#endif
