/* SPDX-License-Identifier: MIT */
/* Streams and events of simulated devices: what waits for what.
 *
 * A stream's tail is the key that its next operation starts behind; an event is a copy of the tail, and of what the
 * stream has seen, at the moment of recording. With an event lag, work that needs no operation of its own stands before
 * the mark. The default stream starts behind all streams that are ordered with it,
 * and they behind it. Waiting for an event of another device is an operation of its own, because that device's clock
 * has to come along. A successful query or wait on the host joins what was waited for to the host's vector. */
#include "base/heap.h"
#include "device/sim/sim.h"

/* CUDA's special handles, understood when a stream is wrapped. */
#define STREAM_LEGACY ((void *)1)
#define STREAM_OF_THREAD ((void *)2)

/* --- making and ending --- */

loch_status lochi_sim_stream_init(lochi_sim *sim, lochi_sim_stream *stream)
{
    LOCH_TRY_RETURN(lochi_sim_vector_init(&stream->seen));
    const loch_status status = lochi_sim_slot_take(&stream->slot);
    if (status != LOCH_OK) {
        lochi_sim_vector_fini(&stream->seen);
        return status;
    }
    stream->device = sim;
    stream->number = ++sim->last_number;
    return LOCH_OK;
}

loch_status lochi_sim_stream_make(lochi_sim *sim, lochi_sim_stream **out)
{
    lochi_sim_stream *stream = lochi_zalloc(sizeof *stream);
    if (!stream) return SIM_FAIL(HOST_MEMORY, "no host memory for a stream");
    const loch_status status = lochi_sim_stream_init(sim, stream);
    if (status != LOCH_OK) {
        lochi_free(stream);
        return status;
    }
    stream->prev = &sim->default_stream;
    stream->next = sim->default_stream.next;
    if (stream->next) stream->next->prev = stream;
    sim->default_stream.next = stream;
    *out = stream;
    return LOCH_OK;
}

void lochi_sim_stream_drop(lochi_sim_stream *stream)
{
    lochi_sim *sim = stream->device;
    stream->prev->next = stream->next;
    if (stream->next) stream->next->prev = stream->prev;
    lochi_sim_vector_join(&sim->gone, &stream->seen);
    if (stream->is_with_default) lochi_sim_vector_join(&sim->gone_blocking, &stream->seen);
    lochi_sim_slot_give(stream->slot);
    lochi_sim_vector_fini(&stream->seen);
    lochi_free(stream);
}

void lochi_sim_stream_end(lochi_sim_stream *stream)
{
    if (stream->capture) lochi_sim_capture_leave(stream);
    stream->is_destroyed = true;
    if (!stream->first) lochi_sim_stream_drop(stream);
}

lochi_sim_stream *lochi_sim_stream_of(lochi_sim *sim, void *native)
{
    return native ? native : &sim->default_stream;
}

loch_status lochi_sim_stream_create(void *self, const loch_stream_options *options, void **out)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_stream_create, 0));
    *out = NULL; /* without queues all streams are the default one */
    if (!(sim->capabilities & LOCH_CAN_ASYNC)) return lochi_sim_end(LOCH_OK);
    lochi_sim_stream *stream;
    const loch_status status = lochi_sim_stream_make(sim, &stream);
    if (status == LOCH_OK) {
        stream->is_with_default = options && options->order == LOCH_STREAM_WITH_DEFAULT;
        stream->is_made = true;
        sim->streams_count++;
        *out = stream;
    }
    return lochi_sim_end(status);
}

loch_status lochi_sim_stream_destroy(void *self, void *native)
{
    lochi_sim *sim = self;
    lochi_sim_stream *stream = native;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_stream_destroy, 0));
    if (stream && stream->is_made) {
        sim->streams_count--;
        lochi_sim_stream_end(stream);
    }
    return lochi_sim_end(LOCH_OK);
}

static loch_status stream_of_thread(lochi_sim *sim, void **out)
{
    const uint64_t thread = lochi_thread_number();
    *out = NULL;
    if (!(sim->capabilities & LOCH_CAN_ASYNC)) return LOCH_OK;
    lochi_sim_stream *stream = sim->default_stream.next;
    while (stream && stream->thread != thread)
        stream = stream->next;
    if (!stream) {
        LOCH_TRY_RETURN(lochi_sim_stream_make(sim, &stream));
        stream->thread = thread;
        stream->is_with_default = true;
    }
    *out = stream;
    return LOCH_OK;
}

