/* SPDX-License-Identifier: MIT */
/* The end of streams that parts of the library remember.
 *
 * Public calls need no care: who destroys a stream promises that nobody is using it. What the library does later, by
 * itself, with a stream that it remembers, is not the caller's to know: such a use marks the stream (base/inside.h) and
 * looks whether it is going; the end says that it is, and waits for the marks before it closes the stream and its queue
 * goes. Listeners hear of the end before that, while the stream still works. */
#include "base/inside.h"
#include "device/device.h"

static lochi_lock close_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_STREAM_LISTENERS);
static _Atomic(lochi_stream_listener *) close_listeners; /* changes under close_lock; looked at without it */

/* --- uses of remembered streams --- */

bool lochi_stream_enter(loch_stream *stream, uint32_t *mark)
{
    *mark = lochi_inside_enter(stream);
    if (!atomic_load_explicit(&stream->is_closing, memory_order_relaxed)) return true; /* behind the light fence */
    lochi_inside_leave(*mark);
    return false;
}

void lochi_stream_leave(uint32_t mark)
{
    lochi_inside_leave(mark);
}

/* --- listeners --- */

void lochi_stream_listen(lochi_stream_listener *listener)
{
    lochi_lock_take(&close_lock);
    listener->next = atomic_load_explicit(&close_listeners, memory_order_relaxed);
    atomic_store_explicit(&close_listeners, listener, memory_order_release);
    lochi_lock_drop(&close_lock);
}

void lochi_stream_unlisten(lochi_stream_listener *listener)
{
    lochi_lock_take(&close_lock); /* held around every call, so none is under way */
    lochi_stream_listener *first = atomic_load_explicit(&close_listeners, memory_order_relaxed);
    if (first == listener) {
        atomic_store_explicit(&close_listeners, listener->next, memory_order_release);
    } else {
        while (first->next != listener)
            first = first->next;
        first->next = listener->next;
    }
    lochi_lock_drop(&close_lock);
}

void lochi_stream_announce(loch_stream *stream)
{
    /* Whoever remembers the stream began to listen before the stream's owner showed it to them. */
    if (!atomic_load_explicit(&close_listeners, memory_order_relaxed)) return;
    lochi_lock_take(&close_lock);
    lochi_stream_listener *listener = atomic_load_explicit(&close_listeners, memory_order_relaxed);
    for (; listener; listener = listener->next)
        if (listener->device == stream->device) listener->closing(listener, stream);
    lochi_lock_drop(&close_lock);
}

/* --- the end --- */

void lochi_stream_shut(loch_stream *stream)
{
    const uint32_t mark = lochi_inside_enter(stream); /* a wait does not count the caller's own, and expects one */
    atomic_store_explicit(&stream->is_closing, true, memory_order_relaxed);
    /* Acquire: with the owner's reference alone, whoever remembered it is done with it. */
    if (atomic_load_explicit(&stream->references, memory_order_acquire) > 1) lochi_inside_wait(stream);
    lochi_inside_leave(mark);
    atomic_store_explicit(&stream->closed, true, memory_order_release);
}
