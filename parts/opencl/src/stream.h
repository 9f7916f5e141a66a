/* SPDX-License-Identifier: MIT */
/* Streams: queues that work in order. */
#ifndef LOCH_OPENCL_STREAM_H
#define LOCH_OPENCL_STREAM_H

#include "state.h"

/* The stream of a handle; the default stream for NULL. */
lochi_opencl_stream *lochi_opencl_stream_of(lochi_opencl_device *device, void *stream);

/* Makes the default stream of a device that is being opened; ends it, without a wait, when the device is closed. */
loch_status lochi_opencl_stream_open_default(lochi_opencl_device *device);
void lochi_opencl_stream_close_default(lochi_opencl_device *device);

/* Ends the queueing of one piece of work, with the lock of the stream held: `mark` is the event of the work and becomes
 * the stream's. The queue is flushed, so that the work begins, and so that other queues may wait for it. */
loch_status lochi_opencl_stream_queued(lochi_opencl_stream *stream, cl_mark mark);

/* Waits on the host for the end of some work. Fails if the work failed. */
loch_status lochi_opencl_await(cl_mark mark);

/* Returns LOCH_OK if some work has ended, E_BUSY without a record if not. Fails if the work failed. */
loch_status lochi_opencl_ask(cl_mark mark);

loch_status lochi_opencl_stream_create(void *self, const loch_stream_options *options, void **out);
loch_status lochi_opencl_stream_destroy(void *self, void *stream);
loch_status lochi_opencl_stream_thread_default(void *self, void **out);
loch_status lochi_opencl_stream_wrap(void *self, void *native, void **out);
void lochi_opencl_stream_unwrap(void *self, void *stream);
void *lochi_opencl_stream_native(void *self, void *stream);
loch_status lochi_opencl_stream_query(void *self, void *stream);
loch_status lochi_opencl_stream_sync(void *self, void *stream);
loch_status lochi_opencl_device_sync(void *self);

#endif
