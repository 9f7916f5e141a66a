/* SPDX-License-Identifier: MIT */
/* Creation and end of stream objects, and the end of streams that parts of the library remember.
 *
 * Public calls need no protection: a caller that destroys a stream promises that no other thread is using it. But
 * the library uses remembered streams later, on its own, and the caller cannot prevent that. Such a use marks the
 * stream (base/hazard.h) and tests whether the stream is closing. The end sets that flag, waits for the marks,
 * closes the stream and gives its queue back. Listeners are called before that, while the stream still works. */
#include "device/stream_life.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/hazard.h"
#include "device/calls.h"
#include <string.h>

static atomic_uint_fast64_t life_last_id;
static lochi_lock life_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_STREAM_LISTENERS);
static _Atomic(lochi_stream_listener *) life_listeners; /* written under life_lock; read without it */

/* --- the beginning --- */

void lochi_stream_init(loch_stream *stream, loch_device *device, void *native, int kind)
{
    memset(stream, 0, sizeof *stream);
    stream->device = device;
    stream->native = native;
    stream->kind = kind;
    stream->id = atomic_fetch_add_explicit(&life_last_id, 1, memory_order_relaxed) + 1;
    atomic_init(&stream->references, 1);
    atomic_init(&stream->owners, 1);
    atomic_init(&stream->has_ended, false);
    atomic_init(&stream->is_closing, false);
    atomic_init(&stream->closed, false);
}

void lochi_stream_init_default(loch_device *device)
{
    lochi_stream_init(&device->default_stream, device, NULL, LOCHI_STREAM_DEFAULT);
}

loch_status lochi_stream_refuse(const loch_stream *stream, const loch_device *device)
{
    if (atomic_load_explicit(&stream->closed, memory_order_acquire))
        return LOCH_FAIL(INVALID, "stream %llu was destroyed", (unsigned long long)stream->id);
    return LOCH_FAIL(INVALID, "stream %llu belongs to %s, not to %s", (unsigned long long)stream->id,
                     stream->device->name, device->name);
}

/* --- uses of remembered streams --- */

loch_stream *lochi_stream_retain(loch_stream *stream)
{
    atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
    return stream;
}

void lochi_stream_release(loch_stream *stream)
{
    if (stream->kind == LOCHI_STREAM_DEFAULT) {
        atomic_fetch_sub_explicit(&stream->references, 1, memory_order_relaxed);
        return;
    }
    /* Acquire-release: the last one frees what the others wrote. */
    if (atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) == 1) lochi_free(stream);
}

bool lochi_stream_enter(loch_stream *stream, uint32_t *mark)
{
    *mark = lochi_hazard_enter(stream);
    /* Ordered by the light fence. */
    if (!atomic_load_explicit(&stream->is_closing, memory_order_relaxed)) return true;
    lochi_hazard_leave(*mark);
    return false;
}

void lochi_stream_leave(uint32_t mark)
{
    lochi_hazard_leave(mark);
}

/* --- listeners --- */

void lochi_stream_listen(lochi_stream_listener *listener)
{
    lochi_lock_take(&life_lock);
    listener->next = atomic_load_explicit(&life_listeners, memory_order_relaxed);
    listener->before = NULL;
    if (listener->next) listener->next->before = listener;
    atomic_store_explicit(&life_listeners, listener, memory_order_release);
    lochi_lock_drop(&life_lock);
}

void lochi_stream_unlisten(lochi_stream_listener *listener)
{
    lochi_lock_take(&life_lock); /* held during every call, so none is under way */
    if (listener->next) listener->next->before = listener->before;
    if (listener->before)
        listener->before->next = listener->next;
    else
        atomic_store_explicit(&life_listeners, listener->next, memory_order_release);
    lochi_lock_drop(&life_lock);
}

void lochi_stream_announce(loch_stream *stream)
{
    /* A part that remembers the stream began to listen before it got the stream from its owner. */
    if (!atomic_load_explicit(&life_listeners, memory_order_relaxed)) return;
    lochi_lock_take(&life_lock);
    lochi_stream_listener *listener = atomic_load_explicit(&life_listeners, memory_order_relaxed);
    for (; listener; listener = listener->next)
        if (listener->device == stream->device) listener->closing(listener, stream);
    lochi_lock_drop(&life_lock);
}

/* --- the end --- */

/* Closes a stream, and waits until no thread uses it as a remembered stream. */
static void life_close(loch_stream *stream)
{
    const uint32_t mark = lochi_hazard_enter(stream); /* lochi_hazard_wait expects a mark of the caller */
    atomic_store_explicit(&stream->is_closing, true, memory_order_relaxed);
    /* Acquire: if only the owner's reference is left, every part that remembered the stream is done with it. */
    if (atomic_load_explicit(&stream->references, memory_order_acquire) > 1) lochi_hazard_wait(stream);
    lochi_hazard_leave(mark);
    atomic_store_explicit(&stream->closed, true, memory_order_release);
}

void lochi_stream_end(loch_stream *stream)
{
    loch_device *device = stream->device;
    life_close(stream);
    if (stream->kind == LOCHI_STREAM_WRAPPED) {
        LOCHI_NOT_CANCELLED;
        device->driver->stream_unwrap(device->self, stream->native);
        return;
    }
    loch_status status;
    LOCHI_CALL(status, device, stream_destroy, (device->self, stream->native));
    (void)status; /* nothing is left to undo; the driver has written the record */
}

void lochi_stream_close_all(loch_device *device)
{
    while (device->thread_streams) {
        loch_stream *stream = device->thread_streams;
        device->thread_streams = stream->next;
        lochi_stream_end(stream);
        lochi_stream_release(stream);
    }
}
