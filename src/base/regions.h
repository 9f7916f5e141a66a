/* SPDX-License-Identifier: MIT */
/* An index of address ranges over the whole process: which owners have memory around an address.
 *
 * A region is an aligned piece of 2^bits bytes that belongs to one owner, and a span is any range, in one or two
 * regions. Regions of all sizes and owners may overlap. They are in one hash table with fixed places, by size and
 * number, so a search looks at one place for each size that is in use. Adding and removing cannot fail and take no
 * memory: the caller embeds the structs. Places are enough for 100,000 regions; with more, searches and removals slow
 * down.
 *
 * One lock guards the index: LOCHI_RANK_LEAF. */
#ifndef LOCHI_REGIONS_H
#define LOCHI_REGIONS_H

#include "base/lock.h"
#include <stddef.h>
#include <stdint.h>

typedef struct lochi_region {
    struct lochi_region *next;
    /* Address of the owner, plus 1 or 2 for the first or second region of a span. 0: not in the index. */
    uintptr_t owner;
    uint64_t key; /* address >> bits, and bits */
} lochi_region;

typedef struct lochi_span {
    lochi_region regions[2];
    uintptr_t start;
    size_t bytes;
} lochi_span;

/* Guards the index, and what callers read or write together with it. */
extern lochi_lock lochi_regions_lock;

/* Adds the region of 2^bits bytes around `address`. The owner's address is a multiple of 4. Takes the lock. */
void lochi_region_add(lochi_region *region, uintptr_t address, unsigned bits, const void *owner);

/* Removes a region; one that was not added is left alone. Takes the lock. */
void lochi_region_remove(lochi_region *region);

/* Adds [start, start + bytes). Takes the lock. */
void lochi_span_add(lochi_span *span, uintptr_t start, size_t bytes, const void *owner);

/* Removes a span; one that was not added is left alone. Takes the lock. */
void lochi_span_remove(lochi_span *span);

/* Finds the owners of the regions and spans around an address; an owner may come twice. The lock is held. Returns their
 * number; the first `capacity` are in `owners`. */
size_t lochi_regions_find(uintptr_t address, void **owners, size_t capacity);

#endif
