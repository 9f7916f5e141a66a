/* SPDX-License-Identifier: MIT */
/* Events by cuIpcGetEventHandle. The driver library is the one that Loch has loaded: opening it again gives the same
 * one. Calls are made in the device's primary context, which is what Loch uses, with the thread's capture mode relaxed,
 * so that a capture of another thread goes on. */
#include "cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_EVENT_FLAGS 6u /* CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS */
#define CUDA_CAPTURE_RELAXED 2

/* CUipcEventHandle: passed by value. */
typedef struct cuda_handle {
    uint8_t bytes[SHARE_EVENT_BYTES];
} cuda_handle;

/* The context that calls are made in, which is retained as long as this exists. */
typedef struct cuda_place {
    int device;
    void *context;
} cuda_place;

struct share_cuda_event {
    loch_device *device;
    cuda_place place; /* so that destroying the event needs no call that can fail before */
    void *native;
    cuda_handle handle;
};

/* name, parameters */
#define CUDA_CALLS(X)                                                                                                  \
    X(cuDeviceGet, (int *device, int ordinal))                                                                         \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                                                                      \
    X(cuCtxPushCurrent_v2, (void *context))                                                                            \
    X(cuCtxPopCurrent_v2, (void **context))                                                                            \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                                                  \
    X(cuEventCreate, (void **event, unsigned flags))                                                                   \
    X(cuEventDestroy_v2, (void *event))                                                                                \
    X(cuEventRecord, (void *event, void *stream))                                                                      \
    X(cuEventQuery, (void *event))                                                                                     \
    X(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))                                                  \
    X(cuIpcGetEventHandle, (cuda_handle * out, void *event))                                                           \
    X(cuIpcOpenEventHandle, (void **event, cuda_handle handle))

static struct {
    pthread_once_t once;
    bool is_there;
#define CUDA_MEMBER(name, parameters) int(*name) parameters;
    CUDA_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
} cuda = {.once = PTHREAD_ONCE_INIT};

static void cuda_load(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    if (loch_option_get("cuda_library", path) != LOCH_OK || !*path) memcpy(path, CUDA_LIBRARY, sizeof CUDA_LIBRARY);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    bool is_complete = true;
    void *address;
#define CUDA_FIND(name, parameters)                                                                                    \
    address = dlsym(library, #name);                                                                                   \
    memcpy(&cuda.name, &address, sizeof address);                                                                      \
    is_complete = is_complete && address;
    CUDA_CALLS(CUDA_FIND)
#undef CUDA_FIND
    cuda.is_there = is_complete;
}

static bool place_retain(int ordinal, cuda_place *out)
{
    return cuda.cuDeviceGet(&out->device, ordinal) == 0 &&
           cuda.cuDevicePrimaryCtxRetain(&out->context, out->device) == 0;
}

static void place_release(const cuda_place *place)
{
    cuda.cuDevicePrimaryCtxRelease_v2(place->device);
}

/* Makes the context current, and keeps the thread's capture mode in `mode`. */
static bool cuda_enter(const cuda_place *place, int *mode)
{
    if (cuda.cuCtxPushCurrent_v2(place->context) != 0) return false;
    *mode = CUDA_CAPTURE_RELAXED;
    cuda.cuThreadExchangeStreamCaptureMode(mode);
    return true;
}

static void cuda_leave(int *mode)
{
    void *context;
    cuda.cuThreadExchangeStreamCaptureMode(mode);
    cuda.cuCtxPopCurrent_v2(&context);
}

/* Returns whether events of `device` can be shared, and its number for the driver. */
static bool cuda_is_ready(loch_device *device, int *ordinal)
{
    loch_device_properties properties = {.size = sizeof properties};
    if (loch_device_get_properties(device, &properties) != LOCH_OK || strcmp(properties.driver, "cuda") != 0)
        return false;
    *ordinal = properties.index;
    pthread_once(&cuda.once, cuda_load);
    return cuda.is_there;
}

/* Makes the event, and records it. */
static bool event_make(share_cuda_event *event, loch_stream *stream)
{
    int mode;
    if (!cuda_enter(&event->place, &mode)) return false;
    const bool is_made = cuda.cuEventCreate(&event->native, CUDA_EVENT_FLAGS) == 0;
    const bool is_good = is_made && cuda.cuEventRecord(event->native, loch_stream_get_native(stream)) == 0 &&
                         cuda.cuIpcGetEventHandle(&event->handle, event->native) == 0;
    if (is_made && !is_good) cuda.cuEventDestroy_v2(event->native);
    cuda_leave(&mode);
    return is_good;
}

share_cuda_event *lochi_share_cuda_record(loch_device *device, loch_stream *stream)
{
    int ordinal;
    if (!cuda_is_ready(device, &ordinal)) return NULL;
    share_cuda_event *event = calloc(1, sizeof *event);
    if (!event || !place_retain(ordinal, &event->place)) {
        free(event);
        return NULL;
    }
    if (!event_make(event, stream)) {
        place_release(&event->place);
        free(event);
        return NULL;
    }
    event->device = loch_device_retain(device);
    return event;
}

void lochi_share_cuda_destroy(share_cuda_event *event)
{
    int mode;
    if (!event) return;
    if (cuda_enter(&event->place, &mode)) {
        cuda.cuEventDestroy_v2(event->native);
        cuda_leave(&mode);
    }
    place_release(&event->place);
    loch_device_release(event->device);
    free(event);
}

void lochi_share_cuda_get_handle(const share_cuda_event *event, uint8_t out[SHARE_EVENT_BYTES])
{
    memcpy(out, event->handle.bytes, sizeof event->handle.bytes);
}

bool lochi_share_cuda_has_passed(const share_cuda_event *event)
{
    int mode;
    if (!cuda_enter(&event->place, &mode)) return true; /* the device is lost: there is nothing to wait for */
    const int result = cuda.cuEventQuery(event->native);
    cuda_leave(&mode);
    return result != 600; /* CUDA_ERROR_NOT_READY */
}

bool lochi_share_cuda_wait(const share_cuda_event *event, loch_stream *stream)
{
    int mode;
    if (!cuda_enter(&event->place, &mode)) return false;
    const int result = cuda.cuStreamWaitEvent(loch_stream_get_native(stream), event->native, 0);
    cuda_leave(&mode);
    return result == 0;
}

static bool place_wait_shared(const cuda_place *place, const uint8_t handle[SHARE_EVENT_BYTES], loch_stream *stream)
{
    int mode;
    cuda_handle given;
    void *event = NULL;
    if (!cuda_enter(place, &mode)) return false;
    memcpy(given.bytes, handle, sizeof given.bytes);
    bool is_good = cuda.cuIpcOpenEventHandle(&event, given) == 0;
    if (is_good) {
        is_good = cuda.cuStreamWaitEvent(loch_stream_get_native(stream), event, 0) == 0;
        cuda.cuEventDestroy_v2(event); /* the wait stays in force */
    }
    cuda_leave(&mode);
    return is_good;
}

bool lochi_share_cuda_wait_shared(loch_device *device, const uint8_t handle[SHARE_EVENT_BYTES], loch_stream *stream)
{
    int ordinal;
    cuda_place place;
    if (!cuda_is_ready(device, &ordinal) || !place_retain(ordinal, &place)) return false;
    const bool is_good = place_wait_shared(&place, handle, stream);
    place_release(&place);
    return is_good;
}
