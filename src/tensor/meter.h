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

loch_status lochi_meter_create(lochi_meter **out);
void lochi_meter_release(lochi_meter *meter); /* NULL does nothing */

/* One more buffer, which holds the meter from now on. */
lochi_meter *lochi_meter_enter(lochi_meter *meter, size_t bytes);

/* A buffer that holds it has another size. */
void lochi_meter_change(lochi_meter *meter, size_t from_bytes, size_t to_bytes);

/* A buffer's memory has gone; it lets go of the meter. */
void lochi_meter_leave(lochi_meter *meter, size_t bytes);

lochi_meter_reading lochi_meter_read(const lochi_meter *meter);

#endif
