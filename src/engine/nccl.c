/* SPDX-License-Identifier: MIT */
/* Communicators of NCCL for the devices of this process. */
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "engine/library.h"
#include "engine/nccl.h"
#include <limits.h>

typedef struct nccl_rank {
    loch_device *device; /* retained */
    void *native;        /* ncclComm_t; NULL until it is created */
} nccl_rank;

struct loch_nccl {
    size_t count;
    nccl_rank ranks[]; /* `count` entries, by rank */
};

static loch_status nccl_check(loch_device *const *devices, size_t count)
{
    if (!devices || count == 0 || count > INT_MAX)
        return LOCH_FAIL(INVALID, "NCCL communicators need a list of at least one device, not %zu", count);
    for (size_t i = 0; i < count; i++) {
        if (!devices[i]) return LOCH_FAIL(INVALID, "device %zu in the list is NULL", i);
        if (!lochi_cuda_of(devices[i]))
            return LOCH_FAIL(UNSUPPORTED, "NCCL works on CUDA devices only; %s is not a CUDA device", devices[i]->name);
        for (size_t j = 0; j < i; j++)
            if (devices[j] == devices[i])
                return LOCH_FAIL(UNSUPPORTED, "%s is in the list twice; NCCL accepts a device once", devices[i]->name);
    }
    return LOCH_OK;
}

/* Creates all communicators. NCCL makes one CUDA context after the other current. The first context is made current
 * again before the frame ends. */
static int nccl_init(const loch_nccl *nccl, void **communicators, const int *ordinals, cu_result *entered)
{
    LOCHI_NOT_CANCELLED;
    const lochi_cuda_device *first = lochi_cuda_of(nccl->ranks[0].device);
    lochi_cuda_frame frame;
    *entered = lochi_cuda_enter(first, LOCHI_CUDA_RELAXED, &frame);
    if (*entered != LOCHI_CUDA_SUCCESS) return 0;
    const int result = lochi_nccl.ncclCommInitAll(communicators, (int)nccl->count, ordinals);
    *entered = lochi_cuda.cuCtxSetCurrent(first->context);
    lochi_cuda_leave(&frame);
    return result;
}

static loch_status nccl_make(loch_nccl *nccl)
{
    void **communicators = lochi_alloc_array(nccl->count, sizeof *communicators);
    int *ordinals = lochi_alloc_array(nccl->count, sizeof *ordinals);
    loch_status status = LOCH_OK;
    if (!communicators || !ordinals) {
        status = LOCH_FAIL(HOST_MEMORY, "no host memory for %zu NCCL communicators", nccl->count);
        goto end;
    }
    for (size_t i = 0; i < nccl->count; i++) {
        communicators[i] = NULL;
        ordinals[i] = lochi_cuda_of(nccl->ranks[i].device)->index;
    }
    cu_result entered;
    const int result = nccl_init(nccl, communicators, ordinals, &entered);
    for (size_t i = 0; i < nccl->count && result == 0; i++)
        nccl->ranks[i].native = communicators[i];
    if (result != 0)
        status = lochi_nccl_fail(result, "ncclCommInitAll");
    else if (entered != LOCHI_CUDA_SUCCESS)
        status = lochi_cuda_fail(entered, "cuCtxSetCurrent");
end:
    lochi_free(communicators);
    lochi_free(ordinals);
    return status;
}

loch_status lochi_nccl_create(loch_device *const *devices, size_t count, loch_nccl **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the NCCL communicators is NULL");
    *out = NULL;
    LOCH_TRY_RETURN(nccl_check(devices, count));
    LOCH_TRY_RETURN(loch_library_load(LOCH_LIBRARY_NCCL, NULL));

    size_t bytes;
    if (!lochi_mul(count, sizeof(nccl_rank), &bytes) || !lochi_add(bytes, sizeof(loch_nccl), &bytes))
        return LOCH_FAIL(OVERFLOW, "%zu NCCL communicators are too many", count);
    loch_nccl *nccl = lochi_zalloc(bytes);
    if (!nccl) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu NCCL communicators", count);
    loch_status status;
    for (; nccl->count < count; nccl->count++)
        nccl->ranks[nccl->count].device = loch_device_retain(devices[nccl->count]);
    LOCH_TRY(nccl_make(nccl), fail);
    *out = nccl;
    return LOCH_OK;
fail:;
    const loch_error saved = lochi_error_save();
    lochi_nccl_destroy(nccl);
    lochi_error_restore(&saved);
    return status;
}

loch_status loch_nccl_get_native(loch_nccl *nccl, size_t rank, void **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the ncclComm_t is NULL");
    *out = NULL;
    if (!nccl) return LOCH_FAIL(INVALID, "the NCCL communicators are NULL");
    if (rank >= nccl->count)
        return LOCH_FAIL(NOT_FOUND, "there is no rank %zu: there are %zu communicators", rank, nccl->count);
    LOCH_TRY_RETURN(lochi_cuda_make_current(lochi_cuda_of(nccl->ranks[rank].device)));
    *out = nccl->ranks[rank].native;
    return LOCH_OK;
}

/* Destroys a communicator. NCCL flushes only its own queues, so this waits for the work of the device first. If the
 * driver is unloaded already, the communicator no longer exists. */
static void nccl_end(const nccl_rank *rank)
{
    LOCHI_NOT_CANCELLED;
    const lochi_cuda_device *device = lochi_cuda_of(rank->device);
    lochi_cuda_frame frame;
    if (lochi_cuda_enter(device, LOCHI_CUDA_RELAXED, &frame) != LOCHI_CUDA_SUCCESS) return;
    lochi_cuda.cuCtxSynchronize();
    const int result = lochi_nccl.ncclCommDestroy(rank->native);
    lochi_cuda.cuCtxSetCurrent(device->context);
    lochi_cuda_leave(&frame);
    if (result != 0) LOCHI_LOG(WARNING, "ncclCommDestroy on %s: code %d", rank->device->name, result);
}

void lochi_nccl_destroy(loch_nccl *nccl)
{
    if (!nccl) return;
    for (size_t i = 0; i < nccl->count; i++)
        if (nccl->ranks[i].native) nccl_end(&nccl->ranks[i]);
    for (size_t i = 0; i < nccl->count; i++)
        loch_device_release(nccl->ranks[i].device);
    lochi_free(nccl);
}
