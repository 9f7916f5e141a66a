/* SPDX-License-Identifier: MIT */
/* Kept copies: what tensors of other devices look like on a seat.
 *
 * An entry is found by all that a tensor shows: the number of its buffer, which is never used again, the place in it, type, shape,
 * strides, and the seat of the copy. So views of one buffer have copies of their own, and no tensor finds another's. It is good while
 * the version of the buffer is what it was when the copy was begun, and that of the copy's own what it was when it was queued.
 *
 * An entry does not hold its source, but a watch on it (tensor/watch.h), by which entries are found that nobody will ask for any more: the
 * next call that looks here drops them, and likewise those of copies that somebody wrote. A copy is in the order of the stream that it was queued on; an event behind it orders
 * others. */
#include "base/heap.h"
#include "device/device.h"
#include "engine/context.h"
#include "tensor/buffer/buffer.h"
#include "tensor/tensor.h"
#include <string.h>

#define COPIES_FIRST 16 /* buckets */

/* What a tensor shows, and where it is wanted. */
typedef struct copy_key {
    uint64_t hash;
    uint64_t buffer; /* id */
    size_t offset;   /* in the whole */
    unsigned seat;
    const lochi_layout *layout;
} copy_key;

struct context_copy {
    struct context_copy *next; /* in its bucket */
    copy_key key;              /* its layout is the member below */
    lochi_layout layout;
    uint64_t version;       /* of the source, before it was copied */
    lochi_watch *watch;     /* on the source; held */
    uint64_t changes;       /* of the watch, likewise */
    loch_tensor *tensor;    /* the copy */
    uint64_t own_id;        /* of the copy's buffer */
    uint64_t own_version;   /* of that buffer, after the copy was queued */
    lochi_watch *own_watch; /* on that; held */
    uint64_t own_changes;   /* of that watch, after the copy was queued */
    uint64_t stream_id;     /* that it was queued on */
    loch_event *event;      /* behind it; NULL: it has ended */
};

/* --- keys --- */

static uint64_t copy_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static copy_key copy_key_make(const loch_tensor *tensor, unsigned seat)
{
    const lochi_layout *layout = &tensor->layout;
    copy_key key = {.buffer = loch_buffer_get_id(tensor->buffer),
                    .offset = tensor->buffer->offset + tensor->offset,
                    .seat = seat,
                    .layout = layout};
    key.hash = copy_mix(copy_mix(copy_mix(key.buffer, key.offset), seat), (uint64_t)layout->dtype);
    for (size_t i = 0; i < layout->dimensions; i++)
        key.hash = copy_mix(copy_mix(key.hash, (uint64_t)layout->shape[i]), (uint64_t)layout->strides[i]);
    return key;
}

static bool copy_key_is_same(const copy_key *a, const copy_key *b)
{
    const lochi_layout *x = a->layout, *y = b->layout;
    return a->hash == b->hash && a->buffer == b->buffer && a->offset == b->offset && a->seat == b->seat &&
           x->dtype == y->dtype && x->dimensions == y->dimensions &&
           !memcmp(x->shape, y->shape, x->dimensions * sizeof *x->shape) &&
           !memcmp(x->strides, y->strides, x->dimensions * sizeof *x->strides);
}

/* --- the table --- */

static struct context_copy **copies_bucket(const lochi_copies *copies, uint64_t hash)
{
    return &copies->buckets[hash & (copies->buckets_count - 1)];
}

static struct context_copy **copies_find(const lochi_copies *copies, const copy_key *key)
{
    if (!copies->buckets) return NULL;
    struct context_copy **link = copies_bucket(copies, key->hash);
    while (*link && !copy_key_is_same(&(*link)->key, key))
        link = &(*link)->next;
    return *link ? link : NULL;
}

static void copies_put(lochi_copies *copies, struct context_copy *entry)
{
    struct context_copy **bucket = copies_bucket(copies, entry->key.hash);
    entry->next = *bucket;
    *bucket = entry;
}

