/* SPDX-License-Identifier: MIT */
/* Sorts pointers (sort.c). */
#ifndef SAFETENSORS_SORT_H
#define SAFETENSORS_SORT_H

#include <stddef.h>

/* Returns less than, equal to or more than 0, as strcmp. */
typedef int safetensors_compare(const void *a, const void *b);

/* Sorts `count` pointers, in O(n log n) steps whatever their order is. Equal ones keep their order. `scratch` has room
 * for as many. */
void lochi_safetensors_sort(void **items, void **scratch, size_t count, safetensors_compare *compare);

#endif
