/* SPDX-License-Identifier: MIT */
/* Copies, fills, streams and events of a CUDA device.
 *
 * The handle of a stream is its CUstream: NULL is the legacy default stream, LOCHI_CU_STREAM_PER_THREAD the calling
 * thread's. No query breaks a capture: the driver would end the capture of a stream that is queried or waited for,
 * and of an event that was recorded in it. Both cases are detected first and answered without a call to the driver. */
#include "device/cuda/stream.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/cuda/frame.h"
#include <stdatomic.h>

/* The driver's part of a loch_event. A query of an event that was last recorded in a capture would end that capture,
 * so the event stores whether it was. */
typedef struct cuda_event {
    cu_event *native;
    atomic_bool is_captured;
} cuda_event;

/* --- copies and fills --- */

loch_status lochi_cuda_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                            void *stream)
{
    const lochi_cuda_device *device = self, *source = peer;
    const cu_address target = lochi_cuda_address(to), origin = lochi_cuda_address(from);
    cu_result result;
    switch (direction) {
    case LOCH_HOST_TO_DEVICE:
        LOCHI_CUDA_CALL(result, device, AS_IS, cuMemcpyHtoDAsync_v2, (target, from, bytes, stream));
        return LOCHI_CUDA_STATUS(result, cuMemcpyHtoDAsync);
    case LOCH_DEVICE_TO_HOST:
        LOCHI_CUDA_CALL(result, device, AS_IS, cuMemcpyDtoHAsync_v2, (to, origin, bytes, stream));
        return LOCHI_CUDA_STATUS(result, cuMemcpyDtoHAsync);
    case LOCH_DEVICE_TO_DEVICE:
        LOCHI_CUDA_CALL(result, device, AS_IS, cuMemcpyDtoDAsync_v2, (target, origin, bytes, stream));
        return LOCHI_CUDA_STATUS(result, cuMemcpyDtoDAsync);
    case LOCH_PEER_TO_PEER:
        LOCHI_CUDA_CALL(result, device, AS_IS, cuMemcpyPeerAsync,
                        (target, device->context, origin, source->context, bytes, stream));
        return LOCHI_CUDA_STATUS(result, cuMemcpyPeerAsync);
    default: return LOCH_FAIL(INVALID, "a CUDA device cannot copy in direction %d", (int)direction);
    }
}

loch_status lochi_cuda_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    const cu_address target = lochi_cuda_address(to);
    cu_result result;
    switch (pattern_bytes) {
    case 1:
        LOCHI_CUDA_CALL(result, self, AS_IS, cuMemsetD8Async, (target, (unsigned char)pattern, bytes, stream));
        return LOCHI_CUDA_STATUS(result, cuMemsetD8Async);
    case 2:
        LOCHI_CUDA_CALL(result, self, AS_IS, cuMemsetD16Async, (target, (unsigned short)pattern, bytes / 2, stream));
        return LOCHI_CUDA_STATUS(result, cuMemsetD16Async);
    case 4:
        LOCHI_CUDA_CALL(result, self, AS_IS, cuMemsetD32Async, (target, pattern, bytes / 4, stream));
        return LOCHI_CUDA_STATUS(result, cuMemsetD32Async);
    default: return LOCH_FAIL(INVALID, "a fill pattern has 1, 2 or 4 bytes, not %zu", pattern_bytes);
    }
}

/* --- streams --- */

loch_status lochi_cuda_stream_create(void *self, const loch_stream_options *options, void **out)
{
    const unsigned int flags =
        options->order == LOCH_STREAM_WITH_DEFAULT ? LOCHI_CU_STREAM_DEFAULT : LOCHI_CU_STREAM_NON_BLOCKING;
    cu_stream *stream = NULL;
    cu_result result;
    /* The driver clamps the priority. */
    LOCHI_CUDA_CALL(result, self, RELAXED, cuStreamCreateWithPriority, (&stream, flags, options->priority));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuStreamCreateWithPriority");
    *out = stream;
    return LOCH_OK;
}

loch_status lochi_cuda_stream_destroy(void *self, void *stream)
{
    if (stream == (void *)LOCHI_CU_STREAM_PER_THREAD) return LOCH_OK; /* the driver ends it with its thread */
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuStreamDestroy_v2, (stream));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuStreamDestroy);
}

loch_status lochi_cuda_stream_thread_default(void *self, void **out)
{
    (void)self;
    *out = (void *)LOCHI_CU_STREAM_PER_THREAD;
    return LOCH_OK;
}

