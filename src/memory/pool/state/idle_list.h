/* SPDX-License-Identifier: MIT */
/* Lists of idle handles: those that no live block is known to touch. Frees list them (blocks.c), and looks at the cap
 * take them from there (release.c). A listed handle may be in use again: requests do not take it out. */
#ifndef LOCHI_POOL_IDLE_LIST_H
#define LOCHI_POOL_IDLE_LIST_H

#include <stddef.h>
#include <stdint.h>

/* What a handle knows about its use. */
typedef struct pool_idle {
    uintptr_t live_at;           /* address in the handle that is not free; 0 if none is known */
    struct pool_idle_list *list; /* NULL for none */
    struct pool_idle *prev, *next;
} pool_idle;

/* The handle that was listed first comes first. */
typedef struct pool_idle_list {
    pool_idle *first, *last;
} pool_idle_list;

/* Enters a handle at the end of a list. It is in no list before. */
static inline void lochi_pool_list_idle(pool_idle_list *list, pool_idle *idle)
{
    *idle = (pool_idle){.list = list, .prev = list->last};
    *(list->last ? &list->last->next : &list->first) = idle;
    list->last = idle;
}

/* Takes a handle out of its list, if it is in one. `live_at` is an address in it that is not free; 0: unknown. */
static inline void lochi_pool_unlist_idle(pool_idle *idle, uintptr_t live_at)
{
    pool_idle_list *list = idle->list;
    idle->live_at = live_at;
    if (!list) return;
    *(idle->prev ? &idle->prev->next : &list->first) = idle->next;
    *(idle->next ? &idle->next->prev : &list->last) = idle->prev;
    idle->list = NULL;
}

#endif
