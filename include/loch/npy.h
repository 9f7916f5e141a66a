/* SPDX-License-Identifier: MIT */
/** @file npy.h
 *  Tensors in NumPy's .npy files: all types that NumPy has too, either byte order, rows or columns first.
 */
#ifndef LOCH_NPY_H
#define LOCH_NPY_H

#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** How to save; zero means default, NULL all defaults. */
typedef struct loch_npy_save_options {
    size_t size;         /**< sizeof(loch_npy_save_options) */
    loch_stream *stream; /**< that the elements are read behind; NULL: the default stream */
    int as_bits; /**< non-zero: types that NumPy lacks (bf16, f8) are written as raw bytes (V2, V1), as ml_dtypes writes
                              them; otherwise they are E_UNSUPPORTED */
} loch_npy_save_options;

/** Writes a tensor to a file, in place of one that is there only when all of it is on the disk. Links are followed, and permissions are
 *  those of the file that is there, or the umask's. E_IO. */
LOCH_API LOCH_MUST_USE loch_status loch_npy_save(loch_tensor *tensor, const char *path,
                                                 const loch_npy_save_options *options);

/** Whether a file is read or mapped. While it is mapped nobody may change it in place: the elements would change with it, and
 *  where it is cut short a look at them ends the program. loch_npy_save puts a new file in its place and is safe. */
typedef enum loch_npy_mapping {
    LOCH_NPY_MAP_AUTO, /**< mapped where that serves: host memory, this machine's byte order, an allocator not stated */
    LOCH_NPY_MAP_NEVER,  /**< read */
    LOCH_NPY_MAP_REQUIRE /**< mapped, or E_UNSUPPORTED */
} loch_npy_mapping;

/** How to load; zero means default, NULL all defaults. */
typedef struct loch_npy_load_options {
    size_t size;              /**< sizeof(loch_npy_load_options) */
    loch_npy_mapping mapping; /**< whether it is mapped */
    loch_access access;       /**< of a mapping: LOCH_READ_WRITE writes to private pages, never to the file */
    loch_dtype dtype; /**< what raw bytes (V1, V2) are: bf16, f8e4m3, ...; LOCH_DTYPE_NONE makes them E_UNSUPPORTED */
    const loch_tensor_options *memory; /**< where it goes; NULL: the host */
} loch_npy_load_options;

/** Loads a tensor. Columns first become strides. E_IO, E_NOT_FOUND when there is no such file, E_CORRUPT for what is no .npy file or
 *  too short, E_UNSUPPORTED for types that Loch has not (complex, text, dates, records, objects), E_OVERFLOW. */
LOCH_API LOCH_MUST_USE loch_status loch_npy_load(const char *path, const loch_npy_load_options *options,
                                                 loch_tensor **out);

LOCH_END_DECLS

#endif