loch_status lochi_sim_stream_thread_default(void *self, void **out)
{
    lochi_lock_take(&lochi_sim_all.lock);
    return lochi_sim_end(stream_of_thread(self, out));
}

loch_status lochi_sim_stream_wrap(void *self, void *native, void **out)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_ASYNC, "queues that could be wrapped"));
    if (native == STREAM_OF_THREAD) return lochi_sim_stream_thread_default(self, out);
    lochi_lock_take(&lochi_sim_all.lock);
    lochi_sim_stream *stream = sim->default_stream.next;
    while (stream && (stream != native || stream->is_destroyed))
        stream = stream->next;
    *out = stream;
    if (!stream && native && native != STREAM_LEGACY)
        return lochi_sim_end(SIM_FAIL(INVALID, "%p is no stream of this simulated device", native));
    return lochi_sim_end(LOCH_OK);
}

void lochi_sim_stream_close(lochi_sim *sim)
{
    while (sim->default_stream.next)
        lochi_sim_stream_end(sim->default_stream.next);
    while (sim->events) {
        lochi_sim_event *event = sim->events;
        sim->events = event->next;
        lochi_sim_vector_fini(&event->seen);
        lochi_free(event);
    }
    if (sim->default_stream.seen.epochs) lochi_sim_slot_give(sim->default_stream.slot);
    lochi_sim_vector_fini(&sim->default_stream.seen);
    lochi_sim_vector_fini(&sim->gone);
    lochi_sim_vector_fini(&sim->gone_blocking);
}

/* --- order --- */

static void stream_follow(lochi_sim_stream *stream, lochi_sim_key key, const lochi_sim_vector *seen)
{
    stream->tail = lochi_sim_key_later(stream->tail, key);
    lochi_sim_vector_join(&stream->seen, seen);
}

/* The capture of a stream that the default stream is ordered with, when `stream` is that one. */
static lochi_sim_capture *stream_tied_capture(const lochi_sim_stream *stream)
{
    const lochi_sim_stream *legacy = &stream->device->default_stream;
    if (stream != legacy) return NULL;
    for (const lochi_sim_stream *other = legacy->next; other; other = other->next)
        if (other->is_with_default && other->capture) return other->capture;
    return NULL;
}

loch_status lochi_sim_stream_enter(lochi_sim_stream *stream)
{
    lochi_sim *sim = stream->device;
    lochi_sim_stream *legacy = &sim->default_stream;
    lochi_sim_capture *tied = stream_tied_capture(stream);
    if (tied)
        return lochi_sim_capture_break(
            tied, "the default stream was used while a stream that is ordered with it was being captured");
    if (stream == legacy) {
        for (lochi_sim_stream *other = legacy->next; other; other = other->next)
            if (other->is_with_default) stream_follow(legacy, other->tail, &other->seen);
        lochi_sim_vector_join(&legacy->seen, &sim->gone_blocking);
    } else if (stream->is_with_default) {
        stream_follow(stream, legacy->tail, &legacy->seen);
    }
    lochi_sim_vector_join(&stream->seen, &lochi_sim_all.host);
    return LOCH_OK;
}

/* E_BUSY is an answer and no failure, and asked for often: the record stays as it is. Asking disturbs no capture. */
static loch_status stream_query(lochi_sim_stream *stream)
{
    if (stream->capture || stream_tied_capture(stream)) return LOCH_E_BUSY;
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    if (!lochi_sim_is_done(stream->device, stream->tail)) return LOCH_E_BUSY;
    lochi_sim_vector_join(&lochi_sim_all.host, &stream->seen);
    return LOCH_OK;
}

loch_status lochi_sim_stream_query(void *self, void *stream)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_stream_query, 0));
    return lochi_sim_end(stream_query(lochi_sim_stream_of(self, stream)));
}

static loch_status stream_sync(lochi_sim_stream *stream)
{
    if (stream->capture)
        return lochi_sim_capture_break(stream->capture, "a stream was waited for while it was being captured");
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    lochi_sim_vector_join(&lochi_sim_all.host, &stream->seen);
    return lochi_sim_wait(stream->device, stream->tail);
}

loch_status lochi_sim_stream_sync(void *self, void *stream)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_stream_sync, 0));
    return lochi_sim_end(stream_sync(lochi_sim_stream_of(self, stream)));
}

