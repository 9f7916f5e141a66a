/* SPDX-License-Identifier: MIT */
/* Streams are queues that work in order. OpenCL cannot tell whether a queue is idle, so a stream keeps the event of the
 * last work that Loch queued: when that has ended, all work of Loch before it has.
 *
 * The caller of Loch may queue kernels on the queue too, once it has the queue: a wrapped one, or one that
 * loch_stream_get_native handed out. Such a stream is shared, and asks by a marker at the end of the queue.
 *
 * A stream that is ordered with the default stream uses the default stream's queue: OpenCL has no other such order. */
#include "stream.h"
#include "kit/backoff.h"
#include <stdlib.h>

/* A query of a shared queue gives its marker this long to pass a queue that is idle. */
#define STREAM_MARKER_NS 1000000

/* --- waiting for work --- */

loch_status lochi_opencl_ask(cl_mark mark)
{
    cl_result status = LOCHI_CL_COMPLETE;
    LOCHI_OPENCL_TRY(clGetEventInfo, (mark, LOCHI_CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    if (status == LOCHI_CL_COMPLETE) return LOCH_OK;
    return status > 0 ? LOCH_E_BUSY : lochi_opencl_fail(status, "work that was queued");
}

loch_status lochi_opencl_await(cl_mark mark)
{
    const cl_result result = lochi_opencl.clWaitForEvents(1, &mark);
    if (result == LOCHI_CL_SUCCESS) return LOCH_OK;
    if (result == LOCHI_CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) {
        const loch_status status = lochi_opencl_ask(mark); /* the code of the work itself */
        if (status != LOCH_OK && status != LOCH_E_BUSY) return status;
    }
    return lochi_opencl_fail(result, "clWaitForEvents");
}

/* --- making and ending --- */

lochi_opencl_stream *lochi_opencl_stream_of(lochi_opencl_device *device, void *stream)
{
    return stream ? stream : device->default_stream;
}

/* Makes a stream for a queue whose reference it takes over. */
static loch_status stream_make(cl_queue queue, bool is_shared, lochi_opencl_stream **out)
{
    lochi_opencl_stream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        lochi_opencl.clReleaseCommandQueue(queue);
        return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", 0, "no host memory for a stream");
    }
    stream->queue = queue;
    atomic_init(&stream->is_shared, is_shared);
    pthread_mutex_init(&stream->lock, NULL);
    *out = stream;
    return LOCH_OK;
}

static void stream_free(lochi_opencl_stream *stream)
{
    if (stream->last) lochi_opencl.clReleaseEvent(stream->last);
    lochi_opencl.clReleaseCommandQueue(stream->queue);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static loch_status stream_make_queue(lochi_opencl_device *device, cl_queue *out)
{
    const cl_bits properties[] = {LOCHI_CL_QUEUE_PROPERTIES, LOCHI_CL_QUEUE_PROFILING_ENABLE, 0};
    cl_result result = LOCHI_CL_SUCCESS;
    *out = lochi_opencl.clCreateCommandQueueWithProperties(device->context, device->id, properties, &result);
    if (result == LOCHI_CL_INVALID_DEVICE) /* a pair of handles of the caller */
        return loch_error_set(LOCH_E_INVALID, "opencl", result, "the device is not in the context");
    return LOCHI_OPENCL_STATUS(result, clCreateCommandQueueWithProperties);
}

loch_status lochi_opencl_stream_open_default(lochi_opencl_device *device)
{
    cl_queue queue;
    LOCH_RETURN(stream_make_queue(device, &queue));
    return stream_make(queue, false, &device->default_stream);
}

static void stream_link(lochi_opencl_device *device, lochi_opencl_stream *stream)
{
    pthread_mutex_lock(&device->lock);
    stream->number = ++device->streams_made;
    stream->next = device->streams;
    if (stream->next) stream->next->prev = stream;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
}

loch_status lochi_opencl_stream_create(void *self, const loch_stream_options *options, void **out)
{
    lochi_opencl_device *device = self;
    cl_queue queue = device->default_stream->queue;
    if (options->order == LOCH_STREAM_WITH_DEFAULT)
        LOCHI_OPENCL_TRY(clRetainCommandQueue, (queue));
    else
        LOCH_RETURN(stream_make_queue(device, &queue));
    lochi_opencl_stream *stream = NULL;
    const loch_status status = stream_make(queue, false, &stream);
    if (!stream) return status;
    stream_link(device, stream);
    *out = stream;
    return LOCH_OK;
}

/* Tells whether work has ended, well or not. Writes no error record. */
static bool stream_has_ended(cl_mark mark)
{
    cl_result status = LOCHI_CL_COMPLETE;
    const cl_result result =
        lochi_opencl.clGetEventInfo(mark, LOCHI_CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    return result == LOCHI_CL_SUCCESS && status <= LOCHI_CL_COMPLETE;
}

/* Removes events of work that has ended from the list, and keeps the order of the others. Lock held. */
static void stream_forget_ended(lochi_opencl_device *device)
{
    size_t kept = 0;
    for (size_t i = 0; i < device->leaving_count; i++)
        if (stream_has_ended(device->leaving[i]))
            lochi_opencl.clReleaseEvent(device->leaving[i]);
        else
            device->leaving[kept++] = device->leaving[i];
    device->leaving_count = kept;
}

/* Keeps the last work of a stream that ends for device_sync. Returns false if there is no memory for that. */
static bool stream_keep(lochi_opencl_device *device, cl_mark last)
{
    pthread_mutex_lock(&device->lock);
    stream_forget_ended(device);
    if (device->leaving_count == device->leaving_room) {
        const size_t room = device->leaving_room ? 2 * device->leaving_room : 16;
        cl_mark *grown = realloc(device->leaving, room * sizeof *grown);
        if (grown) {
            device->leaving = grown;
            device->leaving_room = room;
        }
    }
    const bool is_kept = device->leaving_count < device->leaving_room;
    if (is_kept) device->leaving[device->leaving_count++] = last;
    pthread_mutex_unlock(&device->lock);
    return is_kept;
}

/* Ends a stream. Its work runs to the end; without memory to remember the work, the call waits for it. */
static void stream_end(lochi_opencl_device *device, lochi_opencl_stream *stream)
{
    pthread_mutex_lock(&device->lock);
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        device->streams = stream->next;
    if (stream->next) stream->next->prev = stream->prev;
    pthread_mutex_unlock(&device->lock);
    if (stream->last && !stream_has_ended(stream->last)) {
        if (stream_keep(device, stream->last))
            stream->last = NULL; /* the list has the reference */
        else
            lochi_opencl.clWaitForEvents(1, &stream->last);
    }
    stream_free(stream);
}

loch_status lochi_opencl_stream_destroy(void *self, void *stream)
{
    stream_end(self, stream);
    return LOCH_OK;
}

void lochi_opencl_stream_close_default(lochi_opencl_device *device)
{
    for (size_t i = 0; i < device->leaving_count; i++) {
        lochi_opencl.clWaitForEvents(1, &device->leaving[i]);
        lochi_opencl.clReleaseEvent(device->leaving[i]);
    }
    free(device->leaving);
    if (!device->default_stream) return;
    lochi_opencl.clFinish(device->default_stream->queue);
    stream_free(device->default_stream);
}

loch_status lochi_opencl_stream_thread_default(void *self, void **out)
{
    (void)self;
    *out = NULL; /* OpenCL has no queue of a thread */
    return LOCH_OK;
}

/* --- queues of the caller --- */

static loch_status stream_check_queue(const lochi_opencl_device *device, cl_queue queue)
{
    cl_context_of context = NULL;
    cl_device id = NULL;
    cl_bits properties = 0;
    LOCHI_OPENCL_TRY(clGetCommandQueueInfo, (queue, LOCHI_CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    LOCHI_OPENCL_TRY(clGetCommandQueueInfo, (queue, LOCHI_CL_QUEUE_DEVICE, sizeof id, &id, NULL));
    LOCHI_OPENCL_TRY(clGetCommandQueueInfo, (queue, LOCHI_CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
    if (context != device->context || id != device->id)
        return loch_error_set(LOCH_E_INVALID, "opencl", LOCHI_CL_INVALID_COMMAND_QUEUE,
                              "the queue is of another context or device: open the device of its context by "
                              "loch_opencl_open");
    if (properties & LOCHI_CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return loch_error_set(LOCH_E_UNSUPPORTED, "opencl", LOCHI_CL_INVALID_COMMAND_QUEUE,
                              "the queue works out of order; a stream works in order");
    return LOCH_OK;
}

loch_status lochi_opencl_stream_wrap(void *self, void *native, void **out)
{
    lochi_opencl_device *device = self;
    *out = NULL;
    if (!native) return LOCH_OK; /* the default stream */
    LOCH_RETURN(stream_check_queue(device, native));
    if (native == device->default_stream->queue) return LOCH_OK;
    LOCHI_OPENCL_TRY(clRetainCommandQueue, (native));
    lochi_opencl_stream *stream = NULL;
    const loch_status status = stream_make(native, true, &stream);
    if (!stream) return status;
    stream_link(device, stream);
    *out = stream;
    return LOCH_OK;
}

void lochi_opencl_stream_unwrap(void *self, void *stream)
{
    stream_end(self, stream);
}

void *lochi_opencl_stream_native(void *self, void *stream)
{
    lochi_opencl_stream *asked = lochi_opencl_stream_of(self, stream);
    atomic_store_explicit(&asked->is_shared, true, memory_order_relaxed);
    return asked->queue;
}

/* --- work --- */

loch_status lochi_opencl_stream_queued(lochi_opencl_stream *stream, cl_mark mark)
{
    if (stream->last) lochi_opencl.clReleaseEvent(stream->last);
    stream->last = mark;
    const cl_result result = lochi_opencl.clFlush(stream->queue);
    if (result == LOCHI_CL_SUCCESS) return LOCH_OK;
    /* The work is queued and may run at any time: the call succeeds if the work can be waited for. */
    if (lochi_opencl.clFinish(stream->queue) == LOCHI_CL_SUCCESS) return LOCH_OK;
    return lochi_opencl_fail(result, "clFlush");
}

/* Returns a reference to the last work of a stream; NULL if all has ended. */
static cl_mark stream_last(lochi_opencl_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    cl_mark last = stream->last;
    if (last) lochi_opencl.clRetainEvent(last);
    pthread_mutex_unlock(&stream->lock);
    return last;
}

/* Queues a marker behind all work of a queue, of Loch and of the caller. */
static loch_status stream_mark(lochi_opencl_stream *stream)
{
    cl_mark mark = NULL;
    pthread_mutex_lock(&stream->lock);
    const cl_result result = lochi_opencl.clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &mark);
    const loch_status status = result == LOCHI_CL_SUCCESS ? lochi_opencl_stream_queued(stream, mark)
                                                          : lochi_opencl_fail(result, "clEnqueueMarkerWithWaitList");
    pthread_mutex_unlock(&stream->lock);
    return status;
}

static loch_status stream_ask_last(lochi_opencl_stream *stream)
{
    cl_mark last = stream_last(stream);
    if (!last) return LOCH_OK;
    const loch_status status = lochi_opencl_ask(last);
    lochi_opencl.clReleaseEvent(last);
    return status;
}

/* Returns E_BUSY without writing the record: it is not a failure, and it is frequent. The marker of a shared queue that
 * is idle needs a moment, so the query waits that long. While an earlier marker or other work of Loch has not passed,
 * the answer is known without one. */
loch_status lochi_opencl_stream_query(void *self, void *stream)
{
    lochi_opencl_stream *asked = lochi_opencl_stream_of(self, stream);
    loch_status status = stream_ask_last(asked);
    if (status != LOCH_OK || !atomic_load_explicit(&asked->is_shared, memory_order_relaxed)) return status;
    LOCH_RETURN(stream_mark(asked));
    const uint64_t start = loch_host_now_ns();
    unsigned turn = 0;
    while ((status = stream_ask_last(asked)) == LOCH_E_BUSY && loch_host_now_ns() - start < STREAM_MARKER_NS)
        lochi_backoff(&turn);
    return status;
}

/* Takes references to what a wait for a stream waits for: its queue if it is shared, otherwise its last work. */
typedef struct stream_work {
    cl_queue queue;
    cl_mark mark;
} stream_work;

static stream_work stream_work_of(lochi_opencl_stream *stream)
{
    if (!atomic_load_explicit(&stream->is_shared, memory_order_relaxed))
        return (stream_work){.mark = stream_last(stream)};
    lochi_opencl.clRetainCommandQueue(stream->queue);
    return (stream_work){.queue = stream->queue};
}

/* Waits for work and gives the references back. */
static loch_status stream_await(const stream_work *work)
{
    loch_status status = LOCH_OK;
    if (work->queue) {
        const cl_result result = lochi_opencl.clFinish(work->queue);
        status = LOCHI_OPENCL_STATUS(result, clFinish);
        lochi_opencl.clReleaseCommandQueue(work->queue);
    }
    if (work->mark) {
        status = lochi_opencl_await(work->mark);
        lochi_opencl.clReleaseEvent(work->mark);
    }
    return status;
}

loch_status lochi_opencl_stream_sync(void *self, void *stream)
{
    const stream_work work = stream_work_of(lochi_opencl_stream_of(self, stream));
    return stream_await(&work);
}

/* --- all work of a device --- */

/* Takes the oldest work of streams that have ended. Returns false if there is none. */
static bool stream_take_leaving(lochi_opencl_device *device, stream_work *out)
{
    pthread_mutex_lock(&device->lock);
    stream_forget_ended(device);
    const bool is_there = device->leaving_count > 0;
    if (is_there) {
        *out = (stream_work){.mark = device->leaving[0]};
        lochi_opencl.clRetainEvent(out->mark);
    }
    pthread_mutex_unlock(&device->lock);
    return is_there;
}

/* Takes the work of the newest stream that is older than `number`, and changes `number` to that stream's. Returns false
 * if there is none. */
static bool stream_take_older(lochi_opencl_device *device, uint64_t *number, stream_work *out)
{
    pthread_mutex_lock(&device->lock);
    lochi_opencl_stream *stream = device->streams; /* newest first */
    while (stream && stream->number >= *number)
        stream = stream->next;
    if (stream) {
        *number = stream->number;
        *out = stream_work_of(stream);
    }
    pthread_mutex_unlock(&device->lock);
    return stream != NULL;
}

/* Waits, and keeps the record of the first failure. */
static void stream_await_next(const stream_work *work, loch_error *first)
{
    const loch_status status = stream_await(work);
    if (status != LOCH_OK && first->status == LOCH_OK) *first = *loch_error_get();
}

/* Waits for all streams even if one fails, and returns the first failure. Needs no memory. Streams are first: one that
 * ends meanwhile leaves its work behind. Work that others queue meanwhile is not waited for without end. */
loch_status lochi_opencl_device_sync(void *self)
{
    lochi_opencl_device *device = self;
    loch_error first = {.status = LOCH_OK};
    stream_work work = stream_work_of(device->default_stream);
    stream_await_next(&work, &first);
    for (uint64_t number = UINT64_MAX; stream_take_older(device, &number, &work);)
        stream_await_next(&work, &first);
    pthread_mutex_lock(&device->lock);
    size_t left = device->leaving_count;
    pthread_mutex_unlock(&device->lock);
    for (; left && stream_take_leaving(device, &work); left--)
        stream_await_next(&work, &first);
    if (first.status == LOCH_OK) return LOCH_OK;
    return loch_error_set(first.status, first.driver, first.driver_code, "%s", first.sentence);
}
