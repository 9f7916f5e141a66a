/* SPDX-License-Identifier: MIT */
/* Contexts: how they come to be and end, the thread that they belong to, the current seat and stream, and figures. */
#include "engine/context.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/sized.h"
#include "base/thread.h"
#include "device/device.h"
#include "tensor/buffer/buffer.h"
#include <limits.h>
#include <string.h>

/* --- the thread --- */

/* Guards may be ended when their context is gone, as at the end of the block that it ended in: they ask here first. */
static _Thread_local loch_context *context_first;

bool lochi_context_is_known(const loch_context *context)
{
    const loch_context *at = context_first;
    while (at && at != context)
        at = at->next;
    return at != NULL;
}

size_t lochi_context_count_own(const loch_engine *engine)
{
    size_t count = 0;
    for (const loch_context *at = context_first; at; at = at->next)
        count += at->engine == engine;
    return count;
}

static void context_forget(const loch_context *context)
{
    loch_context **link = &context_first;
    while (*link && *link != context)
        link = &(*link)->next;
    if (*link) *link = context->next;
}

loch_status lochi_context_check(const loch_context *context)
{
    if (!context) return LOCH_FAIL(INVALID, "there is no context");
    if (context->thread == lochi_thread_number()) return LOCH_OK;
    return LOCH_FAIL(
        WRONG_THREAD,
        "the context \"%.64s\" belongs to the thread that made it: other threads make contexts of their own",
        context->name);
}

/* --- making and ending --- */

static loch_status context_read_options(const loch_context_options *given, loch_context_options *out)
{
    *out = (loch_context_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of context options", given, out, sizeof *out));
    if (out->flags & ~(uint32_t)(LOCH_ALLOC_MOVABLE | LOCH_ALLOC_ZEROED))
        return LOCH_FAIL(INVALID, "tensors of a context may be movable and zeroed, and nothing else: flags %#x",
                         (unsigned)out->flags);
    if (!out->seats != !out->seats_count)
        return LOCH_FAIL(INVALID, "seats of a context are an array and its size, or neither");
    return LOCH_OK;
}

static loch_status context_add_seat(loch_context *context, unsigned seat)
{
    if (seat >= context->engine->count)
        return LOCH_FAIL(NOT_FOUND, "the engine \"%.64s\" has %u seats, and no seat %u", context->engine->name,
                         context->engine->count, seat);
    if (context->seats[seat].is_mine) return LOCH_FAIL(INVALID, "seat %u is named twice for a context", seat);
    context->seats[seat].is_mine = true;
    context->order[context->order_count++] = seat;
    return LOCH_OK;
}

static loch_status context_add_seats(loch_context *context, const loch_context_options *options)
{
    const size_t count = options->seats ? options->seats_count : context->engine->count;
    for (size_t i = 0; i < count; i++)
        LOCH_TRY_RETURN(context_add_seat(context, options->seats ? options->seats[i].number : (unsigned)i));
    context->current = context->order[0];
    return LOCH_OK;
}

static loch_status context_fill(loch_context *context, loch_engine *engine, const loch_context_options *options)
{
    LOCH_TRY_RETURN(lochi_engine_enter(engine));
    context->engine = engine;
    context->name = lochi_strdup(options->name ? options->name : "context");
    context->seats = lochi_zalloc(engine->count * sizeof *context->seats); /* the engine has the like of it */
    context->order = lochi_zalloc(engine->count * sizeof *context->order);
    if (!context->name || !context->seats || !context->order)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for a context");
    LOCH_TRY_RETURN(context_add_seats(context, options));
    return lochi_meter_create(&context->meter);
}

/* A stream that is being captured is not taken back: its capture ends with it. */
static void context_give_stream(const loch_context *context, unsigned seat)
{
    loch_stream *stream = context->seats[seat].own;
    const loch_error saved = lochi_error_save();
    if (stream && loch_stream_pool_release(lochi_context_place(context, seat)->streams, stream) != LOCH_OK)
        loch_stream_close(stream);
    lochi_error_restore(&saved);
}

static void context_leave(loch_context *context)
{
    lochi_context_end_guards(context);
    lochi_copies_end(context);
    for (unsigned i = 0; context->seats && i < context->engine->count; i++) {
        lochi_context_pop_all(&context->seats[i]);
        loch_cublas_destroy(context->seats[i].cublas);
        context_give_stream(context, i);
    }
    lochi_engine_leave(context->engine);
}

static void context_end(loch_context *context)
{
    if (context->engine) context_leave(context);
    lochi_meter_release(context->meter);
    lochi_free(context->order);
    lochi_free(context->seats);
    lochi_free(context->name);
    lochi_free(context);
}

loch_status loch_context_open(loch_engine *engine, const loch_context_options *options, loch_context **out)
{
    if (out) *out = NULL;
    if (!engine || !out) return LOCH_FAIL(INVALID, "a context needs an engine and a place");
    loch_context_options read;
    LOCH_TRY_RETURN(context_read_options(options, &read));
    loch_context *context = lochi_zalloc(sizeof *context);
    if (!context) return LOCH_FAIL(HOST_MEMORY, "no host memory for a context");
    context->thread = lochi_thread_number();
    context->flags = read.flags;
    context->tag = read.tag;
    const loch_status status = context_fill(context, engine, &read);
    if (status != LOCH_OK) {
        context_end(context);
        return status;
    }
    context->next = context_first;
    context_first = context;
    *out = context;
    return LOCH_OK;
}

loch_status loch_context_close(loch_context *context)
{
    if (!context) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_context_check(context));
    context_forget(context);
    context_end(context);
    return LOCH_OK;
}

