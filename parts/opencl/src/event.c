/* SPDX-License-Identifier: MIT */
/* Events are markers in queues. A stream waits for one by a barrier.
 *
 * Events of OpenCL belong to a context, and each device has its own. A stream of another context waits for a user event
 * of its context, which a callback ends together with the marker. */
#include "event.h"
#include "stream.h"
#include <stdlib.h>

loch_status lochi_opencl_event_create(void *self, loch_event_kind kind, void **out)
{
    (void)kind; /* all queues of Loch measure time */
    lochi_opencl_event *event = calloc(1, sizeof *event);
    if (!event) return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", 0, "no host memory for an event");
    event->device = self;
    *out = event;
    return LOCH_OK;
}

loch_status lochi_opencl_event_destroy(void *self, void *event)
{
    (void)self;
    lochi_opencl_event *ended = event;
    if (ended->mark) lochi_opencl.clReleaseEvent(ended->mark);
    free(ended);
    return LOCH_OK;
}

loch_status lochi_opencl_event_record(void *self, void *event, void *stream)
{
    lochi_opencl_event *recorded = event;
    lochi_opencl_stream *marked = lochi_opencl_stream_of(self, stream);
    cl_mark mark = NULL;
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&marked->lock);
    cl_result result = lochi_opencl.clEnqueueMarkerWithWaitList(marked->queue, 0, NULL, &mark);
    if (result == LOCHI_CL_SUCCESS) {
        result = lochi_opencl.clRetainEvent(mark);
        if (result == LOCHI_CL_SUCCESS)
            status = lochi_opencl_stream_queued(marked, mark);
        else
            lochi_opencl.clReleaseEvent(mark);
    }
    pthread_mutex_unlock(&marked->lock);
    if (result != LOCHI_CL_SUCCESS) return lochi_opencl_fail(result, "clEnqueueMarkerWithWaitList");
    if (status != LOCH_OK) {
        lochi_opencl.clReleaseEvent(mark);
        return status;
    }
    if (recorded->mark) lochi_opencl.clReleaseEvent(recorded->mark);
    recorded->mark = mark;
    return LOCH_OK;
}

loch_status lochi_opencl_event_query(void *self, void *event)
{
    (void)self;
    const lochi_opencl_event *asked = event;
    return lochi_opencl_ask(asked->mark);
}

loch_status lochi_opencl_event_sync(void *self, void *event)
{
    (void)self;
    const lochi_opencl_event *awaited = event;
    return lochi_opencl_await(awaited->mark);
}

static loch_status event_read_time(const lochi_opencl_event *event, uint64_t *out_ns)
{
    const cl_result result =
        lochi_opencl.clGetEventProfilingInfo(event->mark, LOCHI_CL_PROFILING_COMMAND_END, sizeof *out_ns, out_ns, NULL);
    if (result != LOCHI_CL_PROFILING_INFO_NOT_AVAILABLE) return LOCHI_OPENCL_STATUS(result, clGetEventProfilingInfo);
    return loch_error_set(LOCH_E_UNSUPPORTED, "opencl", result,
                          "the event was recorded on a queue of the caller without CL_QUEUE_PROFILING_ENABLE");
}

loch_status lochi_opencl_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns)
{
    uint64_t from = 0, to = 0;
    LOCH_RETURN(lochi_opencl_event_query(self, start));
    LOCH_RETURN(lochi_opencl_event_query(self, end));
    LOCH_RETURN(event_read_time(start, &from));
    LOCH_RETURN(event_read_time(end, &to));
    *out_ns = to > from ? to - from : 0;
    return LOCH_OK;
}

/* --- waits --- */

/* Ends the user event of another context together with a mark. */
static void event_pass_on(cl_mark mark, cl_result status, void *user)
{
    (void)mark;
    lochi_opencl.clSetUserEventStatus(user, status < 0 ? status : LOCHI_CL_COMPLETE);
    lochi_opencl.clReleaseEvent(user);
}

/* Makes a user event in the context of `device` that ends with `mark`, an event of another context. The caller gets one
 * reference; the callback has one. */
static loch_status event_carry(const lochi_opencl_device *device, cl_mark mark, cl_mark *out)
{
    cl_result result = LOCHI_CL_SUCCESS;
    cl_mark carried = lochi_opencl.clCreateUserEvent(device->context, &result);
    if (result != LOCHI_CL_SUCCESS) return lochi_opencl_fail(result, "clCreateUserEvent");
    result = lochi_opencl.clRetainEvent(carried);
    if (result == LOCHI_CL_SUCCESS) {
        result = lochi_opencl.clSetEventCallback(mark, LOCHI_CL_COMPLETE, event_pass_on, carried);
        if (result != LOCHI_CL_SUCCESS) lochi_opencl.clReleaseEvent(carried);
    }
    if (result != LOCHI_CL_SUCCESS) {
        lochi_opencl.clReleaseEvent(carried);
        return lochi_opencl_fail(result, "clSetEventCallback");
    }
    *out = carried;
    return LOCH_OK;
}

static loch_status event_queue_wait(lochi_opencl_stream *stream, const cl_mark *mark)
{
    cl_mark barrier = NULL;
    pthread_mutex_lock(&stream->lock);
    const cl_result result = lochi_opencl.clEnqueueBarrierWithWaitList(stream->queue, 1, mark, &barrier);
    const loch_status status = result == LOCHI_CL_SUCCESS ? lochi_opencl_stream_queued(stream, barrier)
                                                          : lochi_opencl_fail(result, "clEnqueueBarrierWithWaitList");
    pthread_mutex_unlock(&stream->lock);
    return status;
}

loch_status lochi_opencl_stream_wait(void *self, void *stream, void *event)
{
    lochi_opencl_device *device = self;
    const lochi_opencl_event *awaited = event;
    lochi_opencl_stream *waiting = lochi_opencl_stream_of(device, stream);
    const loch_status passed = lochi_opencl_ask(awaited->mark);
    if (passed != LOCH_E_BUSY) return passed;
    if (awaited->device->context == device->context) return event_queue_wait(waiting, &awaited->mark);
    cl_mark carried;
    LOCH_RETURN(event_carry(device, awaited->mark, &carried));
    const loch_status status = event_queue_wait(waiting, &carried);
    lochi_opencl.clReleaseEvent(carried);
    return status;
}
