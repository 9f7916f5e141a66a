/* SPDX-License-Identifier: MIT */
/* Streams and events of the CUDA driver for tests: a queue for each stream, and a thread that runs it. A test double:
 * see fake.h. */
#include "fake.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IDLE_NS 20000000 /* a thread without work ends after this */

uint64_t fake_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- lines --- */

fake_line *fake_line_retain(fake_line *line)
{
    if (line) line->refs++;
    return line;
}

void fake_line_release(fake_line *line)
{
    if (line && --line->refs == 0) free(line);
}

bool fake_point_passed(fake_point point)
{
    return !point.line || point.line->done >= point.number;
}

void fake_point_await(fake_point point)
{
    fake_line_retain(point.line);
    while (!fake_point_passed(point))
        pthread_cond_wait(&fake.done, &fake.lock);
    fake_line_release(point.line);
}

/* --- running --- */

static bool op_is_ready(const fake_op *op)
{
    for (size_t i = 0; i < op->points_count; i++)
        if (!fake_point_passed(op->points[i])) return false;
    return true;
}

static void op_end(fake_op *op)
{
    for (size_t i = 0; i < op->points_count; i++)
        fake_line_release(op->points[i].line);
    fake_work_end(&op->work);
    free(op);
}

static void stream_wake_all(void)
{
    for (cu_stream *stream = fake.streams; stream; stream = stream->next)
        if (stream->first) pthread_cond_signal(&stream->changed);
    pthread_cond_broadcast(&fake.done);
}

/* Frees a closed stream whose work is done. */
static void stream_free(cu_stream *stream)
{
    cu_stream **at = &fake.streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    fake_line_release(stream->line);
    pthread_cond_destroy(&stream->changed);
    free(stream);
}

/* Runs the first piece of work, without the lock meanwhile. After a failure nothing runs any more: the context is
 * lost. */
static void stream_run_first(cu_stream *stream)
{
    fake_op *op = stream->first;
    const unsigned late_us = fake.switches.late_us;
    fake_drop(LOCHI_CUDA_SUCCESS);
    if (late_us) usleep(late_us);
    cu_result result = LOCHI_CUDA_SUCCESS;
    if (atomic_load_explicit(&fake.lost, memory_order_relaxed) == LOCHI_CUDA_SUCCESS)
        result = fake_work_run(&op->work, stream);
    fake_take();
    if (result != LOCHI_CUDA_SUCCESS) fake_lose(result);
    stream->first = op->next;
    if (!stream->first) stream->last = NULL;
    stream->line->done = op->number;
    op_end(op);
    stream_wake_all();
}

static void *stream_work(void *user)
{
    cu_stream *stream = user;
    fake_take();
    for (bool is_idle = false; !is_idle;) {
        if (stream->first && op_is_ready(stream->first)) {
            stream_run_first(stream);
            continue;
        }
        if (stream->is_closed && !stream->first) break;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += IDLE_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        const int answer = pthread_cond_timedwait(&stream->changed, &fake.lock, &until);
        is_idle = answer == ETIMEDOUT && !stream->first;
    }
    stream->has_thread = false;
    if (stream->is_closed && !stream->first) stream_free(stream);
    fake_drop(LOCHI_CUDA_SUCCESS);
    return NULL;
}

