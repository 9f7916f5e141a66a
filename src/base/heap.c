/* SPDX-License-Identifier: MIT */
/* Memory for the library's own bookkeeping. Each piece has a header with its size, because the replaceable allocator
 * gets the size at free. Usage is kept in two relaxed counters: they are statistics and order nothing. */
#include "base/heap.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/sized.h"
#include <loch/host.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEAP_ALIGNMENT alignof(max_align_t)

typedef struct heap_header {
    alignas(max_align_t) size_t bytes; /* including the header */
} heap_header;

static void *heap_libc_alloc(size_t bytes, size_t alignment, void *user)
{
    (void)alignment; /* malloc aligns for every type; more is never requested here */
    (void)user;
    return malloc(bytes);
}

static void heap_libc_free(void *address, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free(address);
}

static const loch_host_allocator heap_libc = {sizeof heap_libc, heap_libc_alloc, heap_libc_free, NULL};

static loch_host_allocator heap_allocator = {sizeof heap_allocator, heap_libc_alloc, heap_libc_free, NULL};
static atomic_size_t heap_bytes;
static atomic_size_t heap_blocks;

loch_status loch_host_set_allocator(const loch_host_allocator *allocator)
{
    const size_t held = atomic_load_explicit(&heap_blocks, memory_order_acquire);
    if (held)
        return LOCH_FAIL(
            BUSY, "%zu blocks of the present host allocator are in use: release all objects of the library first",
            held);
    if (!allocator) allocator = &heap_libc;
    if (allocator->size < sizeof *allocator || !allocator->alloc || !allocator->free)
        return LOCH_FAIL(INVALID, "a host allocator needs its size, alloc and free");
    heap_allocator = *allocator;
    return LOCH_OK;
}

loch_status loch_host_get_usage(loch_host_usage *out)
{
    if (!lochi_sized_is_set(out)) return LOCH_FAIL(INVALID, "loch_host_get_usage needs a struct whose size is set");
    const loch_host_usage usage = {.size = sizeof usage,
                                   .bytes = atomic_load_explicit(&heap_bytes, memory_order_relaxed),
                                   .blocks = atomic_load_explicit(&heap_blocks, memory_order_relaxed)};
    lochi_sized_write(out, &usage, sizeof usage);
    return LOCH_OK;
}

void *lochi_alloc(size_t bytes)
{
    size_t whole;
    if (!lochi_add(bytes, sizeof(heap_header), &whole)) return NULL;
    heap_header *header = heap_allocator.alloc(whole, HEAP_ALIGNMENT, heap_allocator.user);
    if (!header) return NULL;
    header->bytes = whole;
    atomic_fetch_add_explicit(&heap_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&heap_blocks, 1, memory_order_relaxed);
    return header + 1;
}

void *lochi_zalloc(size_t bytes)
{
    void *address = lochi_alloc(bytes);
    return address ? memset(address, 0, bytes) : NULL;
}

void *lochi_zalloc_aligned(size_t alignment, size_t bytes)
{
    size_t whole;
    if (!lochi_add(bytes, alignment + sizeof(void *), &whole)) return NULL;
    char *base = lochi_zalloc(whole);
    if (!base) return NULL;
    char *address = base + sizeof(void *);
    address += -(uintptr_t)address & (alignment - 1);
    memcpy(address - sizeof base, &base, sizeof base); /* the address to free is stored in front */
    return address;
}

void lochi_free_aligned(void *address)
{
    if (!address) return;
    void *base;
    memcpy(&base, (char *)address - sizeof base, sizeof base);
    lochi_free(base);
}

void *lochi_map(size_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

void lochi_unmap(void *address, size_t bytes)
{
    if (address) munmap(address, bytes);
}

void lochi_map_largely(void *address, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    (void)!madvise(address, bytes, MADV_HUGEPAGE);
#else
    (void)address;
    (void)bytes;
#endif
}

void *lochi_alloc_array(size_t count, size_t bytes)
{
    size_t whole;
    return lochi_mul(count, bytes, &whole) ? lochi_alloc(whole) : NULL;
}

void *lochi_realloc(void *address, size_t bytes)
{
    void *grown = lochi_alloc(bytes);
    if (!grown || !address) return grown;
    const size_t old_bytes = ((heap_header *)address - 1)->bytes - sizeof(heap_header);
    memcpy(grown, address, old_bytes < bytes ? old_bytes : bytes);
    lochi_free(address);
    return grown;
}

void lochi_free(void *address)
{
    if (!address) return;
    heap_header *header = (heap_header *)address - 1;
    const size_t whole = header->bytes;
    heap_allocator.free(header, whole, heap_allocator.user);
    atomic_fetch_sub_explicit(&heap_bytes, whole - sizeof(heap_header), memory_order_relaxed);
    /* Release: a thread that reads zero blocks and replaces the allocator does so after this free. */
    atomic_fetch_sub_explicit(&heap_blocks, 1, memory_order_release);
}

char *lochi_strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = lochi_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
