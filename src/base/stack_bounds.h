/* SPDX-License-Identifier: MIT */
/* The bounds of the calling thread's stack, from /proc/self/maps. Allocates nothing, unlike pthread_getattr_np. */
#ifndef LOCHI_STACK_BOUNDS_H
#define LOCHI_STACK_BOUNDS_H

#include <stdbool.h>
#include <stdint.h>

/* Finds the stack that `sp` is on, if it is the one that the system made for the calling thread. Returns false if it is
 * another one, or cannot be found. */
bool lochi_stack_bounds_find(uintptr_t sp, uintptr_t *low, uintptr_t *high);

#endif
