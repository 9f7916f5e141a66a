/* SPDX-License-Identifier: MIT */
/* Copying rows of bytes with gaps between them, at the speed of one memcpy over all of them. */
#ifndef LOCHI_ROWS_H
#define LOCHI_ROWS_H

#include "base/shared.h"
#include <stddef.h>

/* Copies `rows` rows of `row_bytes`. `to_pitch` and `from_pitch` are the distances in bytes from one row to the
 * next; they may be negative, and 0 for the source. Source and target do not overlap. `total_bytes` is the size of
 * the caller's whole copy, over this and other calls: a copy that is too large for the caches is written past them. */
LOCHI_SHARED void lochi_rows_copy(void *to, ptrdiff_t to_pitch, const void *from, ptrdiff_t from_pitch,
                                  size_t row_bytes, size_t rows, size_t total_bytes);

/* Returns the size of the processor's last-level cache in bytes. */
LOCHI_SHARED size_t lochi_rows_cache_bytes(void);

#endif
