/* SPDX-License-Identifier: MIT */
/* What copying and filling share. */
#ifndef LOCHI_COPY_H
#define LOCHI_COPY_H

#include "device/ranges.h"

/* Checks [address, address + bytes) and finds its place; `what` names it in sentences. */
loch_status lochi_copy_locate(const void *address, size_t bytes, const char *what, lochi_place *out);

/* Whether the host reads and writes the place itself. */
static inline bool lochi_place_is_host(const lochi_place *place)
{
    return place->kind == LOCH_MEMORY_HOST || place->kind == LOCH_MEMORY_PINNED ||
           place->kind == LOCH_MEMORY_REGISTERED || loch_device_can(place->device, LOCH_CAN_HOST_ACCESS);
}

/* Waits for the default stream of the device that owns host memory (pinned, registered), before the host touches it
 * without a stream. */
loch_status lochi_copy_wait_for_owner(const lochi_place *place);

/* Waits for `stream` when the caller wants the end of the work. */
loch_status lochi_copy_settle(loch_stream *stream, loch_wait wait);

/* Fills host memory; `pattern` holds the pattern's bytes from its lowest on. */
void lochi_fill_host(void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes);

#endif