/* A table that cannot grow becomes slower, and nothing else. */
static loch_status copies_make_room(lochi_copies *copies)
{
    if (copies->count < copies->buckets_count) return LOCH_OK;
    const lochi_copies old = *copies;
    const size_t count = old.buckets_count ? 2 * old.buckets_count : COPIES_FIRST;
    struct context_copy **buckets = lochi_zalloc(count * sizeof(struct context_copy *));
    if (!buckets && !old.buckets) return LOCH_FAIL(HOST_MEMORY, "no host memory for a table of copies");
    if (!buckets) return LOCH_OK;
    copies->buckets = buckets;
    copies->buckets_count = count;
    for (size_t i = 0; i < old.buckets_count; i++)
        for (struct context_copy *entry = old.buckets[i], *next; entry; entry = next) {
            next = entry->next;
            copies_put(copies, entry);
        }
    lochi_free(old.buckets);
    return LOCH_OK;
}

/* --- ending --- */

static void copy_give_event(const loch_context *context, struct context_copy *entry)
{
    loch_stream_pool_release_event(lochi_context_place(context, entry->key.seat)->streams, entry->event);
    entry->event = NULL;
}

static void copy_end(const loch_context *context, struct context_copy *entry)
{
    copy_give_event(context, entry);
    lochi_watch_release(entry->watch);
    lochi_watch_release(entry->own_watch);
    loch_tensor_release(entry->tensor);
    lochi_free(entry);
}

/* Takes an entry out of the table, onto a list. */
static void copies_take(lochi_copies *copies, struct context_copy **link, struct context_copy **list)
{
    struct context_copy *entry = *link;
    *link = entry->next;
    entry->next = *list;
    *list = entry;
    copies->count--;
    copies->bytes -= loch_tensor_get_bytes(entry->tensor);
}

/* What ends may call deleters, and those the context: nothing points into the table meanwhile. */
static size_t copies_end_list(const loch_context *context, struct context_copy *list)
{
    size_t bytes = 0;
    while (list) {
        struct context_copy *entry = list;
        list = entry->next;
        bytes += loch_tensor_get_bytes(entry->tensor);
        copy_end(context, entry);
    }
    return bytes;
}

/* Whether somebody wrote the copy, bound its tensor to another buffer, or had its pool sleep without the contents. */
static bool copy_is_spoilt(const struct context_copy *entry)
{
    const loch_buffer *own = entry->tensor->buffer;
    return lochi_watch_read(entry->own_watch) != entry->own_changes || entry->own_id != loch_buffer_get_id(own) ||
           entry->own_version != loch_buffer_get_version(own);
}

/* Whether the source was written or has ended, or the copy is of no use. That the source's pool has slept without its contents is seen
 * by who asks for the copy. */
static bool copy_is_stale(const struct context_copy *entry)
{
    return lochi_watch_read(entry->watch) != entry->changes || copy_is_spoilt(entry);
}

/* Drops those on a device, or NULL: on all; of these the stale ones, or all. */
static size_t copies_drop_some(loch_context *context, const loch_device *device, bool is_stale_only)
{
    lochi_copies *copies = &context->copies;
    struct context_copy *list = NULL;
    for (size_t i = 0; i < copies->buckets_count; i++)
        for (struct context_copy **link = &copies->buckets[i]; *link;) {
            const struct context_copy *entry = *link;
            const bool is_here = !device || lochi_context_place(context, entry->key.seat)->device == device;
            if (is_here && (!is_stale_only || copy_is_stale(entry)))
                copies_take(copies, link, &list);
            else
                link = &(*link)->next;
        }
    return copies_end_list(context, list);
}

/* A copy that goes may have been a source itself, of another context or of this one: those go with the next call. */
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

size_t loch_context_drop_copies(loch_context *context)
{
    return lochi_context_check(context) == LOCH_OK ? lochi_copies_drop(context, NULL) : 0;
}

/* --- making --- */

