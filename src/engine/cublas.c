/* SPDX-License-Identifier: MIT */
/* Handles of cuBLAS. cuBLAS works in the current CUDA context, so every call of it is made in the frame of the device
 * (device/cuda/frame.h). The caller's own CUDA context is current again afterwards, except after
 * loch_cublas_get_native. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "engine/cublas.h"
#include "engine/library.h"

struct loch_cublas {
    loch_device *device; /* retained */
    void *native;        /* cublasHandle_t; NULL until it is created */
};

static loch_status cublas_make(loch_cublas *cublas)
{
    LOCHI_NOT_CANCELLED;
    lochi_cuda_frame frame;
    const cu_result entered = lochi_cuda_enter(lochi_cuda_of(cublas->device), LOCHI_CUDA_RELAXED, &frame);
    if (entered != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(entered, "cuCtxPushCurrent");
    const int result = lochi_cublas.cublasCreate(&cublas->native);
    lochi_cuda_leave(&frame);
    if (result == 0) return LOCH_OK;
    cublas->native = NULL;
    return lochi_cublas_fail(result, "cublasCreate");
}

loch_status loch_cublas_create(loch_device *device, loch_stream *stream, loch_cublas **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the cuBLAS handle is NULL");
    *out = NULL;
    if (!device) return LOCH_FAIL(INVALID, "a cuBLAS handle needs a device");
    if (!lochi_cuda_of(device))
        return LOCH_FAIL(UNSUPPORTED, "cuBLAS works on CUDA devices only; %s is not a CUDA device", device->name);
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, device));
    LOCH_TRY_RETURN(loch_library_load(LOCH_LIBRARY_CUBLAS, NULL));

    loch_cublas *cublas = lochi_zalloc(sizeof *cublas);
    if (!cublas) return LOCH_FAIL(HOST_MEMORY, "no host memory for a cuBLAS handle");
    cublas->device = loch_device_retain(device);
    loch_status status;
    LOCH_TRY(cublas_make(cublas), fail);
    LOCH_TRY(lochi_cublas_set_stream(cublas, stream), fail);
    *out = cublas;
    return LOCH_OK;
fail:;
    const loch_error saved = lochi_error_save();
    loch_cublas_destroy(cublas);
    lochi_error_restore(&saved);
    return status;
}

loch_status lochi_cublas_set_stream(loch_cublas *cublas, loch_stream *stream)
{
    LOCHI_NOT_CANCELLED;
    if (!cublas) return LOCH_FAIL(INVALID, "the cuBLAS handle is NULL");
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, cublas->device));
    lochi_cuda_frame frame;
    const cu_result entered = lochi_cuda_enter(lochi_cuda_of(cublas->device), LOCHI_CUDA_RELAXED, &frame);
    if (entered != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(entered, "cuCtxPushCurrent");
    const int result = lochi_cublas.cublasSetStream(cublas->native, loch_stream_get_native(stream));
    lochi_cuda_leave(&frame);
    return LOCHI_CUBLAS_STATUS(result, cublasSetStream);
}

loch_status loch_cublas_get_native(loch_cublas *cublas, void **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the cublasHandle_t is NULL");
    *out = NULL;
    if (!cublas) return LOCH_FAIL(INVALID, "the cuBLAS handle is NULL");
    LOCH_TRY_RETURN(lochi_cuda_make_current(lochi_cuda_of(cublas->device)));
    *out = cublas->native;
    return LOCH_OK;
}

/* Destroys the native handle. cublasDestroy waits for the device. If the driver is unloaded already, as at the end of
 * the process, the handle no longer exists. */
static void cublas_end(const loch_cublas *cublas)
{
    LOCHI_NOT_CANCELLED;
    lochi_cuda_frame frame;
    if (lochi_cuda_enter(lochi_cuda_of(cublas->device), LOCHI_CUDA_RELAXED, &frame) != LOCHI_CUDA_SUCCESS) return;
    const int result = lochi_cublas.cublasDestroy(cublas->native);
    lochi_cuda_leave(&frame);
    if (result != 0) LOCHI_LOG(WARNING, "cublasDestroy on %s: code %d", cublas->device->name, result);
}

void loch_cublas_destroy(loch_cublas *cublas)
{
    if (!cublas) return;
    if (cublas->native) cublas_end(cublas);
    loch_device_release(cublas->device);
    lochi_free(cublas);
}
