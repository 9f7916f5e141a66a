/* SPDX-License-Identifier: MIT */
/* Functions that streams run on the host.
 *
 *      queue:   ... earlier work | marker | barrier(end) | later work ...
 *      marker ends -> callback -> thread of the device: function, then `end` is set
 *
 * A callback runs on a thread of the OpenCL driver and must not wait, but a function may take long. So the callback
 * passes the function to a thread of the device. There is a thread more for every function that finds all threads in
 * use, so that functions of different streams do not wait for each other, up to LOCHI_OPENCL_WORKERS_MAX. */
#include "calls.h"
#include "stream.h"
#include <signal.h>
#include <stdlib.h>

void lochi_opencl_calls_open(lochi_opencl_calls *calls)
{
    pthread_mutex_init(&calls->lock, NULL);
    pthread_cond_init(&calls->changed, NULL);
}

/* --- threads --- */

static void calls_run(lochi_opencl_call *call)
{
    call->function(call->user);
    lochi_opencl.clSetUserEventStatus(call->end, call->status);
    lochi_opencl.clReleaseEvent(call->end);
    free(call);
}

static void *calls_thread(void *user)
{
    lochi_opencl_calls *calls = user;
    pthread_mutex_lock(&calls->lock);
    for (;;) {
        while (!calls->first && !calls->is_ending) {
            calls->idle++;
            pthread_cond_wait(&calls->changed, &calls->lock);
            calls->idle--;
        }
        lochi_opencl_call *call = calls->first;
        if (!call) break;
        calls->first = call->next;
        if (!calls->first) calls->last = NULL;
        calls->waiting--;
        pthread_mutex_unlock(&calls->lock);
        calls_run(call);
        pthread_mutex_lock(&calls->lock);
    }
    pthread_mutex_unlock(&calls->lock);
    return NULL;
}

/* Starts a thread more. All signals are blocked in it: they are for the program's own threads. Lock held. */
static int calls_start(lochi_opencl_calls *calls)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&calls->threads[calls->count], NULL, calls_thread, calls);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) calls->count++;
    return error;
}

/* Makes sure that there is a thread, so that a callback cannot fail. */
static loch_status calls_need_thread(lochi_opencl_calls *calls)
{
    pthread_mutex_lock(&calls->lock);
    const int error = calls->count ? 0 : calls_start(calls);
    pthread_mutex_unlock(&calls->lock);
    if (!error) return LOCH_OK;
    return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", error, "no thread to run functions of streams");
}

void lochi_opencl_calls_close(lochi_opencl_calls *calls)
{
    pthread_mutex_lock(&calls->lock);
    calls->is_ending = true;
    pthread_cond_broadcast(&calls->changed);
    pthread_mutex_unlock(&calls->lock);
    for (size_t i = 0; i < calls->count; i++)
        pthread_join(calls->threads[i], NULL);
    pthread_cond_destroy(&calls->changed);
    pthread_mutex_destroy(&calls->lock);
}

/* --- queueing --- */

/* Passes a function to a thread when the work before it has ended. Work that failed has ended too; later work then gets
 * its code. */
static void calls_turn(cl_mark mark, cl_result status, void *user)
{
    (void)mark;
    lochi_opencl_call *call = user;
    lochi_opencl_calls *calls = &call->device->calls;
    call->status = status < 0 ? status : LOCHI_CL_COMPLETE;
    pthread_mutex_lock(&calls->lock);
    if (calls->last)
        calls->last->next = call;
    else
        calls->first = call;
    calls->last = call;
    calls->waiting++;
    if (calls->waiting > calls->idle && calls->count < LOCHI_OPENCL_WORKERS_MAX)
        (void)calls_start(calls); /* without one more thread, those that there are run the function later */
    pthread_cond_signal(&calls->changed);
    pthread_mutex_unlock(&calls->lock);
}

/* Queues marker and barrier, and has the callback called. Lock of the stream held. After a failure no work waits for
 * `end`, and the function does not run. */
static loch_status calls_queue(lochi_opencl_stream *stream, lochi_opencl_call *call, cl_mark end)
{
    cl_mark marker = NULL, barrier = NULL;
    cl_result result = lochi_opencl.clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &marker);
    if (result != LOCHI_CL_SUCCESS) return lochi_opencl_fail(result, "clEnqueueMarkerWithWaitList");
    result = lochi_opencl.clEnqueueBarrierWithWaitList(stream->queue, 1, &end, &barrier);
    if (result != LOCHI_CL_SUCCESS) {
        lochi_opencl.clReleaseEvent(marker);
        return lochi_opencl_fail(result, "clEnqueueBarrierWithWaitList");
    }
    result = lochi_opencl.clSetEventCallback(marker, LOCHI_CL_COMPLETE, calls_turn, call);
    lochi_opencl.clReleaseEvent(marker);
    if (result == LOCHI_CL_SUCCESS) { /* the function will run: a failure to flush is that of the next wait */
        (void)lochi_opencl_stream_queued(stream, barrier);
        return LOCH_OK;
    }
    lochi_opencl.clSetUserEventStatus(end, LOCHI_CL_COMPLETE); /* the barrier must not wait for ever */
    lochi_opencl.clReleaseEvent(barrier);
    return lochi_opencl_fail(result, "clSetEventCallback");
}

loch_status lochi_opencl_stream_call(void *self, void *stream, loch_stream_function *function, void *user)
{
    lochi_opencl_device *device = self;
    lochi_opencl_stream *caller = lochi_opencl_stream_of(device, stream);
    LOCH_RETURN(calls_need_thread(&device->calls));
    lochi_opencl_call *call = calloc(1, sizeof *call);
    if (!call) return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", 0, "no host memory to queue a function");
    cl_result result = LOCHI_CL_SUCCESS;
    cl_mark end = lochi_opencl.clCreateUserEvent(device->context, &result);
    if (result != LOCHI_CL_SUCCESS) {
        free(call);
        return lochi_opencl_fail(result, "clCreateUserEvent");
    }
    *call = (lochi_opencl_call){.device = device, .function = function, .user = user, .end = end};
    pthread_mutex_lock(&caller->lock);
    const loch_status status = calls_queue(caller, call, end);
    pthread_mutex_unlock(&caller->lock);
    if (status == LOCH_OK) return LOCH_OK; /* NOLINT(clang-analyzer-unix.Malloc): the callback of the event has it */
    lochi_opencl.clReleaseEvent(end);
    free(call);
    return status;
}
