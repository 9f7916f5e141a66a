/* SPDX-License-Identifier: MIT */
/* Red zones around blocks, and poison in blocks, in host or device memory. The zones of a block are all memory taken
 * for it in front of it and behind it. Device memory is filled by the device and copied back for the check, in
 * stream order. On a device whose memory has no contents, a check finds nothing. */
#ifndef LOCHI_RED_ZONE_H
#define LOCHI_RED_ZONE_H

#include "memory/held.h"

#define LOCHI_RED_ZONE_BYTE 0xfd
#define LOCHI_RED_ZONE_MAX ((size_t)1 << 30)

/* Position of a block in the memory taken for it. The zone in front is a multiple of the alignment. */
typedef struct lochi_zones {
    size_t front; /* bytes in front of the block */
    size_t total; /* bytes to take */
} lochi_zones;
loch_status lochi_red_zone_lay_out(size_t zone_bytes, size_t alignment, size_t bytes, lochi_zones *out);

/* Queues the fill of the zones. */
loch_status lochi_red_zone_fill(loch_stream *stream, const lochi_held *held);

/* Queues the fill of the block with poison. */
loch_status lochi_red_zone_poison(loch_stream *stream, const lochi_held *held, uint8_t poison);

/* Fills a block that is being freed with poison, and waits for the fill. Writes a failure to the log. */
void lochi_red_zone_poison_freed(loch_stream *stream, const lochi_held *held, uint8_t poison);

/* Waits for `stream` and checks the zones. E_CORRUPT: a zone was written; the sentence names the block. Other
 * errors: the check failed. */
loch_status lochi_red_zone_check(loch_stream *stream, const lochi_held *held);

/* Waits for `stream` and checks a poisoned block. Errors as for lochi_red_zone_check. */
loch_status lochi_red_zone_check_poison(loch_stream *stream, const lochi_held *held, uint8_t poison);

/* Returns E_CORRUPT unchanged. Writes any other failure of a check to the log and returns LOCH_OK, because a block
 * that cannot be checked must still be freed. */
loch_status lochi_red_zone_settle(loch_status status, const lochi_held *held);

#endif
