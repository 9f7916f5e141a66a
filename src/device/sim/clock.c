/* SPDX-License-Identifier: MIT */
/* The clocks of simulated devices. Moving a clock makes operations take effect, in the order of their keys.
 *
 * One thread at a time settles a device. The lock is dropped while a function that the user queued runs, because the
 * function may take locks, so other threads may enter: they treat as done only what has taken effect, and threads
 * that wait sleep until it has. An operation may wait for another device. Keys rise along every dependency and
 * settling follows the keys, so two devices cannot wait for each other in a circle. */
#include "device/sim/clock.h"
#include "kit/cancel.h"
#include "base/thread.h"
#include "device/pitched.h"
#include "device/sim/fail.h"
#include "device/sim/object.h"
#include "device/sim/op.h"
#include "device/sim/stream.h"
#include <string.h>

/* --- taking effect --- */

static void clock_run(lochi_sim_op *op)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    op->is_running = true;
    lochi_lock_drop(&lochi_sim_all.lock);
    op->function(op->user);
    lochi_lock_take(&lochi_sim_all.lock);
    op->is_running = false;
}

static void clock_fill(const lochi_sim_op *op)
{
    if (op->pattern_bytes == 1) {
        memset(op->to, (int)(op->pattern & 0xff), op->bytes);
        return;
    }
    unsigned char pattern[sizeof op->pattern];
    const uint16_t half = (uint16_t)op->pattern;
    if (op->pattern_bytes == 2)
        memcpy(pattern, &half, sizeof half);
    else
        memcpy(pattern, &op->pattern, sizeof op->pattern);
    for (size_t i = 0; i < op->bytes; i += op->pattern_bytes)
        memcpy((char *)op->to + i, pattern, op->pattern_bytes);
}

static void clock_copy(const lochi_sim_op *op)
{
    const void *from = op->staging ? op->staging : op->from;
    if (op->shape.rows)
        lochi_pitched_host(op->to, from, &op->shape);
    else
        memmove(op->to, from, op->bytes);
}

static void clock_move_bytes(const lochi_sim_op *op)
{
    if (op->strided)
        op->strided->run(op->strided);
    else if (op->kind == LOCHI_SIM_COPY)
        clock_copy(op);
    else
        clock_fill(op);
}

/* Returns false if the operation waits for a device that this thread is already settling in an outer call, and that
 * has not come that far. */
static bool clock_take_effect(lochi_sim *sim, lochi_sim_op *op)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const bool is_alive = !op->is_dead && !sim->is_lost;
    switch (op->kind) {
    case LOCHI_SIM_COPY:
    case LOCHI_SIM_FILL:
        if (is_alive && op->is_real) clock_move_bytes(op);
        break;
    case LOCHI_SIM_KERNEL:
        if (is_alive && op->function && sim->is_backed) clock_run(op);
        break;
    case LOCHI_SIM_CALL:
        if (is_alive) clock_run(op);
        break;
    case LOCHI_SIM_WAIT:
        if (op->awaited) return lochi_sim_wait(op->awaited, op->awaited_key) == LOCH_OK;
        break;
    case LOCHI_SIM_FREE: lochi_sim_span_remove(sim, op->freed, "freed"); break;
    }
    return true;
}

/* Returns the stream whose first operation ends first; NULL if all queues are empty. */
static lochi_sim_stream *clock_next(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_stream *found = NULL;
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        if (stream->first && (!found || lochi_sim_key_before(stream->first->key, found->first->key))) found = stream;
    return found;
}

static void clock_retire(lochi_sim *sim, lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_op *op = stream->first;
    stream->first = op->next;
    if (!stream->first) stream->last = NULL;
    for (size_t i = 0; i < op->uses_count; i++)
        if (op->uses[i].span) op->uses[i].span->pending--;
    sim->pending--;
    sim->settled = op->key;
    lochi_sim_op_destroy(op);
    if (stream->is_destroyed && !stream->first) lochi_sim_stream_drop(stream);
}

void lochi_sim_settle(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (sim->is_settling) return;
    if (sim->next_ns <= sim->now_ns) {
        LOCHI_NOT_CANCELLED; /* users' functions may run */
        sim->is_settling = true;
        sim->settler = lochi_thread_number();
        lochi_sim_stream *stream;
        bool is_stuck = false;
        while (!is_stuck && (stream = clock_next(sim)) && stream->first->key.end_ns <= sim->now_ns) {
            is_stuck = !clock_take_effect(sim, stream->first);
            if (!is_stuck) clock_retire(sim, stream);
            pthread_cond_broadcast(&lochi_sim_all.settled);
        }
        sim->next_ns = stream ? stream->first->key.end_ns : UINT64_MAX;
        sim->is_settling = false;
        if (is_stuck) return;
    }
    sim->settled = (lochi_sim_key){sim->now_ns, lochi_sim_all.last_op};
}

void lochi_sim_clock_forked(lochi_sim *sim)
{
    if (!sim->is_settling || sim->settler == lochi_thread_number()) return;
    sim->is_settling = false;
    sim->next_ns = 0; /* look at the operations under way again */
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        for (lochi_sim_op *op = stream->first; op; op = op->next)
            op->is_running = false;
}

/* --- time --- */

/* Advances the device's random generator (a 64-bit counter, mixed). */
static uint64_t clock_random(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    uint64_t value = sim->random += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

void lochi_sim_tick(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const uint64_t span = lochi_sim_add_ns(sim->lag_ns, 1);
    if (!sim->is_stepped) sim->now_ns = lochi_sim_add_ns(sim->now_ns, clock_random(sim) % span);
    lochi_sim_settle(sim);
}

bool lochi_sim_is_done(const lochi_sim *sim, lochi_sim_key key)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    return !lochi_sim_key_before(sim->settled, key);
}

void lochi_sim_move_clock(lochi_sim *sim, uint64_t ns)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (sim->now_ns < ns) sim->now_ns = ns;
    lochi_sim_settle(sim);
}

loch_status lochi_sim_wait(lochi_sim *sim, lochi_sim_key key)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCHI_NOT_CANCELLED;
    for (;;) {
        lochi_sim_move_clock(sim, key.end_ns);
        if (lochi_sim_is_done(sim, key)) return LOCH_OK;
        if (!sim->is_settling || sim->settler == lochi_thread_number())
            return SIM_FAIL(DRIVER, "a function that was queued on a stream must not wait for the device");
        lochi_lock_wait(&lochi_sim_all.lock, &lochi_sim_all.settled);
    }
}
