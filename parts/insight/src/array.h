/* SPDX-License-Identifier: MIT */
/* Arrays that grow, and numbers found by other numbers. The memory comes from the system and not from malloc, so that a
 * recording neither warms nor fills an allocator that replays it. */
#ifndef LOCH_INSIGHT_ARRAY_H
#define LOCH_INSIGHT_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct insight_array {
    void *data;
    size_t count, capacity_bytes;
} insight_array;

/* Makes room for `count` items of `bytes` each; new room is zero. Returns false if there is no memory. */
bool lochi_insight_array_reserve(insight_array *array, size_t count, size_t bytes);

/* Appends `count` items of `bytes` each. Returns false if there is no memory. */
bool lochi_insight_array_append(insight_array *array, const void *items, size_t count, size_t bytes);

void lochi_insight_array_free(insight_array *array);

/* A hash table from 64-bit keys to 32-bit values. Open addressing; keys can be removed. */
typedef struct insight_map {
    uint64_t *keys;
    uint32_t *values;   /* value + 1; 0 means empty, UINT32_MAX means removed */
    size_t mask;        /* places - 1; 0 before the first insertion */
    size_t count, used; /* live keys; live and removed places */
} insight_map;

/* Finds the value of a key; UINT32_MAX for none. */
uint32_t lochi_insight_map_find(const insight_map *map, uint64_t key);

/* Sets the value of a key; values are below UINT32_MAX - 1. Returns false if there is no memory. */
bool lochi_insight_map_set(insight_map *map, uint64_t key, uint32_t value);

/* Removes a key. Returns its value; UINT32_MAX if it was not there. */
uint32_t lochi_insight_map_remove(insight_map *map, uint64_t key);

void lochi_insight_map_free(insight_map *map);

#endif
