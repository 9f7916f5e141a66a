/* SPDX-License-Identifier: MIT */
/* The life of stream objects: their beginning, the library that remembers them, their end (stream_life.c). */
#ifndef LOCHI_STREAM_LIFE_H
#define LOCHI_STREAM_LIFE_H

#include "device/state.h"

/* Sets up a stream of a kind (LOCHI_STREAM_...), with one reference and one owner. */
void lochi_stream_init(loch_stream *stream, loch_device *device, void *native, int kind);

/* Makes the default stream of a device that is being opened. */
void lochi_stream_init_default(loch_device *device);

/* Fails for a stream that lochi_stream_check refuses, with the sentence for it. */
loch_status lochi_stream_refuse(const loch_stream *stream, const loch_device *device);

/* Checks a stream that a caller gave for work on `device`: E_INVALID for a closed one or one of another device. */
static inline loch_status lochi_stream_check(const loch_stream *stream, const loch_device *device)
{
    if (!atomic_load_explicit(&stream->closed, memory_order_acquire) && (!device || stream->device == device))
        return LOCH_OK;
    return lochi_stream_refuse(stream, device);
}

/* --- streams that the library remembers --- */

/* Retain and release the object. It stays after its owner has destroyed it, closed. */
loch_stream *lochi_stream_retain(loch_stream *stream);
void lochi_stream_release(loch_stream *stream);

/* Stand around every driver call that the library makes by itself on a stream that it remembers. Enter returns false when the
 * owner has destroyed the stream; else its queue stays until `leave`. Nothing in between may wait for another thread but the
 * driver. */
bool lochi_stream_enter(loch_stream *stream, uint32_t *mark);
void lochi_stream_leave(uint32_t mark);

/* Hears of the streams of one device that go. Its owner keeps the device. */
typedef struct lochi_stream_listener {
    struct lochi_stream_listener *next; /* the list's */
    loch_device *device;
    /* A stream other than the default one goes: destroyed, or with its thread. It is still open: events may be recorded
     * on it. Called by the thread that ends it, under a lock of LOCHI_RANK_STREAM_LISTENERS: locks of
     * LOCHI_RANK_MEMORY and above may be taken, drivers called, streams neither destroyed nor listened for. */
    void (*closing)(struct lochi_stream_listener *listener, loch_stream *stream);
} lochi_stream_listener;

void lochi_stream_listen(lochi_stream_listener *listener);

/* Returns when no call is under way. Not from inside `closing`, nor under a lock of that rank or above. */
void lochi_stream_unlisten(lochi_stream_listener *listener);

/* --- the end --- */

/* Tells the listeners that a stream goes, while work can still be queued on it. */
void lochi_stream_announce(loch_stream *stream);

/* Closes a stream, waits until nobody who remembers it is inside, and gives its queue back to the driver. Under no
 * lock, because it waits for other threads. */
void lochi_stream_end(loch_stream *stream);

/* Ends the thread-default streams of a device that is being closed. */
void lochi_stream_close_all(loch_device *device);

#endif
