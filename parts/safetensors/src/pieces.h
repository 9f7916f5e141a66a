/* SPDX-License-Identifier: MIT */
/* Fills memory of a device from files, reading and copying at a time (pieces.c). */
#ifndef SAFETENSORS_PIECES_H
#define SAFETENSORS_PIECES_H

#include "file.h"
#include <loch/tensor.h>

/* Bytes of a file that fill a tensor. */
typedef struct safetensors_target {
    const safetensors_file *file;
    uint64_t offset;     /* of the first byte in the file */
    size_t bytes;        /* at least 1 */
    loch_tensor *tensor; /* contiguous, of `bytes` bytes; borrowed */
    size_t start;        /* place among the bytes of all targets; set by lochi_safetensors_pieces_load */
} safetensors_target;

/* Reads the files and queues copies on `stream`, which belongs to the device of all tensors and is not captured. Waits
 * on the host for work that was queued on the stream before, and for the copies if `wait` is LOCH_WAIT_END or the call
 * fails. Targets that are neighbours in a file are read at once if they are neighbours in the list. E_IO, E_CORRUPT,
 * and the statuses of allocation and of loch_buffer_copy: the contents of all tensors are then undefined. */
loch_status lochi_safetensors_pieces_load(safetensors_target *targets, size_t count, loch_stream *stream,
                                          loch_wait wait);

#endif
