/* SPDX-License-Identifier: MIT */
/* Calls of libcuda with the context of the device current, which the slots `enter` and `leave` of Loch's driver do. */
#include "graph.h"
#include <dlfcn.h>
#include <loch/driver.h>
#include <string.h>

#define CAPTURE_THREAD_LOCAL 1 /* calls of other threads are not the capture's business */

/* name, parameters */
#define GRAPH_CALLS(X)                                                                                                 \
    X(cuStreamBeginCapture_v2, (void *stream, int mode))                                                               \
    X(cuStreamEndCapture, (void *stream, void **graph))                                                                \
    X(cuGraphInstantiateWithFlags, (void **executable, void *graph, unsigned long long flags))                         \
    X(cuGraphLaunch, (void *executable, void *stream))                                                                 \
    X(cuGraphExecDestroy, (void *executable))                                                                          \
    X(cuGraphDestroy, (void *graph))

static struct {
#define GRAPH_MEMBER(name, parameters) int(*name) parameters;
    GRAPH_CALLS(GRAPH_MEMBER)
#undef GRAPH_MEMBER
} cuda;

/* The library is the one that Loch has loaded: opening it again gives that one. */
static loch_status graph_load(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    LOCH_RETURN(loch_option_get("cuda_library", path));
    void *library = dlopen(*path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *address;
    if (!library) return loch_error_set(LOCH_E_UNSUPPORTED, "cuda", 0, "graphs need the CUDA driver");
#define GRAPH_FIND(name, parameters)                                                                                   \
    address = dlsym(library, #name);                                                                                   \
    if (!address) return loch_error_set(LOCH_E_UNSUPPORTED, "cuda", 0, "the driver has no " #name);                    \
    memcpy(&cuda.name, &address, sizeof address);
    GRAPH_CALLS(GRAPH_FIND)
#undef GRAPH_FIND
    return LOCH_OK;
}

static loch_status graph_check(int result, const char *call)
{
    if (!result) return LOCH_OK;
    return loch_error_set(LOCH_E_DRIVER, "cuda", result, "%s failed with code %d", call, result);
}

/* What was current in the thread. */
typedef struct graph_frame {
    const loch_driver *driver;
    void *self, *before;
} graph_frame;

static loch_status graph_enter(loch_device *device, graph_frame *frame)
{
    frame->driver = loch_device_get_driver(device, &frame->self);
    return frame->driver->enter(frame->self, &frame->before);
}

static loch_status graph_leave(const graph_frame *frame, loch_status status)
{
    const loch_status left = frame->driver->leave(frame->self, frame->before);
    return status == LOCH_OK ? left : status;
}

static loch_status graph_make(decoder_graph *graph, void *stream, loch_status (*function)(void *user), void *user)
{
    LOCH_RETURN(graph_check(cuda.cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture"));
    const loch_status status = function(user);
    const loch_error why = *loch_error_get();
    const loch_status ended = graph_check(cuda.cuStreamEndCapture(stream, &graph->native), "cuStreamEndCapture");
    if (status != LOCH_OK) return loch_error_set(status, why.driver, why.driver_code, "%s", why.sentence);
    LOCH_RETURN(ended);
    return graph_check(cuda.cuGraphInstantiateWithFlags(&graph->executable, graph->native, 0), "cuGraphInstantiate");
}

loch_status graph_capture(decoder_graph *graph, loch_stream *stream, loch_status (*function)(void *user), void *user)
{
    graph_frame frame;
    *graph = (decoder_graph){.device = NULL};
    LOCH_RETURN(graph_load());
    graph->device = loch_device_retain(loch_stream_get_device(stream));
    LOCH_RETURN(graph_enter(graph->device, &frame));
    return graph_leave(&frame, graph_make(graph, loch_stream_get_native(stream), function, user));
}

loch_status graph_launch(const decoder_graph *graph, loch_stream *stream)
{
    graph_frame frame;
    LOCH_RETURN(graph_enter(graph->device, &frame));
    const int result = cuda.cuGraphLaunch(graph->executable, loch_stream_get_native(stream));
    return graph_leave(&frame, graph_check(result, "cuGraphLaunch"));
}

void graph_destroy(decoder_graph *graph)
{
    graph_frame frame;
    if (!graph->device) return;
    if (graph_enter(graph->device, &frame) == LOCH_OK) {
        if (graph->executable) cuda.cuGraphExecDestroy(graph->executable);
        if (graph->native) cuda.cuGraphDestroy(graph->native);
        (void)frame.driver->leave(frame.self, frame.before);
    }
    loch_device_release(graph->device);
    *graph = (decoder_graph){.device = NULL};
}