/* Where a copy stands to what the context does on its source's device. */
typedef enum copy_side { COPY_BEHIND, COPY_BEFORE } copy_side;

static loch_status copy_order_one(const loch_context *context, unsigned seat, loch_stream *at, loch_stream *stream,
                                  copy_side side)
{
    if (!at) return LOCH_OK;
    return side == COPY_BEHIND ? lochi_context_order(context, seat, at, stream)
                               : lochi_context_order(context, context->current, stream, at);
}

/* The copy comes behind what the context has queued on the source's own device, and before what it will queue there: on the stream that
 * is set and on its own one, which may be used only later, and so has to be there now. */
static loch_status copy_order(loch_context *context, const loch_tensor *source, loch_stream *stream, copy_side side)
{
    const loch_device *device = loch_tensor_get_device(source);
    for (size_t i = 0; device && i < context->order_count; i++) {
        const unsigned seat = context->order[i];
        const lochi_context_seat *own = &context->seats[seat];
        if (lochi_context_place(context, seat)->device != device) continue;
        LOCH_TRY_RETURN(lochi_context_take_stream(context, seat));
        LOCH_TRY_RETURN(copy_order_one(context, seat, own->own, stream, side));
        LOCH_TRY_RETURN(copy_order_one(context, seat, own->set, stream, side));
    }
    return LOCH_OK;
}

/* From the seat's own memory: a pool of the stack is for what goes before it. */
static loch_status copy_make(loch_context *context, loch_tensor *source, loch_stream *stream, loch_tensor **out)
{
    const lochi_context_wish wish = {.allocator = lochi_context_place(context, context->current)->allocator,
                                     .seat = context->current,
                                     .stream = stream,
                                     .flags = context->flags & LOCH_ALLOC_MOVABLE,
                                     .name = loch_tensor_get_name(source)};
    const lochi_layout *layout = &source->layout;
    LOCH_TRY_RETURN(lochi_context_alloc(context, &wish, layout->dtype, layout->dimensions, layout->shape, out));
    const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = stream};
    const loch_status status = loch_tensor_copy(*out, source, &copy);
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

/* Puts an event behind a copy. Where none can be had, it is waited for. */
static loch_status copy_mark(const loch_context *context, struct context_copy *entry, loch_stream *stream)
{
    const lochi_seat *place = lochi_context_place(context, entry->key.seat);
    entry->stream_id = loch_stream_get_id(stream);
    if (lochi_device_is_at_once(place->device)) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    loch_status status = loch_stream_pool_acquire_event(place->streams, LOCH_EVENT_PLAIN, &entry->event);
    if (status == LOCH_OK) status = loch_event_record(entry->event, stream);
    if (status == LOCH_OK) return LOCH_OK;
    copy_give_event(context, entry);
    lochi_error_restore(&saved);
    return loch_stream_sync(stream);
}

/* What can be had before the copy is queued. */
static loch_status copy_prepare(const loch_tensor *source, const copy_key *key, struct context_copy **out)
{
    struct context_copy *entry = *out = lochi_zalloc(sizeof *entry);
    if (!entry) return LOCH_FAIL(HOST_MEMORY, "no host memory to keep a copy");
    entry->key = *key;
    entry->layout = source->layout;
    entry->key.layout = &entry->layout;
    LOCH_TRY_RETURN(lochi_buffer_watch(source->buffer, &entry->watch));
    entry->changes = lochi_watch_read(entry->watch); /* both before the copy: see lochi_buffer_touch */
    entry->version = loch_buffer_get_version(source->buffer);
    return LOCH_OK;
}

