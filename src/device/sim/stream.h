/* SPDX-License-Identifier: MIT */
/* Streams of simulated devices (stream.c). Every function except lochi_sim_stream_of needs the lock of the simulator
 * held. */
#ifndef LOCHI_SIM_STREAM_H
#define LOCHI_SIM_STREAM_H

#include "device/sim/state.h"

/* Initialises a stream that is all zero: its number, slot and vector. */
loch_status lochi_sim_stream_init(lochi_sim *sim, lochi_sim_stream *stream);

/* Creates a stream in the device's list. */
loch_status lochi_sim_stream_make(lochi_sim *sim, lochi_sim_stream **out);

/* Ends a stream. It is freed now, or when its queue becomes empty. */
void lochi_sim_stream_end(lochi_sim_stream *stream);

/* Frees a stream that has ended and whose queue is empty. */
void lochi_sim_stream_drop(lochi_sim_stream *stream);

/* Ends all streams and events of a device that closes. */
void lochi_sim_stream_close(lochi_sim *sim);

/* Returns the stream of a driver's pointer: NULL is the default stream. */
lochi_sim_stream *lochi_sim_stream_of(lochi_sim *sim, void *native);

/* Orders the next operation of a stream after a key and a vector. */
void lochi_sim_stream_follow(lochi_sim_stream *stream, lochi_sim_key key, const lochi_sim_vector *seen);

/* Returns the capture of a stream that is ordered with the default stream, if `stream` is the default stream.
 * Otherwise returns NULL. */
lochi_sim_capture *lochi_sim_stream_tied_capture(const lochi_sim_stream *stream);

/* Orders the stream after the host, and after the streams that the default stream orders it with. E_DRIVER if that
 * would order a captured stream with one that is not captured. */
loch_status lochi_sim_stream_enter(lochi_sim_stream *stream);

#endif
