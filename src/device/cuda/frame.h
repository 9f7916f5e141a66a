/* SPDX-License-Identifier: MIT */
/* An open CUDA device, and the frame around every driver call.
 *
 * The primary context is made current during a call by push and pop, so that the caller's current context never
 * changes. If it is current already, neither is needed. Calls that a stream capture in progress would forbid run
 * with the thread's capture mode relaxed: they are internal to Loch and not part of the caller's capture. Copies,
 * fills, records and waits are part of the capture and run in the caller's mode. */
#ifndef LOCHI_CUDA_FRAME_H
#define LOCHI_CUDA_FRAME_H

#include "device/cuda/api.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `self` of the driver's slots. No member changes while the device is open. */
typedef struct lochi_cuda_device {
    cu_device device;
    cu_context *context; /* the primary context, retained */
    int index;           /* N of "cuda:N"; the driver's ordinal */
    uint32_t capabilities;
    size_t total_bytes;
    size_t granule_bytes; /* 0 without virtual memory */
    size_t pitch_max;     /* largest distance in bytes between rows of one copy */
    int numa_node;        /* of the card; -1 if the system does not report it */
    bool is_integrated;   /* its memory is the host's: what is free is what the system can free */
    bool is_registering;  /* pinned memory is host memory that Loch maps and registers (pinned.c) */
    /* A descriptor of exported memory that stays open, plus 1; 0 for none (memory.c). Acquire and release: written
     * once, and read when the device is closed. */
    atomic_int exported;
    /* Kernels of libloch_kernel; NULL before the first use (kernels.c). Acquire and release: written once. */
    struct loch_kernel_set *_Atomic kernels;
} lochi_cuda_device;

/* How a call treats a capture in progress. */
typedef enum lochi_cuda_mode { LOCHI_CUDA_AS_IS, LOCHI_CUDA_RELAXED } lochi_cuda_mode;

typedef struct lochi_cuda_frame {
    bool is_pushed;
    bool is_relaxed;
    cu_choice capture_mode; /* the thread's own mode, if is_relaxed */
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

/* Makes the context of the device current. After a failure nothing has to be left. */
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

/* Makes one driver call in its frame: LOCHI_CUDA_CALL(result, device, RELAXED, cuMemFree_v2, (address)). */
#define LOCHI_CUDA_CALL(result, owner, mode, call, arguments)                                                          \
    do {                                                                                                               \
        lochi_cuda_frame call_frame;                                                                                   \
        (result) = lochi_cuda_enter((owner), LOCHI_CUDA_##mode, &call_frame);                                          \
        if ((result) == LOCHI_CUDA_SUCCESS) {                                                                          \
            (result) = lochi_cuda.call arguments;                                                                      \
            lochi_cuda_leave(&call_frame);                                                                             \
        }                                                                                                              \
    } while (0)

/* Convert a result to a status. On failure the error record is written. */
#define LOCHI_CUDA_STATUS(result, call) ((result) == LOCHI_CUDA_SUCCESS ? LOCH_OK : lochi_cuda_fail((result), #call))
#define LOCHI_CUDA_STATUS_GIVING_BACK(result, call)                                                                    \
    ((result) == LOCHI_CUDA_SUCCESS ? LOCH_OK : lochi_cuda_fail_giving_back((result), #call))

static inline cu_address lochi_cuda_address(const void *address)
{
    return (cu_address)(uintptr_t)address;
}

#endif
