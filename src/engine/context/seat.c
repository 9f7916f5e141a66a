/* SPDX-License-Identifier: MIT */
/* The seats of a context: the current seat, its stream and its cuBLAS handle. */
#include "engine/context/seat.h"
#include "base/fail.h"
#include "device/device.h"
#include "engine/context/thread.h"
#include "engine/cublas.h"
#include "engine/stream_pool.h"
#include <limits.h>

loch_status lochi_context_check_seat(const loch_context *context, loch_seat seat)
{
    if (seat.number < context->engine->count && context->seats[seat.number].is_mine) return LOCH_OK;
    return LOCH_FAIL(NOT_FOUND, "the context \"%.64s\" has no seat %u", context->name, seat.number);
}

loch_status lochi_context_take_stream(loch_context *context, unsigned seat)
{
    lochi_context_seat *own = &context->seats[seat];
    return own->own ? LOCH_OK : loch_stream_pool_acquire(lochi_context_place(context, seat)->streams, &own->own);
}

/* Gives the own stream of a seat back. A stream under capture is destroyed instead, which ends the capture. */
void lochi_context_give_stream(const loch_context *context, unsigned seat)
{
    loch_stream *stream = context->seats[seat].own;
    const loch_error saved = lochi_error_save();
    if (stream && loch_stream_pool_release(lochi_context_place(context, seat)->streams, stream) != LOCH_OK)
        loch_stream_close(stream);
    lochi_error_restore(&saved);
}

loch_status lochi_context_stream(loch_context *context, unsigned seat, loch_stream **out)
{
    const lochi_context_seat *own = &context->seats[seat];
    *out = NULL;
    if (!own->set) LOCH_TRY_RETURN(lochi_context_take_stream(context, seat));
    *out = own->set ? own->set : own->own;
    return LOCH_OK;
}

/* Waits on the host if there is no event. */
loch_status lochi_context_order(const loch_context *context, unsigned seat, loch_stream *from, loch_stream *to)
{
    const lochi_seat *place = lochi_context_place(context, seat);
    if (from == to || lochi_device_is_at_once(place->device)) return LOCH_OK;
    if (lochi_stream_is_captured(from) || lochi_stream_is_captured(to)) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    loch_event *event = NULL;
    loch_status status = lochi_stream_pool_acquire_event(place->streams, LOCH_EVENT_PLAIN, &event);
    if (status == LOCH_OK) status = loch_event_record(event, from);
    if (status == LOCH_OK) status = loch_stream_wait(to, event);
    lochi_stream_pool_release_event(place->streams, event);
    if (status == LOCH_OK) return LOCH_OK;
    lochi_error_restore(&saved);
    return loch_stream_sync(from);
}

loch_engine *loch_context_get_engine(const loch_context *context)
{
    return lochi_context_check(context) == LOCH_OK ? context->engine : NULL;
}

loch_seat loch_context_get_seat(const loch_context *context)
{
    return LOCH_SEAT(lochi_context_check(context) == LOCH_OK ? context->current : UINT_MAX);
}

loch_device *loch_context_get_device(const loch_context *context)
{
    if (lochi_context_check(context) != LOCH_OK) return NULL;
    return lochi_context_place(context, context->current)->device;
}

loch_status loch_context_require_stream(loch_context *context, loch_stream **out)
{
    if (out) *out = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the stream is NULL");
    return lochi_context_stream(context, context->current, out);
}

loch_status loch_context_set_seat(loch_context *context, loch_seat seat)
{
    LOCH_TRY_RETURN(lochi_context_check(context));
    LOCH_TRY_RETURN(lochi_context_check_seat(context, seat));
    context->current = seat.number;
    return LOCH_OK;
}

loch_status loch_context_set_stream(loch_context *context, loch_stream *stream)
{
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, lochi_context_place(context, context->current)->device));
    context->seats[context->current].set = stream;
    return LOCH_OK;
}

loch_status loch_context_require_cublas(loch_context *context, loch_cublas **out)
{
    if (out) *out = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the cuBLAS handle is NULL");
    lochi_context_seat *seat = &context->seats[context->current];
    loch_stream *stream;
    LOCH_TRY_RETURN(lochi_context_stream(context, context->current, &stream));
    if (seat->cublas)
        LOCH_TRY_RETURN(lochi_cublas_set_stream(seat->cublas, stream));
    else
        LOCH_TRY_RETURN(
            loch_cublas_create(lochi_context_place(context, context->current)->device, stream, &seat->cublas));
    *out = seat->cublas;
    return LOCH_OK;
}
