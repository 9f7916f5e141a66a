/* SPDX-License-Identifier: MIT */
/* Calls under way on objects that another thread may end.
 *
 * A thread marks an object before it works on it, and takes the mark back afterwards. A thread that ends the object
 * first makes the object unreachable for new calls, then waits until no other thread has marked it.
 *
 * A mark is two plain stores to the thread's own cache line, ordered by the light fence. A thread without a slot of
 * its own (base/thread.h) adds to and subtracts from one of a few shared counters instead. The object's address
 * selects the counter. */
#ifndef LOCHI_UNDERWAY_H
#define LOCHI_UNDERWAY_H

#include "base/fence.h"
#include "base/thread.h"
#include "base/underway_marks.h"

/* Marks `object` for the calling thread. Pass the result to lochi_underway_leave. */
static inline uint32_t lochi_underway_enter(const void *object)
{
    const uint32_t slot = lochi_thread_slot();
    if (__builtin_expect(slot == LOCHI_SLOT_SHARED, 0)) return lochi_underway_enter_shared(object);
    lochi_underway *underway = &lochi_underway_slots[slot];
    const unsigned depth = atomic_load_explicit(&underway->depth, memory_order_relaxed);
    if (depth < LOCHI_UNDERWAY_DEPTH) atomic_store_explicit(&underway->objects[depth], object, memory_order_relaxed);
    atomic_store_explicit(&underway->depth, depth + 1, memory_order_relaxed);
    lochi_fence_light();
    return slot;
}

/* Takes back the mark that lochi_underway_enter returned. */
static inline void lochi_underway_leave(uint32_t mark)
{
    if (__builtin_expect(mark >= LOCHI_SLOT_SHARED, 0)) {
        lochi_underway_leave_shared(mark);
        return;
    }
    lochi_underway *underway = &lochi_underway_slots[mark];
    const unsigned depth = atomic_load_explicit(&underway->depth, memory_order_relaxed) - 1;
    if (depth < LOCHI_UNDERWAY_DEPTH) atomic_store_explicit(&underway->objects[depth], NULL, memory_order_release);
    atomic_store_explicit(&underway->depth, depth, memory_order_release);
}

/* Waits until no other thread has marked `object`. The caller has marked `object`, and keeps new calls out. The caller
 * should hold no mark on another object: two threads that wait for each other's marks wait forever. */
void lochi_underway_wait(const void *object);

/* Waits until no other thread has marked `object`, for a caller that has not marked `object`. Otherwise as
 * lochi_underway_wait: the caller keeps new calls out and should hold no mark on another object. */
void lochi_underway_wait_unmarked(const void *object);

#endif
