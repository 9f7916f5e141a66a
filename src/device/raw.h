/* SPDX-License-Identifier: MIT */
/* Short-lived memory in stream order (raw.c). */
#ifndef LOCHI_RAW_H
#define LOCHI_RAW_H

#include "device/state.h"

/* Allocate and free memory that is not in the table of ranges: from the driver's stream-ordered allocator, or raw
 * memory whose free waits for the stream. */
loch_status lochi_ordered_alloc(loch_stream *stream, size_t bytes, void **out);
loch_status lochi_ordered_free(loch_stream *stream, void *address, size_t bytes);

#endif
