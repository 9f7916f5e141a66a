/* SPDX-License-Identifier: MIT */
/* A hash table of call stacks that only grows. Threads find a stack without a lock; a new one is published with
 * release, with the lock held. Memory is mapped, not allocated: the host allocator may itself be built on Loch, and an
 * allocation from it would come back here. */
#include "memory/live/stacks.h"
#include "base/heap.h"
#include "base/lock.h"
#include <string.h>

#define STACKS_BUCKETS 4096
#define STACKS_PIECE ((size_t)256 << 10) /* bytes mapped at a time */

static _Atomic(lochi_live_stack *) stacks_buckets[STACKS_BUCKETS];
static lochi_lock stacks_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static char *stacks_free; /* the rest of the last piece; under stacks_lock */
static size_t stacks_left;

static uint32_t stacks_hash(const uintptr_t *frames, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ frames[i]) * UINT64_C(0x9e3779b97f4a7c15) >> 7 ^ hash << 11;
    return (uint32_t)(hash ^ hash >> 32);
}

static const lochi_live_stack *stacks_find(const lochi_live_stack *stack, uint32_t hash, const uintptr_t *frames,
                                           size_t count)
{
    for (; stack; stack = stack->next)
        if (stack->hash == hash && stack->count == count && !memcmp(stack->frames, frames, count * sizeof *frames))
            return stack;
    return NULL;
}

static lochi_live_stack *stacks_make(uint32_t hash, const uintptr_t *frames, size_t count)
{
    lochi_lock_assert_held(&stacks_lock);
    const size_t bytes = sizeof(lochi_live_stack) + count * sizeof *frames;
    if (stacks_left < bytes) {
        char *piece = lochi_map(STACKS_PIECE);
        if (!piece) return NULL;
        stacks_free = piece;
        stacks_left = STACKS_PIECE;
    }
    lochi_live_stack *stack = (lochi_live_stack *)(void *)stacks_free;
    stacks_free += bytes;
    stacks_left -= bytes;
    stack->hash = hash;
    stack->count = (uint32_t)count;
    memcpy(stack->frames, frames, count * sizeof *frames);
    return stack;
}

const lochi_live_stack *lochi_live_keep_stack(const uintptr_t *frames, size_t count)
{
    const uint32_t hash = stacks_hash(frames, count);
    _Atomic(lochi_live_stack *) *bucket = &stacks_buckets[hash % STACKS_BUCKETS];
    /* Acquire: the contents of the stacks are visible. */
    const lochi_live_stack *found =
        stacks_find(atomic_load_explicit(bucket, memory_order_acquire), hash, frames, count);
    if (found) return found;
    lochi_lock_take(&stacks_lock);
    lochi_live_stack *first = atomic_load_explicit(bucket, memory_order_relaxed);
    found = stacks_find(first, hash, frames, count);
    if (!found) {
        lochi_live_stack *stack = stacks_make(hash, frames, count);
        if (stack) {
            stack->next = first;
            atomic_store_explicit(bucket, stack, memory_order_release);
        }
        found = stack;
    }
    lochi_lock_drop(&stacks_lock);
    return found;
}
