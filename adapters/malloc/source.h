/* SPDX-License-Identifier: MIT */
/* The source of all memory: one Loch pool on the CPU, named "malloc". It hands out pages: slabs and large blocks.
 *
 * A thread that is inside Loch may call malloc again: Loch calls functions of the C library that allocate. Such a call
 * must not enter Loch a second time. So every call of Loch is between front_source_enter and front_source_leave, and
 * the slow paths of the front ask front_source_is_inside: then the C library's allocator serves requests, and frees
 * that need a lock or the pool wait in a list until the thread has left. */
#ifndef FRONT_SOURCE_H
#define FRONT_SOURCE_H

#include <loch/allocator.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The pool; NULL before the start, and after a start that failed. Stored with release, read with acquire: a thread that
 * sees the pool sees it complete, and the tables of classes too. */
extern loch_allocator *_Atomic front_pool;

/* Creates the pool. Returns false if that is not possible; the C library's allocator then serves everything. */
bool front_source_start(void);

/* Returns whether the calling thread must not call Loch: it is inside already, or there is no pool. */
bool front_source_is_inside(void);

/* Marks the calling thread as inside Loch, and saves errno. Calls may be nested. */
void front_source_enter(void);

/* Undoes front_source_enter. The outermost call frees what waited. */
void front_source_leave(void);

/* Keeps a block that the calling thread frees inside Loch, until the thread leaves. */
void front_source_postpone(void *address);

/* Allocates `bytes`, a multiple of pages and more than one, at a multiple of `alignment`, which is at least a page.
 * Returns NULL if the pool has no memory. Any thread. */
void *front_source_alloc(size_t bytes, size_t alignment);

/* Changes the size of a block; it may move. Returns NULL if the pool has no memory; the block is unchanged then. */
void *front_source_realloc(void *address, size_t bytes);

/* Frees a block of front_source_alloc. */
void front_source_free(void *address);

/* Gives free memory of the pool back to the system until `keep_bytes` are left. Returns the bytes given back. */
size_t front_source_trim(size_t keep_bytes);

#endif