static loch_status copy_keep_new(loch_context *context, loch_tensor *source, const copy_key *key, loch_stream *stream,
                                 loch_tensor **out)
{
    struct context_copy *entry = NULL;
    loch_status status;
    const uint64_t seen = lochi_watch_count_changes();
    LOCH_TRY(copies_make_room(&context->copies), fail);
    LOCH_TRY(copy_prepare(source, key, &entry), fail);
    LOCH_TRY(copy_order(context, source, stream, COPY_BEHIND), fail);
    LOCH_TRY(copy_make(context, source, stream, &entry->tensor), fail);
    LOCH_TRY(copy_order(context, source, stream, COPY_BEFORE), fail);
    LOCH_TRY(copy_mark(context, entry, stream), fail);
    LOCH_TRY(lochi_buffer_watch(entry->tensor->buffer, &entry->own_watch), fail);
    entry->own_id = loch_buffer_get_id(entry->tensor->buffer);
    entry->own_changes = lochi_watch_read(entry->own_watch);
    entry->own_version = loch_buffer_get_version(entry->tensor->buffer);
    if (!context->copies.count) context->copies.seen_changes = seen;
    copies_put(&context->copies, entry);
    context->copies.count++;
    context->copies.bytes += loch_tensor_get_bytes(entry->tensor);
    *out = loch_tensor_retain(entry->tensor);
    return LOCH_OK;
fail:
    if (entry) copy_end(context, entry);
    return status;
}

/* --- finding --- */

static bool copy_has_ended(const loch_context *context, struct context_copy *entry)
{
    const loch_error saved = lochi_error_save();
    if (entry->event && loch_event_query(entry->event) == LOCH_OK) copy_give_event(context, entry);
    lochi_error_restore(&saved);
    return !entry->event;
}

/* Work on another stream than the copy's comes behind it, and the copy's memory stays until that work has ended. What is captured
 * is kept by its owner. */
static loch_status copy_show(const struct context_copy *entry, loch_stream *stream)
{
    if (loch_stream_get_id(stream) == entry->stream_id || lochi_stream_is_captured(stream)) return LOCH_OK;
    if (entry->event) LOCH_TRY_RETURN(loch_stream_wait(stream, entry->event));
    return loch_buffer_record_use(entry->tensor->buffer, stream);
}

static bool copy_is_good(const struct context_copy *entry, const loch_tensor *source)
{
    return entry->version == loch_buffer_get_version(source->buffer) && !copy_is_spoilt(entry);
}

/* The entry of a tensor; one that is no longer good is dropped. */
static struct context_copy *copies_find_good(loch_context *context, const loch_tensor *source, const copy_key *key)
{
    struct context_copy **link = copies_find(&context->copies, key), *list = NULL;
    if (!link) return NULL;
    if (copy_is_good(*link, source)) return *link;
    copies_take(&context->copies, link, &list);
    (void)copies_end_list(context, list);
    return NULL;
}

/* What is captured runs when the graph does: a copy that is made there is not there yet, and one that is under way cannot be
 * waited for. Such a copy is the caller's alone, and so is its order with streams outside the capture. */
static loch_status copies_get(loch_context *context, loch_tensor *source, loch_tensor **out)
{
    const copy_key key = copy_key_make(source, context->current);
    loch_stream *stream;
    LOCH_TRY_RETURN(lochi_context_stream(context, context->current, &stream));
    struct context_copy *entry = copies_find_good(context, source, &key);
    const bool is_there = entry && copy_has_ended(context, entry);
    if (!is_there && lochi_stream_is_captured(stream)) return copy_make(context, source, stream, out);
    if (!entry) return copy_keep_new(context, source, &key, stream, out);
    LOCH_TRY_RETURN(copy_show(entry, stream));
    *out = loch_tensor_retain(entry->tensor);
    return LOCH_OK;
}

loch_status loch_context_acquire_copy(loch_context *context, loch_tensor *tensor, loch_tensor **out)
{
    if (out) *out = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!tensor || !out) return LOCH_FAIL(INVALID, "a copy needs a tensor and a place");
    lochi_copies_sweep(context);
    if (!lochi_tensor_is_at(tensor, lochi_context_place(context, context->current)->device))
        return copies_get(context, tensor, out);
    *out = loch_tensor_retain(tensor);
    return LOCH_OK;
}
