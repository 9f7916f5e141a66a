/* SPDX-License-Identifier: MIT */
/** @file copy.h
 *  Copying and filling memory anywhere.
 *
 *  The direction is deduced from the two addresses: memory that a device of this process knows is that device's,
 *  everything else is plain host memory. Memory that Loch handed out is checked to the last byte before anything is queued:
 *  raw blocks, mappings, and every block of a pool, large or small, to the bytes that were requested. What a pool has beyond
 *  those, and what is free in it, is nobody's. E_OUT_OF_RANGE means that nothing was done. Zero bytes succeed whatever the
 *  addresses are. Source and target may overlap when both are on one device or on the host. Simulated devices without
 *  contents copy nothing (sim.h).
 */
#ifndef LOCH_COPY_H
#define LOCH_COPY_H

#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** Where from and where to. */
typedef enum loch_direction {
    LOCH_DIRECTION_DEDUCED, /**< from the addresses */
    LOCH_HOST_TO_HOST,      /**< pinned, registered and CPU memory is host memory */
    LOCH_HOST_TO_DEVICE,    /**< */
    LOCH_DEVICE_TO_HOST,    /**< */
    LOCH_DEVICE_TO_DEVICE,  /**< inside one device */
    LOCH_PEER_TO_PEER       /**< between two devices; through the host where they are not connected */
} loch_direction;

/** When a copy or fill returns. */
typedef enum loch_wait {
    LOCH_WAIT_DEFAULT, /**< as queued when a stream is given, for the end when none is */
    LOCH_WAIT_QUEUED,  /**< when queued; the memory has to live until the work has ended */
    LOCH_WAIT_END      /**< when the work has ended; waits for the stream in question and no other */
} loch_wait;

/** How to copy; zero means default, NULL all defaults. */
typedef struct loch_copy_options {
    size_t size;              /**< sizeof(loch_copy_options) */
    loch_direction direction; /**< stated: checked against the addresses, E_INVALID when it is another */
    loch_stream *stream;      /**< a stream of one of the devices involved; NULL: the default stream, and waits */
    loch_wait wait;           /**< when to return */
} loch_copy_options;

/** Copies `bytes` and returns when they are there. Ordered behind the default stream of the device involved, not behind
 *  other streams. E_INVALID for NULL, E_OUT_OF_RANGE, E_OVERFLOW when an address would wrap. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy(void *to, const void *from, size_t bytes);

/** Queues a copy on `stream`. Host memory that is not pinned may make it wait; pinned and device memory has to live and
 *  stay as it is until the stream has passed. On a stream that is captured the memory has to live as long as the graph runs, and
 *  E_BUSY, nothing queued, is for what no graph can hold: a copy from host to host, and one that is waited for. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy_on(void *to, const void *from, size_t bytes, loch_stream *stream);

/** Copies with everything stated. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy_with(void *to, const void *from, size_t bytes,
                                                  const loch_copy_options *options);

/** Rows of bytes at a distance from each other, in planes at a distance from each other. Distances count bytes, from start to
 *  start, and are at least the length of what lies between. */
typedef struct loch_pitched {
    size_t row_bytes;        /**< of one row */
    size_t rows;             /**< in one plane */
    size_t planes;           /**< 1 for one plane */
    size_t to_row_pitch;     /**< between rows of the target; ignored for one row */
    size_t to_plane_pitch;   /**< between planes of the target; ignored for one plane */
    size_t from_row_pitch;   /**< of the source */
    size_t from_plane_pitch; /**< of the source */
} loch_pitched;

/** Copies rows, in one driver call where the driver has one for it. As loch_copy_with, but no byte may be both read and written
 *  unless the host does the copying. E_INVALID for pitches that make rows overlap, E_OVERFLOW. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_copy_pitched(void *to, const void *from, const loch_pitched *shape,
                                                     const loch_copy_options *options);

/** Fills `bytes` with a pattern of 1, 2 or 4 bytes, repeated, and returns when it is there. E_INVALID for another
 *  pattern size, or when `to` or `bytes` is not a multiple of it. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_fill(void *to, size_t bytes, const void *pattern, size_t pattern_bytes);

/** Queues a fill on `stream`; the pattern is read before the call returns. On a stream that is captured a fill of host memory is
 *  E_BUSY, nothing queued, unless it is pinned memory of the stream's device. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_fill_on(void *to, size_t bytes, const void *pattern, size_t pattern_bytes,
                                                loch_stream *stream);

LOCH_END_DECLS

#endif
