/* SPDX-License-Identifier: MIT */
/* malloc and its family, for programs that preload or link this library. The rules of C, POSIX and glibc for errno,
 * overflows and wrong arguments are here; front.h does the work.
 *
 * The constructor starts the front. Calls from before it (the loader, constructors of other libraries) are served by
 * the C library's allocator; their blocks are recognised when they are freed later. Nothing is ended at exit: other
 * exit handlers and destructors may still allocate and free. */
#include "beneath.h"
#include "front.h"
#include "shelf.h"
#include "source.h"
#include <dlfcn.h>
#include <errno.h>
#include <loch/pool.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MALLOC_API __attribute__((visibility("default")))

static size_t (*malloc_next_usable)(void *address); /* that of the C library; NULL before the constructor */

__attribute__((constructor)) static void malloc_begin(void)
{
    void *next = dlsym(RTLD_NEXT, "malloc_usable_size");
    memcpy(&malloc_next_usable, &next, sizeof next);
    front_start();
}

/* Fails a request that no allocator can serve. Other requests that fail end in the allocator beneath, which sets
 * errno. */
static void *malloc_refuse(int error)
{
    errno = error;
    return NULL;
}

static bool malloc_is_power(size_t alignment)
{
    return alignment && !(alignment & (alignment - 1));
}

static size_t malloc_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* --- C --- */

MALLOC_API void *malloc(size_t bytes)
{
    return front_alloc(bytes);
}

MALLOC_API void free(void *address)
{
    front_free(address);
}

MALLOC_API void *calloc(size_t count, size_t bytes)
{
    size_t whole;
    if (__builtin_mul_overflow(count, bytes, &whole)) return malloc_refuse(ENOMEM);
    return front_alloc_zeroed(whole);
}

MALLOC_API void *realloc(void *address, size_t bytes)
{
    if (!address) return malloc(bytes);
    if (!bytes) { /* as the C library does */
        free(address);
        return NULL;
    }
    return front_realloc(address, bytes);
}

MALLOC_API void *reallocarray(void *address, size_t count, size_t bytes)
{
    size_t whole;
    if (__builtin_mul_overflow(count, bytes, &whole)) return malloc_refuse(ENOMEM);
    return realloc(address, whole);
}

MALLOC_API void *aligned_alloc(size_t alignment, size_t bytes)
{
    if (!malloc_is_power(alignment)) return malloc_refuse(EINVAL);
    return front_alloc_aligned(alignment, bytes);
}

void free_sized(void *address, size_t bytes);
MALLOC_API void free_sized(void *address, size_t bytes)
{
    (void)bytes;
    front_free(address);
}

void free_aligned_sized(void *address, size_t alignment, size_t bytes);
MALLOC_API void free_aligned_sized(void *address, size_t alignment, size_t bytes)
{
    (void)alignment;
    (void)bytes;
    front_free(address);
}

/* --- POSIX and older --- */

MALLOC_API int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (!malloc_is_power(alignment) || alignment % sizeof(void *)) return EINVAL;
    const int error = errno; /* is not set */
    void *address = front_alloc_aligned(alignment, bytes);
    errno = error;
    if (!address) return ENOMEM;
    *out = address;
    return 0;
}

MALLOC_API void *memalign(size_t alignment, size_t bytes)
{
    size_t power = 16; /* an alignment that is no power of two is rounded up, as in the C library */
    while (power < alignment && power <= SIZE_MAX / 2)
        power *= 2;
    return power < alignment ? malloc_refuse(EINVAL) : front_alloc_aligned(power, bytes);
}

MALLOC_API void *valloc(size_t bytes)
{
    return front_alloc_aligned(malloc_page(), bytes);
}

MALLOC_API void *pvalloc(size_t bytes)
{
    const size_t page = malloc_page();
    if (bytes > PTRDIFF_MAX) return malloc_refuse(ENOMEM);
    return front_alloc_aligned(page, bytes ? (bytes + page - 1) & ~(page - 1) : page);
}

void cfree(void *address);
MALLOC_API void cfree(void *address)
{
    front_free(address);
}

/* --- GNU --- */

MALLOC_API size_t malloc_usable_size(void *address)
{
    if (!address) return 0;
    if (front_pages_class(address) != FRONT_FOREIGN) return front_usable(address);
    return malloc_next_usable ? malloc_next_usable(address) : 0;
}

MALLOC_API int malloc_trim(size_t keep_bytes)
{
    return front_trim(keep_bytes) > 0;
}

MALLOC_API int mallopt(int option, int value)
{
    (void)option;
    (void)value;
    return 1; /* settings of another allocator: accepted and without effect */
}

MALLOC_API struct mallinfo2 mallinfo2(void)
{
    struct mallinfo2 info = {0};
    loch_pool_info pool = {.size = sizeof pool};
    if (front_source_is_inside()) return info;
    front_source_enter();
    if (loch_pool_get_info(atomic_load_explicit(&front_pool, memory_order_acquire), &pool) == LOCH_OK) {
        info.arena = pool.reserved_bytes;
        info.uordblks = pool.used_bytes;
        info.fordblks = pool.reserved_bytes - pool.used_bytes;
        info.keepcost = pool.free_bytes;
        info.ordblks = pool.handles;
    }
    front_source_leave();
    return info;
}

/* Prints what the pool holds and how many slabs each class has, to stderr. */
MALLOC_API void malloc_stats(void)
{
    if (front_source_is_inside()) return;
    char text[4096];
    front_source_enter();
    if (loch_pool_print(atomic_load_explicit(&front_pool, memory_order_acquire), text, sizeof text, NULL) == LOCH_OK)
        fputs(text, stderr);
    front_source_leave();
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++) {
        const front_shelf_figures figures = front_shelf_read(class);
        if (figures.slabs)
            fprintf(stderr, "%6u B: %zu slabs of %u KiB, %zu chains\n", (unsigned)front_classes[class].bytes,
                    figures.slabs, (unsigned)(front_classes[class].slab_bytes >> 10), figures.chains);
    }
}
