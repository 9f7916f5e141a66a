/* SPDX-License-Identifier: MIT */
/* A mark is an event that other processes can open, where the device has such events. Elsewhere it is an event of Loch,
 * and importers ask the owner whether it has passed. Devices whose work is done when a call returns need neither. */
#include "order.h"
#include "cuda.h"

loch_status lochi_share_order_begin(loch_device *device, loch_stream *stream, share_order *out)
{
    *out = (share_order){.lock = PTHREAD_MUTEX_INITIALIZER};
    if (!loch_device_can(device, LOCH_CAN_ASYNC)) return LOCH_OK;
    out->shared = lochi_share_cuda_record(device, stream);
    if (out->shared) return LOCH_OK;
    loch_status status = loch_event_create(device, LOCH_EVENT_PLAIN, &out->local);
    if (status == LOCH_OK) status = loch_event_record(out->local, stream);
    if (status != LOCH_OK) lochi_share_order_end(out);
    return status;
}

void lochi_share_order_end(share_order *order)
{
    lochi_share_cuda_destroy(order->shared);
    loch_event_destroy(order->local);
    order->shared = NULL;
    order->local = NULL;
}

bool lochi_share_order_has_passed(share_order *order)
{
    if (order->shared) return lochi_share_cuda_has_passed(order->shared);
    if (!order->local) return true;
    pthread_mutex_lock(&order->lock);
    const bool has_passed = loch_event_query(order->local) != LOCH_E_BUSY;
    pthread_mutex_unlock(&order->lock);
    return has_passed;
}

bool lochi_share_order_get_event(const share_order *order, uint8_t out[SHARE_EVENT_BYTES])
{
    if (order->shared) lochi_share_cuda_get_handle(order->shared, out);
    return order->shared != NULL;
}

loch_status lochi_share_order_wait(share_order *order, loch_device *device, loch_stream *stream)
{
    if (order->shared && !lochi_share_cuda_wait(order->shared, stream))
        return loch_error_set(LOCH_E_DRIVER, "cuda", 0, "the stream cannot wait for the work of the parcel");
    if (!order->local) return LOCH_OK;
    pthread_mutex_lock(&order->lock);
    const loch_status status = loch_stream_wait(stream ? stream : loch_stream_get_default(device), order->local);
    pthread_mutex_unlock(&order->lock);
    return status;
}
