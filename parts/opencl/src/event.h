/* SPDX-License-Identifier: MIT */
/* Events, and waits of streams for them. */
#ifndef LOCH_OPENCL_EVENT_H
#define LOCH_OPENCL_EVENT_H

#include "state.h"

loch_status lochi_opencl_event_create(void *self, loch_event_kind kind, void **out);
loch_status lochi_opencl_event_destroy(void *self, void *event);
loch_status lochi_opencl_event_record(void *self, void *event, void *stream);
loch_status lochi_opencl_event_query(void *self, void *event);
loch_status lochi_opencl_event_sync(void *self, void *event);
loch_status lochi_opencl_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns);
loch_status lochi_opencl_stream_wait(void *self, void *stream, void *event);

#endif
