/* SPDX-License-Identifier: MIT */
/* Marks of threads on objects, by slot (base/hazard.h). */
#ifndef LOCHI_HAZARD_MARKS_H
#define LOCHI_HAZARD_MARKS_H

#include "base/thread_own.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define LOCHI_HAZARD_DEPTH 7

/* The marks of one slot: a stack of objects, one cache line. */
typedef struct lochi_hazard {
    _Alignas(64) _Atomic(const void *) objects[LOCHI_HAZARD_DEPTH];
    atomic_uint depth; /* written by the slot's owner only; may exceed LOCHI_HAZARD_DEPTH */
} lochi_hazard;

extern lochi_hazard lochi_hazard_slots[LOCHI_SLOT_SHARED];

/* Marks `object` for a thread of the shared slot. Pass the result to lochi_hazard_leave_shared. */
uint32_t lochi_hazard_enter_shared(const void *object);

/* Takes back a mark of lochi_hazard_enter_shared. */
void lochi_hazard_leave_shared(uint32_t mark);

/* Returns whether the owner of `slot` may have marked `object`. `slot` is not the shared slot. */
bool lochi_hazard_is_marked(uint32_t slot, const void *object);

/* Waits until no other thread of the shared slot has marked an object of the group of `object`. `is_marked_here`: the
 * caller is a thread of the shared slot and has marked `object`. Its mark is then withdrawn during the wait, so that
 * two threads that end two objects of one group do not wait for each other. */
void lochi_hazard_wait_shared(const void *object, bool is_marked_here);

/* Removes the marks of all threads except the calling thread. Called in the child of a fork. */
void lochi_hazard_forked(void);

#endif
