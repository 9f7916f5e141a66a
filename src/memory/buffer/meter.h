/* SPDX-License-Identifier: MIT */
/* A meter counts the bytes of a set of buffers, and their peak. It is reference-counted: each counted buffer holds a
 * reference, so the meter outlives its creator. All calls work from any thread. */
#ifndef LOCHI_METER_H
#define LOCHI_METER_H

#include "base/shared.h"
#include <loch/status.h>

typedef struct lochi_meter lochi_meter;

/* The figures of a meter. They are read one by one: while other threads allocate, they may belong to different
 * moments. */
typedef struct lochi_meter_reading {
    size_t count; /* number of buffers */
    size_t used_bytes;
    size_t peak_bytes;
} lochi_meter_reading;

/* Creates a meter with one reference, owned by the caller. */
LOCHI_SHARED loch_status lochi_meter_create(lochi_meter **out);

/* Drops a reference; NULL does nothing. */
LOCHI_SHARED void lochi_meter_release(lochi_meter *meter);

/* Counts one more buffer, which holds a reference from now on. Returns the meter. */
lochi_meter *lochi_meter_enter(lochi_meter *meter, size_t bytes);

/* Counts a changed size of a buffer that holds a reference. */
void lochi_meter_change(lochi_meter *meter, size_t from_bytes, size_t to_bytes);

/* Removes a buffer whose memory was freed, and drops its reference. */
void lochi_meter_leave(lochi_meter *meter, size_t bytes);

/* Returns the figures. */
LOCHI_SHARED lochi_meter_reading lochi_meter_read(const lochi_meter *meter);

#endif
