/* SPDX-License-Identifier: MIT */
/* Tables of loops, one for each kind of processor. */
#ifndef LOCHI_CONVERT_TABLE_H
#define LOCHI_CONVERT_TABLE_H

#include <loch/dtype.h>

/* Converts `count` contiguous elements at any alignment. Both ranges start at the same address (for types of equal
 * size), or do not overlap. */
typedef void lochi_convert_step(void *to, const void *from, size_t count);

/* Loops by overflow mode, target and source; NULL if there is no such loop. */
typedef struct lochi_convert_table {
    lochi_convert_step *steps[2][LOCH_DTYPE_COUNT][LOCH_DTYPE_COUNT];
} lochi_convert_table;

#endif
