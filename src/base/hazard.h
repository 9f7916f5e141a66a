/* SPDX-License-Identifier: MIT */
/* Calls under way on objects that another thread may end.
 *
 * A thread marks an object before it works on it, and takes the mark back afterwards. A thread that ends the object
 * first makes the object unreachable for new calls, then waits until no other thread has marked it.
 *
 * A mark is two plain stores to the thread's own cache line, ordered by the light fence. A thread without a slot of
 * its own (base/thread.h) adds to and subtracts from one of a few shared counters instead. The object's address
 * selects the counter. */
#ifndef LOCHI_HAZARD_H
#define LOCHI_HAZARD_H

#include "base/fence.h"
#include "base/thread.h"
#include "base/hazard_marks.h"

/* Marks `object` for the calling thread. Pass the result to lochi_hazard_leave. */
static inline uint32_t lochi_hazard_enter(const void *object)
{
    const uint32_t slot = lochi_thread_slot();
    if (__builtin_expect(slot == LOCHI_SLOT_SHARED, 0)) return lochi_hazard_enter_shared(object);
    lochi_hazard *own = &lochi_hazard_slots[slot];
    const unsigned depth = atomic_load_explicit(&own->depth, memory_order_relaxed);
    if (depth < LOCHI_HAZARD_DEPTH) atomic_store_explicit(&own->objects[depth], object, memory_order_relaxed);
    atomic_store_explicit(&own->depth, depth + 1, memory_order_relaxed);
    lochi_fence_light();
    return slot;
}

/* Takes back the mark that lochi_hazard_enter returned. */
static inline void lochi_hazard_leave(uint32_t mark)
{
    if (__builtin_expect(mark >= LOCHI_SLOT_SHARED, 0)) {
        lochi_hazard_leave_shared(mark);
        return;
    }
    lochi_hazard *own = &lochi_hazard_slots[mark];
    const unsigned depth = atomic_load_explicit(&own->depth, memory_order_relaxed) - 1;
    if (depth < LOCHI_HAZARD_DEPTH) atomic_store_explicit(&own->objects[depth], NULL, memory_order_release);
    atomic_store_explicit(&own->depth, depth, memory_order_release);
}

/* Waits until no other thread has marked `object`. The caller has marked `object`, and keeps new calls out. The caller
 * should hold no mark on another object: two threads that wait for each other's marks wait forever. */
void lochi_hazard_wait(const void *object);

/* Waits until no other thread has marked `object`, for a caller that has not marked `object`. Otherwise as
 * lochi_hazard_wait: the caller keeps new calls out and should hold no mark on another object. */
void lochi_hazard_wait_unmarked(const void *object);

#endif