loch_status lochi_cuda_stream_wrap(void *self, void *native, void **out)
{
    const lochi_cuda_device *device = self;
    if (!native || (uintptr_t)native == LOCHI_CU_STREAM_LEGACY) {
        *out = NULL;
        return LOCH_OK;
    }
    if ((uintptr_t)native != LOCHI_CU_STREAM_PER_THREAD) {
        cu_context *context = NULL;
        cu_result result;
        LOCHI_CUDA_CALL(result, device, RELAXED, cuStreamGetCtx, (native, &context));
        /* NOT_SUPPORTED: the driver cannot report the context of this kind of stream. The caller's claim is accepted
         * then. */
        if (result != LOCHI_CUDA_SUCCESS && result != LOCHI_CUDA_ERROR_NOT_SUPPORTED)
            return lochi_cuda_fail(result, "cuStreamGetCtx");
        if (result == LOCHI_CUDA_SUCCESS && context != device->context)
            return LOCH_FAIL(INVALID, "the stream does not belong to the primary context of cuda:%d", device->index);
    }
    *out = native;
    return LOCH_OK;
}

/* Returns whether a query of the stream, or a wait for it, would end a capture: of the stream itself, or, for the
 * legacy stream, of a stream ordered with it. */
static bool cuda_stream_is_captured(cu_stream *stream)
{
    cu_choice status = LOCHI_CU_STREAM_CAPTURE_STATUS_NONE;
    const cu_result result = lochi_cuda.cuStreamIsCapturing(stream, &status);
    if (result == LOCHI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
    return result == LOCHI_CUDA_SUCCESS && status != LOCHI_CU_STREAM_CAPTURE_STATUS_NONE;
}

typedef cu_result cuda_stream_ask(cu_stream *stream);

/* Calls cuStreamQuery or cuStreamSynchronize. Returns CAPTURED_EVENT for a stream that is being captured. */
static cu_result cuda_stream_ask_safely(const lochi_cuda_device *device, cu_stream *stream, cuda_stream_ask *ask)
{
    lochi_cuda_frame frame;
    cu_result result = lochi_cuda_enter(device, LOCHI_CUDA_RELAXED, &frame);
    if (result != LOCHI_CUDA_SUCCESS) return result;
    result = cuda_stream_is_captured(stream) ? LOCHI_CUDA_ERROR_CAPTURED_EVENT : ask(stream);
    lochi_cuda_leave(&frame);
    return result;
}

static loch_status cuda_captured(const char *what)
{
    return loch_error_set(LOCH_E_BUSY, "cuda", LOCHI_CUDA_ERROR_CAPTURED_EVENT,
                          "the %s is being captured: its work runs only when the graph is launched", what);
}

/* Returns E_BUSY without writing the record: it is not a failure, and it is frequent. */
loch_status lochi_cuda_stream_query(void *self, void *stream)
{
    const cu_result result = cuda_stream_ask_safely(self, stream, lochi_cuda.cuStreamQuery);
    if (result == LOCHI_CUDA_ERROR_NOT_READY || result == LOCHI_CUDA_ERROR_CAPTURED_EVENT) return LOCH_E_BUSY;
    return LOCHI_CUDA_STATUS(result, cuStreamQuery);
}

loch_status lochi_cuda_stream_sync(void *self, void *stream)
{
    const cu_result result = cuda_stream_ask_safely(self, stream, lochi_cuda.cuStreamSynchronize);
    if (result == LOCHI_CUDA_ERROR_CAPTURED_EVENT) return cuda_captured("stream");
    return LOCHI_CUDA_STATUS(result, cuStreamSynchronize);
}

loch_status lochi_cuda_stream_wait(void *self, void *stream, void *event)
{
    const cuda_event *mark = event;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, AS_IS, cuStreamWaitEvent, (stream, mark->native, 0));
    return LOCHI_CUDA_STATUS(result, cuStreamWaitEvent);
}

loch_status lochi_cuda_stream_call(void *self, void *stream, loch_stream_function *function, void *user)
{
    if (!lochi_cuda.cuLaunchHostFunc) return LOCH_FAIL(UNSUPPORTED, "this NVIDIA driver has no cuLaunchHostFunc");
    cu_result result;
    LOCHI_CUDA_CALL(result, self, AS_IS, cuLaunchHostFunc, (stream, function, user));
    return LOCHI_CUDA_STATUS(result, cuLaunchHostFunc);
}

