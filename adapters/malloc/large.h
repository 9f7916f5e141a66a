/* SPDX-License-Identifier: MIT */
/* Large blocks: blocks of the pool, above 32 KiB.
 *
 * Each thread keeps freed blocks of up to LARGE_KEPT_MAX in lists by their exact size, LARGE_BYTES_MAX in all: programs
 * ask for the same sizes again and again, and a block from a list needs no lock and no pool. A list has one size; a
 * block of another size that falls on it ends the list. When a thread would keep too much, lists end in turn. The
 * blocks of a list that ends go back to the pool, and so do those of a thread that ends. A kept block stays in the page
 * map. */
#ifndef FRONT_LARGE_H
#define FRONT_LARGE_H

#include <stdbool.h>
#include <stddef.h>

/* Takes a block for `bytes` that the calling thread keeps; NULL if there is none. */
void *front_large_take(size_t bytes);

/* Keeps a large block. Returns false if that needs the pool. */
bool front_large_keep(void *address);

/* Allocates `bytes` at a multiple of `alignment`, at least a page, from the pool. NULL: no memory. The caller must not
 * be inside Loch, here and below. */
void *front_large_alloc(size_t bytes, size_t alignment);

/* Frees a large block that front_large_keep did not keep. */
void front_large_free(void *address);

/* Resizes a large block that stays large. NULL: no memory; the block is unchanged then. */
void *front_large_realloc(void *address, size_t bytes);

/* Lets the calling thread keep blocks, or keep none. */
void front_large_allow(bool may_keep);

/* Gives all blocks that the calling thread keeps back to the pool. Returns their bytes. */
size_t front_large_empty(void);

#endif
