/* SPDX-License-Identifier: MIT */
/* Streams: what the library asks of them beside the public calls (stream.c). */
#ifndef LOCHI_STREAM_H
#define LOCHI_STREAM_H

#include "device/stream_life.h"

/* Returns the stream of a device with that id, retained; NULL when its owner has destroyed it. */
loch_stream *lochi_stream_find(loch_device *device, uint64_t id);

/* Tells whether work on a stream is captured, and runs when a graph does. */
bool lochi_stream_is_captured(loch_stream *stream);

/* Fails with E_BUSY for a stream that is captured, before anything is queued that a graph must not hold; `what` says it. */
loch_status lochi_stream_refuse_captured(loch_stream *stream, const char *what);

#endif
