/* SPDX-License-Identifier: MIT */
/* Caches of threads: for each class a list of free blocks, and a spare list that is a whole batch. Only the thread
 * itself touches them, so the fast path has no lock and no atomic operation.
 *
 *     alloc: takes the first block of the list; empty: the spare becomes the list; no spare: a chain of the shelf
 *     free:  adds a block to the list; a whole batch: the list becomes the spare, an old spare goes to the shelf
 *
 * The cache is thread-local memory and needs no making. It is zero until the slow path is called for the first time, so
 * every first call takes the slow path. When the thread ends, all lists go to the shelves, and later calls of other
 * destructors take the slow path without a cache. */
#ifndef FRONT_CACHE_H
#define FRONT_CACHE_H

#include "pages.h"

typedef struct front_bin {
    void *head;     /* free blocks, linked by their first word */
    uint32_t count; /* blocks in `head` */
    uint32_t most;  /* the batch of the class; 0 if the thread has no cache, and for addresses without a class */
} front_bin;

extern _Thread_local front_bin front_own[FRONT_CLASS_END] __attribute__((tls_model("initial-exec")));

/* Makes the key whose destructor ends caches. Returns false if the process has no key left. Call it once. */
bool front_cache_start(void);

/* Begins the cache of the calling thread. Returns whether the thread has one: not after its end. */
bool front_cache_begin(void);

/* Allocates a block of a class after the list was found empty. Returns NULL if the pool has no memory. The caller
 * must not be inside Loch. */
void *front_cache_refill(unsigned class);

/* Frees a block of a class after the list was found full. The caller must not be inside Loch. */
void front_cache_overflow(void *address, unsigned class);

/* Gives all blocks of the calling thread's cache back, large ones too. */
void front_cache_empty(void);

/* Takes a block from the cache; NULL if it has none. */
static inline void *front_cache_take(unsigned class)
{
    front_bin *bin = &front_own[class];
    void *address = bin->head;
    if (__builtin_expect(address != NULL, 1)) {
        bin->head = *(void **)address;
        bin->count--;
    }
    return address;
}

/* Puts a block into the cache. Returns false if there is no place. */
static inline bool front_cache_put(void *address, unsigned class)
{
    front_bin *bin = &front_own[class];
    if (__builtin_expect(bin->count >= bin->most, 0)) return false;
    *(void **)address = bin->head;
    bin->head = address;
    bin->count++;
    return true;
}

#endif
