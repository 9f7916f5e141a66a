/* SPDX-License-Identifier: MIT */
/* Functions of streams inside the library (stream.c). */
#ifndef LOCHI_STREAM_H
#define LOCHI_STREAM_H

#include "base/shared.h"
#include "device/stream_life.h"

/* Returns the stream of a device with that id, retained; NULL if its owner has destroyed it. */
LOCHI_SHARED loch_stream *lochi_stream_find(loch_device *device, uint64_t id);

/* Returns whether work on a stream is being captured and runs only when a graph does. */
LOCHI_SHARED bool lochi_stream_is_captured(loch_stream *stream);

/* Returns whether a created, wrapped or thread's stream of a device is being captured: waiting for the device would end
 * the capture. */
bool lochi_device_is_captured(loch_device *device);

/* Fails with E_BUSY for a stream that is being captured. Call it before queueing work that a graph must not contain;
 * `what` is the reason for the sentence. */
LOCHI_SHARED loch_status lochi_stream_refuse_captured(loch_stream *stream, const char *what);

#endif
