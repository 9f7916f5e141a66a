/* SPDX-License-Identifier: MIT */
/* The allocator beneath: that of the C library, by the names that a preloaded malloc does not replace. It serves calls
 * from before the constructor, the bookkeeping of Loch, and requests that the pool refuses. Unit tests of the front do
 * not replace malloc, and call it by its ordinary name, which a sanitizer replaces. */
#ifndef FRONT_BENEATH_H
#define FRONT_BENEATH_H

#include <malloc.h>
#include <stdlib.h>

#ifdef FRONT_TESTED_ALONE
#define beneath_malloc malloc
#define beneath_calloc calloc
#define beneath_realloc realloc
#define beneath_memalign memalign
#define beneath_free free
#else
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *address, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *address);
#define beneath_malloc __libc_malloc
#define beneath_calloc __libc_calloc
#define beneath_realloc __libc_realloc
#define beneath_memalign __libc_memalign
#define beneath_free __libc_free
#endif

#endif
