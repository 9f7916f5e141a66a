/* SPDX-License-Identifier: MIT */
#include "memory.h"
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_long memory_fail_after = -1;

static int memory_fails(void)
{
    long left = atomic_load_explicit(&memory_fail_after, memory_order_relaxed);
    while (left >= 0 && !atomic_compare_exchange_weak_explicit(&memory_fail_after, &left, left ? left - 1 : -2,
                                                               memory_order_relaxed, memory_order_relaxed))
        ;
    return left == 0;
}

void lochi_plan_fail_after(long count)
{
    atomic_store_explicit(&memory_fail_after, count, memory_order_relaxed);
}

int lochi_plan_failed(void)
{
    return atomic_load_explicit(&memory_fail_after, memory_order_relaxed) == -2;
}

void *lochi_plan_alloc(size_t count, size_t bytes)
{
    return memory_fails() ? NULL : calloc(count ? count : 1, bytes);
}

void lochi_plan_free(void *memory)
{
    free(memory);
}

int lochi_plan_grow(void **array, size_t *capacity, size_t count, size_t bytes)
{
    if (count <= *capacity) return 1;
    size_t wanted = *capacity ? *capacity : 16;
    while (wanted < count)
        wanted += wanted / 2;
    if (wanted > SIZE_MAX / bytes || memory_fails()) return 0;
    void *grown = realloc(*array, wanted * bytes);
    if (!grown) return 0;
    *array = grown;
    *capacity = wanted;
    return 1;
}
