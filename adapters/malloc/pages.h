/* SPDX-License-Identifier: MIT */
/* The page map: what starts or lies at an address, without a header in front of blocks.
 *
 * Two levels. The root has a pointer for each 512 MiB of addresses. A leaf has, for each page of 8 KiB, the class of
 * its blocks, the distance to the first page of the slab, and a slab record. The record is used at the first page of a
 * slab or of a large block. Leaves are mapped on first use and stay. Only their touched pages take memory.
 *
 * Order: a leaf is installed by compare-and-exchange with release and read with acquire. Bytes are relaxed: a thread
 * that frees a block got its address from the thread that allocated it, and so sees what was entered before. */
#ifndef FRONT_PAGES_H
#define FRONT_PAGES_H

#include "classes.h"
#include <stdatomic.h>
#include <stdbool.h>

#define FRONT_LEAF_BITS 16
#define FRONT_LEAF_PAGES ((size_t)1 << FRONT_LEAF_BITS)
#define FRONT_ROOT_SHIFT (FRONT_PAGE_BITS + FRONT_LEAF_BITS)
#define FRONT_ROOT_COUNT ((size_t)1 << (48 - FRONT_ROOT_SHIFT))

/* A slab: pages that are cut into blocks of one class. Guarded by the lock of its shelf. For a large block only
 * `large_bytes` is used, by the holder of the block. */
typedef struct front_slab {
    struct front_slab *next, *before; /* in the list of slabs with room; NULL for a slab without room */
    void *free;                       /* freed blocks, linked by their first word */
    union {
        char *base;         /* first block */
        size_t large_bytes; /* usable size of a large block */
    };
    uint32_t used;  /* blocks outside of the slab: handed out, in a thread's cache or in a chain */
    uint32_t fresh; /* blocks from here on were never handed out and may have no memory yet */
    uint64_t padding[2];
} front_slab;

typedef struct front_leaf {
    _Atomic uint8_t classes[FRONT_LEAF_PAGES];
    _Atomic uint8_t backs[FRONT_LEAF_PAGES]; /* pages from the first page of the slab to this one */
    front_slab slabs[FRONT_LEAF_PAGES];
} front_leaf;

extern front_leaf *_Atomic front_root[FRONT_ROOT_COUNT];

/* Returns the leaf of an address; NULL if nothing was ever entered near it. */
static inline front_leaf *front_pages_leaf(uintptr_t address)
{
    const size_t at = address >> FRONT_ROOT_SHIFT;
    return at < FRONT_ROOT_COUNT ? atomic_load_explicit(&front_root[at], memory_order_acquire) : NULL;
}

static inline size_t front_pages_at(uintptr_t address)
{
    return (address >> FRONT_PAGE_BITS) & (FRONT_LEAF_PAGES - 1);
}

/* Returns the class of the block at an address: FRONT_FOREIGN, FRONT_LARGE, or that of a small block. */
static inline unsigned front_pages_class(const void *address)
{
    const front_leaf *leaf = front_pages_leaf((uintptr_t)address);
    if (__builtin_expect(!leaf, 0)) return FRONT_FOREIGN;
    return atomic_load_explicit(&leaf->classes[front_pages_at((uintptr_t)address)], memory_order_relaxed);
}

/* Returns the record of the slab or large block around an address that has one. */
static inline front_slab *front_pages_slab(const void *address)
{
    front_leaf *leaf = front_pages_leaf((uintptr_t)address);
    const size_t at = front_pages_at((uintptr_t)address);
    const size_t back = atomic_load_explicit(&leaf->backs[at], memory_order_relaxed);
    if (__builtin_expect(back <= at, 1)) return &leaf->slabs[at - back];
    leaf = front_pages_leaf((uintptr_t)address - (back << FRONT_PAGE_BITS)); /* the slab began in the leaf before */
    return &leaf->slabs[at - back + FRONT_LEAF_PAGES];
}

/* Enters `pages` pages with a class and returns the record of the first. Returns NULL if there is no memory for a
 * leaf. A large block enters its first page only. */
front_slab *front_pages_enter(void *address, size_t pages, unsigned class);

/* Removes pages from the map. */
void front_pages_remove(void *address, size_t pages);

#endif