static loch_status device_sync(lochi_sim *sim)
{
    const lochi_sim_key last = sim->last;
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        if (stream->capture)
            return lochi_sim_capture_break(stream->capture, "the device was waited for while a stream was captured");
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        lochi_sim_vector_join(&lochi_sim_all.host, &stream->seen);
    lochi_sim_vector_join(&lochi_sim_all.host, &sim->gone);
    return lochi_sim_wait(sim, last);
}

loch_status lochi_sim_device_sync(void *self)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_device_sync, 0));
    return lochi_sim_end(device_sync(self));
}

/* Queues the wait for an event of another device. */
static loch_status stream_wait_far(lochi_sim_stream *stream, const lochi_sim_event *event)
{
    lochi_sim_op *op;
    const lochi_sim_request request = {.kind = LOCHI_SIM_WAIT, .name = "wait"};
    LOCH_TRY_RETURN(lochi_sim_op_create(stream->device, &request, &op));
    op->awaited = event->device;
    op->awaited_key = event->key;
    lochi_sim_vector_join(&stream->seen, &event->seen);
    lochi_sim_op_queue(stream, op);
    stream->waited_ns = stream->tail.end_ns;
    lochi_sim_settle(stream->device);
    return LOCH_OK;
}

static loch_status stream_wait(lochi_sim_stream *stream, const lochi_sim_event *event)
{
    if (stream->capture || event->capture) return lochi_sim_capture_wait(stream, event);
    if (!event->is_recorded) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    if (event->device != stream->device && !lochi_sim_is_done(event->device, event->key))
        return stream_wait_far(stream, event);
    if (event->device != stream->device) {
        lochi_sim_vector_join(&stream->seen, &event->seen);
        return LOCH_OK;
    }
    stream_follow(stream, event->key, &event->seen);
    const bool is_own = event->stream == stream->number; /* its own work does not hold itself up */
    if (!is_own && stream->waited_ns < event->key.end_ns) stream->waited_ns = event->key.end_ns;
    return LOCH_OK;
}

loch_status lochi_sim_stream_wait(void *self, void *stream, void *event)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_stream_wait, 0));
    return lochi_sim_end(stream_wait(lochi_sim_stream_of(self, stream), event));
}

loch_status lochi_sim_stream_capture(void *self, void *native, loch_capture_info *out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_stream_capture, 0));
    const lochi_sim_capture *capture = lochi_sim_stream_of(self, native)->capture;
    *out = (loch_capture_info){.active = capture != NULL, .id = capture ? lochi_sim_capture_id(capture) : 0};
    return lochi_sim_end(LOCH_OK);
}

/* --- events --- */

static loch_status event_create(lochi_sim *sim, loch_event_kind kind, void **out)
{
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

/* The stream is as busy as if work were queued on it all the time, so the piece before an event ends a lag after now, or
 * after what the stream waits for. Its own pieces overlap, so that lags do not pile up. A key alone stands for it. */
static void event_lag(lochi_sim_stream *stream)
{
    lochi_sim *sim = stream->device;
    if (!sim->event_lag_ns || !(sim->capabilities & LOCH_CAN_ASYNC)) return;
    const uint64_t start = sim->now_ns > stream->waited_ns ? sim->now_ns : stream->waited_ns;
    const lochi_sim_key key = {lochi_sim_add_ns(start, sim->event_lag_ns), ++lochi_sim_all.last_op};
    stream->tail = lochi_sim_key_later(stream->tail, key);
    sim->last = lochi_sim_key_later(sim->last, key);
}

static loch_status event_record(lochi_sim_event *event, lochi_sim_stream *stream)
{
    if (event->device != stream->device) return SIM_FAIL(INVALID, "the event and the stream are of different devices");
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

/* As for streams. */
static loch_status event_query(lochi_sim_event *event)
{
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
    if (start->capture) return lochi_sim_capture_refuse(start, "asked for its time");
    if (end->capture) return lochi_sim_capture_refuse(end, "asked for its time");
    if (start->device != end->device) return SIM_FAIL(INVALID, "the two events are of different devices");
    if (start->kind != LOCH_EVENT_TIMED || end->kind != LOCH_EVENT_TIMED)
        return SIM_FAIL(INVALID, "both events have to be timed ones");
    if (!start->is_recorded || !end->is_recorded) return SIM_FAIL(INVALID, "both events have to be recorded first");
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
