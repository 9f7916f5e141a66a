/* SPDX-License-Identifier: MIT */
/* Slots of the driver for streams, and for waiting for a whole device (stream_calls.c). */
#ifndef LOCHI_SIM_STREAM_CALLS_H
#define LOCHI_SIM_STREAM_CALLS_H

#include "device/sim/state.h"

loch_status lochi_sim_stream_create(void *self, const loch_stream_options *options, void **out);
loch_status lochi_sim_stream_destroy(void *self, void *stream);
loch_status lochi_sim_stream_thread_default(void *self, void **out);
loch_status lochi_sim_stream_wrap(void *self, void *native, void **out);
loch_status lochi_sim_stream_query(void *self, void *stream);
loch_status lochi_sim_stream_sync(void *self, void *stream);
loch_status lochi_sim_stream_wait(void *self, void *stream, void *event);
loch_status lochi_sim_stream_capture(void *self, void *stream, loch_capture_info *out);
loch_status lochi_sim_device_sync(void *self);

#endif
