/* SPDX-License-Identifier: MIT */
/* Marks of threads, by slot. Of the threads that share a slot only a number for each of a few groups of objects is known: a
 * wait may then be for threads that are inside another object of the group, which costs time and no more. */
#include "base/inside_marks.h"
#include "base/fence.h"
#include <sched.h>

#define INSIDE_GROUPS 8 /* a byte of each thread's own for each: see base/room.h */

lochi_inside lochi_inside_slots[LOCHI_SLOT_SHARED];

static atomic_uint inside_shared[INSIDE_GROUPS];        /* marks of all threads of the shared slot */
static _Thread_local uint8_t inside_own[INSIDE_GROUPS]; /* the calling thread's part of them */

static uint32_t inside_group(const void *object)
{
    return (uint32_t)((uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15u >> 61);
}

uint32_t lochi_inside_enter_shared(const void *object)
{
    const uint32_t group = inside_group(object);
    inside_own[group]++;
    atomic_fetch_add_explicit(&inside_shared[group], 1, memory_order_seq_cst);
    lochi_fence_light();
    return LOCHI_SLOT_SHARED + group;
}

void lochi_inside_leave_shared(uint32_t mark)
{
    const uint32_t group = mark - LOCHI_SLOT_SHARED;
    inside_own[group]--;
    atomic_fetch_sub_explicit(&inside_shared[group], 1, memory_order_release);
}

bool lochi_inside_is_marked(uint32_t slot, const void *object)
{
    const lochi_inside *inside = &lochi_inside_slots[slot];
    const unsigned depth = atomic_load_explicit(&inside->depth, memory_order_acquire);
    if (depth > LOCHI_INSIDE_DEPTH) return true; /* deeper than marks go: it may be any object */
    for (unsigned i = 0; i < LOCHI_INSIDE_DEPTH; i++)
        if (atomic_load_explicit(&inside->objects[i], memory_order_acquire) == object) return true;
    return false;
}

void lochi_inside_wait_shared(const void *object, bool is_marked_here)
{
    const uint32_t group = inside_group(object);
    const unsigned kept = inside_own[group] - (unsigned)is_marked_here;
    if (is_marked_here) atomic_fetch_sub_explicit(&inside_shared[group], 1, memory_order_release);
    while (atomic_load_explicit(&inside_shared[group], memory_order_acquire) > kept)
        sched_yield();
    if (is_marked_here) atomic_fetch_add_explicit(&inside_shared[group], 1, memory_order_seq_cst);
}

void lochi_inside_forked(void)
{
    const uint32_t own = lochi_thread_slot_plus_one; /* 0: none yet */
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++) {
        if (slot + 1 == own) continue;
        for (unsigned i = 0; i < LOCHI_INSIDE_DEPTH; i++)
            atomic_store_explicit(&lochi_inside_slots[slot].objects[i], NULL, memory_order_relaxed);
        atomic_store_explicit(&lochi_inside_slots[slot].depth, 0, memory_order_relaxed);
    }
    for (uint32_t group = 0; group < INSIDE_GROUPS; group++)
        atomic_store_explicit(&inside_shared[group], inside_own[group], memory_order_relaxed);
}
