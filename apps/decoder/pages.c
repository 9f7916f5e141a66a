/* SPDX-License-Identifier: MIT */
/* The list of free pages has room for all of them, so giving pages back cannot fail. */
#include "pages.h"
#include <stdlib.h>

loch_status pages_open(decoder_pages *pages, loch_allocator *pool, size_t page_bytes, size_t most, loch_stream *stream)
{
    loch_request request = {.size = sizeof request, .stream = stream};
    void *region = NULL;
    *pages = (decoder_pages){.pool = loch_allocator_retain(pool), .page_bytes = page_bytes, .most = most};
    pthread_mutex_init(&pages->lock, NULL);
    pages->free = malloc(most * sizeof *pages->free);
    if (!pages->free) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a list of %zu pages", most);
    LOCH_RETURN(loch_tag_create("caches", &request.tag));
    loch_status status = loch_pool_alloc_growable(pool, most * page_bytes, &request, &region);
    /* the device has no virtual memory, or the engine has no pools */
    if (status == LOCH_E_UNSUPPORTED || status == LOCH_E_INVALID) {
        request.bytes = most * page_bytes;
        pages->is_whole = 1;
        status = loch_allocator_alloc(pool, &request, &region);
    }
    pages->region = region;
    return status;
}

loch_status pages_close(decoder_pages *pages)
{
    if (!pages->pool) return LOCH_OK;
    loch_status status = LOCH_OK;
    if (pages->made != pages->free_count)
        status = loch_error_set(LOCH_E_BUSY, NULL, 0, "%zu pages of caches are left behind",
                                pages->made - pages->free_count);
    const loch_status freed = loch_free(pages->pool, pages->region);
    loch_allocator_release(pages->pool);
    pthread_mutex_destroy(&pages->lock);
    free(pages->free);
    *pages = (decoder_pages){.pool = NULL};
    return status == LOCH_OK ? freed : status;
}

/* Adds one page to the region. Lock held. */
static loch_status pages_make(decoder_pages *pages, int32_t *out)
{
    if (pages->made == pages->most)
        return loch_error_set(LOCH_E_LIMIT, NULL, 0, "all %zu pages of caches are in use", pages->most);
    if (!pages->is_whole)
        LOCH_RETURN(loch_pool_resize_growable(pages->pool, pages->region, (pages->made + 1) * pages->page_bytes));
    *out = (int32_t)pages->made++;
    return LOCH_OK;
}

loch_status pages_take(decoder_pages *pages, int32_t *out)
{
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&pages->lock);
    if (pages->free_count)
        *out = pages->free[--pages->free_count];
    else
        status = pages_make(pages, out);
    pthread_mutex_unlock(&pages->lock);
    return status;
}

void pages_put(decoder_pages *pages, const int32_t *numbers, size_t count)
{
    pthread_mutex_lock(&pages->lock);
    for (size_t i = 0; i < count; i++)
        pages->free[pages->free_count++] = numbers[i];
    pthread_mutex_unlock(&pages->lock);
}
