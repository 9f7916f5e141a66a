/* SPDX-License-Identifier: MIT */
/* Short-lived memory in the order of a stream (raw.c). */
#ifndef LOCHI_RAW_H
#define LOCHI_RAW_H

#include "device/state.h"

/* Take and give back memory that is not in the table of ranges: from the driver's own stream-ordered allocator, or raw
 * memory whose free waits for the stream. */
loch_status lochi_ordered_alloc(loch_stream *stream, size_t bytes, void **out);
loch_status lochi_ordered_free(loch_stream *stream, void *address, size_t bytes);

#endif
