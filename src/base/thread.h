/* SPDX-License-Identifier: MIT */
/* Numbers and slots of threads. A number is never used twice. A slot is a small number that passes to another thread
 * when its owner ends, so that data of each thread can be in arrays. */
#ifndef LOCHI_THREAD_H
#define LOCHI_THREAD_H

#include "base/shared.h"
#include "base/thread_own.h"
#include <stdatomic.h>

/* Take a slot and a number for the calling thread, which has none yet. For the inline functions below. */
LOCHI_SHARED uint32_t lochi_thread_slot_take(void);
LOCHI_SHARED uint64_t lochi_thread_number_take(void);

/* Slots from this number on were never taken. Relaxed: a thread takes its slot before it writes a mark or a cache of
 * its own, so a reader behind the heavy fence that has to see those sees this too. */
extern _Atomic uint32_t lochi_thread_slots_top;

/* Returns the calling thread's slot. A new owner of a slot sees the writes of the old owner. */
static inline uint32_t lochi_thread_slot(void)
{
    const uint32_t slot = lochi_thread_slot_plus_one;
    return __builtin_expect(slot != 0, 1) ? slot - 1 : lochi_thread_slot_take();
}

/* Registers a function that is called with the slot of every thread that ends, in that thread, before another thread
 * can take the slot. There are a few functions only; registering one again does nothing. The child of a fork does not
 * call it for threads that do not exist in the child. */
void lochi_thread_at_end(void (*function)(uint32_t slot));

/* Calls `function` with each slot whose thread does not exist in the child of the last fork. */
void lochi_thread_visit_lost(void (*function)(uint32_t slot));

/* Returns the calling thread's number; never 0. */
static inline uint64_t lochi_thread_number(void)
{
    const uint64_t number = lochi_thread_own_number;
    return __builtin_expect(number != 0, 1) ? number : lochi_thread_number_take();
}

#endif
