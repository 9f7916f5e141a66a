/* SPDX-License-Identifier: MIT */
#include "pages.h"
#include <string.h>
#include <sys/mman.h>

front_leaf *_Atomic front_root[FRONT_ROOT_COUNT];

/* Returns the leaf of an address and makes it first if needed; NULL without memory. */
static front_leaf *pages_require_leaf(uintptr_t address)
{
    if (address >> FRONT_ROOT_SHIFT >= FRONT_ROOT_COUNT) return NULL;
    front_leaf *leaf = front_pages_leaf(address);
    if (leaf) return leaf;
    front_leaf *made =
        mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return NULL;
    if (atomic_compare_exchange_strong_explicit(&front_root[address >> FRONT_ROOT_SHIFT], &leaf, made,
                                                memory_order_acq_rel, memory_order_acquire))
        return made;
    munmap(made, sizeof *made); /* another thread was first */
    return leaf;
}

static void pages_write(uintptr_t address, size_t pages, unsigned class)
{
    for (size_t i = 0; i < pages; i++, address += FRONT_PAGE) {
        front_leaf *leaf = front_pages_leaf(address);
        const size_t at = front_pages_at(address);
        atomic_store_explicit(&leaf->backs[at], (uint8_t)i, memory_order_relaxed);
        atomic_store_explicit(&leaf->classes[at], (uint8_t) class, memory_order_relaxed);
    }
}

front_slab *front_pages_enter(void *address, size_t pages, unsigned class)
{
    const uintptr_t from = (uintptr_t)address;
    front_leaf *leaf = pages_require_leaf(from);
    if (!leaf || !pages_require_leaf(from + (pages - 1) * FRONT_PAGE)) return NULL;
    pages_write(from, pages, class);
    return &leaf->slabs[front_pages_at(from)];
}

void front_pages_remove(void *address, size_t pages)
{
    pages_write((uintptr_t)address, pages, FRONT_FOREIGN);
}
