/* SPDX-License-Identifier: MIT */
/* Calling observers of driver memory (loch/observer.h), for the files that allocate and free it.
 *
 * Either the thread that allocates a range or the thread that adds an observer calls the observer for that range.
 * The lock of the table of ranges decides which: observers are numbered, and a range that becomes usable stores the
 * newest number in the same critical section. The allocating thread calls the observers up to that number; later
 * observers find the range in the table when they are added. So each observer is called for each range once. Without
 * observers the cost is one relaxed load. */
#ifndef LOCHI_OBSERVERS_H
#define LOCHI_OBSERVERS_H

#include "device/ranges.h"
#include <loch/observer.h>

extern _Atomic uint64_t lochi_observers_newest; /* 0 without observers; rises under the lock of ranges only */

/* Returns the number of the newest observer, for lochi_observers_tell_taken. Call it in the critical section of
 * ranges that makes a range usable. */
static inline uint64_t lochi_observers_now(void)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    return atomic_load_explicit(&lochi_observers_newest, memory_order_relaxed);
}

/* Calls the observers up to number `upto` for a new range. Hold no lock. */
void lochi_observers_call_taken(const loch_range *range, uint64_t upto);

/* Calls the observers up to number `upto` for a range that has become usable. Hold no lock. */
static inline void lochi_observers_tell_taken(loch_device *device, loch_memory_kind kind, uintptr_t start, size_t bytes,
                                              const void *memory, uint64_t upto)
{
    if (__builtin_expect(upto == 0, 1)) return;
    const loch_range range = {device, kind, (void *)start, bytes, memory};
    lochi_observers_call_taken(&range, upto);
}

/* Calls all observers for a range that is about to end. Drops the lock of ranges during the calls and holds it again
 * on return. Then every observer that was called for the beginning of the range was called for its end. The caller
 * removes the range from the table, or hides it, in the same critical section. */
void lochi_observers_tell_going(loch_device *device, loch_memory_kind kind, uintptr_t start, size_t bytes,
                                const void *memory);

#endif
