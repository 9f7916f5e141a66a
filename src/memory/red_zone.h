/* SPDX-License-Identifier: MIT */
/* Red zones and poison around and in blocks, on host or device memory. A block's zones are all that was taken for it in
 * front of it and behind it. Device memory is filled by the device and copied back to be looked at, in the order of a
 * stream; on a device whose memory has no contents nothing is ever found. */
#ifndef LOCHI_RED_ZONE_H
#define LOCHI_RED_ZONE_H

#include "memory/held.h"

#define LOCHI_RED_ZONE_BYTE 0xfd
#define LOCHI_RED_ZONE_MAX ((size_t)1 << 30)

/* Where a block lies in what has to be taken for it: the zone in front is a multiple of `alignment`. E_OVERFLOW. */
typedef struct lochi_zones {
    size_t front; /* bytes in front of the block */
    size_t total; /* all that has to be taken */
} lochi_zones;
loch_status lochi_red_zone_lay_out(size_t zone_bytes, size_t alignment, size_t bytes, lochi_zones *out);

/* Queues the filling of the zones. */
loch_status lochi_red_zone_fill(loch_stream *stream, const lochi_held *held);

/* Queues the filling of the block. */
loch_status lochi_red_zone_poison(loch_stream *stream, const lochi_held *held, uint8_t poison);

/* Fills a block that is being freed, and waits for that. When it cannot be done, the log says so. */
void lochi_red_zone_poison_freed(loch_stream *stream, const lochi_held *held, uint8_t poison);

/* Waits for `stream` and looks at the zones. E_CORRUPT with a sentence that names the block; another status when looking
 * failed. */
loch_status lochi_red_zone_check(loch_stream *stream, const lochi_held *held);

/* Waits for `stream` and looks at the block, which was poisoned; results as for lochi_red_zone_check. */
loch_status lochi_red_zone_check_poison(loch_stream *stream, const lochi_held *held, uint8_t poison);

/* Keeps E_CORRUPT. What kept a block from being looked at does not keep it from being freed: it goes to the log. */
loch_status lochi_red_zone_settle(loch_status status, const lochi_held *held);

#endif
