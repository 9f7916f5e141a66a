/* SPDX-License-Identifier: MIT */
/* Pages of the host for pinned memory (pages.c). Nothing here calls CUDA. */
#ifndef LOCHI_CUDA_PAGES_H
#define LOCHI_CUDA_PAGES_H

#include <loch/status.h>
#include <pthread.h>
#include <stddef.h>

/* How pages are made present. Zero means the own choice; tests name others. */
typedef struct lochi_cuda_pages_way {
    unsigned threads;                                         /* that share the work */
    int (*populate)(void *address, size_t bytes, int advice); /* madvise */
    int (*start)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                 void *user); /* of a thread */
} lochi_cuda_pages_way;

/* Maps `bytes` of host memory for page-locking: aligned to `alignment` (a power of two, or 0), near NUMA node `node`
 * (-1 for any), with every page present. `way` is NULL for the own choice. The child of a fork does not get the
 * memory. E_HOST_MEMORY: the host has not enough memory; nothing stays mapped. Any thread; no cancellation point. */
loch_status lochi_cuda_map_pages(size_t bytes, size_t alignment, int node, const lochi_cuda_pages_way *way, void **out);

/* Unmaps memory of lochi_cuda_map_pages. At the process's limit of mappings only the pages are freed. */
void lochi_cuda_unmap_pages(void *address, size_t bytes);

#endif
