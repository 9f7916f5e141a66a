/* SPDX-License-Identifier: MIT */
/* Addresses and pins of buffers. A movable buffer has an address only while it is pinned. */
#include "memory/buffer/buffer.h"
#include "base/checked.h"
#include "base/fail.h"
#include "device/device.h"
#include "memory/buffer/uses.h"

/* --- addresses --- */

loch_status lochi_buffer_check(const loch_buffer *buffer, size_t offset, size_t bytes)
{
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    size_t end;
    if (!lochi_add(offset, bytes, &end) || end > buffer->bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes from offset %zu on do not fit a buffer of %zu bytes", bytes, offset,
                         buffer->bytes);
    if (buffer->offset + end > whole->bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "the part ends at byte %zu, but its buffer was resized to %zu bytes",
                         buffer->offset + end, whole->bytes);
    return LOCH_OK;
}

/* Returns the present address of a whole. Returns NULL if it has none. */
static char *pin_address(const loch_buffer *whole)
{
    if (!whole->is_movable || !whole->address) return whole->address;
    return lochi_movable_is_pinned(&whole->movable) ? whole->movable.address : NULL;
}

loch_status lochi_buffer_locate(const loch_buffer *buffer, size_t offset, size_t bytes, char **out)
{
    *out = NULL;
    LOCH_TRY_RETURN(lochi_buffer_check(buffer, offset, bytes));
    if (!bytes) return LOCH_OK;
    char *address = pin_address(lochi_buffer_whole_const(buffer));
    if (!address)
        return LOCH_FAIL(BUSY, "the buffer is movable and not pinned: it has an address only while it is pinned");
    *out = address + buffer->offset + offset;
    return LOCH_OK;
}

void *loch_buffer_get_address(const loch_buffer *buffer)
{
    if (!buffer) return NULL;
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    const bool is_there = whole->bytes && buffer->offset + buffer->bytes <= whole->bytes;
    char *address = is_there ? pin_address(whole) : NULL;
    return address ? address + buffer->offset : NULL;
}

/* --- pins --- */

loch_status loch_buffer_pin(loch_buffer *buffer, loch_stream *stream, void **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "a pin needs a buffer and an out pointer");
    loch_buffer *whole = lochi_buffer_whole(buffer);
    LOCH_TRY_RETURN(lochi_buffer_check(buffer, 0, buffer->bytes));
    void *address = whole->address;
    if (whole->is_movable && address) {
        if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, whole->device));
        LOCH_TRY_RETURN(lochi_movable_pin(whole->allocator, &whole->movable, stream, &address));
    }
    *out = address ? (char *)address + buffer->offset : NULL;
    return LOCH_OK;
}

loch_status loch_buffer_unpin(loch_buffer *buffer, loch_stream *stream)
{
    if (!buffer) return LOCH_FAIL(INVALID, "the buffer to unpin is NULL");
    loch_buffer *whole = lochi_buffer_whole(buffer);
    if (!whole->address) return LOCH_OK;
    if (!whole->is_movable) return loch_buffer_record_use(whole, stream);
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, whole->device));
    return lochi_movable_unpin(whole->allocator, &whole->movable, stream);
}

/* Tells whether a stream belongs to another device than a movable buffer. The pool of the buffer cannot track such a
 * stream. */
static bool pin_is_foreign(const loch_buffer *whole, const loch_stream *stream)
{
    return stream && whole->is_movable && whole->address && stream->device != whole->device;
}

/* A stream of another device may use the memory too. The pool tracks only streams of its own device, so the default
 * stream stands for the other one. The other stream is ordered after the last move when the buffer is pinned. The
 * default stream is ordered after the work of the other stream before the buffer is unpinned. */
loch_status lochi_buffer_hold(loch_buffer *buffer, loch_stream *stream)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    const bool is_foreign = pin_is_foreign(whole, stream);
    void *unused;
    LOCH_TRY_RETURN(loch_buffer_pin(buffer, is_foreign ? NULL : stream, &unused));
    if (!is_foreign || !lochi_movable_count(whole->allocator, &whole->movable)) return LOCH_OK;
    const loch_status status = lochi_buffer_order(&whole->device->default_stream, stream);
    if (status != LOCH_OK) lochi_movable_drop(whole->allocator, &whole->movable);
    return status;
}

loch_stream *lochi_buffer_choose_stream(const loch_buffer *buffer, const loch_buffer *other, loch_stream *stream)
{
    loch_device *own = lochi_buffer_whole_const(buffer)->device, *its = lochi_buffer_whole_const(other)->device;
    return stream || !own || !its || own == its ? stream : &its->default_stream;
}

loch_status lochi_buffer_let_go(loch_buffer *buffer, loch_stream *stream)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    if (!whole->is_movable) return LOCH_OK; /* the code that queues work records the use */
    if (!pin_is_foreign(whole, stream)) return loch_buffer_unpin(buffer, stream);
    const loch_status status = lochi_buffer_order(stream, &whole->device->default_stream);
    return lochi_first_failure(status, loch_buffer_unpin(buffer, NULL));
}

uint64_t loch_buffer_get_generation(const loch_buffer *buffer)
{
    const loch_buffer *whole = buffer ? lochi_buffer_whole_const(buffer) : NULL;
    return whole && whole->is_movable && whole->address ? lochi_movable_count(whole->allocator, &whole->movable) : 0;
}

int loch_buffer_is_movable(const loch_buffer *buffer)
{
    return buffer && lochi_buffer_whole_const(buffer)->is_movable;
}
