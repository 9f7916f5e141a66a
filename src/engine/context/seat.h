/* SPDX-License-Identifier: MIT */
/* The seats and streams of a context (seat.c). */
#ifndef LOCHI_CONTEXT_SEAT_H
#define LOCHI_CONTEXT_SEAT_H

#include "engine/context/state.h"

/* Fails with E_NOT_FOUND for a seat that the context does not have. */
loch_status lochi_context_check_seat(const loch_context *context, loch_seat seat);

/* Takes the own stream of a seat from the pool of streams, unless it is there. */
loch_status lochi_context_take_stream(loch_context *context, unsigned seat);

/* Gives the own stream of a seat back. */
void lochi_context_give_stream(const loch_context *context, unsigned seat);

/* Finds the current stream of any of its seats; the own one is taken on first use. Borrowed. */
loch_status lochi_context_stream(loch_context *context, unsigned seat, loch_stream **out);

/* Makes `to` wait, on the device where it can, for what is queued on `from`, a stream of `seat`. Does nothing when either is
 * captured: what is captured runs with its graph, and is its owner's to order. */
loch_status lochi_context_order(const loch_context *context, unsigned seat, loch_stream *from, loch_stream *to);

#endif
