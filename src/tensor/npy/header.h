/* SPDX-License-Identifier: MIT */
/* Headers of .npy files: a dict in Python syntax with type, order and shape. */
#ifndef LOCHI_NPY_HEADER_H
#define LOCHI_NPY_HEADER_H

#include <loch/npy.h>
#include <stdbool.h>

#define LOCHI_NPY_MAGIC "\x93NUMPY"
#define LOCHI_NPY_MAGIC_BYTES 6

/* The longest header that is read. Headers of our types have a few hundred bytes at most; NumPy itself stops at
 * 10000. */
#define LOCHI_NPY_HEADER_MAX ((size_t)1 << 20)

/* Room for every header that is written: 16 dimensions of 20 characters, and the fixed text. */
#define LOCHI_NPY_HEADER_ROOM 1024

typedef struct lochi_npy_header {
    loch_dtype dtype; /* LOCH_DTYPE_NONE for raw bytes */
    size_t element_bytes;
    bool is_swapped; /* the byte order is not that of this machine */
    bool is_columns; /* column-major: the first index varies fastest */
    size_t dimensions;
    int64_t shape[LOCH_DIMENSIONS_MAX];
} lochi_npy_header;

/* Reads the dict. `path` is used in error sentences. E_CORRUPT: the header is damaged. E_UNSUPPORTED: the type or the
 * number of dimensions is not supported. E_OVERFLOW: a size does not fit. */
loch_status lochi_npy_header_read(const char *path, const char *text, size_t bytes, lochi_npy_header *out);

/* Writes everything before the data, byte for byte as NumPy does. `descr` names the type. Returns the length, a
 * multiple of 64. */
size_t lochi_npy_header_write(const char *descr, bool is_columns, size_t dimensions, const int64_t *shape,
                              char out[LOCHI_NPY_HEADER_ROOM]);

#endif
