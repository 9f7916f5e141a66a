/* SPDX-License-Identifier: MIT */
/* A meter: how many bytes the buffers have that somebody made, and the most that it was at a time. It is counted, and every buffer
 * that it stands for holds it, so it outlives whoever made it. Any thread. */
#ifndef LOCHI_METER_H
#define LOCHI_METER_H

#include <loch/status.h>

typedef struct lochi_meter lochi_meter;

/* What it says. The three are read one by one: while other threads allocate they need not be of one moment. */
typedef struct lochi_meter_reading {
    size_t count; /* of buffers */
    size_t used_bytes;
    size_t peak_bytes;
} lochi_meter_reading;

/* Makes a meter with one reference, the caller's. */
loch_status lochi_meter_create(lochi_meter **out);

/* Drops a reference; NULL does nothing. */
void lochi_meter_release(lochi_meter *meter);

/* Counts one more buffer, which holds the meter from now on. Returns the meter. */
lochi_meter *lochi_meter_enter(lochi_meter *meter, size_t bytes);

/* Counts another size of a buffer that holds the meter. */
void lochi_meter_change(lochi_meter *meter, size_t from_bytes, size_t to_bytes);

/* Counts a buffer whose memory has gone, and drops its reference on the meter. */
void lochi_meter_leave(lochi_meter *meter, size_t bytes);

/* Returns the figures. */
lochi_meter_reading lochi_meter_read(const lochi_meter *meter);

#endif
