/* SPDX-License-Identifier: MIT */
/** @file raw.h
 *  Memory straight from a driver: one driver call a block. Allocators stand on this; programs want one of those.
 *
 *  Loch keeps a table of every range that it took from a driver. It tells a copy's direction, catches wrong frees, and
 *  answers loch_address_query.
 */
#ifndef LOCH_RAW_H
#define LOCH_RAW_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** Kinds of memory. */
typedef enum loch_memory_kind {
    LOCH_MEMORY_DEVICE,     /**< the device's own; on the CPU plain memory */
    LOCH_MEMORY_PINNED,     /**< page-locked host memory that the device reads and writes directly */
    LOCH_MEMORY_MANAGED,    /**< migrates between host and device */
    LOCH_MEMORY_REGISTERED, /**< a caller's host memory, page-locked; never allocated as such */
    LOCH_MEMORY_HOST        /**< host memory that no device knows; only in answers */
} loch_memory_kind;

/** Whether memory may be written. */
typedef enum loch_access {
    LOCH_READ_WRITE, /**< read and written */
    LOCH_READ_ONLY   /**< copies into it and fills are E_INVALID */
} loch_access;

/** "device", "pinned", "managed", "registered", "host". Static string. */
LOCH_API const char *loch_memory_kind_name(loch_memory_kind kind);

/** Takes one block from the driver. Contents are undefined. Zero bytes give LOCH_OK and NULL. The block keeps its
 *  device alive. E_INVALID for an alignment that is no power of two, E_UNSUPPORTED for a kind that the device has not
 *  or an alignment that it cannot give, E_DEVICE_MEMORY, E_HOST_MEMORY. Any thread.
 *  @param alignment  a power of two, or 0 for the device's own
 *  @param out        the caller's, given back by loch_raw_free; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_raw_alloc(loch_device *device, loch_memory_kind kind, size_t bytes,
                                                  size_t alignment, void **out);

/** Gives a block back at once: the caller has made sure that no work uses it any more. NULL succeeds. E_INTERIOR for an
 *  address inside a block, E_FOREIGN for any other that is not a block's; then nothing changes. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_free(void *address);

/** Page-locks host memory of the caller's for a device. It stays the caller's, and has to be unregistered before it is
 *  freed. E_EXISTS when part of it is registered already. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_register(loch_device *device, void *address, size_t bytes);

/** Undoes loch_raw_register. E_FOREIGN for an address that was not registered. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_raw_unregister(void *address);

/** What is known of an address. */
typedef struct loch_address_info {
    size_t size;           /**< set by the caller to sizeof(loch_address_info) */
    loch_device *device;   /**< borrowed: alive as long as the memory is; NULL for plain host memory */
    loch_memory_kind kind; /**< LOCH_MEMORY_HOST when no device knows it */
    void *base;            /**< start of the block, mapping or registration; the address itself when unknown */
    size_t bytes;          /**< its length; 0 when unknown */
} loch_address_info;

/** Asks what an address is: first the table, then every open device's driver (memory that another library took).
 *  E_NOT_FOUND for reserved addresses with nothing mapped there. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_address_query(const void *address, loch_address_info *out);

LOCH_END_DECLS

#endif
