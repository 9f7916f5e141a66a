/* SPDX-License-Identifier: MIT */
#include "large.h"
#include "beneath.h"
#include "cache.h"
#include "decay.h"
#include "source.h"
#include <string.h>

#define LARGE_KEPT_MAX ((size_t)4 << 20)
#define LARGE_BYTES_MAX ((size_t)4 << 20)
#define LARGE_LIST_BITS 6
#define LARGE_LISTS (1u << LARGE_LIST_BITS)

/* Blocks of one size. */
typedef struct large_list {
    void *head; /* linked by their first word */
    size_t bytes;
} large_list;

static _Thread_local struct large_kept {
    large_list lists[LARGE_LISTS];
    size_t bytes;  /* of all lists */
    size_t most;   /* LARGE_BYTES_MAX; 0 before the cache of the thread begins and after it has ended */
    unsigned next; /* list that ends next */
} large_own __attribute__((tls_model("initial-exec")));

/* Rounds the size of a large block up to what a caller may use of it; 0 for a size that no block has. */
static size_t large_round(size_t bytes)
{
    return bytes > PTRDIFF_MAX ? 0 : (bytes + FRONT_PAGE - 1) & ~(FRONT_PAGE - 1);
}

/* Returns the usable size of a large block. Only its first page is in the map. */
static size_t large_bytes(const void *address)
{
    return front_pages_leaf((uintptr_t)address)->slabs[front_pages_at((uintptr_t)address)].large_bytes;
}

/* --- what a thread keeps --- */

static large_list *large_list_of(size_t bytes)
{
    const uint32_t pages = (uint32_t)(bytes >> FRONT_PAGE_BITS);
    return &large_own.lists[pages * 0x9e3779b1u >> (32 - LARGE_LIST_BITS)];
}

void *front_large_take(size_t bytes)
{
    const size_t whole = (bytes + FRONT_PAGE - 1) & ~(FRONT_PAGE - 1); /* no list has the size of one that overflows */
    large_list *list = large_list_of(whole);
    void *block = list->head;
    if (list->bytes != whole || !block) return NULL;
    list->head = *(void **)block;
    large_own.bytes -= whole;
    return block;
}

/* Puts a block into the list of its size, which has no block of another size, within what the thread may keep. */
static bool large_put(large_list *list, void *address, size_t bytes)
{
    if ((list->bytes != bytes && list->head) || large_own.bytes + bytes > large_own.most) return false;
    list->bytes = bytes;
    *(void **)address = list->head;
    list->head = address;
    large_own.bytes += bytes;
    return true;
}

bool front_large_keep(void *address)
{
    const size_t bytes = large_bytes(address);
    return bytes <= LARGE_KEPT_MAX && large_put(large_list_of(bytes), address, bytes);
}

/* Gives a block back to the pool. */
static void large_end(void *address)
{
    front_pages_remove(address, 1);
    front_source_free(address);
}

/* Each block leaves the list before it goes: Loch may call malloc meanwhile. */
static void large_end_list(large_list *list)
{
    size_t ended = 0;
    for (void *block; (block = list->head); ended += list->bytes) {
        list->head = *(void **)block;
        large_own.bytes -= list->bytes;
        large_end(block);
    }
    front_decay_note(ended);
}

void front_large_allow(bool may_keep)
{
    large_own.most = may_keep ? LARGE_BYTES_MAX : 0;
}

size_t front_large_empty(void)
{
    const size_t bytes = large_own.bytes;
    for (unsigned i = 0; i < LARGE_LISTS && large_own.bytes; i++)
        large_end_list(&large_own.lists[i]);
    return bytes;
}

/* --- blocks --- */

/* Takes a block from the pool, if need be after what the thread keeps went back to it. */
static void *large_make(size_t bytes, size_t alignment)
{
    void *address = front_source_alloc(bytes, alignment);
    if (!address && front_large_empty()) address = front_source_alloc(bytes, alignment);
    if (!address) return NULL;
    front_slab *record = front_pages_enter(address, 1, FRONT_LARGE);
    if (record) {
        record->large_bytes = bytes;
        return address;
    }
    front_source_free(address); /* the map has no memory */
    return NULL;
}

void *front_large_alloc(size_t bytes, size_t alignment)
{
    const size_t whole = large_round(bytes);
    return whole ? large_make(whole, alignment) : NULL;
}

void front_large_free(void *address)
{
    const size_t bytes = large_bytes(address);
    if (bytes <= LARGE_KEPT_MAX && front_cache_begin()) {
        large_list *list = large_list_of(bytes);
        if (list->bytes != bytes) large_end_list(list);
        while (large_own.bytes + bytes > large_own.most)
            large_end_list(&large_own.lists[large_own.next++ % LARGE_LISTS]);
        if (large_put(list, address, bytes)) return;
    }
    large_end(address);
    front_decay_note(bytes);
}

/* The page of the block is left first: once the block has moved, another thread may get the old address. */
void *front_large_realloc(void *address, size_t bytes)
{
    const size_t whole = large_round(bytes), before = large_bytes(address);
    if (!whole) return NULL;
    front_pages_remove(address, 1);
    void *moved = front_source_realloc(address, whole);
    front_slab *record = front_pages_enter(moved ? moved : address, 1, FRONT_LARGE);
    if (record) record->large_bytes = moved ? whole : before;
    if (moved && whole < before) front_decay_note(before - whole);
    if (record || !moved) return moved;
    void *copy = beneath_malloc(bytes); /* the map has no memory for the new place */
    if (copy) memcpy(copy, moved, bytes < before ? bytes : before);
    front_source_free(moved);
    return copy;
}
