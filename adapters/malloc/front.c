/* SPDX-License-Identifier: MIT */
#include "front.h"
#include "beneath.h"
#include "decay.h"
#include "large.h"
#include "shelf.h"
#include "source.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRONT_LOOK_MIN ((size_t)1 << 20)  /* zeroed blocks from here on: pages that have no memory get none */
#define FRONT_DROP_MIN ((size_t)32 << 20) /* zeroed blocks from here on: all pages are dropped */
#define FRONT_LOOK_PAGES ((size_t)1024)   /* pages that one look covers */

/* --- start and forks --- */

static void front_end_fork_in_parent(void)
{
    front_shelf_end_fork(false);
}

static void front_end_fork_in_child(void)
{
    front_decay_end_fork();
    front_shelf_end_fork(true);
}

/* Handlers before a fork run in the reverse order of their registration, those after it in that order. So the thread
 * that forks counts as inside Loch first, then Loch takes its locks, then the shelves are locked: no thread that
 * waits for a shelf holds a lock of Loch then. Without memory for the handlers, forks run without them. */
void front_start(void)
{
    front_classes_start();
    front_shelf_start();
    front_decay_start();
    if (!front_cache_start()) return;
    (void)pthread_atfork(front_shelf_prepare_fork, front_end_fork_in_parent, front_end_fork_in_child);
    if (!front_source_start()) return;
    (void)pthread_atfork(front_source_enter, front_source_leave, front_source_leave);
}

/* --- alloc and free --- */

void *front_alloc_slowly(size_t bytes)
{
    void *address = bytes > FRONT_SMALL_MAX ? front_large_take(bytes) : NULL;
    if (address) return address;
    if (front_source_is_inside()) return beneath_malloc(bytes);
    address =
        bytes > FRONT_SMALL_MAX ? front_large_alloc(bytes, FRONT_PAGE) : front_cache_refill(front_class_of(bytes));
    return address ? address : beneath_malloc(bytes);
}

void front_free_slowly(void *address, unsigned class)
{
    if (class == FRONT_LARGE && front_large_keep(address)) return;
    if (class == FRONT_FOREIGN)
        beneath_free(address);
    else if (front_source_is_inside())
        front_source_postpone(address);
    else if (class == FRONT_LARGE)
        front_large_free(address);
    else
        front_cache_overflow(address, class);
}

/* --- zeros --- */

/* Memory of the CPU pool is private and anonymous: a page that is dropped comes back as zeros when it is touched. That
 * takes a page fault, which costs as much as clearing several pages. So pages that have memory are cleared. Pages
 * that have none are fresh from the kernel or swapped out; dropping them costs nothing and makes both zero. */

/* Drops whole pages, or clears them where that is refused (pages locked in memory). */
static void front_drop(char *at, size_t bytes)
{
    if (madvise(at, bytes, MADV_DONTNEED) != 0) memset(at, 0, bytes);
}

/* Clears pages that have memory and drops the others. The answer of mincore may be old when it is used: both ways make
 * any page zero, so it decides about the cost only. */
static void front_clear_pages(char *at, size_t count, size_t page)
{
    unsigned char has_memory[FRONT_LOOK_PAGES];
    if (mincore(at, count * page, has_memory) != 0) memset(has_memory, 1, count);
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && !((has_memory[to] ^ has_memory[from]) & 1);)
            to++;
        if (has_memory[from] & 1)
            memset(at + from * page, 0, (to - from) * page);
        else
            front_drop(at + from * page, (to - from) * page);
    }
}

/* Makes a large block zero, and returns it. From FRONT_DROP_MIN on all pages are dropped: a program that asks for that
 * much at once often touches little of it, and glibc never keeps such a block either. It is a call of its own, so that
 * small blocks pay for none of it. */
static __attribute__((noinline)) void *front_clear_large(char *address, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = address + (-(uintptr_t)address & (page - 1)), *const end = address + bytes;
    size_t count = (size_t)(end - at) / page;
    memset(address, 0, (size_t)(at - address));
    if (bytes >= FRONT_DROP_MIN) {
        front_drop(at, count * page);
        at += count * page;
        count = 0;
    }
    for (size_t part; count; count -= part, at += part * page) {
        part = count < FRONT_LOOK_PAGES ? count : FRONT_LOOK_PAGES;
        front_clear_pages(at, part, page);
    }
    memset(at, 0, (size_t)(end - at));
    return address;
}

void *front_alloc_zeroed(size_t bytes)
{
    void *address = front_alloc(bytes);
    if (!address) return NULL;
    if (bytes >= FRONT_LOOK_MIN && front_pages_class(address) == FRONT_LARGE) return front_clear_large(address, bytes);
    return memset(address, 0, bytes);
}

/* --- alignments --- */

/* Returns the smallest class for `bytes` whose blocks lie at multiples of `alignment`; FRONT_LARGE if there is none. */
static unsigned front_aligned_class(size_t alignment, size_t bytes)
{
    if (alignment > FRONT_PAGE || bytes > FRONT_SMALL_MAX) return FRONT_LARGE;
    unsigned class = front_class_of(bytes);
    while (class <= FRONT_CLASS_COUNT && front_classes[class].bytes & (alignment - 1))
        class ++;
    return class;
}

void *front_alloc_aligned(size_t alignment, size_t bytes)
{
    if (alignment <= 16) return front_alloc(bytes);
    if (front_source_is_inside()) return beneath_memalign(alignment, bytes);
    const unsigned class = front_aligned_class(alignment, bytes);
    void *address;
    if (class != FRONT_LARGE) {
        address = front_cache_take(class);
        if (!address) address = front_cache_refill(class);
    } else {
        const size_t large = bytes > FRONT_SMALL_MAX ? bytes : FRONT_SMALL_MAX + 1;
        address = alignment > FRONT_PAGE ? NULL : front_large_take(large);
        if (!address) address = front_large_alloc(large, alignment > FRONT_PAGE ? alignment : FRONT_PAGE);
    }
    return address ? address : beneath_memalign(alignment, bytes);
}

/* --- sizes --- */

size_t front_usable(void *address)
{
    const unsigned class = front_pages_class(address);
    if (class == FRONT_LARGE) return front_pages_slab(address)->large_bytes;
    return front_classes[class].bytes; /* 0 for FRONT_FOREIGN */
}

void *front_realloc(void *address, size_t bytes)
{
    const unsigned class = front_pages_class(address);
    if (class == FRONT_FOREIGN) return beneath_realloc(address, bytes);
    const size_t usable = front_usable(address);
    if (bytes <= usable && bytes > usable / 2) return address;
    if (class == FRONT_LARGE && bytes > FRONT_SMALL_MAX && !front_source_is_inside()) {
        void *moved = front_large_realloc(address, bytes);
        if (moved) return moved;
    }
    void *moved = front_alloc(bytes);
    if (!moved) return bytes <= usable ? address : NULL;
    memcpy(moved, address, bytes < usable ? bytes : usable);
    front_free(address);
    return moved;
}

size_t front_trim(size_t keep_bytes)
{
    if (front_source_is_inside()) return 0;
    front_cache_empty();
    front_shelf_empty();
    return front_source_trim(keep_bytes);
}
