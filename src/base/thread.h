/* SPDX-License-Identifier: MIT */
/* Threads by number. The number is never used twice; the slot is small and dense, and passes to another thread when its
 * owner ends, so that per-thread figures can live in arrays. */
#ifndef LOCHI_THREAD_H
#define LOCHI_THREAD_H

#include <stdint.h>

#define LOCHI_SLOT_COUNT 256
#define LOCHI_SLOT_SHARED (LOCHI_SLOT_COUNT - 1) /* of all threads beyond the others: written with atomic additions */

/* Small variables of several files, together because each by itself would be padded to a word. */
typedef struct lochi_thread_small {
    uint8_t room_ends;   /* how often the thread's room went (room.c) */
    uint8_t bare_status; /* of the last failure, while the thread has no room (status.c) */
    uint16_t factories;  /* that the thread is in (memory/registry.c) */
} lochi_thread_small;

/* Initial-exec: one load at a fixed offset from the thread pointer. These few bytes fit what the loader keeps back for
 * libraries that are loaded late (room.h). */
extern _Thread_local uint32_t lochi_thread_slot_plus_one __attribute__((tls_model("initial-exec")));

extern _Thread_local lochi_thread_small lochi_thread_own_small __attribute__((tls_model("initial-exec")));
extern _Thread_local uint64_t lochi_thread_own_number __attribute__((tls_model("initial-exec")));

uint32_t lochi_thread_slot_take(void);
uint64_t lochi_thread_number_take(void);

/* The calling thread's slot. A new owner sees what the old one wrote to it. */
static inline uint32_t lochi_thread_slot(void)
{
    const uint32_t slot = lochi_thread_slot_plus_one;
    return __builtin_expect(slot != 0, 1) ? slot - 1 : lochi_thread_slot_take();
}

/* Calls `function` with the slot of every thread that ends, in that thread, before another may have the slot. There may be
 * one function only; giving it again does nothing. */
void lochi_thread_at_end(void (*function)(uint32_t slot));

/* In the child of a fork: frees the slots of all other threads. Functions of lochi_thread_at_end do not hear of it. */
void lochi_thread_forked(void);

/* Calls `function` with each slot that the last fork took from a thread. */
void lochi_thread_visit_lost(void (*function)(uint32_t slot));

/* The calling thread's number: never 0. */
static inline uint64_t lochi_thread_number(void)
{
    const uint64_t number = lochi_thread_own_number;
    return __builtin_expect(number != 0, 1) ? number : lochi_thread_number_take();
}

#endif
