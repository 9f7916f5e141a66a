/* SPDX-License-Identifier: MIT */
/* The seats and streams of a context (seat.c). */
#ifndef LOCHI_CONTEXT_SEAT_H
#define LOCHI_CONTEXT_SEAT_H

#include "engine/context/state.h"

/* Returns E_NOT_FOUND if the context does not have the seat. */
loch_status lochi_context_check_seat(const loch_context *context, loch_seat seat);

/* Takes the own stream of a seat from the pool of streams, unless the seat has one. */
loch_status lochi_context_take_stream(loch_context *context, unsigned seat);

/* Gives the own stream of a seat back to the pool of streams. */
void lochi_context_give_stream(const loch_context *context, unsigned seat);

/* Finds the current stream of a seat. Takes the seat's own stream on first use. Borrowed. */
loch_status lochi_context_stream(loch_context *context, unsigned seat, loch_stream **out);

/* Orders `to` after the work queued on `from`, a stream of `seat`; on the device where possible. Does nothing if either
 * stream is under capture: captured work runs with its graph, and the owner of the graph orders it. */
loch_status lochi_context_order(const loch_context *context, unsigned seat, loch_stream *from, loch_stream *to);

#endif
