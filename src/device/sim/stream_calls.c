/* SPDX-License-Identifier: MIT */
/* Driver calls on simulated streams: creating, ending, querying, waiting.
 *
 * Waiting for an event of another device is an operation of its own, because the clock of that device has to move
 * too. A successful query or wait on the host joins the vector of the awaited work to the host's vector. */
#include "device/sim/stream_calls.h"
#include "base/thread.h"
#include "device/sim/call.h"
#include "device/sim/capture.h"
#include "device/sim/clock.h"
#include "device/sim/fail.h"
#include "device/sim/op.h"
#include "device/sim/order.h"
#include "device/sim/stream.h"

/* CUDA's special handles, accepted when a stream is wrapped. */
#define STREAM_LEGACY ((void *)1)
#define STREAM_OF_THREAD ((void *)2)

/* --- making and ending --- */

loch_status lochi_sim_stream_create(void *self, const loch_stream_options *options, void **out)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_stream_create, 0));
    *out = NULL; /* without queues every stream is the default stream */
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
    lochi_lock_assert_held(&lochi_sim_all.lock);
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
        return lochi_sim_end(SIM_FAIL(INVALID, "%p is not a stream of this simulated device", native));
    return lochi_sim_end(LOCH_OK);
}

/* --- waiting --- */

/* Returns E_BUSY without writing the record: it is not a failure, and it is frequent. Does not disturb a capture. */
static loch_status stream_query(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (stream->capture || lochi_sim_stream_tied_capture(stream)) return LOCH_E_BUSY;
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
    lochi_lock_assert_held(&lochi_sim_all.lock);
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
    lochi_lock_assert_held(&lochi_sim_all.lock);
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

/* Queues a wait for an event of another device. */
static loch_status stream_wait_far(lochi_sim_stream *stream, const lochi_sim_event *event)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_op *op;
    const lochi_sim_request request = {.kind = LOCHI_SIM_WAIT, .name = "wait"};
    LOCH_TRY_RETURN(lochi_sim_op_create(stream->device, &request, &op));
    op->awaited = event->device;
    op->awaited_key = event->key;
    lochi_sim_vector_join(&stream->seen, &event->seen);
    LOCH_TRY_RETURN(lochi_sim_op_queue(stream, op));
    stream->waited_ns = stream->tail.end_ns;
    lochi_sim_settle(stream->device);
    return LOCH_OK;
}

static loch_status stream_wait(lochi_sim_stream *stream, const lochi_sim_event *event)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (stream->capture || event->capture) return lochi_sim_capture_wait(stream, event);
    if (!event->is_recorded) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    if (event->device != stream->device && !lochi_sim_is_done(event->device, event->key))
        return stream_wait_far(stream, event);
    if (event->device != stream->device) {
        lochi_sim_vector_join(&stream->seen, &event->seen);
        return LOCH_OK;
    }
    lochi_sim_stream_follow(stream, event->key, &event->seen);
    const bool is_own = event->stream == stream->number; /* a stream does not wait for its own work */
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
