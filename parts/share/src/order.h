/* SPDX-License-Identifier: MIT */
/* The work that importers wait for (order.c). */
#ifndef SHARE_ORDER_H
#define SHARE_ORDER_H

#include "message.h"
#include <pthread.h>

struct share_cuda_event;

/* A mark behind the work of the owner's stream. Without events there is nothing to wait for. */
typedef struct share_order {
    struct share_cuda_event *shared; /* an event that other processes wait for on the device */
    loch_event *local;               /* else an event that the owner asks for them */
    pthread_mutex_t lock;            /* one thread at a time uses `local`; held during calls of Loch */
} share_order;

/* Sets the mark behind the work that is queued on `stream` (NULL: the default stream) now. */
loch_status lochi_share_order_begin(loch_device *device, loch_stream *stream, share_order *out);

/* Removes the mark. */
void lochi_share_order_end(share_order *order);

/* Returns whether the work before the mark has ended. */
bool lochi_share_order_has_passed(share_order *order);

/* Copies what another process can wait for the mark with. Returns false if there is no such thing. */
bool lochi_share_order_get_event(const share_order *order, uint8_t out[SHARE_EVENT_BYTES]);

/* Makes a stream (NULL: the default stream) of this process wait for the mark. */
loch_status lochi_share_order_wait(share_order *order, loch_device *device, loch_stream *stream);

#endif