/* --- seat and stream --- */

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

loch_status lochi_context_stream(loch_context *context, unsigned seat, loch_stream **out)
{
    const lochi_context_seat *own = &context->seats[seat];
    *out = NULL;
    if (!own->set) LOCH_TRY_RETURN(lochi_context_take_stream(context, seat));
    *out = own->set ? own->set : own->own;
    return LOCH_OK;
}

/* Where an event cannot be had, the host waits. */
loch_status lochi_context_order(const loch_context *context, unsigned seat, loch_stream *from, loch_stream *to)
{
    const lochi_seat *place = lochi_context_place(context, seat);
    if (from == to || lochi_device_is_at_once(place->device)) return LOCH_OK;
    if (lochi_stream_is_captured(from) || lochi_stream_is_captured(to)) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    loch_event *event = NULL;
    loch_status status = loch_stream_pool_acquire_event(place->streams, LOCH_EVENT_PLAIN, &event);
    if (status == LOCH_OK) status = loch_event_record(event, from);
    if (status == LOCH_OK) status = loch_stream_wait(to, event);
    loch_stream_pool_release_event(place->streams, event);
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

/* The one thing that asking may change is a stream of its own, which nobody sees before. */
loch_status loch_context_require_stream(loch_context *context, loch_stream **out)
{
    if (out) *out = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!out) return LOCH_FAIL(INVALID, "asking for the current stream needs a place");
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
    if (!out) return LOCH_FAIL(INVALID, "a cuBLAS handle needs a place");
    lochi_context_seat *seat = &context->seats[context->current];
    loch_stream *stream;
    LOCH_TRY_RETURN(lochi_context_stream(context, context->current, &stream));
    if (seat->cublas)
        LOCH_TRY_RETURN(loch_cublas_set_stream(seat->cublas, stream));
    else
        LOCH_TRY_RETURN(
            loch_cublas_create(lochi_context_place(context, context->current)->device, stream, &seat->cublas));
    *out = seat->cublas;
    return LOCH_OK;
}

/* --- figures --- */

int loch_context_get_debug(const loch_context *context)
{
    return lochi_context_check(context) == LOCH_OK ? context->debug : 0;
}

loch_status loch_context_get_stats(const loch_context *context, loch_context_stats *out)
{
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!out || out->size < sizeof out->size)
        return LOCH_FAIL(INVALID, "a context's figures need a place with its size");
    lochi_copies_sweep((loch_context *)(uintptr_t)context); /* copies that are of no use are not there for anybody */
    const lochi_meter_reading reading = lochi_meter_read(context->meter);
    const loch_context_stats stats = {.size = out->size,
                                      .tensors = reading.count,
                                      .used_bytes = reading.used_bytes,
                                      .peak_bytes = reading.peak_bytes,
                                      .copies = context->copies.count,
                                      .copy_bytes = context->copies.bytes};
    memcpy(out, &stats, out->size < sizeof stats ? out->size : sizeof stats);
    return LOCH_OK;
}
