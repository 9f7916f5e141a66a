/* SPDX-License-Identifier: MIT */
/** @file handle.h
 *  How physical memory is created: which other processes may import it, and whether a network card can reach it.
 *
 *  Pools take these options for all of their memory (pool.h); virtual.h creates single handles with them.
 */
#ifndef LOCH_HANDLE_H
#define LOCH_HANDLE_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** Ways to share a handle with other processes; loch_handle_options.share is a set of these. */
typedef enum loch_share {
    LOCH_SHARE_NONE = 0,       /**< not shareable */
    LOCH_SHARE_FD = 1 << 0,    /**< by file descriptor */
    LOCH_SHARE_FABRIC = 1 << 1 /**< by fabric handle */
} loch_share;

/** Whether a network card can access a handle. */
typedef enum loch_rdma {
    LOCH_RDMA_OFF, /**< not needed. Handles of a device with LOCH_CAN_RDMA have access in any case */
    LOCH_RDMA_ON   /**< needed: E_UNSUPPORTED if the device has no LOCH_CAN_RDMA */
} loch_rdma;

/** Options of loch_handle_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_handle_options {
    size_t size;    /**< sizeof(loch_handle_options) */
    uint32_t share; /**< set of loch_share; fixed at creation */
    loch_rdma rdma; /**< whether a network card has to access the handle */
} loch_handle_options;

LOCH_END_DECLS

#endif
