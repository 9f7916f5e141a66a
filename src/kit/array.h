/* SPDX-License-Identifier: MIT */
/* Arrays that grow, and numbers found by other numbers. The memory comes from the system and not from malloc, so that a
 * recording neither warms nor fills an allocator that replays it. */
#ifndef LOCHI_ARRAY_H
#define LOCHI_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lochi_array {
    void *data;
    size_t count, capacity_bytes;
} lochi_array;

/* Makes room for `count` items of `bytes` each; new room is zero. Returns false if there is no memory. */
bool lochi_array_reserve(lochi_array *array, size_t count, size_t bytes);

/* Appends `count` items of `bytes` each. Returns false if there is no memory. */
bool lochi_array_append(lochi_array *array, const void *items, size_t count, size_t bytes);

void lochi_array_free(lochi_array *array);

/* A hash table from 64-bit keys to 32-bit values. Open addressing; keys can be removed. */
typedef struct lochi_table {
    uint64_t *keys;
    uint32_t *values;   /* value + 1; 0 means empty, UINT32_MAX means removed */
    size_t mask;        /* places - 1; 0 before the first insertion */
    size_t count, used; /* live keys; live and removed places */
} lochi_table;

/* Finds the value of a key; UINT32_MAX for none. */
uint32_t lochi_table_find(const lochi_table *map, uint64_t key);

/* Sets the value of a key; values are below UINT32_MAX - 1. Returns false if there is no memory. */
bool lochi_table_set(lochi_table *map, uint64_t key, uint32_t value);

/* Removes a key. Returns its value; UINT32_MAX if it was not there. */
uint32_t lochi_table_remove(lochi_table *map, uint64_t key);

void lochi_table_free(lochi_table *map);

#endif
