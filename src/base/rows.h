/* SPDX-License-Identifier: MIT */
/* Copying rows of bytes at a distance from each other, at the speed of one memcpy over all of them. */
#ifndef LOCHI_ROWS_H
#define LOCHI_ROWS_H

#include <stddef.h>

/* Copies `rows` rows of `row_bytes`, `to_pitch` and `from_pitch` bytes from start to start, which may be negative or 0 for
 * the source. No byte of the target is one of the source. `total_bytes` is what the caller copies in all, over this and
 * other calls: what is too much for the caches is written past them. */
void lochi_rows_copy(void *to, ptrdiff_t to_pitch, const void *from, ptrdiff_t from_pitch, size_t row_bytes,
                     size_t rows, size_t total_bytes);

/* How much the last cache of the processor holds. */
size_t lochi_rows_cache_bytes(void);

#endif
