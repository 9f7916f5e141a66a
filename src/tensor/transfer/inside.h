/* SPDX-License-Identifier: MIT */
/* Copies and fills of any layouts inside one device, by its driver (inside.c). */
#ifndef LOCHI_TRANSFER_INSIDE_H
#define LOCHI_TRANSFER_INSIDE_H

#include "device/device.h"
#include "tensor/transfer/strided.h"

/* What a copy converts. Equal types: nothing. */
typedef struct lochi_inside_types {
    loch_dtype to, from;
    loch_overflow overflow;
} lochi_inside_types;

/* Queues a copy on a stream of the device. Both sides are in its memory, and no byte is both read and written. `to` and
 * `from` are the addresses of the elements with all indices 0. E_UNSUPPORTED, without a sentence: the driver cannot do
 * it. After another failure a part may be queued: a driver may need several launches. */
loch_status lochi_inside_copy(const loch_stream *stream, const lochi_strided *strided, lochi_inside_types types,
                              char *to, const char *from);

/* Queues a fill with one element on a stream of the device. Answers and failures are those of lochi_inside_copy. */
loch_status lochi_inside_fill(const loch_stream *stream, const lochi_strided *strided, loch_dtype type, char *to,
                              const unsigned char *element);

#endif
