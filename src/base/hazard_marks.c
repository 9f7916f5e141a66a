/* SPDX-License-Identifier: MIT */
/* Marks of threads on objects. Threads with a slot of their own write which objects they have marked. The threads of
 * the shared slot only count their marks, one counter for each of a few groups of objects. A wait may therefore wait
 * for threads that work on another object of the group. That costs time but is correct. */
#include "base/hazard_marks.h"
#include "kit/backoff.h"
#include "base/fence.h"

#define UNDERWAY_GROUPS 8 /* one thread-local byte each: see base/room.h for why they are few */

lochi_hazard lochi_hazard_slots[LOCHI_SLOT_SHARED];

static atomic_uint hazard_shared[UNDERWAY_GROUPS];        /* marks of all threads of the shared slot */
static _Thread_local uint8_t hazard_own[UNDERWAY_GROUPS]; /* marks of the calling thread */

static uint32_t hazard_group(const void *object)
{
    return (uint32_t)((uint64_t)(uintptr_t)object * 0x9e3779b97f4a7c15u >> 61);
}

uint32_t lochi_hazard_enter_shared(const void *object)
{
    const uint32_t group = hazard_group(object);
    hazard_own[group]++;
    atomic_fetch_add_explicit(&hazard_shared[group], 1, memory_order_seq_cst);
    lochi_fence_light();
    return LOCHI_SLOT_SHARED + group;
}

void lochi_hazard_leave_shared(uint32_t mark)
{
    const uint32_t group = mark - LOCHI_SLOT_SHARED;
    hazard_own[group]--;
    atomic_fetch_sub_explicit(&hazard_shared[group], 1, memory_order_release);
}

bool lochi_hazard_is_marked(uint32_t slot, const void *object)
{
    const lochi_hazard *of = &lochi_hazard_slots[slot];
    const unsigned depth = atomic_load_explicit(&of->depth, memory_order_acquire);
    if (depth > LOCHI_HAZARD_DEPTH) return true; /* marks beyond the depth are not written: any object is possible */
    for (unsigned i = 0; i < LOCHI_HAZARD_DEPTH; i++)
        if (atomic_load_explicit(&of->objects[i], memory_order_acquire) == object) return true;
    return false;
}

void lochi_hazard_wait_shared(const void *object, bool is_marked_here)
{
    const uint32_t group = hazard_group(object);
    const unsigned kept = hazard_own[group] - (unsigned)is_marked_here; /* own marks that stay meanwhile */
    if (is_marked_here) atomic_fetch_sub_explicit(&hazard_shared[group], 1, memory_order_release);
    for (unsigned turn = 0; atomic_load_explicit(&hazard_shared[group], memory_order_acquire) > kept;)
        lochi_backoff(&turn);
    if (is_marked_here) atomic_fetch_add_explicit(&hazard_shared[group], 1, memory_order_seq_cst);
}

void lochi_hazard_forked(void)
{
    const uint32_t own = lochi_thread_slot_plus_one; /* 0 before a slot is taken */
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++) {
        if (slot + 1 == own) continue;
        for (unsigned i = 0; i < LOCHI_HAZARD_DEPTH; i++)
            atomic_store_explicit(&lochi_hazard_slots[slot].objects[i], NULL, memory_order_relaxed);
        atomic_store_explicit(&lochi_hazard_slots[slot].depth, 0, memory_order_relaxed);
    }
    for (uint32_t group = 0; group < UNDERWAY_GROUPS; group++)
        atomic_store_explicit(&hazard_shared[group], hazard_own[group], memory_order_relaxed);
}
