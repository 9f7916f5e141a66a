/* SPDX-License-Identifier: MIT */
/* Guards: a stack in the context.
 *
 * Each entry holds the values to restore. Everything that can fail is done before anything is changed, so a guard that
 * fails to begin changes nothing. Guard numbers are unique in the process: a guard that has ended, or whose context was
 * destroyed, is not found. */
#include "engine/context/guard.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/current.h"
#include "device/stream_life.h"
#include "engine/context/memory.h"
#include "engine/context/seat.h"
#include "engine/context/thread.h"
#include "engine/engine_lock.h"
#include <stdatomic.h>

typedef enum context_guard_kind { GUARD_SEAT, GUARD_STREAM, GUARD_DEBUG, GUARD_MOVING } context_guard_kind;

struct context_guard {
    struct context_guard *below;
    uint64_t number;
    context_guard_kind kind;
    /* GUARD_SEAT: the seat that was current before; GUARD_STREAM: the seat whose stream was set */
    unsigned seat;
    lochi_stay stay;      /* GUARD_SEAT, GUARD_STREAM: makes the device current in the thread */
    bool is_locked;       /* GUARD_SEAT: the lock of `locked` is held */
    unsigned locked;      /* GUARD_SEAT: the seat whose lock is held */
    loch_stream *stream;  /* GUARD_STREAM: the stream that was set before; NULL: the seat's own stream */
    int debug;            /* GUARD_DEBUG: the level before */
    loch_allocator *pool; /* GUARD_MOVING: the pool in which moving is forbidden, retained; NULL: nothing moves there */
};

static _Atomic uint64_t guard_last_number; /* relaxed: only uniqueness matters */

static loch_status guard_make(loch_context *context, context_guard_kind kind, loch_guard *place,
                              struct context_guard **out)
{
    if (place) *place = (loch_guard){0};
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!place) return LOCH_FAIL(INVALID, "the out pointer for the guard is NULL");
    struct context_guard *guard = lochi_zalloc(sizeof *guard);
    if (!guard) return LOCH_FAIL(HOST_MEMORY, "no host memory for a guard");
    guard->kind = kind;
    guard->number = atomic_fetch_add_explicit(&guard_last_number, 1, memory_order_relaxed) + 1;
    *out = guard;
    return LOCH_OK;
}

/* Pushes a guard. Cannot fail. */
static void guard_begin(loch_context *context, struct context_guard *guard, loch_guard *place)
{
    guard->below = context->guards;
    context->guards = guard;
    *place = (loch_guard){.context = context, .number = guard->number};
}

/* --- ending --- */

/* Logs an undo that failed. That is a bug of the library, or the program has already undone the change of the guard. */
static void guard_log(const loch_context *context, const char *what, loch_status status)
{
    if (status != LOCH_OK)
        LOCHI_LOG(ERROR, "a guard of the context \"%s\" could not %s: %s", context->name, what,
                  loch_error_get()->sentence);
}

static void guard_undo(loch_context *context, struct context_guard *guard)
{
    switch (guard->kind) {
    case GUARD_SEAT:
        context->current = guard->seat;
        lochi_stay_end(&guard->stay);
        if (guard->is_locked)
            guard_log(context, "unlock its seat", lochi_seat_lock_drop(context->engine, LOCH_SEAT(guard->locked)));
        break;
    case GUARD_STREAM:
        context->seats[guard->seat].set = guard->stream;
        lochi_stay_end(&guard->stay);
        break;
    case GUARD_DEBUG: context->debug = guard->debug; break;
    case GUARD_MOVING:
        if (guard->pool) guard_log(context, "allow moving again", loch_pool_allow_moving(guard->pool));
        loch_allocator_release(guard->pool);
        break;
    }
}

static void guard_end_top(loch_context *context)
{
    struct context_guard *guard = context->guards;
    const loch_error saved = lochi_error_save();
    context->guards = guard->below;
    guard_undo(context, guard);
    lochi_free(guard);
    lochi_error_restore(&saved);
}

void lochi_context_end_guards(loch_context *context)
{
    while (context->guards)
        guard_end_top(context);
}

void loch_guard_end(loch_guard *guard)
{
    if (!guard || !guard->context) return;
    loch_context *context = guard->context;
    const uint64_t number = guard->number;
    if (!lochi_context_is_known(context)) return; /* destroyed, or of another thread */
    *guard = (loch_guard){0};
    const struct context_guard *at = context->guards;
    while (at && at->number != number)
        at = at->below;
    if (!at) return;
    while (context->guards && context->guards->number >= number) /* numbers rise towards the top of the stack */
        guard_end_top(context);
}

/* --- beginning --- */

loch_status loch_context_begin_seat(loch_context *context, loch_seat seat, loch_seat_use use, loch_guard *out)
{
    struct context_guard *guard;
    loch_status status;
    LOCH_TRY_RETURN(guard_make(context, GUARD_SEAT, out, &guard));
    guard->seat = context->current;
    guard->locked = seat.number;
    LOCH_TRY((unsigned)use <= LOCH_SEAT_LOCKED ? LOCH_OK
                                               : LOCH_FAIL(INVALID, "%d is not a loch_seat_use value", (int)use),
             fail);
    LOCH_TRY(lochi_context_check_seat(context, seat), fail);
    if (use == LOCH_SEAT_LOCKED) {
        lochi_seat_lock_take(context->engine, seat);
        guard->is_locked = true;
    }
    LOCH_TRY(lochi_stay_begin(&guard->stay, lochi_context_place(context, seat.number)->device), fail);
    context->current = seat.number;
    guard_begin(context, guard, out);
    return LOCH_OK;
fail:
    if (guard->is_locked) guard_log(context, "unlock its seat", lochi_seat_lock_drop(context->engine, seat));
    lochi_free(guard);
    return status;
}

loch_status loch_context_begin_stream(loch_context *context, loch_stream *stream, loch_guard *out)
{
    struct context_guard *guard;
    LOCH_TRY_RETURN(guard_make(context, GUARD_STREAM, out, &guard));
    guard->seat = context->current;
    guard->stream = context->seats[context->current].set;
    loch_device *device = lochi_context_place(context, context->current)->device;
    loch_status status = stream ? lochi_stream_check(stream, device) : LOCH_OK;
    if (status == LOCH_OK) status = lochi_stay_begin(&guard->stay, device);
    if (status != LOCH_OK) {
        lochi_free(guard);
        return status;
    }
    context->seats[context->current].set = stream;
    guard_begin(context, guard, out);
    return LOCH_OK;
}

loch_status loch_context_begin_debug(loch_context *context, int level, loch_guard *out)
{
    struct context_guard *guard;
    LOCH_TRY_RETURN(guard_make(context, GUARD_DEBUG, out, &guard));
    guard->debug = context->debug;
    context->debug = level;
    guard_begin(context, guard, out);
    return LOCH_OK;
}

loch_status loch_context_begin_still(loch_context *context, loch_guard *out)
{
    struct context_guard *guard;
    LOCH_TRY_RETURN(guard_make(context, GUARD_MOVING, out, &guard));
    if (!context->engine->is_direct) {
        loch_allocator *pool = lochi_context_allocator(context, context->current);
        const loch_status status = loch_pool_forbid_moving(pool);
        if (status != LOCH_OK) {
            lochi_free(guard);
            return status;
        }
        guard->pool = loch_allocator_retain(pool);
    }
    guard_begin(context, guard, out);
    return LOCH_OK;
}
