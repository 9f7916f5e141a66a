/* SPDX-License-Identifier: MIT */
/* Handles: physical memory. The object exists until its owner has destroyed it and its last mapping has ended. */
#include "device/handle.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/calls.h"
#include <string.h>

static loch_status handle_read_options(const loch_device *device, const loch_handle_options *given,
                                       loch_handle_options *out)
{
    *out = (loch_handle_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of handle options", given, out, sizeof *out));
    if (out->share & ~(uint32_t)(LOCH_SHARE_FD | LOCH_SHARE_FABRIC) || (unsigned)out->rdma > LOCH_RDMA_ON)
        return LOCH_FAIL(INVALID, "the handle options have an unknown value");
    uint32_t needed = 0;
    if (out->share & LOCH_SHARE_FD) needed |= LOCH_CAN_SHARE_FD;
    if (out->share & LOCH_SHARE_FABRIC) needed |= LOCH_CAN_SHARE_FABRIC;
    if (out->rdma) needed |= LOCH_CAN_RDMA;
    if (!loch_device_can(device, needed))
        return LOCH_FAIL(UNSUPPORTED, "%s cannot create handles that are shared or accessed that way", device->name);
    return LOCH_OK;
}

static loch_status handle_check_bytes(const loch_device *device, size_t bytes)
{
    const size_t granule = device->properties.granule_bytes;
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL))
        return LOCH_FAIL(UNSUPPORTED, "%s has no virtual memory", device->name);
    if (!bytes || !lochi_is_multiple(bytes, granule))
        return LOCH_FAIL(INVALID, "a handle of %zu bytes is not a multiple of the granule of %s", bytes,
                         LOCHI_SIZE(granule));
    return LOCH_OK;
}

/* Checks a request and allocates the object for a handle that the driver is about to create. */
static loch_status handle_prepare(loch_device *device, size_t bytes, uint32_t share, loch_handle **out)
{
    loch_handle *handle = lochi_zalloc(sizeof *handle);
    if (!handle) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a handle");
    handle->device = device;
    handle->bytes = bytes;
    handle->share = share;
    atomic_init(&handle->references, 1);
    *out = handle;
    return LOCH_OK;
}

static loch_status handle_finish(loch_handle *handle, loch_status status, loch_handle **out)
{
    if (status != LOCH_OK) {
        lochi_free(handle);
        return status;
    }
    loch_device_retain(handle->device);
    *out = handle;
    return LOCH_OK;
}

loch_status loch_handle_create(loch_device *device, size_t bytes, const loch_handle_options *options, loch_handle **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_handle_create needs a device and an out pointer");
    loch_handle_options read;
    LOCH_TRY_RETURN(handle_check_bytes(device, bytes));
    LOCH_TRY_RETURN(handle_read_options(device, options, &read));
    loch_handle *handle;
    LOCH_TRY_RETURN(handle_prepare(device, bytes, read.share, &handle));
    loch_status status;
    LOCHI_CALL(status, device, handle_create, (device->self, bytes, &read, &handle->native));
    return handle_finish(handle, status, out);
}

loch_status loch_handle_import(loch_device *device, loch_share share, const void *shared, size_t bytes,
                               loch_handle **out)
{
    if (out) *out = NULL;
    if (!device || !shared || !out)
        return LOCH_FAIL(INVALID, "loch_handle_import needs a device, a shared handle and an out pointer");
    LOCH_TRY_RETURN(handle_check_bytes(device, bytes));
    loch_handle *handle;
    LOCH_TRY_RETURN(handle_prepare(device, bytes, (uint32_t)share, &handle));
    loch_status status;
    LOCHI_CALL(status, device, handle_import, (device->self, share, shared, bytes, &handle->native));
    return handle_finish(handle, status, out);
}

loch_status loch_handle_export(loch_handle *handle, loch_share share, size_t out_bytes, void *out)
{
    if (!handle || !out) return LOCH_FAIL(INVALID, "loch_handle_export needs a handle and an out buffer");
    const size_t needed = share == LOCH_SHARE_FD ? sizeof(int) : LOCH_SHARE_BYTES_MAX;
    if (share != LOCH_SHARE_FD && share != LOCH_SHARE_FABRIC)
        return LOCH_FAIL(INVALID, "a handle must be exported in exactly one way");
    if (!(handle->share & (uint32_t)share))
        return LOCH_FAIL(INVALID, "the handle was not created to be shared that way");
    if (out_bytes < needed) return LOCH_FAIL(INVALID, "exporting needs a buffer of %zu bytes", needed);
    loch_status status;
    LOCHI_CALL(status, handle->device, handle_export, (handle->device->self, handle->native, share, out));
    return status;
}

void lochi_handle_release(loch_handle *handle)
{
    /* Acquire-release: the last release frees what the others wrote. */
    if (atomic_fetch_sub_explicit(&handle->references, 1, memory_order_acq_rel) != 1) return;
    loch_device *device = handle->device;
    lochi_free(handle);
    loch_device_release(device);
}

void loch_handle_destroy(loch_handle *handle)
{
    if (!handle) return;
    loch_status status;
    LOCHI_CALL(status, handle->device, handle_release, (handle->device->self, handle->native, handle->bytes));
    (void)status; /* nothing is left to undo; the driver has written the record */
    lochi_handle_release(handle);
}

size_t loch_handle_get_bytes(const loch_handle *handle)
{
    return handle ? handle->bytes : 0;
}
