/* SPDX-License-Identifier: MIT */
/* Kept copies: copies of tensors of other devices on a seat of the context.
 *
 * An entry is found by everything that a tensor shows: the id of its buffer (ids are never reused), the offset in the
 * buffer, type, shape, strides, and the seat of the copy. So each view of a buffer has its own copy, and a tensor never
 * finds the copy of another tensor. An entry is valid while two versions are unchanged: that of the source buffer since
 * before the copy was queued, and that of the copy's buffer since after it was queued. The copy is ordered by the
 * stream that it was queued on; an event recorded after it orders other streams after it. */
#include "base/fail.h"
#include "base/heap.h"
#include "device/device.h"
#include "engine/context/copies.h"
#include "engine/context/memory.h"
#include "engine/context/seat.h"
#include "engine/context/thread.h"
#include "engine/stream_pool.h"
#include "memory/buffer/buffer.h"
#include "tensor/tensor.h"

/* --- making --- */

/* Position of a copy: after or before the context's work on the device of the source. */
typedef enum copy_side { COPY_BEHIND, COPY_BEFORE } copy_side;

static loch_status copy_order_one(const loch_context *context, unsigned seat, loch_stream *at, loch_stream *stream,
                                  copy_side side)
{
    if (!at) return LOCH_OK;
    return side == COPY_BEHIND ? lochi_context_order(context, seat, at, stream)
                               : lochi_context_order(context, context->current, stream, at);
}

/* Orders a copy with the context's work on the source's device: after the work queued so far, or before work queued
 * later. Covers both the stream that is set and the seat's own stream. The own stream may be used only later, so it is
 * created here if it does not exist. */
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

/* Makes a copy in the seat's own memory. A pool on the stack may be popped before the copy is dropped, so it is not
 * used. */
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

/* Records an event after a copy. Waits for the copy if there is no event. */
static loch_status copy_mark(const loch_context *context, lochi_copy_entry *entry, loch_stream *stream)
{
    const lochi_seat *place = lochi_context_place(context, entry->key.seat);
    entry->stream_id = loch_stream_get_id(stream);
    if (lochi_device_is_at_once(place->device)) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    loch_status status = lochi_stream_pool_acquire_event(place->streams, LOCH_EVENT_PLAIN, &entry->event);
    if (status == LOCH_OK) status = loch_event_record(entry->event, stream);
    if (status == LOCH_OK) return LOCH_OK;
    lochi_copy_give_event(context, entry);
    lochi_error_restore(&saved);
    return loch_stream_sync(stream);
}

/* Makes an entry, with every resource that can be allocated before the copy is queued. */
static loch_status copy_prepare(const loch_tensor *source, const lochi_copy_key *key, lochi_copy_entry **out)
{
    lochi_copy_entry *entry = *out = lochi_zalloc(sizeof *entry);
    if (!entry) return LOCH_FAIL(HOST_MEMORY, "no host memory for the entry of a kept copy");
    entry->key = *key;
    entry->layout = source->layout;
    entry->key.layout = &entry->layout;
    LOCH_TRY_RETURN(lochi_buffer_watch(source->buffer, &entry->watch));
    entry->changes = lochi_watch_read(entry->watch); /* both are read before the copy: see lochi_buffer_touch */
    entry->version = loch_buffer_get_version(source->buffer);
    return LOCH_OK;
}

static loch_status copy_keep_new(loch_context *context, loch_tensor *source, const lochi_copy_key *key,
                                 loch_stream *stream, loch_tensor **out)
{
    lochi_copy_entry *entry = NULL;
    loch_status status;
    const uint64_t seen = lochi_watch_count_changes();
    LOCH_TRY(lochi_copies_make_room(&context->copies), fail);
    LOCH_TRY(copy_prepare(source, key, &entry), fail);
    LOCH_TRY(copy_order(context, source, stream, COPY_BEHIND), fail);
    LOCH_TRY(copy_make(context, source, stream, &entry->tensor), fail);
    LOCH_TRY(copy_order(context, source, stream, COPY_BEFORE), fail);
    LOCH_TRY(copy_mark(context, entry, stream), fail);
    LOCH_TRY(lochi_buffer_watch(entry->tensor->buffer, &entry->own_watch), fail);
    entry->own_changes = lochi_watch_read(entry->own_watch);
    entry->own_version = loch_buffer_get_version(entry->tensor->buffer);
    if (!context->copies.count) context->copies.seen_changes = seen;
    lochi_copies_put(&context->copies, entry);
    context->copies.count++;
    context->copies.bytes += loch_tensor_get_bytes(entry->tensor);
    *out = loch_tensor_retain(entry->tensor);
    return LOCH_OK;
fail:
    if (entry) lochi_copy_end(context, entry);
    return status;
}

/* --- finding --- */

static bool copy_has_ended(const loch_context *context, lochi_copy_entry *entry)
{
    const loch_error saved = lochi_error_save();
    if (entry->event && loch_event_query(entry->event) == LOCH_OK) lochi_copy_give_event(context, entry);
    lochi_error_restore(&saved);
    return !entry->event;
}

/* Orders work on `stream` after the copy, and keeps the copy's memory until that work has ended. Under capture the
 * owner of the graph keeps the memory. */
static loch_status copy_show(const lochi_copy_entry *entry, loch_stream *stream)
{
    if (loch_stream_get_id(stream) == entry->stream_id || lochi_stream_is_captured(stream)) return LOCH_OK;
    if (entry->event) LOCH_TRY_RETURN(loch_stream_wait(stream, entry->event));
    return loch_buffer_record_use(entry->tensor->buffer, stream);
}

static bool copy_is_good(const lochi_copy_entry *entry, const loch_tensor *source)
{
    return entry->version == loch_buffer_get_version(source->buffer) && !lochi_copy_is_spoilt(entry);
}

/* Finds the valid entry of a tensor. Drops an entry that is no longer valid. Returns NULL if no valid entry exists. */
static lochi_copy_entry *copies_find_good(loch_context *context, const loch_tensor *source, const lochi_copy_key *key)
{
    lochi_copy_entry **link = lochi_copies_find(&context->copies, key), *list = NULL;
    if (!link) return NULL;
    if (copy_is_good(*link, source)) return *link;
    lochi_copies_take(&context->copies, link, &list);
    (void)lochi_copies_end_list(context, list);
    return NULL;
}

/* Under capture the copy is not kept: it has contents only when the graph runs, and a capture cannot wait for a kept
 * copy that is still being made. The caller owns such a copy, and orders streams outside of the capture itself. */
static loch_status copies_get(loch_context *context, loch_tensor *source, loch_tensor **out)
{
    const lochi_copy_key key = lochi_copy_key_make(source, context->current);
    loch_stream *stream;
    LOCH_TRY_RETURN(lochi_context_stream(context, context->current, &stream));
    lochi_copy_entry *entry = copies_find_good(context, source, &key);
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
    if (!tensor || !out) return LOCH_FAIL(INVALID, "a copy needs a tensor and an out pointer");
    lochi_copies_sweep(context);
    if (!lochi_tensor_is_at(tensor, lochi_context_place(context, context->current)->device))
        return copies_get(context, tensor, out);
    *out = loch_tensor_retain(tensor);
    return LOCH_OK;
}
