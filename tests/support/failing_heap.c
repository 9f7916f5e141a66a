/* SPDX-License-Identifier: MIT */
/* The counting and failing allocator: each piece has its size in front of it. */
#include "failing_heap.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HEAP_HEADER 64

static atomic_int heap_mode;
static _Atomic uint64_t heap_after, heap_count, heap_live, heap_wrong;

static void *heap_alloc(size_t bytes, size_t alignment, void *user)
{
    (void)user;
    uint64_t number = atomic_fetch_add(&heap_count, 1), after = atomic_load(&heap_after);
    int mode = atomic_load(&heap_mode);
    if (mode == TEST_FAILING_ONCE && number == after) return NULL;
    if (mode == TEST_FAILING_FOREVER && number >= after) return NULL;
    if (alignment > HEAP_HEADER || bytes > SIZE_MAX - 2 * HEAP_HEADER) return NULL;
    char *start = NULL;
    if (posix_memalign((void **)&start, HEAP_HEADER, bytes + HEAP_HEADER) != 0) return NULL;
    memcpy(start, &bytes, sizeof bytes);
    memset(start + HEAP_HEADER, 0xc3, bytes); /* nothing is zero by luck */
    atomic_fetch_add(&heap_live, 1);
    return start + HEAP_HEADER;
}

static void heap_free(void *address, size_t bytes, void *user)
{
    (void)user;
    char *start = (char *)address - HEAP_HEADER;
    size_t taken;
    memcpy(&taken, start, sizeof taken);
    if (taken != bytes) atomic_fetch_add(&heap_wrong, 1);
    atomic_fetch_sub(&heap_live, 1);
    free(start);
}

loch_status test_heap_install(void)
{
    const loch_host_allocator allocator = {.size = sizeof allocator, .alloc = heap_alloc, .free = heap_free};
    return loch_host_set_allocator(&allocator);
}

void test_heap_set(test_failing mode, uint64_t after)
{
    atomic_store(&heap_mode, mode);
    atomic_store(&heap_after, after);
    atomic_store(&heap_count, 0);
}

uint64_t test_heap_count(void)
{
    return atomic_load(&heap_count);
}

uint64_t test_heap_live(void)
{
    return atomic_load(&heap_live);
}

uint64_t test_heap_wrong(void)
{
    return atomic_load(&heap_wrong);
}
