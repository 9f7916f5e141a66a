/* SPDX-License-Identifier: MIT */
/* Work that uses buffers.
 *
 * An allocator orders its blocks behind the streams of its own device, so such uses are recorded there and cost nothing here.
 * Memory from outside, and a block that a stream of another device works on, get an event for each stream, recorded behind
 * the latest work.
 *
 * One lock (LOCHI_RANK_BUFFERS) guards the lists of uses and of deleters of all buffers. It is held for list operations only:
 * events are made, recorded and asked outside it, on a list that was taken away. */
#include "tensor/buffer/uses.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/lock.h"
#include "device/copy.h"
#include "device/device.h"
#include "tensor/buffer/buffer.h"

static lochi_lock uses_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_BUFFERS);

/* --- functions that run at the end --- */

void lochi_buffer_link_deleter(loch_buffer *whole, lochi_deleter *deleter)
{
    lochi_lock_take(&uses_lock);
    deleter->next = whole->deleters;
    whole->deleters = deleter;
    lochi_lock_drop(&uses_lock);
}

bool lochi_buffer_has_deleters(loch_buffer *whole)
{
    lochi_lock_take(&uses_lock);
    const bool has_some = whole->deleters != NULL;
    lochi_lock_drop(&uses_lock);
    return has_some;
}

/* --- marks --- */

static void use_end(lochi_use *use)
{
    loch_event_destroy(use->event);
    lochi_free(use);
}

/* A device that is lost runs nothing any more; any other failure to ask is no answer. */
static bool use_has_passed(const lochi_use *use)
{
    const loch_error saved = lochi_error_save();
    const loch_status status = loch_event_query(use->event);
    lochi_error_restore(&saved);
    return status == LOCH_OK || lochi_is_gone(status);
}

static lochi_use *uses_take(loch_buffer *whole)
{
    lochi_lock_take(&uses_lock);
    lochi_use *uses = whole->uses;
    whole->uses = NULL;
    lochi_lock_drop(&uses_lock);
    return uses;
}

static void uses_put(loch_buffer *whole, lochi_use *uses)
{
    if (!uses) return;
    lochi_use *last = uses;
    while (last->next)
        last = last->next;
    lochi_lock_take(&uses_lock);
    last->next = whole->uses;
    whole->uses = uses;
    lochi_lock_drop(&uses_lock);
}

/* Takes the mark of a stream out of a whole's list; NULL when it has none. */
static lochi_use *uses_take_one(loch_buffer *whole, uint64_t stream_id)
{
    lochi_lock_take(&uses_lock);
    lochi_use **link = &whole->uses;
    while (*link && (*link)->stream_id != stream_id)
        link = &(*link)->next;
    lochi_use *use = *link;
    if (use) *link = use->next;
    lochi_lock_drop(&uses_lock);
    if (use) use->next = NULL;
    return use;
}

lochi_use *lochi_uses_without_passed(lochi_use *uses)
{
    lochi_use *left = NULL;
    while (uses) {
        lochi_use *next = uses->next;
        if (use_has_passed(uses)) {
            use_end(uses);
        } else {
            uses->next = left;
            left = uses;
        }
        uses = next;
    }
    return left;
}

bool lochi_buffer_is_used(loch_buffer *whole)
{
    lochi_use *left = lochi_uses_without_passed(uses_take(whole));
    uses_put(whole, left);
    return left != NULL;
}

static loch_status use_make(const loch_stream *stream, lochi_use **out)
{
    *out = lochi_zalloc(sizeof **out);
    if (!*out) return LOCH_FAIL(HOST_MEMORY, "no host memory to remember a use of a buffer");
    (*out)->stream_id = stream->id;
    const loch_status status = loch_event_create(stream->device, LOCH_EVENT_PLAIN, &(*out)->event);
    if (status != LOCH_OK) {
        lochi_free(*out);
        *out = NULL;
    }
    return status;
}

/* Marks the work that is queued on a stream. The stream's earlier mark, which the new one comes behind, is used again: if it
 * cannot be recorded, the work that it stood for still has to be waited for, so it is waited for at once. */
static loch_status uses_mark(loch_buffer *whole, loch_stream *stream)
{
    lochi_use *use = uses_take_one(whole, stream->id);
    if (!use) (void)lochi_buffer_is_used(whole); /* marks of streams that are long gone must not pile up */
    loch_status status = use ? LOCH_OK : use_make(stream, &use);
    if (status == LOCH_OK) status = loch_event_record(use->event, stream);
    if (status == LOCH_OK) {
        uses_put(whole, use);
        return LOCH_OK;
    }
    if (use) use_end(use);
    return loch_stream_sync(stream);
}

/* --- recording --- */

/* Without an event it is waited for. What is captured runs whenever its graph does, and is its owner's to order. */
loch_status lochi_buffer_order(loch_stream *first, loch_stream *then)
{
    if (lochi_device_is_at_once(first->device) || lochi_stream_is_captured(first) || lochi_stream_is_captured(then))
        return LOCH_OK;
    const loch_error saved = lochi_error_save();
    if (lochi_copy_order(first, then) == LOCH_OK) return LOCH_OK;
    lochi_error_restore(&saved);
    return loch_stream_sync(first);
}

static loch_status uses_tell_allocator(loch_buffer *whole, loch_stream *stream)
{
    void *address = whole->is_movable ? lochi_movable_hold(whole->allocator, &whole->movable) : whole->address;
    const loch_status status = loch_allocator_record_use(whole->allocator, address, stream);
    if (whole->is_movable) lochi_movable_drop(whole->allocator, &whole->movable);
    return status;
}

/* A move has to come behind a stream of another device, too, which the pool does not know: its default stream stands for it. For want of
 * memory to note that, the stream is waited for. */
static loch_status uses_tell_pool(loch_buffer *whole, loch_stream *stream)
{
    loch_stream *own = &whole->device->default_stream;
    LOCH_TRY_RETURN(lochi_buffer_order(stream, own));
    const loch_error saved = lochi_error_save();
    if (lochi_device_is_at_once(whole->device) || uses_tell_allocator(whole, own) == LOCH_OK) return LOCH_OK;
    lochi_error_restore(&saved);
    return lochi_stream_is_captured(stream) ? LOCH_OK : loch_stream_sync(stream);
}

loch_status loch_buffer_record_use(loch_buffer *buffer, loch_stream *stream)
{
    if (!buffer) return LOCH_FAIL(INVALID, "recording a use needs a buffer");
    loch_buffer *whole = lochi_buffer_whole(buffer);
    if (!stream && !whole->device) return LOCH_OK; /* the host's own memory, and the host */
    if (!stream) stream = &whole->device->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(stream, NULL));
    if (!whole->address || lochi_device_is_at_once(stream->device)) return LOCH_OK;
    loch_status status = LOCH_OK;
    if (whole->allocator && whole->device == stream->device) {
        const loch_error saved = lochi_error_save();
        status = uses_tell_allocator(whole, stream);
        if (status == LOCH_OK) return LOCH_OK;
        if (!lochi_stream_is_captured(stream)) lochi_error_restore(&saved); /* a mark serves too */
    } else if (whole->is_movable) {
        LOCH_TRY_RETURN(uses_tell_pool(whole, stream));
    }
    if (lochi_stream_is_captured(stream)) return status;
    if (whole->is_movable && whole->device == stream->device)
        LOCH_TRY_RETURN(loch_stream_sync(stream)); /* its pool could not note it, and a move knows nothing of marks */
    return uses_mark(whole, stream);
}
