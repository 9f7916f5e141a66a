/* SPDX-License-Identifier: MIT */
/* The table of kept copies.
 *
 * An entry does not hold its source. It holds a watch on the source (memory/buffer/watch.h). The watch tells when the
 * source was written or destroyed, or when the copy itself was written. The next call that uses the table drops such
 * entries. */
#include "engine/context/copies.h"
#include "base/heap.h"
#include "engine/context/thread.h"
#include "engine/stream_pool.h"
#include "memory/buffer/buffer.h"
#include <string.h>

#define COPIES_FIRST 16 /* buckets */

/* --- keys --- */

static uint64_t copy_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

lochi_copy_key lochi_copy_key_make(const loch_tensor *tensor, unsigned seat)
{
    const lochi_layout *layout = &tensor->layout;
    lochi_copy_key key = {.buffer = loch_buffer_get_id(tensor->buffer),
                          .offset = tensor->buffer->offset + tensor->offset,
                          .seat = seat,
                          .layout = layout};
    key.hash = copy_mix(copy_mix(copy_mix(key.buffer, key.offset), seat), (uint64_t)layout->dtype);
    for (size_t i = 0; i < layout->dimensions; i++)
        key.hash = copy_mix(copy_mix(key.hash, (uint64_t)layout->shape[i]), (uint64_t)layout->strides[i]);
    return key;
}

static bool copy_key_is_same(const lochi_copy_key *a, const lochi_copy_key *b)
{
    const lochi_layout *x = a->layout, *y = b->layout;
    return a->hash == b->hash && a->buffer == b->buffer && a->offset == b->offset && a->seat == b->seat &&
           x->dtype == y->dtype && x->dimensions == y->dimensions &&
           !memcmp(x->shape, y->shape, x->dimensions * sizeof *x->shape) &&
           !memcmp(x->strides, y->strides, x->dimensions * sizeof *x->strides);
}

/* --- the table --- */

static lochi_copy_entry **copies_bucket(const lochi_copies *copies, uint64_t hash)
{
    return &copies->buckets[hash & (copies->buckets_count - 1)];
}

lochi_copy_entry **lochi_copies_find(const lochi_copies *copies, const lochi_copy_key *key)
{
    if (!copies->buckets) return NULL;
    lochi_copy_entry **link = copies_bucket(copies, key->hash);
    while (*link && !copy_key_is_same(&(*link)->key, key))
        link = &(*link)->next;
    return *link ? link : NULL;
}

void lochi_copies_put(lochi_copies *copies, lochi_copy_entry *entry)
{
    lochi_copy_entry **bucket = copies_bucket(copies, entry->key.hash);
    entry->next = *bucket;
    *bucket = entry;
}

loch_status lochi_copies_make_room(lochi_copies *copies)
{
    if (copies->count < copies->buckets_count) return LOCH_OK;
    const lochi_copies old = *copies;
    const size_t count = old.buckets_count ? 2 * old.buckets_count : COPIES_FIRST;
    lochi_copy_entry **buckets = lochi_zalloc(count * sizeof(lochi_copy_entry *));
    if (!buckets && !old.buckets) return LOCH_FAIL(HOST_MEMORY, "no host memory for a table of copies");
    if (!buckets) return LOCH_OK;
    copies->buckets = buckets;
    copies->buckets_count = count;
    for (size_t i = 0; i < old.buckets_count; i++)
        for (lochi_copy_entry *entry = old.buckets[i], *next; entry; entry = next) {
            next = entry->next;
            lochi_copies_put(copies, entry);
        }
    lochi_free(old.buckets);
    return LOCH_OK;
}

/* --- ending --- */

void lochi_copy_give_event(const loch_context *context, lochi_copy_entry *entry)
{
    lochi_stream_pool_release_event(lochi_context_place(context, entry->key.seat)->streams, entry->event);
    entry->event = NULL;
}

void lochi_copy_end(const loch_context *context, lochi_copy_entry *entry)
{
    lochi_copy_give_event(context, entry);
    lochi_watch_release(entry->watch);
    lochi_watch_release(entry->own_watch);
    loch_tensor_release(entry->tensor);
    lochi_free(entry);
}

void lochi_copies_take(lochi_copies *copies, lochi_copy_entry **link, lochi_copy_entry **list)
{
    lochi_copy_entry *entry = *link;
    *link = entry->next;
    entry->next = *list;
    *list = entry;
    copies->count--;
    copies->bytes -= loch_tensor_get_bytes(entry->tensor);
}

size_t lochi_copies_end_list(const loch_context *context, lochi_copy_entry *list)
{
    size_t bytes = 0;
    while (list) {
        lochi_copy_entry *entry = list;
        list = entry->next;
        bytes += loch_tensor_get_bytes(entry->tensor);
        lochi_copy_end(context, entry);
    }
    return bytes;
}

bool lochi_copy_is_spoilt(const lochi_copy_entry *entry)
{
    return lochi_watch_read(entry->own_watch) != entry->own_changes ||
           entry->own_version != loch_buffer_get_version(entry->tensor->buffer);
}

/* Tells whether the source was written or destroyed, or the copy is spoilt. Does not check whether the source's pool
 * has slept without its contents: the lookup of the copy checks that. */
static bool copy_is_stale(const lochi_copy_entry *entry)
{
    return lochi_watch_read(entry->watch) != entry->changes || lochi_copy_is_spoilt(entry);
}

/* Drops copies on `device`, or on all devices if it is NULL. With `is_stale_only` drops only the stale ones. */
static size_t copies_drop_some(loch_context *context, const loch_device *device, bool is_stale_only)
{
    lochi_copies *copies = &context->copies;
    lochi_copy_entry *list = NULL;
    for (size_t i = 0; i < copies->buckets_count; i++)
        for (lochi_copy_entry **link = &copies->buckets[i]; *link;) {
            const lochi_copy_entry *entry = *link;
            const bool is_here = !device || lochi_context_place(context, entry->key.seat)->device == device;
            if (is_here && (!is_stale_only || copy_is_stale(entry)))
                lochi_copies_take(copies, link, &list);
            else
                link = &(*link)->next;
        }
    return lochi_copies_end_list(context, list);
}

/* A dropped copy may itself be the source of another copy, of this context or of another. The next call drops that
 * copy. */
void lochi_copies_sweep(loch_context *context)
{
    const uint64_t changes = lochi_watch_count_changes();
    if (!context->copies.count || changes == context->copies.seen_changes) return;
    context->copies.seen_changes = changes;
    (void)copies_drop_some(context, NULL, true);
}

size_t lochi_copies_drop(loch_context *context, const loch_device *device)
{
    return copies_drop_some(context, device, false);
}

void lochi_copies_end(loch_context *context)
{
    (void)lochi_copies_drop(context, NULL);
    lochi_free(context->copies.buckets);
    context->copies = (lochi_copies){0};
}
