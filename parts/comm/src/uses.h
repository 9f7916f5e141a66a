/* SPDX-License-Identifier: MIT */
/* Tensors of a call (uses.c). */
#ifndef COMM_USES_H
#define COMM_USES_H

#include "state.h"

/* Checks a tensor for a call, pins it for `stream` and returns its address: NULL if it has no elements. It stays pinned
 * until lochi_comm_uses_end.
 * @param what  name of the argument, for sentences */
loch_status lochi_comm_uses_add(loch_comm *comm, loch_tensor *tensor, loch_access access, const char *what,
                                loch_stream *stream, void **out);

/* Unpins all tensors, after the work with them was queued on `stream`. Returns `status`, or the first failure if that
 * is LOCH_OK. */
loch_status lochi_comm_uses_end(loch_comm *comm, loch_stream *stream, loch_status status);

#endif