loch_status lochi_cuda_stream_capture(void *self, void *stream, loch_capture_info *out)
{
    cu_choice status = LOCHI_CU_STREAM_CAPTURE_STATUS_NONE;
    cu_number id = 0;
    cu_result result;
    if (lochi_cuda.cuStreamGetCaptureInfo_v2)
        LOCHI_CUDA_CALL(result, self, AS_IS, cuStreamGetCaptureInfo_v2, (stream, &status, &id, NULL, NULL, NULL));
    else if (lochi_cuda.cuStreamGetCaptureInfo)
        LOCHI_CUDA_CALL(result, self, AS_IS, cuStreamGetCaptureInfo, (stream, &status, &id));
    else
        LOCHI_CUDA_CALL(result, self, AS_IS, cuStreamIsCapturing, (stream, &status));
    /* The legacy stream itself is never captured, but the driver returns this code if a stream ordered with it is. */
    if (result == LOCHI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        *out = (loch_capture_info){0};
        return LOCH_OK;
    }
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuStreamGetCaptureInfo");
    out->active = status != LOCHI_CU_STREAM_CAPTURE_STATUS_NONE;
    out->id = out->active ? id : 0;
    return LOCH_OK;
}

/* --- events --- */

loch_status lochi_cuda_event_create(void *self, loch_event_kind kind, void **out)
{
    cuda_event *event = lochi_zalloc(sizeof *event);
    if (!event) return LOCH_FAIL(HOST_MEMORY, "no host memory for an event");
    const unsigned int flags = kind == LOCH_EVENT_TIMED ? LOCHI_CU_EVENT_DEFAULT : LOCHI_CU_EVENT_DISABLE_TIMING;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuEventCreate, (&event->native, flags));
    if (result != LOCHI_CUDA_SUCCESS) {
        lochi_free(event);
        return lochi_cuda_fail(result, "cuEventCreate");
    }
    *out = event;
    return LOCH_OK;
}

loch_status lochi_cuda_event_destroy(void *self, void *event)
{
    cuda_event *mark = event;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuEventDestroy_v2, (mark->native));
    lochi_free(mark);
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuEventDestroy);
}

loch_status lochi_cuda_event_record(void *self, void *event, void *stream)
{
    cuda_event *mark = event;
    lochi_cuda_frame frame;
    cu_result result = lochi_cuda_enter(self, LOCHI_CUDA_AS_IS, &frame);
    if (result == LOCHI_CUDA_SUCCESS) {
        const bool is_captured = stream && cuda_stream_is_captured(stream); /* the legacy stream is never captured */
        result = lochi_cuda.cuEventRecord(mark->native, stream);
        if (result == LOCHI_CUDA_SUCCESS) /* Relaxed: one thread at a time uses an event. */
            atomic_store_explicit(&mark->is_captured, is_captured, memory_order_relaxed);
        lochi_cuda_leave(&frame);
    }
    return LOCHI_CUDA_STATUS(result, cuEventRecord);
}

static bool cuda_event_is_captured(cuda_event *event)
{
    return atomic_load_explicit(&event->is_captured, memory_order_relaxed) && !lochi_cuda_is_forked;
}

/* Returns E_BUSY without writing the record: it is not a failure, and it is frequent. */
loch_status lochi_cuda_event_query(void *self, void *event)
{
    cuda_event *mark = event;
    if (cuda_event_is_captured(mark)) return LOCH_E_BUSY;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuEventQuery, (mark->native));
    if (result == LOCHI_CUDA_ERROR_NOT_READY) return LOCH_E_BUSY;
    return LOCHI_CUDA_STATUS(result, cuEventQuery);
}

loch_status lochi_cuda_event_sync(void *self, void *event)
{
    cuda_event *mark = event;
    if (cuda_event_is_captured(mark)) return cuda_captured("event's stream");
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuEventSynchronize, (mark->native));
    return LOCHI_CUDA_STATUS(result, cuEventSynchronize);
}

loch_status lochi_cuda_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns)
{
    cuda_event *first = start, *second = end;
    if (cuda_event_is_captured(first) || cuda_event_is_captured(second)) return cuda_captured("event's stream");
    float milliseconds = 0;
    cu_result result;
    if (lochi_cuda.cuEventElapsedTime_v2)
        LOCHI_CUDA_CALL(result, self, RELAXED, cuEventElapsedTime_v2, (&milliseconds, first->native, second->native));
    else
        LOCHI_CUDA_CALL(result, self, RELAXED, cuEventElapsedTime, (&milliseconds, first->native, second->native));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuEventElapsedTime");
    *out_ns = milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6 + 0.5) : 0;
    return LOCH_OK;
}
