/* SPDX-License-Identifier: MIT */
/* Stream objects: creation, use as remembered streams, and end (stream_life.c). */
#ifndef LOCHI_STREAM_LIFE_H
#define LOCHI_STREAM_LIFE_H

#include "base/shared.h"
#include "device/state.h"

/* Initialises a stream of a kind (LOCHI_STREAM_...), with one reference and one owner. */
void lochi_stream_init(loch_stream *stream, loch_device *device, void *native, int kind);

/* Initialises the default stream of a device that is being opened. */
void lochi_stream_init_default(loch_device *device);

/* Fails for a stream that lochi_stream_check refuses, and writes the sentence. */
LOCHI_SHARED loch_status lochi_stream_refuse(const loch_stream *stream, const loch_device *device);

/* Checks a stream that a caller gave for work on `device`. E_INVALID: the stream is closed or belongs to another
 * device. */
static inline loch_status lochi_stream_check(const loch_stream *stream, const loch_device *device)
{
    if (!atomic_load_explicit(&stream->closed, memory_order_acquire) && (!device || stream->device == device))
        return LOCH_OK;
    return lochi_stream_refuse(stream, device);
}

/* --- streams that the library remembers --- */

/* Retain and release the object. After its owner has destroyed the stream, the object stays, closed. */
LOCHI_SHARED loch_stream *lochi_stream_retain(loch_stream *stream);
LOCHI_SHARED void lochi_stream_release(loch_stream *stream);

/* Enclose every driver call that the library makes on its own on a remembered stream. lochi_stream_enter returns
 * false if the owner has destroyed the stream; otherwise its queue exists until lochi_stream_leave. Code between the
 * two may wait for the driver, but not for another thread. */
LOCHI_SHARED bool lochi_stream_enter(loch_stream *stream, uint32_t *mark);
LOCHI_SHARED void lochi_stream_leave(uint32_t mark);

/* A listener to the end of the streams of one device. Its owner keeps the device open. */
typedef struct lochi_stream_listener {
    struct lochi_stream_listener *next, *before; /* links of the list of listeners */
    loch_device *device;
    /* Called when a stream other than the default stream ends: destroyed, or with its thread. The stream is still
     * open, and events may be recorded on it. Called by the thread that ends the stream, under a lock of
     * LOCHI_RANK_STREAM_LISTENERS: the function may take locks of LOCHI_RANK_MEMORY and above and call drivers, but
     * must neither destroy streams nor add or remove listeners. */
    void (*closing)(struct lochi_stream_listener *listener, loch_stream *stream);
} lochi_stream_listener;

void lochi_stream_listen(lochi_stream_listener *listener);

/* Removes a listener. Returns when no call of it is under way. Do not call it from `closing`, nor under a lock of
 * LOCHI_RANK_STREAM_LISTENERS or above. */
void lochi_stream_unlisten(lochi_stream_listener *listener);

/* --- the end --- */

/* Calls the listeners for a stream that is about to end, while work can still be queued on it. */
void lochi_stream_announce(loch_stream *stream);

/* Closes a stream, waits until no thread uses it as a remembered stream, and gives its queue back to the driver.
 * Hold no lock, because it waits for other threads. */
void lochi_stream_end(loch_stream *stream);

/* Ends the thread-default streams of a device that is being closed. */
void lochi_stream_close_all(loch_device *device);

#endif
