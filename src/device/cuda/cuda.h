/* SPDX-License-Identifier: MIT */
/* An open CUDA device, and the frame around every driver call.
 *
 * The primary context is made current for the time of a call by push and pop, so that the caller's own current context
 * never changes; where it is current already neither is needed. Calls that an ongoing stream capture would forbid run
 * with the thread's capture mode relaxed: they are Loch's own business and no part of what the caller captures. Copies,
 * fills, records and waits are, and run as they are. */
#ifndef LOCHI_CUDA_H
#define LOCHI_CUDA_H

#include "device/cuda/api.h"
#include <loch/driver.h>
#include <stdatomic.h>

/* `self` of the driver's slots; nothing in it changes while the device is open. */
typedef struct lochi_cuda_device {
    cu_device device;
    cu_context *context; /* the primary one, retained */
    int index;           /* N of "cuda:N"; the driver's ordinal */
    uint32_t capabilities;
    size_t total_bytes;
    size_t granule_bytes; /* 0 without virtual memory */
    size_t pitch_max;     /* the most bytes between rows of one copy */
} lochi_cuda_device;

/* The driver's side of a loch_event. Asking the driver for an event that was last recorded in a capture would end that
 * capture, so Loch remembers whether this one was. */
typedef struct lochi_cuda_event {
    cu_event *native;
    atomic_bool is_captured;
} lochi_cuda_event;

/* How a call goes with a capture that is under way. */
typedef enum lochi_cuda_mode { LOCHI_CUDA_AS_IS, LOCHI_CUDA_RELAXED } lochi_cuda_mode;

typedef struct lochi_cuda_frame {
    bool is_pushed;
    bool is_relaxed;
    cu_choice capture_mode; /* the thread's own, when is_relaxed */
} lochi_cuda_frame;

static inline void lochi_cuda_relax(lochi_cuda_frame *frame)
{
    frame->capture_mode = LOCHI_CU_STREAM_CAPTURE_MODE_RELAXED;
    frame->is_relaxed = lochi_cuda.cuThreadExchangeStreamCaptureMode &&
                        lochi_cuda.cuThreadExchangeStreamCaptureMode(&frame->capture_mode) == LOCHI_CUDA_SUCCESS;
}

static inline void lochi_cuda_restore(lochi_cuda_frame *frame)
{
    if (frame->is_relaxed) lochi_cuda.cuThreadExchangeStreamCaptureMode(&frame->capture_mode);
}

/* After a failure there is nothing to leave. */
static inline cu_result lochi_cuda_enter(const lochi_cuda_device *device, lochi_cuda_mode mode, lochi_cuda_frame *frame)
{
    if (lochi_cuda_is_forked) return LOCHI_CUDA_FORKED;
    cu_context *current = NULL;
    cu_result result = lochi_cuda.cuCtxGetCurrent(&current);
    if (result != LOCHI_CUDA_SUCCESS) return result;
    frame->is_pushed = current != device->context;
    frame->is_relaxed = false;
    if (frame->is_pushed) result = lochi_cuda.cuCtxPushCurrent_v2(device->context);
    if (result == LOCHI_CUDA_SUCCESS && mode == LOCHI_CUDA_RELAXED) lochi_cuda_relax(frame);
    return result;
}

static inline void lochi_cuda_leave(lochi_cuda_frame *frame)
{
    lochi_cuda_restore(frame);
    cu_context *popped;
    if (frame->is_pushed) lochi_cuda.cuCtxPopCurrent_v2(&popped);
}

/* One driver call in its frame: LOCHI_CUDA_CALL(result, device, RELAXED, cuMemFree_v2, (address)). */
#define LOCHI_CUDA_CALL(result, owner, mode, call, arguments)                                                          \
    do {                                                                                                               \
        lochi_cuda_frame call_frame;                                                                                   \
        (result) = lochi_cuda_enter((owner), LOCHI_CUDA_##mode, &call_frame);                                          \
        if ((result) == LOCHI_CUDA_SUCCESS) {                                                                          \
            (result) = lochi_cuda.call arguments;                                                                      \
            lochi_cuda_leave(&call_frame);                                                                             \
        }                                                                                                              \
    } while (0)

/* A result as a status, with the record written when it is a failure. */
#define LOCHI_CUDA_STATUS(result, call) ((result) == LOCHI_CUDA_SUCCESS ? LOCH_OK : lochi_cuda_fail((result), #call))
#define LOCHI_CUDA_STATUS_GIVING_BACK(result, call)                                                                    \
    ((result) == LOCHI_CUDA_SUCCESS ? LOCH_OK : lochi_cuda_fail_giving_back((result), #call))

static inline cu_address lochi_cuda_address(const void *address)
{
    return (cu_address)(uintptr_t)address;
}

/* What of a device is CUDA's, for libraries that work in its context; NULL for a device of another driver. It lives as long
 * as the device. */
const lochi_cuda_device *lochi_cuda_of(const loch_device *device);

/* Leaves the device's context current in the calling thread, in place of the one that was. */
loch_status lochi_cuda_make_current(const lochi_cuda_device *device);

/* The slots, by file; cuda.c has the table. */

/* memory.c */
loch_status lochi_cuda_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_cuda_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_pinned_free(void *self, void *address, size_t bytes);
loch_status lochi_cuda_managed_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_host_register(void *self, void *address, size_t bytes);
loch_status lochi_cuda_host_unregister(void *self, void *address, size_t bytes);
loch_status lochi_cuda_ordered_alloc(void *self, size_t bytes, void *stream, void **out);
loch_status lochi_cuda_ordered_free(void *self, void *address, size_t bytes, void *stream);
loch_status lochi_cuda_reserve(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_unreserve(void *self, void *address, size_t bytes);
loch_status lochi_cuda_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                     loch_driver_handle *out);
loch_status lochi_cuda_handle_release(void *self, loch_driver_handle handle, size_t bytes);
loch_status lochi_cuda_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out);
loch_status lochi_cuda_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                     loch_driver_handle *out);
loch_status lochi_cuda_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                           size_t peers_count);
loch_status lochi_cuda_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle);

/* How a handle of this device's memory is described to the driver. */
cu_allocation lochi_cuda_describe(const lochi_cuda_device *device);

/* pitched.c */
loch_status lochi_cuda_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                    const loch_pitched *shape, void *peer, void *stream);

/* stream.c */
loch_status lochi_cuda_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                            void *stream);
loch_status lochi_cuda_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);
loch_status lochi_cuda_stream_create(void *self, const loch_stream_options *options, void **out);
loch_status lochi_cuda_stream_destroy(void *self, void *stream);
loch_status lochi_cuda_stream_thread_default(void *self, void **out);
loch_status lochi_cuda_stream_wrap(void *self, void *native, void **out);
loch_status lochi_cuda_stream_query(void *self, void *stream);
loch_status lochi_cuda_stream_sync(void *self, void *stream);
loch_status lochi_cuda_stream_wait(void *self, void *stream, void *event);
loch_status lochi_cuda_stream_call(void *self, void *stream, loch_stream_function *function, void *user);
loch_status lochi_cuda_stream_capture(void *self, void *stream, loch_capture_info *out);
loch_status lochi_cuda_event_create(void *self, loch_event_kind kind, void **out);
loch_status lochi_cuda_event_destroy(void *self, void *event);
loch_status lochi_cuda_event_record(void *self, void *event, void *stream);
loch_status lochi_cuda_event_query(void *self, void *event);
loch_status lochi_cuda_event_sync(void *self, void *event);
loch_status lochi_cuda_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns);

#endif
