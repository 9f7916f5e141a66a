/* SPDX-License-Identifier: MIT */
#include "tool_heap.h"
#include <stdbool.h>
#include <stdlib.h>

uint64_t tool_heap_left = UINT64_MAX, tool_heap_count;

static bool heap_may(void)
{
    tool_heap_count++;
    if (!tool_heap_left) return false;
    if (tool_heap_left != UINT64_MAX) tool_heap_left--;
    return true;
}

void *tool_heap_calloc(size_t count, size_t bytes)
{
    return heap_may() ? calloc(count, bytes) : NULL;
}

void *tool_heap_malloc(size_t bytes)
{
    return heap_may() ? malloc(bytes) : NULL;
}

void *tool_heap_realloc(void *memory, size_t bytes)
{
    return heap_may() ? realloc(memory, bytes) : NULL;
}
