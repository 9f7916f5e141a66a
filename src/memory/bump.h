/* SPDX-License-Identifier: MIT */
/* What an arena needs to serve a request from its present piece: a pointer that moves. arena.c gives it pieces, and
 * allocator.c calls it. */
#ifndef LOCHI_BUMP_H
#define LOCHI_BUMP_H

#include "kit/hint.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One thread at a time uses an arena, so nothing here is atomic. */
typedef struct lochi_bump {
    char *at, *end;   /* what is left of the present piece */
    size_t unit;      /* blocks are multiples of it, and lie at multiples of it; a power of two */
    size_t requested; /* bytes of the blocks since the last reset */
    size_t largest;   /* largest request of the segment of statistics */
    uint64_t served;  /* blocks ever handed out */
} lochi_bump;

/* Hands out the next bytes of the present piece. Returns false if they do not fit, or for 0 bytes. */
static inline bool lochi_bump_take(lochi_bump *arena, size_t bytes, void **out)
{
    const size_t whole = (bytes + arena->unit - 1) & ~(arena->unit - 1);
    char *at = arena->at;
    if (LOCHI_UNLIKELY(whole - 1 >= (size_t)(arena->end - at))) return false; /* whole is 0 if it overflows */
    arena->at = at + whole;
    arena->requested += bytes;
    arena->served++;
    if (bytes > arena->largest) arena->largest = bytes;
    *out = at;
    return true;
}

#endif