/* Starts a thread for a stream that has work. Signals of the program are not for it. */
static void stream_start(cu_stream *stream)
{
    if (stream->has_thread) {
        pthread_cond_signal(&stream->changed);
        return;
    }
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->has_thread = pthread_create(&thread, NULL, stream_work, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (stream->has_thread)
        pthread_detach(thread);
    else
        abort(); /* a test double on a machine without threads */
}

/* Runs all work of a stream in the calling thread (the switch `immediate`). */
static void stream_run_here(cu_stream *stream)
{
    while (stream->first) {
        while (!op_is_ready(stream->first))
            pthread_cond_wait(&fake.done, &fake.lock);
        stream_run_first(stream);
    }
}

/* --- queueing --- */

/* Adds the points that the legacy stream and streams ordered with it wait for. */
static size_t add_legacy_points(const cu_stream *stream, fake_point *points)
{
    size_t count = 0;
    if (!stream->is_blocking) return 0;
    for (cu_stream *other = fake.streams; other; other = other->next) {
        if (other == stream || other->context != stream->context || !other->is_blocking) continue;
        if (!stream->is_legacy && !other->is_legacy) continue;
        if (other->line->done == other->line->queued) continue;
        if (points) points[count] = (fake_point){fake_line_retain(other->line), other->line->queued};
        count++;
    }
    return count;
}

cu_result fake_queue(cu_stream *stream, const fake_work *work, const fake_point *points, size_t count, fake_point *out)
{
    fake_work taken = *work;
    if (out) *out = (fake_point){NULL, 0};
    cu_result result = stream->capture ? fake_capture_add(stream, work) : fake_capture_check_legacy(stream, true);
    if (stream->capture && result == LOCHI_CUDA_SUCCESS) return result;
    const size_t all = count + add_legacy_points(stream, NULL);
    fake_op *op = result == LOCHI_CUDA_SUCCESS ? calloc(1, sizeof *op + all * sizeof *op->points) : NULL;
    if (!op) {
        fake_work_end(&taken);
        return result != LOCHI_CUDA_SUCCESS ? result : (cu_result)LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->work = taken;
    op->points_count = all;
    for (size_t i = 0; i < count; i++)
        op->points[i] = (fake_point){fake_line_retain(points[i].line), points[i].number};
    add_legacy_points(stream, op->points + count);
    op->number = ++stream->line->queued;
    if (out) *out = (fake_point){stream->line, op->number};
    if (stream->last)
        stream->last->next = op;
    else
        stream->first = op;
    stream->last = op;
    if (fake.switches.is_immediate)
        stream_run_here(stream);
    else
        stream_start(stream);
    return LOCHI_CUDA_SUCCESS;
}

bool fake_await_unused(uintptr_t start, size_t bytes)
{
    bool was_used = false;
    for (bool is_used = true; is_used;) {
        is_used = false;
        for (const cu_stream *stream = fake.streams; stream; stream = stream->next)
            for (int i = 0; i < 2; i++)
                is_used = is_used || (stream->busy_start[i] < start + bytes && start < stream->busy_end[i]);
        was_used = was_used || is_used;
        if (is_used) pthread_cond_wait(&fake.done, &fake.lock);
    }
    return was_used;
}

void fake_context_await(cu_context *context)
{
    for (;;) {
        fake_point point = {NULL, 0};
        for (cu_stream *stream = fake.streams; stream && !point.line; stream = stream->next)
            if ((!context || stream->context == context) && stream->line->done < stream->line->queued)
                point = (fake_point){stream->line, stream->line->queued};
        if (!point.line) return;
        fake_point_await(point);
    }
}

/* --- streams --- */

cu_stream *fake_stream_make(cu_context *context, bool is_blocking)
{
    cu_stream *stream = fake_object_make(FAKE_STREAM, sizeof *stream);
    fake_line *line = stream ? calloc(1, sizeof *line) : NULL;
    if (!line) abort(); /* a test double on a machine without memory */
    line->refs = 1;
    stream->line = line;
    stream->context = context;
    stream->is_blocking = is_blocking;
    pthread_cond_init(&stream->changed, NULL);
    stream->next = fake.streams;
    fake.streams = stream;
    return stream;
}

/* The queued work still runs. */
void fake_stream_end(cu_stream *stream)
{
    fake_object_end(stream);
    stream->is_closed = true;
    if (stream->has_thread)
        pthread_cond_signal(&stream->changed);
    else if (!stream->first)
        stream_free(stream);
}

/* The streams of this thread, one for each context. They end with it. */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

typedef struct own_streams {
    struct own_streams *next;
    cu_stream *stream;
} own_streams;

static void own_end(void *user)
{
    if (atomic_load_explicit(&fake.is_forked, memory_order_relaxed)) return;
    fake_take();
    for (own_streams *own = user, *next; own; own = next) {
        next = own->next;
        fake_stream_end(own->stream);
        free(own);
    }
    fake_drop(LOCHI_CUDA_SUCCESS);
}

static void own_make_key(void)
{
    pthread_key_create(&own_key, own_end);
}

static cu_stream *own_stream(cu_context *context)
{
    pthread_once(&own_once, own_make_key);
    own_streams *own = pthread_getspecific(own_key);
    for (own_streams *one = own; one; one = one->next)
        if (one->stream->context == context) return one->stream;
    own_streams *added = calloc(1, sizeof *added);
    if (!added) abort(); /* a test double on a machine without memory */
    added->next = own;
    added->stream = fake_stream_make(context, true);
    added->stream->is_thread_default = true;
    pthread_setspecific(own_key, added);
    return added->stream;
}

cu_stream *fake_stream_find(cu_stream *handle)
{
    cu_context *context = fake_current();
    if (!handle || (uintptr_t)handle == LOCHI_CU_STREAM_LEGACY) return context ? context->legacy : NULL;
    if ((uintptr_t)handle == LOCHI_CU_STREAM_PER_THREAD) return context ? own_stream(context) : NULL;
    return fake_object_is(handle, FAKE_STREAM) ? handle : NULL;
}

cu_result cuStreamCreateWithPriority(cu_stream **stream, unsigned int flags, int priority)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    (void)priority;
    if (flags > 1) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    *stream = fake_stream_make(fake_current(), !(flags & LOCHI_CU_STREAM_NON_BLOCKING));
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuStreamCreate(cu_stream **stream, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    if (flags > 1) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    *stream = fake_stream_make(fake_current(), !(flags & LOCHI_CU_STREAM_NON_BLOCKING));
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuStreamDestroy_v2(cu_stream *stream)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(stream, FAKE_STREAM) || stream->is_legacy || stream->is_thread_default)
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture) {
        fake_capture_break(stream->capture);
        fake_capture_release(stream->capture);
        stream->capture = NULL;
    }
    fake_stream_end(stream);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuStreamGetCtx(cu_stream *handle, cu_context **context)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    const cu_stream *stream = fake_stream_find(handle);
    if (stream) *context = stream->context;
    return fake_drop(stream ? LOCHI_CUDA_SUCCESS : LOCHI_CUDA_ERROR_INVALID_HANDLE);
}

