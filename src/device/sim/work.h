/* SPDX-License-Identifier: MIT */
/* Work on simulated devices (work.c). */
#ifndef LOCHI_SIM_WORK_H
#define LOCHI_SIM_WORK_H

#include "device/sim/state.h"

/* Queues work on a stream, or adds it to the stream's capture. Waits for it if the call must. Under the lock of the
 * simulator, which it may drop meanwhile. */
loch_status lochi_sim_submit(lochi_sim_stream *stream, const lochi_sim_request *request);

/* Slots of the driver. */
loch_status lochi_sim_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                           void *stream);
loch_status lochi_sim_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                   const loch_pitched *shape, void *peer, void *stream);
loch_status lochi_sim_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);
loch_status lochi_sim_stream_call(void *self, void *stream, loch_stream_function *function, void *user);

#endif
