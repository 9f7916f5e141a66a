/* SPDX-License-Identifier: MIT */
/* Captures and graphs of the CUDA driver for tests. A test double: see fake.h.
 *
 * A graph is the captured work in the order of the calls, which is one of the orders that the edges allow; a launch
 * runs it as one piece of work of its stream. */
#include "fake.h"
#include <stdlib.h>

/* Modes of a capture, and of a thread. */
enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };

void fake_capture_release(fake_capture *capture)
{
    if (!capture || --capture->refs) return;
    fake_capture **at = &fake.captures;
    while (*at && *at != capture)
        at = &(*at)->next;
    if (*at) *at = capture->next;
    fake_graph_release(capture->graph);
    free(capture);
}

void fake_capture_break(fake_capture *capture)
{
    if (!capture->is_over) capture->is_invalid = true;
}

/* Refuses a call that may not be made while there is a capture: a global capture forbids it to all threads whose mode
 * is global, and every capture that is not relaxed to the thread that began it, if that is not relaxed. The captures
 * end by it. */
cu_result fake_capture_check_unsafe(void)
{
    const cu_choice mode = *fake_thread_mode();
    cu_result result = LOCHI_CUDA_SUCCESS;
    for (fake_capture *capture = fake.captures; capture; capture = capture->next) {
        if (capture->is_over || capture->mode == CAPTURE_RELAXED || mode == CAPTURE_RELAXED) continue;
        const bool is_own = pthread_equal(capture->thread, pthread_self());
        if (!is_own && (capture->mode != CAPTURE_GLOBAL || mode != CAPTURE_GLOBAL)) continue;
        fake_capture_break(capture);
        result = FAKE_CAPTURE_UNSUPPORTED;
    }
    return result;
}

/* Refuses a use of the legacy stream while a stream that is ordered with it is captured. */
cu_result fake_capture_check_legacy(const cu_stream *stream, bool is_breaking)
{
    cu_result result = LOCHI_CUDA_SUCCESS;
    if (!stream->is_legacy) return result;
    for (const cu_stream *other = fake.streams; other; other = other->next) {
        if (other->context != stream->context || !other->is_blocking || !other->capture) continue;
        if (is_breaking) fake_capture_break(other->capture);
        result = LOCHI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

cu_result fake_capture_add(cu_stream *stream, const fake_work *work)
{
    fake_graph *graph = stream->capture->graph;
    if (stream->capture->is_invalid) return FAKE_CAPTURE_INVALIDATED;
    if (graph->count == graph->capacity) {
        const size_t capacity = graph->capacity ? 2 * graph->capacity : 16;
        fake_work *works = realloc(graph->works, capacity * sizeof *works);
        if (!works) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
        graph->works = works;
        graph->capacity = capacity;
    }
    graph->works[graph->count++] = *work;
    stream->capture_node = graph->count;
    if (stream != stream->capture->origin && stream->is_joined) {
        stream->is_joined = false; /* work after it came back has to come back again */
        stream->capture->joined++;
    }
    return LOCHI_CUDA_SUCCESS;
}

/* Makes a stream part of the capture of an event. A stream whose work is all awaited has come back. */
void fake_capture_join(cu_stream *stream, cu_event *event)
{
    fake_capture *capture = event->capture;
    if (!stream->capture) {
        stream->capture = capture;
        capture->refs++;
        capture->joined++;
        stream->is_joined = false;
        stream->capture_node = event->capture_node;
        return;
    }
    cu_stream *source = NULL; /* the stream may be gone */
    for (cu_stream *other = fake.streams; other; other = other->next)
        if (other == event->capture_stream && other->capture == capture) source = other;
    if (source && source != stream && source != capture->origin && !source->is_joined &&
        source->capture_node <= event->capture_node) {
        source->is_joined = true;
        capture->joined--;
    }
}

cu_result cuThreadExchangeStreamCaptureMode(cu_choice_capture_mode *mode)
{
    FAKE_BEGIN(FAKE_STARTED);
    if (*mode > CAPTURE_RELAXED) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    cu_choice *own = fake_thread_mode();
    const cu_choice before = *own;
    *own = *mode;
    *mode = before;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuStreamBeginCapture_v2(cu_stream *handle, cu_choice mode)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE);
    if (mode > CAPTURE_RELAXED) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (stream->is_legacy) return fake_drop(FAKE_CAPTURE_UNSUPPORTED);
    if (stream->capture) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_capture *capture = calloc(1, sizeof *capture);
    fake_graph *graph = capture ? fake_object_make(FAKE_GRAPH, sizeof *graph) : NULL;
    if (!graph) abort();    /* a test double on a machine without memory */
    fake_object_end(graph); /* no caller has it before the capture ends */
    graph->refs = 1;
    *capture = (fake_capture){.next = fake.captures,
                              .refs = 1,
                              .id = ++fake.captures_count,
                              .mode = mode,
                              .thread = pthread_self(),
                              .origin = stream,
                              .graph = graph};
    fake.captures = capture;
    stream->capture = capture;
    stream->capture_node = 0;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* Gives a graph of the capture a handle of its own. */
static fake_graph *graph_publish(fake_graph *from, fake_kind kind)
{
    fake_graph *graph = fake_object_make(kind, sizeof *graph);
    if (!graph) abort(); /* a test double on a machine without memory */
    graph->refs = 1;
    graph->count = graph->capacity = from->count;
    graph->works = from->works;
    return graph;
}

cu_result cuStreamEndCapture(cu_stream *handle, cu_graph **out)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE);
    *out = NULL;
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    fake_capture *capture = stream->capture;
    if (!capture) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    if (capture->origin != stream) return fake_drop(FAKE_CAPTURE_UNMATCHED);
    if (capture->mode != CAPTURE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        return fake_drop(FAKE_CAPTURE_WRONG_THREAD);
    const cu_result result = capture->is_invalid ? (cu_result)FAKE_CAPTURE_INVALIDATED
                             : capture->joined   ? (cu_result)FAKE_CAPTURE_UNJOINED
                                                 : LOCHI_CUDA_SUCCESS;
    capture->is_over = true;
    if (result == LOCHI_CUDA_SUCCESS) {
        fake_graph *graph = graph_publish(capture->graph, FAKE_GRAPH);
        capture->graph->works = NULL;
        capture->graph->count = capture->graph->capacity = 0;
        *out = (cu_graph *)graph;
    }
    for (cu_stream *other = fake.streams; other; other = other->next)
        if (other->capture == capture) {
            other->capture = NULL;
            capture->refs--;
        }
    capture->refs++; /* one for this function */
    fake_capture_release(capture);
    return fake_drop(result);
}

static cu_result capture_status(cu_stream *handle, cu_choice *status, cu_number *id)
{
    fake_take();
    const cu_stream *stream = fake_stream_find(handle);
    if (!stream) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    const cu_result legacy = fake_capture_check_legacy(stream, false);
    if (legacy != LOCHI_CUDA_SUCCESS) return fake_drop(legacy);
    *status = !stream->capture ? 0 : stream->capture->is_invalid ? 2 : 1; /* NONE, INVALIDATED, ACTIVE */
    if (id && stream->capture) *id = stream->capture->id;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuStreamIsCapturing(cu_stream *stream, cu_choice_capture_status *status)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    return capture_status(stream, status, NULL);
}

#ifndef FAKE_OLDEST
cu_result cuStreamGetCaptureInfo(cu_stream *stream, cu_choice_capture_status *status, cu_number *id)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    return capture_status(stream, status, id);
}
#endif

