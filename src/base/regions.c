/* SPDX-License-Identifier: MIT */
/* The index of address ranges: a hash table with chains. */
#include "base/regions.h"
#include "base/tree.h"

#define REGIONS_PLACE_BITS 14
#define REGIONS_KEY_BITS 6 /* of a key, for the size of its region */

lochi_lock lochi_regions_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static lochi_region *regions_places[(size_t)1 << REGIONS_PLACE_BITS];
static size_t regions_counts[64]; /* regions of each size */
static uint64_t regions_sizes;    /* bit b: there are regions of 2^b bytes */

static uint64_t regions_key(uintptr_t address, unsigned bits)
{
    return (uint64_t)address >> bits << REGIONS_KEY_BITS | bits;
}

static lochi_region **regions_place(uint64_t key)
{
    return &regions_places[key * 0x9e3779b97f4a7c15u >> (64 - REGIONS_PLACE_BITS)];
}

static void regions_insert(lochi_region *region, uintptr_t address, unsigned bits, uintptr_t owner)
{
    region->key = regions_key(address, bits);
    region->owner = owner;
    lochi_region **place = regions_place(region->key);
    region->next = *place;
    *place = region;
    regions_counts[bits]++;
    regions_sizes |= (uint64_t)1 << bits;
}

static void regions_take_out(lochi_region *region)
{
    if (!region->owner) return;
    lochi_region **link = regions_place(region->key);
    while (*link != region)
        link = &(*link)->next;
    *link = region->next;
    region->owner = 0;
    const unsigned bits = region->key & ((1u << REGIONS_KEY_BITS) - 1);
    if (!--regions_counts[bits]) regions_sizes &= ~((uint64_t)1 << bits);
}

void lochi_region_add(lochi_region *region, uintptr_t address, unsigned bits, const void *owner)
{
    lochi_lock_take(&lochi_regions_lock);
    regions_insert(region, address, bits, (uintptr_t)owner);
    lochi_lock_drop(&lochi_regions_lock);
}

void lochi_region_remove(lochi_region *region)
{
    lochi_lock_take(&lochi_regions_lock);
    regions_take_out(region);
    lochi_lock_drop(&lochi_regions_lock);
}

void lochi_span_add(lochi_span *span, uintptr_t start, size_t bytes, const void *owner)
{
    /* The smallest regions of which two cover the span wherever it starts. */
    const unsigned bits = bytes > 1 ? 64 - (unsigned)__builtin_clzll(bytes - 1) : 0;
    const uintptr_t last = start + bytes - 1;
    lochi_lock_take(&lochi_regions_lock);
    span->start = start;
    span->bytes = bytes;
    regions_insert(&span->regions[0], start, bits, (uintptr_t)owner + 1);
    if (last >> bits != start >> bits) regions_insert(&span->regions[1], last, bits, (uintptr_t)owner + 2);
    lochi_lock_drop(&lochi_regions_lock);
}

void lochi_span_remove(lochi_span *span)
{
    lochi_lock_take(&lochi_regions_lock);
    regions_take_out(&span->regions[0]);
    regions_take_out(&span->regions[1]);
    lochi_lock_drop(&lochi_regions_lock);
}

/* Returns whether an address of the region belongs to its owner: a region of a span may reach beyond the span. */
static int regions_has(lochi_region *region, uintptr_t address)
{
    const unsigned which = region->owner & 3;
    if (!which) return 1;
    const lochi_span *span = LOCHI_CONTAINER(region - (which - 1), lochi_span, regions);
    return address - span->start < span->bytes;
}

size_t lochi_regions_find(uintptr_t address, void **owners, size_t capacity)
{
    size_t count = 0;
    lochi_lock_assert_held(&lochi_regions_lock);
    for (uint64_t sizes = regions_sizes; sizes; sizes &= sizes - 1) {
        const uint64_t key = regions_key(address, (unsigned)__builtin_ctzll(sizes));
        for (lochi_region *region = *regions_place(key); region; region = region->next) {
            if (region->key != key || !regions_has(region, address)) continue;
            if (count++ < capacity) owners[count - 1] = (void *)(region->owner & ~(uintptr_t)3);
        }
    }
    return count;
}
