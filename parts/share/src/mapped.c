/* SPDX-License-Identifier: MIT */
/* The list of mapped spans. A span is known by the connection that it came over and by its number there, never by what
 * a token says alone: a token can name any process. A span is reserved, imported and mapped without the lock held,
 * because these calls go to the driver. It is listed when it is complete. Two threads may map one span at a time; the
 * second gives its own up. */
#include "mapped.h"
#include "state.h"
#include "kit/fail.h"
#include <stdlib.h>

struct share_mapped {
    struct share_mapped *next; /* under lochi_share_lock */
    uint64_t connection;       /* number of the connection that it came over; 0: it is not listed */
    uint64_t span;
    loch_device *device; /* retained */
    char *start;
    size_t bytes;        /* of the reservation */
    size_t mapped_bytes; /* from the start */
    size_t uses;         /* under lochi_share_lock */
    bool is_listed;      /* under lochi_share_lock */
    size_t capacity, count;
    loch_handle *handles[];
};

static share_mapped *mapped_list;

/* Finds a span in the list, with the lock held, and takes a use of it. */
static share_mapped *mapped_take(const loch_device *device, uint64_t connection, uint64_t span)
{
    share_mapped *found = mapped_list;
    while (found && (found->span != span || found->device != device || found->connection != connection))
        found = found->next;
    if (found) found->uses++;
    return found;
}

share_mapped *lochi_share_mapped_find(loch_device *device, uint64_t connection, uint64_t span)
{
    pthread_mutex_lock(&lochi_share_lock);
    share_mapped *found = mapped_take(device, connection, span);
    pthread_mutex_unlock(&lochi_share_lock);
    return found;
}

/* Gives back what a span has, complete or half built. What the driver refuses to unmap stays reserved. */
static void mapped_end(share_mapped *mapped)
{
    size_t at = 0;
    bool is_free = true;
    for (size_t i = 0; i < mapped->count; i++) {
        const size_t bytes = loch_handle_get_bytes(mapped->handles[i]);
        if (at < mapped->mapped_bytes) is_free = loch_virtual_unmap(mapped->start + at) == LOCH_OK && is_free;
        at += bytes;
        loch_handle_destroy(mapped->handles[i]);
    }
    if (is_free) (void)!loch_virtual_unreserve(mapped->start);
    loch_device_release(mapped->device);
    free(mapped);
}

loch_status lochi_share_mapped_create(loch_device *device, uint64_t connection, uint64_t span, size_t bytes,
                                      size_t handles, share_mapped **out)
{
    *out = NULL;
    share_mapped *mapped = calloc(1, sizeof *mapped + handles * sizeof *mapped->handles);
    if (!mapped) return LOCH_FAIL(HOST_MEMORY, "no host memory to list %zu handles", handles);
    void *start;
    const loch_status status = loch_virtual_reserve(device, bytes, 0, &start);
    if (status != LOCH_OK) {
        free(mapped);
        return status;
    }
    mapped->connection = connection;
    mapped->span = span;
    mapped->device = loch_device_retain(device);
    mapped->start = start;
    mapped->bytes = bytes;
    mapped->uses = 1;
    mapped->capacity = handles;
    *out = mapped;
    return LOCH_OK;
}

loch_status lochi_share_mapped_add(share_mapped *mapped, loch_share share, const void *shared, size_t bytes)
{
    if (mapped->count == mapped->capacity || bytes > mapped->bytes - mapped->mapped_bytes)
        return LOCH_FAIL(IO, "the owner sent more handles than it announced");
    loch_handle *handle;
    loch_status status = loch_handle_import(mapped->device, share, shared, bytes, &handle);
    if (status != LOCH_OK) return status;
    mapped->handles[mapped->count++] = handle;
    status = loch_virtual_map(mapped->start + mapped->mapped_bytes, handle, NULL, 0);
    if (status == LOCH_OK) mapped->mapped_bytes += bytes;
    return status;
}

loch_status lochi_share_mapped_enter(share_mapped **mapped)
{
    share_mapped *own = *mapped;
    *mapped = NULL;
    if (own->count != own->capacity || own->mapped_bytes != own->bytes) {
        mapped_end(own);
        return LOCH_FAIL(IO, "the owner sent fewer handles than it announced");
    }
    if (!own->connection) {
        *mapped = own;
        return LOCH_OK;
    }
    pthread_mutex_lock(&lochi_share_lock);
    *mapped = mapped_take(own->device, own->connection, own->span);
    if (!*mapped) {
        own->next = mapped_list;
        own->is_listed = true;
        *mapped = mapped_list = own;
    }
    pthread_mutex_unlock(&lochi_share_lock);
    if (*mapped != own) mapped_end(own);
    return LOCH_OK;
}

char *lochi_share_mapped_start(const share_mapped *mapped)
{
    return mapped->start;
}

size_t lochi_share_mapped_bytes(const share_mapped *mapped)
{
    return mapped->bytes;
}

void lochi_share_mapped_release(share_mapped *mapped)
{
    if (!mapped) return;
    pthread_mutex_lock(&lochi_share_lock);
    const bool is_last = --mapped->uses == 0;
    for (share_mapped **at = &mapped_list; is_last && mapped->is_listed && *at; at = &(*at)->next)
        if (*at == mapped) {
            *at = mapped->next;
            break;
        }
    pthread_mutex_unlock(&lochi_share_lock);
    if (is_last) mapped_end(mapped);
}

void lochi_share_mapped_forked(void)
{
    for (share_mapped *mapped = mapped_list; mapped; mapped = mapped->next)
        mapped->is_listed = false;
    mapped_list = NULL;
}
