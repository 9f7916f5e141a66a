/* SPDX-License-Identifier: MIT */
/* Pages of caches: parts of equal size of one growable block, the region. The region has addresses for the most pages
 * that there can be, and memory for those that were needed so far. Free pages are used again, the last one first. */
#ifndef DECODER_PAGES_H
#define DECODER_PAGES_H

#include <loch/loch.h>
#include <pthread.h>

#define PAGE_POSITIONS 16

typedef struct decoder_pages {
    pthread_mutex_t lock;
    loch_allocator *pool; /* retained */
    char *region;
    size_t page_bytes, most;
    size_t made;   /* under the lock, like all that follows: pages that the region has memory for */
    int32_t *free; /* numbers of free pages */
    size_t free_count;
    int is_whole; /* the region cannot grow, so it has memory for all pages */
} decoder_pages;

/* Reserves the region for `most` pages. Call pages_close in any case. */
loch_status pages_open(decoder_pages *pages, loch_allocator *pool, size_t page_bytes, size_t most, loch_stream *stream);

/* Frees the region. Fails if pages are in use. */
loch_status pages_close(decoder_pages *pages);

/* Takes a page. Any thread. */
loch_status pages_take(decoder_pages *pages, int32_t *out);

/* Gives pages back. Work that is queued on them must be ordered before the next use. Any thread. */
void pages_put(decoder_pages *pages, const int32_t *numbers, size_t count);

#endif
