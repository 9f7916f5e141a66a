/* SPDX-License-Identifier: MIT */
/* Telling observers of driver memory (loch/observer.h), for the files that take it and give it back.
 *
 * Whether an observer hears of a range from the thread that takes it, or from its own addition, is decided under the
 * lock of the table of ranges: observers are numbered, and a range that becomes usable notes the newest number in the
 * same critical section. Observers up to that number are told by the taker; later ones find the range in the table
 * when they are added. So each hears of each range once. With no observer that is all there is: one relaxed load. */
#ifndef LOCHI_OBSERVERS_H
#define LOCHI_OBSERVERS_H

#include "device/ranges.h"
#include <loch/observer.h>

extern _Atomic uint64_t lochi_observers_newest; /* 0 when there is none; rises under the lock of ranges only */

/* Returns the newest observer, for lochi_observers_tell_taken: in the critical section of ranges that makes a range usable. */
static inline uint64_t lochi_observers_now(void)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    return atomic_load_explicit(&lochi_observers_newest, memory_order_relaxed);
}

/* Calls the observers up to number `upto`. Without locks. */
void lochi_observers_call_taken(const loch_range *range, uint64_t upto);

/* Tells the observers up to number `upto` of a range that has become usable. Without locks. */
static inline void lochi_observers_tell_taken(loch_device *device, loch_memory_kind kind, uintptr_t start, size_t bytes,
                                              uint64_t upto)
{
    if (__builtin_expect(upto == 0, 1)) return;
    const loch_range range = {device, kind, (void *)start, bytes};
    lochi_observers_call_taken(&range, upto);
}

/* Tells all observers of a range that is about to go; drops the lock of ranges while it calls. When it returns, with the
 * lock held again, every observer that has heard of the range has heard of its end; in the same critical section the
 * caller takes the range out of the table, or hides it. */
void lochi_observers_tell_going(loch_device *device, loch_memory_kind kind, uintptr_t start, size_t bytes);

#endif
