/* SPDX-License-Identifier: MIT */
/** @file copy.h
 *  Copying and filling memory on any device.
 *
 *  The direction of a copy follows from the two addresses: memory that a device of this process knows belongs to that
 *  device; all other memory is plain host memory. Before anything is queued, ranges are checked against the memory
 *  that Loch handed out: raw blocks, mappings and every block of a pool, exactly to the requested bytes. A range
 *  outside a live block gives E_OUT_OF_RANGE, and nothing is copied. A copy of zero bytes succeeds for any addresses.
 *  Source and target may overlap if both are on one device or on the host. Simulated devices without contents copy
 *  nothing (sim.h).
 */
#ifndef LOCH_COPY_H
#define LOCH_COPY_H

#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** @name Copies */
/** @{ */

/** Copies `bytes` and waits on the host until they have arrived. Ordered after the default stream of the device
 *  involved, not after other streams. E_INVALID: an address is NULL. E_OUT_OF_RANGE: a range leaves its block.
 *  E_OVERFLOW: a range wraps around the address space. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy(void *to, const void *from, size_t bytes);

/** Queues a copy on `stream` and returns. Host memory that is not pinned may make the call wait. Pinned memory and
 *  device memory must stay valid and unchanged until the stream has passed the copy. On a captured stream the memory
 *  must stay valid as long as the graph can run. E_BUSY, nothing queued: the stream is captured and no graph can hold
 *  the copy, because it goes from host to host or has to be waited for. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy_on(void *to, const void *from, size_t bytes, loch_stream *stream);

/** Direction of a copy. */
typedef enum loch_direction {
    LOCH_DIRECTION_DEDUCED, /**< deduced from the addresses */
    LOCH_HOST_TO_HOST,      /**< within host memory; pinned, registered and CPU memory is host memory */
    LOCH_HOST_TO_DEVICE,    /**< from host memory to a device */
    LOCH_DEVICE_TO_HOST,    /**< from a device to host memory */
    LOCH_DEVICE_TO_DEVICE,  /**< within one device */
    LOCH_PEER_TO_PEER       /**< between two devices; through host memory if they are not connected */
} loch_direction;

/** When a copy or a fill returns. */
typedef enum loch_wait {
    LOCH_WAIT_DEFAULT, /**< LOCH_WAIT_QUEUED if a stream is given, LOCH_WAIT_END if not */
    LOCH_WAIT_QUEUED,  /**< when the work is queued; the memory must stay valid until the work has ended */
    LOCH_WAIT_END      /**< when the work has ended; waits for the stream of the work and for no other */
} loch_wait;

/** Options of a copy or a fill. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_copy_options {
    size_t size;              /**< sizeof(loch_copy_options) */
    loch_direction direction; /**< expected direction; E_INVALID if the addresses have another one */
    /** Stream of one of the two devices; NULL for the default stream, and the call waits. */
    loch_stream *stream;
    loch_wait wait; /**< when the call returns */
} loch_copy_options;

/** Copies `bytes` with options: direction, stream and waiting. E_INVALID: an address is NULL, or the direction is not
 *  the stated one. E_OUT_OF_RANGE: a range leaves its block. E_OVERFLOW: a range wraps around the address space. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy_with(void *to, const void *from, size_t bytes,
                                                  const loch_copy_options *options);

/** @} */
/** @name Copies of rows */
/** @{ */

/** Shape of a copy of rows. Rows lie at a fixed distance (pitch) from each other in planes, and planes at a fixed
 *  distance from each other. A pitch counts bytes from start to start, and is at least the length of the row or
 *  plane. */
typedef struct loch_pitched {
    size_t row_bytes;        /**< length of one row in bytes */
    size_t rows;             /**< number of rows in one plane */
    size_t planes;           /**< number of planes; 1 for a single plane */
    size_t to_row_pitch;     /**< bytes between rows of the target; ignored for one row */
    size_t to_plane_pitch;   /**< bytes between planes of the target; ignored for one plane */
    size_t from_row_pitch;   /**< bytes between rows of the source; ignored for one row */
    size_t from_plane_pitch; /**< bytes between planes of the source; ignored for one plane */
} loch_pitched;

/** Copies rows in one driver call where the driver supports it. `options` are those of loch_copy_with. No byte may be
 *  both read and written unless the host does the copy. E_INVALID: pitches make rows overlap, or an address is NULL.
 *  E_OUT_OF_RANGE, E_OVERFLOW: a row leaves its block, or a size does not fit. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy_pitched(void *to, const void *from, const loch_pitched *shape,
                                                     const loch_copy_options *options);

/** @} */
/** @name Fills */
/** @{ */

/** Fills `bytes` with a repeated pattern of 1, 2 or 4 bytes, and waits on the host until they are written. E_INVALID:
 *  another pattern size, or `to` or `bytes` is not a multiple of the pattern size. E_OUT_OF_RANGE: the range leaves
 *  its block. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_fill(void *to, size_t bytes, const void *pattern, size_t pattern_bytes);

/** Queues a fill with a repeated pattern of 1, 2 or 4 bytes on `stream` and returns. The pattern is read before the
 *  call returns. E_BUSY, nothing queued: the stream is captured and the target is host memory other than pinned
 *  memory of the stream's device. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_fill_on(void *to, size_t bytes, const void *pattern, size_t pattern_bytes,
                                                loch_stream *stream);

/** Fills `bytes` with options: stream and waiting (LOCH_WAIT_END with a stream: fill and wait in one call). E_INVALID:
 *  as loch_fill, or the options state a direction. E_BUSY, nothing queued: as loch_fill_on, or the stream is captured
 *  and the call should wait. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_fill_with(void *to, size_t bytes, const void *pattern, size_t pattern_bytes,
                                                  const loch_copy_options *options);

/** @} */

LOCH_END_DECLS

#endif
