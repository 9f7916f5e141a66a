/* SPDX-License-Identifier: MIT */
/* Streams, events, copies and fills of CUDA devices (stream.c). */
#ifndef LOCHI_CUDA_STREAM_H
#define LOCHI_CUDA_STREAM_H

#include <loch/driver.h>

/* Slots of the driver. */
loch_status lochi_cuda_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                            void *stream);
loch_status lochi_cuda_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);
loch_status lochi_cuda_stream_create(void *self, const loch_stream_options *options, void **out);
loch_status lochi_cuda_stream_destroy(void *self, void *stream);
loch_status lochi_cuda_stream_thread_default(void *self, void **out);
loch_status lochi_cuda_stream_wrap(void *self, void *native, void **out);
loch_status lochi_cuda_stream_query(void *self, void *stream);
loch_status lochi_cuda_stream_sync(void *self, void *stream);
loch_status lochi_cuda_stream_wait(void *self, void *stream, void *event);
loch_status lochi_cuda_stream_call(void *self, void *stream, loch_stream_function *function, void *user);
loch_status lochi_cuda_stream_capture(void *self, void *stream, loch_capture_info *out);
loch_status lochi_cuda_event_create(void *self, loch_event_kind kind, void **out);
loch_status lochi_cuda_event_destroy(void *self, void *event);
loch_status lochi_cuda_event_record(void *self, void *event, void *stream);
loch_status lochi_cuda_event_query(void *self, void *event);
loch_status lochi_cuda_event_sync(void *self, void *event);
loch_status lochi_cuda_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns);

#endif
