/* SPDX-License-Identifier: MIT */
/* Threads by number. The number is never used twice; the slot is small and dense, and passes to another thread when its
 * owner ends, so that per-thread figures can live in arrays. */
#ifndef LOCHI_THREAD_H
#define LOCHI_THREAD_H

#include "base/thread_own.h"

/* Take a slot and a number for the calling thread, which has none. For the functions below. */
uint32_t lochi_thread_slot_take(void);
uint64_t lochi_thread_number_take(void);

/* Returns the calling thread's slot. A new owner sees what the old one wrote to it. */
static inline uint32_t lochi_thread_slot(void)
{
    const uint32_t slot = lochi_thread_slot_plus_one;
    return __builtin_expect(slot != 0, 1) ? slot - 1 : lochi_thread_slot_take();
}

/* Calls `function` with the slot of every thread that ends, in that thread, before another may have the slot. There may be
 * one function only; giving it again does nothing. The child of a fork does not call it for the threads that it lost. */
void lochi_thread_at_end(void (*function)(uint32_t slot));

/* Calls `function` with each slot that the last fork took from a thread. */
void lochi_thread_visit_lost(void (*function)(uint32_t slot));

/* Returns the calling thread's number: never 0. */
static inline uint64_t lochi_thread_number(void)
{
    const uint64_t number = lochi_thread_own_number;
    return __builtin_expect(number != 0, 1) ? number : lochi_thread_number_take();
}

#endif
