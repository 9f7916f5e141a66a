/* SPDX-License-Identifier: MIT */
/* The contents of memory over a wire, for a receiver that cannot map it (contents.c). */
#ifndef HANDOVER_CONTENTS_H
#define HANDOVER_CONTENTS_H

#include "offer.h"
#include "wire.h"

/* Sends a piece of an offer, its pages behind each other. `first` is the offset of the piece in the buffer. The caller
 * has waited for the work that writes it; `waited` is the status of that, which the receiver learns if it is a failure.
 * If either side fails, both stop, and the wire works on. */
loch_status lochi_comm_handover_contents_send(handover_wire *wire, const handover_offer *offer, size_t piece,
                                              loch_buffer *from, size_t first, loch_status waited);

/* Receives a piece of an offer into a buffer that has its size, with the pages behind each other. */
loch_status lochi_comm_handover_contents_receive(handover_wire *wire, loch_buffer *to);

/* Copies a piece of an offer out of mapped memory, its pages behind each other, ordered on `stream` (NULL: waits). */
loch_status lochi_comm_handover_contents_copy(const handover_offer *offer, size_t piece, loch_buffer *from,
                                              loch_buffer *to, loch_stream *stream);

#endif
