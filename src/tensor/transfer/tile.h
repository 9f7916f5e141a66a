/* SPDX-License-Identifier: MIT */
/* Copies of a plane of elements whose rows lie differently in source and target. */
#ifndef LOCHI_TILE_H
#define LOCHI_TILE_H

#include <stdbool.h>
#include <stddef.h>

/* A plane of `outer` by `inner` elements; strides in bytes. */
typedef struct lochi_tile {
    size_t element_bytes; /* 1, 2, 4 or 8 */
    size_t outer, inner;
    ptrdiff_t to_outer, to_inner, from_outer, from_inner;
    bool is_past; /* written past the caches, because it is part of more than they hold */
} lochi_tile;

/* Copies it: as a transpose through registers where the target is side by side along `inner` and the source along `outer`, else
 * element by element, in squares that stay in the cache. */
void lochi_tile_copy(const lochi_tile *tile, void *to, const void *from);

#endif
