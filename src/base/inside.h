/* SPDX-License-Identifier: MIT */
/* Who is inside an object that may be ended under them. A thread marks the object that it works in; whoever ends the
 * object first makes it unreachable for newcomers, then waits until no thread is marked. Marking is two plain stores in
 * the thread's own line, ordered by the light fence. Threads without a slot of their own count themselves in and out of
 * one of a few shared counters, picked by the object's address. */
#ifndef LOCHI_INSIDE_H
#define LOCHI_INSIDE_H

#include "base/fence.h"
#include "base/inside_marks.h"
#include "base/thread.h"

/* Marks the calling thread; what it returns goes to lochi_inside_leave. */
static inline uint32_t lochi_inside_enter(const void *object)
{
    const uint32_t slot = lochi_thread_slot();
    if (__builtin_expect(slot == LOCHI_SLOT_SHARED, 0)) return lochi_inside_enter_shared(object);
    lochi_inside *inside = &lochi_inside_slots[slot];
    const unsigned depth = atomic_load_explicit(&inside->depth, memory_order_relaxed);
    if (depth < LOCHI_INSIDE_DEPTH) atomic_store_explicit(&inside->objects[depth], object, memory_order_relaxed);
    atomic_store_explicit(&inside->depth, depth + 1, memory_order_relaxed);
    lochi_fence_light();
    return slot;
}

/* Takes back the mark that lochi_inside_enter returned. */
static inline void lochi_inside_leave(uint32_t mark)
{
    if (__builtin_expect(mark >= LOCHI_SLOT_SHARED, 0)) {
        lochi_inside_leave_shared(mark);
        return;
    }
    lochi_inside *inside = &lochi_inside_slots[mark];
    const unsigned depth = atomic_load_explicit(&inside->depth, memory_order_relaxed) - 1;
    if (depth < LOCHI_INSIDE_DEPTH) atomic_store_explicit(&inside->objects[depth], NULL, memory_order_release);
    atomic_store_explicit(&inside->depth, depth, memory_order_release);
}

/* Waits until no other thread is inside `object`; newcomers are the caller's to keep out. The caller's own mark does
 * not count. It should hold no other: two threads that wait for each other's marks wait for good. */
void lochi_inside_wait(const void *object);

#endif