#ifndef FAKE_OLD
cu_result cuStreamGetCaptureInfo_v2(cu_stream *stream, cu_choice_capture_status *status, cu_number *id,
                                    cu_graph **graph, cu_graph_node *const **dependencies, size_t *dependencies_count)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    if (graph || dependencies || dependencies_count) return LOCHI_CUDA_ERROR_NOT_SUPPORTED; /* Loch asks for neither */
    return capture_status(stream, status, id);
}
#endif

/* --- graphs --- */

void fake_graph_release(fake_graph *graph)
{
    if (!graph || --graph->refs) return;
    for (size_t i = 0; i < graph->count; i++)
        fake_work_end(&graph->works[i]);
    free(graph->works);
    free(graph);
}

/* The pieces of work belong to the graph; executables keep the graph. */
typedef struct executable {
    fake_object head;
    fake_graph *graph;
} executable;

cu_result cuGraphInstantiateWithFlags(void **out, cu_graph *handle, unsigned long long flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    (void)flags;
    fake_take();
    if (!fake_object_is(handle, FAKE_GRAPH)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    executable *made = fake_object_make(FAKE_EXECUTABLE, sizeof *made);
    if (!made) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    made->graph = (fake_graph *)(void *)handle;
    made->graph->refs++;
    *out = made;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuGraphLaunch(void *handle, cu_stream *target)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    cu_stream *stream = fake_stream_find(target);
    if (!stream || !fake_object_is(handle, FAKE_EXECUTABLE)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    const fake_work work = {.kind = FAKE_RUN_GRAPH, .as.graph = ((executable *)handle)->graph};
    work.as.graph->refs++;
    return fake_drop(fake_queue(stream, &work, NULL, 0, NULL));
}

cu_result cuGraphExecDestroy(void *handle)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(handle, FAKE_EXECUTABLE)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_object_end(handle);
    fake_graph_release(((executable *)handle)->graph);
    free(handle);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuGraphDestroy(cu_graph *handle)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(handle, FAKE_GRAPH)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_object_end(handle);
    fake_graph_release((fake_graph *)(void *)handle);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}
