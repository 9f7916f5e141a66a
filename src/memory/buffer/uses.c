/* SPDX-License-Identifier: MIT */
/* Work that uses buffers.
 *
 * An allocator orders its blocks after the streams of its own device. Such uses are recorded in the allocator and cost
 * nothing here. External memory, and a block that a stream of another device uses, get one event per stream, recorded
 * after the latest work.
 *
 * One lock (LOCHI_RANK_BUFFERS) guards the lists of uses and deleters of all buffers. It is held only for list
 * operations. Events are created, recorded and queried without the lock, on a list that was taken out. */
#include "memory/buffer/uses.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/lock.h"
#include "device/copy.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"

static lochi_lock uses_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_BUFFERS);

/* --- deleters --- */

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

/* Tells whether the work of a use has ended. On a lost device no work runs any more, so it has. After any other failed
 * query it counts as running. */
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

/* Takes the mark of a stream out of a whole's list. Returns NULL if the stream has none. */
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
    if (!*out) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a use of a buffer");
    (*out)->stream_id = stream->id;
    const loch_status status = loch_event_create(stream->device, LOCH_EVENT_PLAIN, &(*out)->event);
    if (status != LOCH_OK) {
        lochi_free(*out);
        *out = NULL;
    }
    return status;
}

/* Marks the work queued on a stream. Reuses the stream's earlier mark, since the new mark is ordered after it. If
 * recording fails, waits immediately for the work that the earlier mark stood for. */
static loch_status uses_mark(loch_buffer *whole, loch_stream *stream)
{
    lochi_use *use = uses_take_one(whole, stream->id);
    /* drops passed marks, so that marks of closed streams do not pile up */
    if (!use) (void)lochi_buffer_is_used(whole);
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

/* Waits on the host if there is no event. Captured work runs when its graph runs; the owner of the graph orders it. */
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

/* Makes later moves of the block wait for a stream of another device. The pool cannot track that stream, so the default
 * stream of its device stands for it. If there is no memory to record this, waits for the stream. */
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
    if (!buffer) return LOCH_FAIL(INVALID, "the buffer to record a use of is NULL");
    loch_buffer *whole = lochi_buffer_whole(buffer);
    if (!stream && !whole->device) return LOCH_OK; /* plain host memory used by the host itself */
    if (!stream) stream = &whole->device->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(stream, NULL));
    if (!whole->address || lochi_device_is_at_once(stream->device)) return LOCH_OK;
    if (whole->stream_id == stream->id) return LOCH_OK; /* the pool frees the block behind the work of this stream */
    loch_status status = LOCH_OK;
    if (whole->allocator && whole->device == stream->device) {
        const loch_error saved = lochi_error_save();
        status = uses_tell_allocator(whole, stream);
        if (status == LOCH_OK) return LOCH_OK;
        if (!lochi_stream_is_captured(stream)) lochi_error_restore(&saved); /* a mark has the same effect */
    } else if (whole->is_movable) {
        LOCH_TRY_RETURN(uses_tell_pool(whole, stream));
    }
    if (lochi_stream_is_captured(stream)) return status;
    if (whole->is_movable && whole->device == stream->device)
        LOCH_TRY_RETURN(loch_stream_sync(stream)); /* the pool could not record it, and moves ignore marks */
    return uses_mark(whole, stream);
}
