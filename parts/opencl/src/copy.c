/* SPDX-License-Identifier: MIT */
/* Copies and fills by queues.
 *
 * Host memory that is not pinned belongs to the caller again when the call returns, so such a copy waits. OpenCL has no
 * copy of rows of shared virtual memory: rows are queued one by one, and waited for once. */
#include "copy.h"
#include "memory.h"
#include "stream.h"

/* Tells whether a copy uses host memory that its caller may change or free after the call. */
static bool copy_must_wait(lochi_opencl_device *device, loch_direction direction, const void *to, size_t to_bytes,
                           const void *from, size_t from_bytes)
{
    if (direction == LOCH_HOST_TO_DEVICE) return !lochi_opencl_is_pinned(device, from, from_bytes);
    if (direction == LOCH_DEVICE_TO_HOST) return !lochi_opencl_is_pinned(device, to, to_bytes);
    return false;
}

/* Ends the queueing of a copy with the lock of the stream held. Returns a reference to its end in `end`. */
static loch_status copy_queued(lochi_opencl_stream *stream, cl_mark mark, cl_mark *end)
{
    lochi_opencl.clRetainEvent(mark);
    *end = mark;
    return lochi_opencl_stream_queued(stream, mark);
}

/* Waits for the end of a copy if it has to, and gives the reference back. */
static loch_status copy_settle(loch_status status, cl_mark end, bool must_wait)
{
    if (!end) return status;
    if (status == LOCH_OK && must_wait) status = lochi_opencl_await(end);
    lochi_opencl.clReleaseEvent(end);
    return status;
}

loch_status lochi_opencl_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                              void *peer, void *stream)
{
    (void)peer; /* LOCH_CAN_PEER is not claimed */
    lochi_opencl_stream *queued = lochi_opencl_stream_of(self, stream);
    const bool must_wait = copy_must_wait(self, direction, to, bytes, from, bytes);
    cl_mark mark = NULL, end = NULL;
    pthread_mutex_lock(&queued->lock);
    const cl_result result = lochi_opencl.clEnqueueSVMMemcpy(queued->queue, 0, to, from, bytes, 0, NULL, &mark);
    const loch_status status =
        result == LOCHI_CL_SUCCESS ? copy_queued(queued, mark, &end) : lochi_opencl_fail(result, "clEnqueueSVMMemcpy");
    pthread_mutex_unlock(&queued->lock);
    return copy_settle(status, end, must_wait);
}

/* Returns the bytes from the first to the last byte of rows. */
static size_t copy_span(const loch_pitched *shape, size_t row_pitch, size_t plane_pitch)
{
    return (shape->planes - 1) * plane_pitch + (shape->rows - 1) * row_pitch + shape->row_bytes;
}

/* Queues all rows. `mark` becomes the event of the last one. If a row is refused, those before it are waited for. */
static loch_status copy_rows(cl_queue queue, char *to, const char *from, const loch_pitched *shape, cl_mark *mark)
{
    const size_t count = shape->planes * shape->rows;
    for (size_t i = 0; i < count; i++) {
        const size_t plane = i / shape->rows, row = i % shape->rows;
        const cl_result result =
            lochi_opencl.clEnqueueSVMMemcpy(queue, 0, to + plane * shape->to_plane_pitch + row * shape->to_row_pitch,
                                            from + plane * shape->from_plane_pitch + row * shape->from_row_pitch,
                                            shape->row_bytes, 0, NULL, i + 1 == count ? mark : NULL);
        if (result != LOCHI_CL_SUCCESS) {
            lochi_opencl.clFinish(queue);
            return lochi_opencl_fail(result, "clEnqueueSVMMemcpy");
        }
    }
    return LOCH_OK;
}

loch_status lochi_opencl_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                      const loch_pitched *shape, void *peer, void *stream)
{
    (void)peer;
    lochi_opencl_stream *queued = lochi_opencl_stream_of(self, stream);
    const bool must_wait =
        copy_must_wait(self, direction, to, copy_span(shape, shape->to_row_pitch, shape->to_plane_pitch), from,
                       copy_span(shape, shape->from_row_pitch, shape->from_plane_pitch));
    cl_mark mark = NULL, end = NULL;
    pthread_mutex_lock(&queued->lock);
    loch_status status = copy_rows(queued->queue, to, from, shape, &mark);
    if (status == LOCH_OK) status = copy_queued(queued, mark, &end);
    pthread_mutex_unlock(&queued->lock);
    return copy_settle(status, end, must_wait);
}

loch_status lochi_opencl_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    lochi_opencl_stream *queued = lochi_opencl_stream_of(self, stream);
    cl_mark mark = NULL;
    pthread_mutex_lock(&queued->lock);
    const cl_result result =
        lochi_opencl.clEnqueueSVMMemFill(queued->queue, to, &pattern, pattern_bytes, bytes, 0, NULL, &mark);
    const loch_status status = result == LOCHI_CL_SUCCESS ? lochi_opencl_stream_queued(queued, mark)
                                                          : lochi_opencl_fail(result, "clEnqueueSVMMemFill");
    pthread_mutex_unlock(&queued->lock);
    return status;
}
