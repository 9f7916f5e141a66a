/* SPDX-License-Identifier: MIT */
/* Streams of simulated devices (stream.c). All under the lock of the simulator, but for lochi_sim_stream_of. */
#ifndef LOCHI_SIM_STREAM_H
#define LOCHI_SIM_STREAM_H

#include "device/sim/state.h"

/* Sets up a stream that is all zero: its number, slot and vector. */
loch_status lochi_sim_stream_init(lochi_sim *sim, lochi_sim_stream *stream);

/* Makes a stream in the device's list. */
loch_status lochi_sim_stream_make(lochi_sim *sim, lochi_sim_stream **out);

/* Ends a stream. It is freed now, or when its queue is empty. */
void lochi_sim_stream_end(lochi_sim_stream *stream);

/* Frees a stream that has ended and whose queue is empty. */
void lochi_sim_stream_drop(lochi_sim_stream *stream);

/* Ends all streams and events of a device that closes. */
void lochi_sim_stream_close(lochi_sim *sim);

/* Returns the stream behind a driver's pointer: NULL is the default stream. */
lochi_sim_stream *lochi_sim_stream_of(lochi_sim *sim, void *native);

/* Orders the next operation of a stream behind a key and what was seen there. */
void lochi_sim_stream_follow(lochi_sim_stream *stream, lochi_sim_key key, const lochi_sim_vector *seen);

/* Returns the capture of a stream that the default stream is ordered with, when `stream` is the default one; else NULL. */
lochi_sim_capture *lochi_sim_stream_tied_capture(const lochi_sim_stream *stream);

/* Brings the stream behind the host, and behind whatever the default stream orders it with. E_DRIVER when that would tie a
 * captured stream to one that is not. */
loch_status lochi_sim_stream_enter(lochi_sim_stream *stream);

#endif