/* Returns the code of a query or wait of a stream under capture, which ends the capture. */
static cu_result stream_check_ask(cu_stream *stream)
{
    if (!stream) return LOCHI_CUDA_ERROR_INVALID_HANDLE;
    if (!stream->capture) return fake_capture_check_legacy(stream, true);
    fake_capture_break(stream->capture);
    return FAKE_CAPTURE_UNSUPPORTED;
}

/* All work that the legacy stream stands for: its own, and that of streams ordered with it. */
static fake_point stream_last(const cu_stream *stream)
{
    if (stream->is_legacy)
        for (const cu_stream *other = fake.streams; other; other = other->next)
            if (other->context == stream->context && other->is_blocking && other->line->done < other->line->queued)
                return (fake_point){other->line, other->line->queued};
    return (fake_point){stream->line, stream->line->queued};
}

static cu_result lost(void)
{
    return atomic_load_explicit(&fake.lost, memory_order_relaxed);
}

cu_result cuStreamQuery(cu_stream *handle)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    const cu_result result = stream_check_ask(stream);
    if (result != LOCHI_CUDA_SUCCESS) return fake_drop(result);
    return fake_drop(fake_point_passed(stream_last(stream)) ? lost() : (cu_result)LOCHI_CUDA_ERROR_NOT_READY);
}

cu_result cuStreamSynchronize(cu_stream *handle)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    const cu_result result = stream_check_ask(stream);
    if (result != LOCHI_CUDA_SUCCESS) return fake_drop(result);
    const bool is_legacy = stream->is_legacy;
    fake_point_await(stream_last(stream));
    while (is_legacy && !fake_point_passed(stream_last(stream)))
        fake_point_await(stream_last(stream));
    return fake_drop(lost());
}

#ifndef FAKE_OLD
cu_result cuLaunchHostFunc(cu_stream *handle, cu_host_function *function, void *user)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream || !function) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    const fake_work work = {.kind = FAKE_CALL, .as.call = {function, user}};
    return fake_drop(fake_queue(stream, &work, NULL, 0, NULL));
}
#endif

/* --- events --- */

cu_result cuEventCreate(cu_event **out, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    const bool is_shared = flags & 4; /* INTERPROCESS, which needs DISABLE_TIMING */
    if (flags > 7 || (is_shared && !(flags & LOCHI_CU_EVENT_DISABLE_TIMING))) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    cu_event *event = fake_object_make(FAKE_EVENT, sizeof *event);
    if (!event) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    event->refs = 1;
    event->context = fake_current();
    event->is_timed = !(flags & LOCHI_CU_EVENT_DISABLE_TIMING);
    event->is_shared = is_shared;
    event->descriptor = -1;
    const cu_result result = is_shared ? fake_shared_open(event) : LOCHI_CUDA_SUCCESS;
    if (result == LOCHI_CUDA_SUCCESS)
        *out = event;
    else
        fake_event_release(event);
    return fake_drop(result);
}

void fake_event_release(cu_event *event)
{
    if (--event->refs) return;
    fake_object_end(event); /* nothing if it was destroyed before */
    fake_line_release(event->point.line);
    fake_capture_release(event->capture);
    fake_shared_close(event);
    free(event);
}

