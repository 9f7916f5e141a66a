/* SPDX-License-Identifier: MIT */
/* Events of simulated devices.
 *
 * An event is a copy of a stream's tail and vector at the moment of recording. With an event lag, a simulated piece
 * of work is put before the event; it needs no operation of its own. */
#include "device/sim/event.h"
#include "base/heap.h"
#include "device/sim/call.h"
#include "device/sim/capture.h"
#include "device/sim/clock.h"
#include "device/sim/fail.h"
#include "device/sim/order.h"
#include "device/sim/stream.h"

static loch_status event_create(lochi_sim *sim, loch_event_kind kind, void **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_event *event = lochi_zalloc(sizeof *event);
    if (!event) return SIM_FAIL(HOST_MEMORY, "no host memory for an event");
    const loch_status status = lochi_sim_vector_init(&event->seen);
    if (status != LOCH_OK) {
        lochi_free(event);
        return status;
    }
    event->device = sim;
    event->kind = kind;
    event->next = sim->events;
    if (sim->events) sim->events->prev = event;
    sim->events = event;
    sim->events_count++;
    *out = event;
    return LOCH_OK;
}

loch_status lochi_sim_event_create(void *self, loch_event_kind kind, void **out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_event_create, 0));
    return lochi_sim_end(event_create(self, kind, out));
}

loch_status lochi_sim_event_destroy(void *self, void *native)
{
    lochi_sim *sim = self;
    lochi_sim_event *event = native;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_event_destroy, 0));
    if (event->prev)
        event->prev->next = event->next;
    else
        sim->events = event->next;
    if (event->next) event->next->prev = event->prev;
    sim->events_count--;
    lochi_sim_vector_fini(&event->seen);
    lochi_free(event);
    return lochi_sim_end(LOCH_OK);
}

/* Puts a piece of work before an event that is recorded, so that the stream appears busy. The piece ends one lag
 * after now, or one lag after the work that the stream waits for. Pieces of one stream overlap, so that lags do not
 * add up. Only a key represents the piece. */
static void event_lag(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *sim = stream->device;
    if (!sim->event_lag_ns || !(sim->capabilities & LOCH_CAN_ASYNC)) return;
    const uint64_t start = sim->now_ns > stream->waited_ns ? sim->now_ns : stream->waited_ns;
    const lochi_sim_key key = {lochi_sim_add_ns(start, sim->event_lag_ns), ++lochi_sim_all.last_op};
    stream->tail = lochi_sim_key_later(stream->tail, key);
    sim->last = lochi_sim_key_later(sim->last, key);
}

static loch_status event_record(lochi_sim_event *event, lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (event->device != stream->device)
        return SIM_FAIL(INVALID, "the event and the stream belong to different devices");
    if (stream->capture) return lochi_sim_capture_record(stream, event);
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    const uint64_t now_ns = stream->device->now_ns;
    event_lag(stream);
    event->capture = 0;
    event->is_recorded = true;
    event->stream = stream->number;
    event->key = stream->tail;
    event->time_ns = stream->tail.end_ns > now_ns ? stream->tail.end_ns : now_ns;
    lochi_sim_vector_copy(&event->seen, &stream->seen);
    return LOCH_OK;
}

loch_status lochi_sim_event_record(void *self, void *event, void *stream)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_event_record, 0));
    return lochi_sim_end(event_record(event, lochi_sim_stream_of(self, stream)));
}

/* Returns E_BUSY without writing the record: it is not a failure, and it is frequent. */
static loch_status event_query(lochi_sim_event *event)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (event->capture) return LOCH_E_BUSY;
    if (!event->is_recorded) return LOCH_OK;
    if (!lochi_sim_is_done(event->device, event->key)) return LOCH_E_BUSY;
    lochi_sim_vector_join(&lochi_sim_all.host, &event->seen);
    return LOCH_OK;
}

loch_status lochi_sim_event_query(void *self, void *event)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_event_query, 0));
    return lochi_sim_end(event_query(event));
}

static loch_status event_sync(lochi_sim_event *event)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (event->capture) return lochi_sim_capture_refuse(event, "waited for");
    if (!event->is_recorded) return LOCH_OK;
    lochi_sim_vector_join(&lochi_sim_all.host, &event->seen);
    return lochi_sim_wait(event->device, event->key);
}

loch_status lochi_sim_event_sync(void *self, void *event)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_event_sync, 0));
    return lochi_sim_end(event_sync(event));
}

static loch_status event_elapsed(const lochi_sim_event *start, const lochi_sim_event *end, uint64_t *out_ns)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (start->capture) return lochi_sim_capture_refuse(start, "asked for its time");
    if (end->capture) return lochi_sim_capture_refuse(end, "asked for its time");
    if (start->device != end->device) return SIM_FAIL(INVALID, "the two events belong to different devices");
    if (start->kind != LOCH_EVENT_TIMED || end->kind != LOCH_EVENT_TIMED)
        return SIM_FAIL(INVALID, "both events must be of kind LOCH_EVENT_TIMED");
    if (!start->is_recorded || !end->is_recorded) return SIM_FAIL(INVALID, "both events must be recorded first");
    if (!lochi_sim_is_done(start->device, start->key) || !lochi_sim_is_done(end->device, end->key))
        return SIM_FAIL(BUSY, "one of the two events has not passed yet");
    if (end->time_ns < start->time_ns) return SIM_FAIL(INVALID, "the second event passed before the first");
    *out_ns = end->time_ns - start->time_ns;
    return LOCH_OK;
}

loch_status lochi_sim_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_event_elapsed, 0));
    return lochi_sim_end(event_elapsed(start, end, out_ns));
}
