/* SPDX-License-Identifier: MIT */
/* The headers of .npy files: a dict in Python's way of writing, that says the type, the order and the shape. */
#ifndef LOCHI_NPY_HEADER_H
#define LOCHI_NPY_HEADER_H

#include <loch/npy.h>
#include <stdbool.h>

#define LOCHI_NPY_MAGIC "\x93NUMPY"
#define LOCHI_NPY_MAGIC_BYTES 6

/* The longest header that is read. Those of our types have a few hundred bytes at most; NumPy itself stops at 10000. */
#define LOCHI_NPY_HEADER_MAX ((size_t)1 << 20)

/* Room for any header that is written: 16 dimensions of 20 characters, and what stands around them. */
#define LOCHI_NPY_HEADER_ROOM 1024

typedef struct lochi_npy_header {
    loch_dtype dtype; /* LOCH_DTYPE_NONE for raw bytes */
    size_t element_bytes;
    bool is_swapped; /* in the byte order that is not this machine's */
    bool is_columns; /* the first index runs fastest */
    size_t dimensions;
    int64_t shape[LOCH_DIMENSIONS_MAX];
} lochi_npy_header;

/* Reads the dict. `path` is for the sentence. E_CORRUPT, E_UNSUPPORTED, E_OVERFLOW. */
loch_status lochi_npy_header_read(const char *path, const char *text, size_t bytes, lochi_npy_header *out);

/* Writes all that stands before the data, byte for byte as NumPy does, and returns its length: a multiple of 64.
 * `descr` names the type. */
size_t lochi_npy_header_write(const char *descr, bool is_columns, size_t dimensions, const int64_t *shape,
                              char out[LOCHI_NPY_HEADER_ROOM]);

#endif
