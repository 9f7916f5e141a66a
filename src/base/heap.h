/* SPDX-License-Identifier: MIT */
/* Memory for the library's own bookkeeping, from the replaceable host allocator (loch/host.h). Counted; never for users'
 * data. Any thread. */
#ifndef LOCHI_HEAP_H
#define LOCHI_HEAP_H

#include <stddef.h>

/* NULL on failure (the error record is the caller's to write); aligned for any type. */
void *lochi_alloc(size_t bytes);
void *lochi_zalloc(size_t bytes);

/* The same, zeroed, at a multiple of `alignment`, a power of two above any type's; freed by lochi_free_aligned. */
void *lochi_zalloc_aligned(size_t alignment, size_t bytes);
void lochi_free_aligned(void *address);

/* Zeroed memory straight from the system, for large tables of which little is used: pages come when they are touched. Not
 * counted. NULL on failure. */
void *lochi_map(size_t bytes);
void lochi_unmap(void *address, size_t bytes);

/* count * bytes, checked; an overflow is a failure. */
void *lochi_alloc_array(size_t count, size_t bytes);

/* Grows or shrinks; the old piece stays as it is on failure. */
void *lochi_realloc(void *address, size_t bytes);

/* NULL does nothing. */
void lochi_free(void *address);

/* A copy of a string; NULL on failure. */
char *lochi_strdup(const char *text);

#endif
