/* SPDX-License-Identifier: MIT */
/* Contexts: create, destroy, figures. */
#include "base/heap.h"
#include "base/logging.h"
#include "kit/sized.h"
#include "base/thread.h"
#include "engine/context/copies.h"
#include "engine/context/guard.h"
#include "engine/context/memory.h"
#include "engine/context/seat.h"
#include "engine/context/thread.h"
#include "engine/engine_lock.h"
#include <string.h>

/* --- making and ending --- */

static loch_status context_read_options(const loch_context_options *given, loch_context_options *out)
{
    *out = (loch_context_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of context options", given, out, sizeof *out));
    if (out->flags & ~(uint32_t)(LOCH_ALLOC_MOVABLE | LOCH_ALLOC_ZEROED))
        return LOCH_FAIL(INVALID,
                         "the tensor flags of a context may be LOCH_ALLOC_MOVABLE and LOCH_ALLOC_ZEROED only, not %#x",
                         (unsigned)out->flags);
    if (!out->seats != !out->seats_count)
        return LOCH_FAIL(INVALID, "seats and seats_count of a context must be given together");
    return LOCH_OK;
}

static loch_status context_add_seat(loch_context *context, unsigned seat)
{
    if (seat >= context->engine->count)
        return LOCH_FAIL(NOT_FOUND, "the engine \"%.64s\" has %u seats; there is no seat %u", context->engine->name,
                         context->engine->count, seat);
    if (context->seats[seat].is_mine) return LOCH_FAIL(INVALID, "seat %u is in the list of seats twice", seat);
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
    LOCH_TRY_RETURN(lochi_engine_enter(engine, &context->guest));
    context->engine = engine;
    context->name = lochi_strdup(options->name ? options->name : "context");
    /* cannot overflow: the engine has an array of as many seats */
    context->seats = lochi_zalloc(engine->count * sizeof *context->seats);
    context->order = lochi_zalloc(engine->count * sizeof *context->order);
    if (!context->name || !context->seats || !context->order)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for a context");
    LOCH_TRY_RETURN(context_add_seats(context, options));
    return lochi_meter_create(&context->meter);
}

static void context_leave(loch_context *context)
{
    lochi_context_end_guards(context);
    lochi_copies_end(context);
    for (unsigned i = 0; context->seats && i < context->engine->count; i++) {
        lochi_context_pop_all(&context->seats[i]);
        loch_cublas_destroy(context->seats[i].cublas);
        lochi_context_give_stream(context, i);
    }
    lochi_engine_leave(context->engine, &context->guest);
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
    if (!engine || !out) return LOCH_FAIL(INVALID, "loch_context_open needs an engine and an out pointer");
    loch_context_options read;
    LOCH_TRY_RETURN(context_read_options(options, &read));
    loch_context *context = lochi_zalloc(sizeof *context);
    if (!context) return LOCH_FAIL(HOST_MEMORY, "no host memory for a context");
    context->thread = lochi_thread_number();
    context->flags = read.flags;
    context->tag = read.tag;
    context->round_bytes = read.round_bytes;
    const loch_status status = context_fill(context, engine, &read);
    if (status != LOCH_OK) {
        context_end(context);
        return status;
    }
    lochi_context_remember(context);
    *out = context;
    return LOCH_OK;
}

loch_status loch_context_close(loch_context *context)
{
    if (!context) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_context_check(context));
    lochi_context_forget(context);
    context_end(context);
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
    if (!lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "the struct for the figures of a context is NULL or has no size set");
    lochi_copies_sweep((loch_context *)(uintptr_t)context); /* drops stale copies first: they must not be counted */
    const lochi_meter_reading reading = lochi_meter_read(context->meter);
    const loch_context_stats stats = {.size = sizeof stats,
                                      .tensors = reading.count,
                                      .used_bytes = reading.used_bytes,
                                      .peak_bytes = reading.peak_bytes,
                                      .copies = context->copies.count,
                                      .copy_bytes = context->copies.bytes};
    lochi_sized_write(out, &stats, sizeof stats);
    return LOCH_OK;
}
