/* SPDX-License-Identifier: MIT */
/* Copies planes of elements whose rows have different orders in source and target (tile.c). */
#ifndef LOCHI_TILE_H
#define LOCHI_TILE_H

#include <stdbool.h>
#include <stddef.h>

/* A plane of `outer` by `inner` elements; strides in bytes. */
typedef struct lochi_tile {
    size_t element_bytes; /* 1, 2, 4 or 8 */
    size_t outer, inner;
    ptrdiff_t to_outer, to_inner, from_outer, from_inner;
    bool is_past; /* written past the caches, because the whole copy is larger than they are */
} lochi_tile;

/* Copies a plane. Transposes through registers if the target is contiguous along `inner` and the source along `outer`.
 * Otherwise copies element by element, in squares that stay in the cache. */
void lochi_tile_copy(const lochi_tile *tile, void *to, const void *from);

#endif
