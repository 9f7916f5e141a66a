/* SPDX-License-Identifier: MIT */
/** @file npy.h
 *  Tensors in NumPy's .npy files: all types that NumPy has, both byte orders, row-major and column-major.
 */
#ifndef LOCH_NPY_H
#define LOCH_NPY_H

#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** Options of loch_npy_save. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_npy_save_options {
    size_t size;         /**< sizeof(loch_npy_save_options) */
    loch_stream *stream; /**< stream that the read is ordered after; NULL for the default stream */
    /** Non-zero: types that NumPy lacks (bf16, f8) are written as raw bytes (V2, V1), as ml_dtypes does; zero:
     *  E_UNSUPPORTED for these types. */
    int as_bits;
} loch_npy_save_options;

/** Writes a tensor to a file. An existing file is replaced only when the new one is completely on the disk. Symbolic
 *  links are followed. Permissions are those of the existing file, otherwise those of the umask. E_IO: the file
 *  cannot be written. */
LOCH_API LOCH_MUST_USE loch_status loch_npy_save(loch_tensor *tensor, const char *path,
                                                 const loch_npy_save_options *options);

/** Whether a file is read or mapped. While a file is mapped, no program may change it in place: the elements would
 *  change, and access beyond a shortened file ends the program. loch_npy_save is safe: it puts a new file in its
 *  place. */
typedef enum loch_npy_mapping {
    LOCH_NPY_MAP_AUTO,   /**< mapped if possible: host memory, this machine's byte order, no allocator given */
    LOCH_NPY_MAP_NEVER,  /**< always read */
    LOCH_NPY_MAP_REQUIRE /**< mapped; E_UNSUPPORTED if not possible */
} loch_npy_mapping;

/** Options of loch_npy_load. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_npy_load_options {
    size_t size;              /**< sizeof(loch_npy_load_options) */
    loch_npy_mapping mapping; /**< whether the file is read or mapped */
    loch_access access;       /**< access of a mapping; LOCH_READ_WRITE writes to private pages, never to the file */
    /** Type of raw bytes (V1, V2): bf16, f8e4m3, ...; LOCH_DTYPE_NONE: raw bytes give E_UNSUPPORTED. */
    loch_dtype dtype;
    const loch_tensor_options *memory; /**< where the tensor is created; NULL for host memory */
} loch_npy_load_options;

/** Loads a tensor from a file. A column-major file becomes a tensor with matching strides. E_NOT_FOUND: there is no
 *  such file. E_IO: the file cannot be read. E_CORRUPT: not a .npy file, or too short. E_UNSUPPORTED: a type that
 *  Loch does not have (complex, text, dates, records, objects). E_OVERFLOW: a size does not fit the address space.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_npy_load(const char *path, const loch_npy_load_options *options,
                                                 loch_tensor **out);

LOCH_END_DECLS

#endif
