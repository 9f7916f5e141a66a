/* SPDX-License-Identifier: MIT */
/** @file virtual.h
 *  Addresses and memory apart: reserve addresses, create handles (physical memory), map one under the other.
 *
 *  A handle is a number of granules created together. It is mapped, moved and unmapped as a whole, never in part, and
 *  keeps its contents while unmapped. Devices with LOCH_CAN_ALIAS map one handle at several addresses at once, all with
 *  the same contents; others refuse the second with E_BUSY. A destroyed handle that is still mapped stays usable until
 *  the last mapping goes; so "destroy, then unmap" gives the memory back without parking its contents anywhere.
 *
 *  None of these calls waits for streams: unmapping memory that queued work still uses kills that work.
 *  All of them work from any thread; calls on the same addresses must not overlap in time.
 */
#ifndef LOCH_VIRTUAL_H
#define LOCH_VIRTUAL_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** Physical memory. */
typedef struct loch_handle loch_handle;

/** Ways of sharing a handle with other processes, fixed when it is created; a set of these. */
typedef enum loch_share {
    LOCH_SHARE_NONE = 0,       /**< not shareable */
    LOCH_SHARE_FD = 1 << 0,    /**< by file descriptor */
    LOCH_SHARE_FABRIC = 1 << 1 /**< by fabric handle */
} loch_share;

/** Whether a network card can reach a handle. */
typedef enum loch_rdma {
    LOCH_RDMA_OFF, /**< no */
    LOCH_RDMA_ON   /**< yes; E_UNSUPPORTED where the device cannot */
} loch_rdma;

/** How a handle is created; zero means default, NULL all defaults. */
typedef struct loch_handle_options {
    size_t size;    /**< sizeof(loch_handle_options) */
    uint32_t share; /**< set of loch_share */
    loch_rdma rdma; /**< for network cards */
} loch_handle_options;

/** Bytes of a fabric handle, the longest thing that loch_handle_export writes. */
#define LOCH_SHARE_BYTES_MAX 64

/** Reserves addresses without memory.
 *  @param bytes      a multiple of the granule
 *  @param alignment  a power of two, or 0 for the granule
 *  @param out        given back by loch_virtual_unreserve; NULL on failure. E_DEVICE_MEMORY when the address space does
 *                    not hold that much: ask for less. The reservation keeps its device alive. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_reserve(loch_device *device, size_t bytes, size_t alignment,
                                                        void **out);

/** Gives a reservation back, by its start. E_BUSY while anything is mapped or committed in it. NULL succeeds. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_unreserve(void *address);

/** Takes physical memory; on the CPU pages come when they are first touched.
 *  @param bytes  a non-zero multiple of the granule
 *  @param out    the caller's, given back by loch_handle_destroy; NULL on failure. Keeps its device alive. */
LOCH_API LOCH_MUST_USE loch_status loch_handle_create(loch_device *device, size_t bytes,
                                                      const loch_handle_options *options, loch_handle **out);

/** Gives a handle up; its memory goes back when nothing maps it any more. NULL does nothing. */
LOCH_API void loch_handle_destroy(loch_handle *handle);

/** Its length. */
LOCH_API size_t loch_handle_get_bytes(const loch_handle *handle);

/** Writes what another process needs to import a handle: an int file descriptor (the receiver closes it), or
 *  LOCH_SHARE_BYTES_MAX bytes of fabric handle. E_INVALID when the handle was not created with that kind. */
LOCH_API LOCH_MUST_USE loch_status loch_handle_export(loch_handle *handle, loch_share share, size_t out_bytes,
                                                      void *out);

/** Makes a handle from what another process exported; `bytes` as it was created with there. The descriptor stays the
 *  caller's. */
LOCH_API LOCH_MUST_USE loch_status loch_handle_import(loch_device *device, loch_share share, const void *shared,
                                                      size_t bytes, loch_handle **out);

/** Maps a handle, readable and writable for its device and `peers` (devices of the same driver).
 *  E_OUT_OF_RANGE when it does not lie inside one reservation of the handle's device, E_INVALID when the address is no
 *  multiple of the granule, E_EXISTS when something is mapped there, E_BUSY when it is mapped and cannot alias. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_map(void *address, loch_handle *handle, loch_device *const *peers,
                                                    size_t peers_count);

/** Takes a mapping away, by its start. E_INTERIOR for an address inside one, E_NOT_FOUND where nothing is mapped. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_unmap(void *address);

/** Takes a mapping from one address to another, contents included, in one call and without a copy.
 *  E_UNSUPPORTED without LOCH_CAN_REMAP; otherwise as map and unmap. Nothing changes on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_remap(void *from, void *to);

/** Puts memory, zeroed, under reserved addresses without a handle; both numbers are multiples of the granule. What is
 *  committed already stays as it is. E_EXISTS over a mapping, E_UNSUPPORTED without LOCH_CAN_COMMIT. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_commit(void *address, size_t bytes);

/** Gives committed memory back, contents lost; addresses stay reserved. Parts not committed are skipped. */
LOCH_API LOCH_MUST_USE loch_status loch_virtual_decommit(void *address, size_t bytes);

LOCH_END_DECLS

#endif
