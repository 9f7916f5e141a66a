/* SPDX-License-Identifier: MIT */
/* Which address is what, for the CUDA driver for tests. A test double: see fake.h. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

/* Returns the number of ranges that begin at or before an address. */
static size_t ranges_up_to(const fake_ranges *ranges, uintptr_t address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges->items[middle]->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void fake_ranges_add(fake_ranges *ranges, fake_range *range)
{
    if (ranges->count == ranges->capacity) {
        const size_t capacity = ranges->capacity ? 2 * ranges->capacity : 64;
        fake_range **items = realloc(ranges->items, capacity * sizeof(fake_range *));
        if (!items) abort(); /* a test double on a machine without memory */
        ranges->items = items;
        ranges->capacity = capacity;
    }
    const size_t at = ranges_up_to(ranges, range->start);
    memmove(ranges->items + at + 1, ranges->items + at, (ranges->count - at) * sizeof(fake_range *));
    ranges->items[at] = range;
    ranges->count++;
}

void fake_ranges_remove(fake_ranges *ranges, fake_range *range)
{
    const size_t at = ranges_up_to(ranges, range->start) - 1;
    ranges->count--;
    memmove(ranges->items + at, ranges->items + at + 1, (ranges->count - at) * sizeof(fake_range *));
}

fake_range *fake_ranges_find(const fake_ranges *ranges, uintptr_t address)
{
    const size_t at = ranges_up_to(ranges, address);
    fake_range *range = at ? ranges->items[at - 1] : NULL;
    return range && address - range->start < range->bytes ? range : NULL;
}

bool fake_ranges_overlap(const fake_ranges *ranges, uintptr_t start, size_t bytes)
{
    const size_t at = ranges_up_to(ranges, start);
    if (at && start - ranges->items[at - 1]->start < ranges->items[at - 1]->bytes) return true;
    return at < ranges->count && ranges->items[at]->start - start < bytes;
}

fake_range *fake_find(uintptr_t address)
{
    fake_range *map = fake_ranges_find(&fake.maps, address);
    return map ? map : fake_ranges_find(&fake.ranges, address);
}

static bool range_is_open(const fake_range *range, int device)
{
    if (range->kind == FAKE_RESERVED) return false;
    return range->kind != FAKE_MAPPED || device < 0 || (range->access >> device & 1);
}

void *fake_translate(uintptr_t address, size_t bytes, int device)
{
    const bool is_inside = address - fake.window < fake.window_bytes;
    if (!is_inside) {
        const fake_range *range = fake_find(address);
        if (!range) return device < 0 ? (void *)address : NULL;
        return bytes <= range->bytes - (address - range->start) ? (void *)address : NULL;
    }
    for (size_t at = 0; at < bytes;) {
        const fake_range *range = fake_find(address + at);
        if (!range || !range_is_open(range, device)) return NULL;
        const size_t rest = range->bytes - (address + at - range->start);
        /* The end of an allocation is the end: what lies behind it is another's. */
        if (range->kind != FAKE_MAPPED && rest < bytes - at) return NULL;
        at += rest;
    }
    return (void *)(address + fake.shift);
}
