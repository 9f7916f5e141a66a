/* SPDX-License-Identifier: MIT */
/* Marks of the objects that threads are inside of, by slot (base/inside.h). */
#ifndef LOCHI_INSIDE_MARKS_H
#define LOCHI_INSIDE_MARKS_H

#include "base/thread_own.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define LOCHI_INSIDE_DEPTH 7

typedef struct lochi_inside {
    _Alignas(64) _Atomic(const void *) objects[LOCHI_INSIDE_DEPTH];
    atomic_uint depth; /* written by the slot's owner alone */
} lochi_inside;

extern lochi_inside lochi_inside_slots[LOCHI_SLOT_SHARED];

/* Marks a thread of the shared slot; what it returns goes to lochi_inside_leave_shared. */
uint32_t lochi_inside_enter_shared(const void *object);

/* Takes back a mark of lochi_inside_enter_shared. */
void lochi_inside_leave_shared(uint32_t mark);

/* Tells whether the owner of `slot`, which is not the shared one, may be inside `object`. */
bool lochi_inside_is_marked(uint32_t slot, const void *object);

/* Waits until no other thread of the shared slot is inside the group of `object`. A caller with a mark on the object takes it
 * out meanwhile, so that two threads that end two objects of one group do not wait for each other. */
void lochi_inside_wait_shared(const void *object, bool is_marked_here);

/* Forgets the marks of all threads but the calling one, in the child of a fork. */
void lochi_inside_forked(void);

#endif