cu_result cuEventDestroy_v2(cu_event *event)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(event, FAKE_EVENT)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    fake_object_end(event);
    fake_event_release(event);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuEventRecord(cu_event *event, cu_stream *handle)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream || !fake_object_is(event, FAKE_EVENT)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (event->context->device != stream->context->device) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture) { /* an edge of the graph, nothing that runs */
        if (stream->capture->is_invalid) return fake_drop(FAKE_CAPTURE_INVALIDATED);
        fake_capture *before = event->capture;
        stream->capture->refs++;
        event->capture = stream->capture;
        event->capture_stream = stream;
        event->capture_node = stream->capture_node;
        fake_capture_release(before);
        return fake_drop(LOCHI_CUDA_SUCCESS);
    }
    fake_work work = {.kind = FAKE_RECORD, .as.mark = {event, event->record + 1}};
    event->refs++;
    if (event->shared) atomic_store_explicit(&event->shared->recorded, event->record + 1, memory_order_release);
    fake_point point;
    event->record++;
    const cu_result result = fake_queue(stream, &work, NULL, 0, &point);
    if (result != LOCHI_CUDA_SUCCESS) {
        event->record--;
        if (event->shared) atomic_store_explicit(&event->shared->recorded, event->record, memory_order_release);
        return fake_drop(result);
    }
    fake_line_retain(point.line);
    fake_line_release(event->point.line);
    event->point = point;
    event->is_recorded = true;
    fake_capture_release(event->capture);
    event->capture = NULL;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* Refuses an event of a capture in progress, which the question ends. */
static cu_result event_check_ask(cu_event *event)
{
    if (!fake_object_is(event, FAKE_EVENT)) return LOCHI_CUDA_ERROR_INVALID_HANDLE;
    if (!event->capture) return LOCHI_CUDA_SUCCESS;
    fake_capture_break(event->capture);
    return LOCHI_CUDA_ERROR_CAPTURED_EVENT;
}

static bool event_passed(const cu_event *event)
{
    if (event->is_foreign)
        return fake_shared_await(event, 0) || atomic_load_explicit(&event->shared->done, memory_order_acquire) >=
                                                  atomic_load_explicit(&event->shared->recorded, memory_order_acquire);
    return fake_point_passed(event->point);
}

cu_result cuEventQuery(cu_event *event)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    const cu_result result = event_check_ask(event);
    if (result != LOCHI_CUDA_SUCCESS) return fake_drop(result);
    return fake_drop(event_passed(event) ? lost() : (cu_result)LOCHI_CUDA_ERROR_NOT_READY);
}

cu_result cuEventSynchronize(cu_event *event)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    const cu_result result = event_check_ask(event);
    if (result != LOCHI_CUDA_SUCCESS) return fake_drop(result);
    fake_point_await(event->point);
    return fake_drop(lost());
}

static cu_result event_elapsed(float *milliseconds, cu_event *start, cu_event *end)
{
    fake_take();
    cu_result result = event_check_ask(start);
    if (result == LOCHI_CUDA_SUCCESS) result = event_check_ask(end);
    if (result != LOCHI_CUDA_SUCCESS) return fake_drop(result);
    if (!start->is_timed || !end->is_timed || !start->is_recorded || !end->is_recorded)
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (!fake_point_passed(start->point) || !fake_point_passed(end->point))
        return fake_drop(LOCHI_CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((double)end->time_ns - (double)start->time_ns) / 1e6f;
    return fake_drop(lost());
}

cu_result cuEventElapsedTime(float *milliseconds, cu_event *start, cu_event *end)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    return event_elapsed(milliseconds, start, end);
}

#ifndef FAKE_OLD
cu_result cuEventElapsedTime_v2(float *milliseconds, cu_event *start, cu_event *end)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    return event_elapsed(milliseconds, start, end);
}
#endif

cu_result cuStreamWaitEvent(cu_stream *handle, cu_event *event, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    if (flags > 1) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream || !fake_object_is(event, FAKE_EVENT)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (event->capture) { /* the stream joins the capture */
        if (event->capture->is_invalid || event->capture->is_over) return fake_drop(FAKE_CAPTURE_INVALIDATED);
        if (stream->is_legacy) return fake_drop(LOCHI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        if (stream->capture && stream->capture != event->capture) return fake_drop(FAKE_CAPTURE_MERGE);
        fake_capture_join(stream, event);
        return fake_drop(LOCHI_CUDA_SUCCESS);
    }
    if (stream->capture) { /* an event from outside of the capture */
        fake_capture_break(stream->capture);
        return fake_drop(FAKE_CAPTURE_ISOLATION);
    }
    const cu_result legacy = fake_capture_check_legacy(stream, true);
    if (legacy != LOCHI_CUDA_SUCCESS) return fake_drop(legacy);
    fake_work work = {.kind = FAKE_WAIT};
    if (event->is_foreign) {
        event->refs++;
        work.as.wait.event = event;
        work.as.wait.number = atomic_load_explicit(&event->shared->recorded, memory_order_acquire);
    }
    const bool is_passed = event->is_foreign ? event_passed(event) : fake_point_passed(event->point);
    if (is_passed) {
        fake_work_end(&work);
        return fake_drop(LOCHI_CUDA_SUCCESS);
    }
    return fake_drop(fake_queue(stream, &work, &event->point, event->is_foreign ? 0 : 1, NULL));
}
