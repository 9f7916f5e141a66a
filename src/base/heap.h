/* SPDX-License-Identifier: MIT */
/* Memory for the library's own bookkeeping, from the replaceable host allocator (loch/host.h). Counted. Never used
 * for users' data. Any thread. */
#ifndef LOCHI_HEAP_H
#define LOCHI_HEAP_H

#include "base/shared.h"
#include <stddef.h>

/* Allocate memory that is aligned for every type; lochi_zalloc zeroes it. NULL on failure; the caller writes the
 * error record. */
LOCHI_SHARED void *lochi_alloc(size_t bytes);
LOCHI_SHARED void *lochi_zalloc(size_t bytes);

/* Allocates zeroed memory at a multiple of `alignment`, a power of two above every type's alignment. Free it with
 * lochi_free_aligned. NULL on failure. */
LOCHI_SHARED void *lochi_zalloc_aligned(size_t alignment, size_t bytes);
LOCHI_SHARED void lochi_free_aligned(void *address);

/* Maps zeroed memory directly from the system, for large tables of which little is used: pages are allocated when
 * they are touched. Not counted. NULL on failure. */
void *lochi_map(size_t bytes);
void lochi_unmap(void *address, size_t bytes);
/* Asks the system for large pages under the first `bytes` of a mapping, where none were touched yet. May have no
 * effect. */
void lochi_map_largely(void *address, size_t bytes);

/* Allocates count * bytes. NULL on failure and on overflow. */
LOCHI_SHARED void *lochi_alloc_array(size_t count, size_t bytes);

/* Grows or shrinks a piece. On failure returns NULL and keeps the old piece. */
LOCHI_SHARED void *lochi_realloc(void *address, size_t bytes);

/* Frees a piece. NULL does nothing. */
LOCHI_SHARED void lochi_free(void *address);

/* Copies a string. NULL on failure. */
LOCHI_SHARED char *lochi_strdup(const char *text);

#endif
