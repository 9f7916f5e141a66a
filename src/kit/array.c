/* SPDX-License-Identifier: MIT */
#include "kit/array.h"
#include <string.h>
#include <sys/mman.h>

#define ARRAY_BYTES_MIN ((size_t)64 << 10)
#define MAP_PLACES_MIN ((size_t)4096)
#define MAP_REMOVED UINT32_MAX

/* --- arrays --- */

bool lochi_array_reserve(lochi_array *array, size_t count, size_t bytes)
{
    if (bytes && count > SIZE_MAX / 4 / bytes) return false;
    if (count * bytes <= array->capacity_bytes) return true;
    size_t capacity = array->capacity_bytes ? array->capacity_bytes : ARRAY_BYTES_MIN;
    while (capacity < count * bytes)
        capacity *= 2;
    void *data = array->data ? mremap(array->data, array->capacity_bytes, capacity, MREMAP_MAYMOVE)
                             : mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return false;
    array->data = data;
    array->capacity_bytes = capacity;
    return true;
}

bool lochi_array_append(lochi_array *array, const void *items, size_t count, size_t bytes)
{
    if (!lochi_array_reserve(array, array->count + count, bytes)) return false;
    if (count) memcpy((char *)array->data + array->count * bytes, items, count * bytes);
    array->count += count;
    return true;
}

void lochi_array_free(lochi_array *array)
{
    if (array->data) munmap(array->data, array->capacity_bytes);
    *array = (lochi_array){.data = NULL};
}

/* --- maps --- */

static size_t map_start(const lochi_table *map, uint64_t key)
{
    uint64_t mixed = key * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
    return (size_t)(mixed >> 12) & map->mask;
}

/* Returns the place of a key, or of the first place that may take it. */
static size_t map_place(const lochi_table *map, uint64_t key)
{
    size_t removed = SIZE_MAX;
    for (size_t at = map_start(map, key);; at = (at + 1) & map->mask) {
        if (!map->values[at]) return removed == SIZE_MAX ? at : removed;
        if (map->values[at] == MAP_REMOVED) {
            if (removed == SIZE_MAX) removed = at;
        } else if (map->keys[at] == key) {
            return at;
        }
    }
}

static void *map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool map_grow(lochi_table *map)
{
    size_t places = MAP_PLACES_MIN;
    while (places < 4 * (map->count + 1))
        places *= 2;
    lochi_table grown = {.mask = places - 1};
    grown.keys = map_memory(places * sizeof *grown.keys);
    grown.values = map_memory(places * sizeof *grown.values);
    if (!grown.keys || !grown.values) {
        lochi_table_free(&grown);
        return false;
    }
    for (size_t i = 0; map->mask && i <= map->mask; i++) {
        if (!map->values[i] || map->values[i] == MAP_REMOVED) continue;
        const size_t at = map_place(&grown, map->keys[i]);
        grown.keys[at] = map->keys[i];
        grown.values[at] = map->values[i];
    }
    grown.count = grown.used = map->count;
    lochi_table_free(map);
    *map = grown;
    return true;
}

uint32_t lochi_table_find(const lochi_table *map, uint64_t key)
{
    if (!map->mask) return UINT32_MAX;
    const size_t at = map_place(map, key);
    return map->values[at] && map->values[at] != MAP_REMOVED ? map->values[at] - 1 : UINT32_MAX;
}

bool lochi_table_set(lochi_table *map, uint64_t key, uint32_t value)
{
    if (2 * (map->used + 1) > map->mask && !map_grow(map)) return false;
    const size_t at = map_place(map, key);
    if (!map->values[at]) map->used++;
    if (!map->values[at] || map->values[at] == MAP_REMOVED) map->count++;
    map->keys[at] = key;
    map->values[at] = value + 1;
    return true;
}

uint32_t lochi_table_remove(lochi_table *map, uint64_t key)
{
    if (!map->mask) return UINT32_MAX;
    const size_t at = map_place(map, key);
    if (!map->values[at] || map->values[at] == MAP_REMOVED) return UINT32_MAX;
    const uint32_t value = map->values[at] - 1;
    map->values[at] = MAP_REMOVED;
    map->count--;
    return value;
}

void lochi_table_free(lochi_table *map)
{
    if (map->keys) munmap(map->keys, (map->mask + 1) * sizeof *map->keys);
    if (map->values) munmap(map->values, (map->mask + 1) * sizeof *map->values);
    *map = (lochi_table){.keys = NULL};
}
