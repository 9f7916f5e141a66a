/* SPDX-License-Identifier: MIT */
/* The structs of the live room. */
#ifndef LOCHI_LIVE_STATE_H
#define LOCHI_LIVE_STATE_H

#include <loch/allocator.h>
#include <stddef.h>
#include <stdint.h>

#define LOCHI_LIVE_FRAMES 24 /* frames of a call stack, with those of the library itself */

/* A call stack, innermost frame first. It stays until the process ends. */
typedef struct lochi_live_stack {
    struct lochi_live_stack *next; /* in the table of stacks (stacks.c) */
    uint32_t hash, count;
    uintptr_t frames[];
} lochi_live_stack;

/* A live block. */
typedef struct lochi_live_block {
    uintptr_t address; /* 0: an empty place of the table */
    const loch_allocator *allocator;
    size_t bytes;
    const lochi_live_stack *stack; /* NULL if there was no memory for it */
    uint32_t source;               /* number of the allocator's name (sources.h) */
    loch_tag tag;
} lochi_live_block;

#endif
