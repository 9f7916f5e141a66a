/* SPDX-License-Identifier: MIT */
/* Memory of a CUDA device: raw, managed, registered, stream-ordered, and virtual. pinned.c has pinned memory.
 *
 * cuMemAlloc promises an alignment of 256 bytes. A larger alignment is tried where it is likely, checked, and given
 * back if the address is not aligned, because a block can be freed only by the address that the driver returned. */
#include "device/cuda/memory.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CUDA_ALIGNMENT_LIKELY 512          /* what cuMemAlloc returns in practice */
#define CUDA_BLOCK_BYTES ((size_t)2 << 20) /* blocks of this size and more have physical pages of their own */
#define CUDA_ACCESSES_ON_STACK 9           /* a device and eight peers, the usual maximum of one machine */

static bool cuda_is_aligned(const void *address, size_t alignment)
{
    return !alignment || lochi_is_multiple((uintptr_t)address, alignment);
}

static loch_status cuda_cannot_align(const char *call, size_t bytes, size_t alignment)
{
    return LOCH_FAIL(UNSUPPORTED, "%s cannot align %s to %zu bytes: ask for a smaller alignment, or use virtual memory",
                     call, LOCHI_SIZE(bytes), alignment);
}

/* --- raw, managed, registered --- */

loch_status lochi_cuda_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    if (alignment > CUDA_ALIGNMENT_LIKELY && bytes < CUDA_BLOCK_BYTES)
        return cuda_cannot_align("cuMemAlloc", bytes, alignment);
    cu_address address = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemAlloc_v2, (&address, bytes));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemAlloc");
    void *block = (void *)(uintptr_t)address;
    if (!cuda_is_aligned(block, alignment)) {
        LOCH_TRY_RETURN(lochi_cuda_raw_free(self, block, bytes));
        return cuda_cannot_align("cuMemAlloc", bytes, alignment);
    }
    *out = block;
    return LOCH_OK;
}

/* Frees raw and managed memory. */
loch_status lochi_cuda_raw_free(void *self, void *address, size_t bytes)
{
    (void)bytes;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemFree_v2, (lochi_cuda_address(address)));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemFree);
}

loch_status lochi_cuda_managed_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    if (alignment > CUDA_ALIGNMENT_LIKELY && bytes < CUDA_BLOCK_BYTES)
        return cuda_cannot_align("cuMemAllocManaged", bytes, alignment);
    cu_address address = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemAllocManaged, (&address, bytes, LOCHI_CU_MEM_ATTACH_GLOBAL));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemAllocManaged");
    void *block = (void *)(uintptr_t)address;
    if (!cuda_is_aligned(block, alignment)) {
        LOCH_TRY_RETURN(lochi_cuda_raw_free(self, block, bytes));
        return cuda_cannot_align("cuMemAllocManaged", bytes, alignment);
    }
    *out = block;
    return LOCH_OK;
}

/* --- ordered by stream --- */

static loch_status cuda_no_ordered(void)
{
    return LOCH_FAIL(UNSUPPORTED, "this driver or device has no stream-ordered allocator");
}

loch_status lochi_cuda_ordered_alloc(void *self, size_t bytes, void *stream, void **out)
{
    const lochi_cuda_device *device = self;
    if (!(device->capabilities & LOCH_CAN_ORDERED)) return cuda_no_ordered();
    cu_address address = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, device, AS_IS, cuMemAllocAsync, (&address, bytes, stream));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemAllocAsync");
    *out = (void *)(uintptr_t)address;
    return LOCH_OK;
}

loch_status lochi_cuda_ordered_free(void *self, void *address, size_t bytes, void *stream)
{
    (void)bytes;
    const lochi_cuda_device *device = self;
    if (!(device->capabilities & LOCH_CAN_ORDERED)) return cuda_no_ordered();
    cu_result result;
    LOCHI_CUDA_CALL(result, device, AS_IS, cuMemFreeAsync, (lochi_cuda_address(address), stream));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemFreeAsync);
}

/* --- addresses --- */

loch_status lochi_cuda_reserve(void *self, size_t bytes, size_t alignment, void **out)
{
    cu_address address = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemAddressReserve, (&address, bytes, alignment, 0, 0));
    /* The sizes are valid by contract, so an "invalid value" means that the driver's address space is too small. */
    if (result == LOCHI_CUDA_ERROR_INVALID_VALUE || result == LOCHI_CUDA_ERROR_OUT_OF_MEMORY)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, "cuda", (long)result,
                              "cuMemAddressReserve: no %s of addresses are left: reserve less", LOCHI_SIZE(bytes));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemAddressReserve");
    void *range = (void *)(uintptr_t)address;
    if (!cuda_is_aligned(range, alignment)) {
        LOCH_TRY_RETURN(lochi_cuda_unreserve(self, range, bytes));
        return cuda_cannot_align("cuMemAddressReserve", bytes, alignment);
    }
    *out = range;
    return LOCH_OK;
}

loch_status lochi_cuda_unreserve(void *self, void *address, size_t bytes)
{
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemAddressFree, (lochi_cuda_address(address), bytes));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemAddressFree);
}

/* --- handles --- */

cu_allocation lochi_cuda_describe(const lochi_cuda_device *device)
{
    cu_allocation allocation;
    memset(&allocation, 0, sizeof allocation);
    allocation.type = LOCHI_CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.location.type = LOCHI_CU_MEM_LOCATION_TYPE_DEVICE;
    allocation.location.id = device->index;
    return allocation;
}

static loch_status cuda_describe_options(const lochi_cuda_device *device, const loch_handle_options *options,
                                         cu_allocation *allocation)
{
    *allocation = lochi_cuda_describe(device);
    if (options->share & LOCH_SHARE_FD) {
        if (!(device->capabilities & LOCH_CAN_SHARE_FD))
            return LOCH_FAIL(UNSUPPORTED, "cuda:%d cannot share memory by file descriptor", device->index);
        allocation->requestedHandleTypes |= LOCHI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    if (options->share & LOCH_SHARE_FABRIC) {
        if (!(device->capabilities & LOCH_CAN_SHARE_FABRIC))
            return LOCH_FAIL(UNSUPPORTED, "cuda:%d cannot share memory by fabric handle", device->index);
        allocation->requestedHandleTypes |= LOCHI_CU_MEM_HANDLE_TYPE_FABRIC;
    }
    const bool can_rdma = device->capabilities & LOCH_CAN_RDMA;
    if (options->rdma == LOCH_RDMA_ON && !can_rdma)
        return LOCH_FAIL(UNSUPPORTED, "cuda:%d cannot open mapped memory to network cards", device->index);
    allocation->allocFlags.gpuDirectRDMACapable = can_rdma; /* costs nothing, and libraries register any memory */
    return LOCH_OK;
}

loch_status lochi_cuda_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                     loch_driver_handle *out)
{
    cu_allocation allocation;
    LOCH_TRY_RETURN(cuda_describe_options(self, options, &allocation));
    cu_memory memory = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemCreate, (&memory, bytes, &allocation, 0));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemCreate");
    *out = memory;
    return LOCH_OK;
}

loch_status lochi_cuda_handle_release(void *self, loch_driver_handle handle, size_t bytes)
{
    (void)bytes;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemRelease, (handle));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemRelease);
}

static loch_status cuda_share_type(const lochi_cuda_device *device, loch_share share, cu_choice *type)
{
    if (share == LOCH_SHARE_FD && (device->capabilities & LOCH_CAN_SHARE_FD))
        *type = LOCHI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    else if (share == LOCH_SHARE_FABRIC && (device->capabilities & LOCH_CAN_SHARE_FABRIC))
        *type = LOCHI_CU_MEM_HANDLE_TYPE_FABRIC;
    else
        return LOCH_FAIL(UNSUPPORTED, "cuda:%d cannot share memory in that way", device->index);
    return LOCH_OK;
}

/* Keeps one descriptor of exported memory open until the device is closed. The driver ends its state for exports with
 * the last descriptor: that takes 0.6 ms, and the next export as long again; with a descriptor left, both take some
 * 30 us. The memory behind it is one granule of its own, because a descriptor keeps memory alive. */
static void cuda_keep_exported(lochi_cuda_device *device)
{
    if (atomic_load_explicit(&device->exported, memory_order_acquire)) return;
    cu_allocation allocation = lochi_cuda_describe(device);
    allocation.requestedHandleTypes = LOCHI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const cu_choice type = LOCHI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    cu_memory memory = 0;
    cu_result result;
    int descriptor = -1, none = 0;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemCreate, (&memory, device->granule_bytes, &allocation, 0));
    if (result != LOCHI_CUDA_SUCCESS) return;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemExportToShareableHandle, (&descriptor, memory, type, 0));
    const bool is_open = result == LOCHI_CUDA_SUCCESS && descriptor >= 0;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemRelease, (memory));
    if (!is_open) return;
    (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    if (!atomic_compare_exchange_strong_explicit(&device->exported, &none, descriptor + 1, memory_order_acq_rel,
                                                 memory_order_acquire))
        close(descriptor); /* another thread was faster */
}

loch_status lochi_cuda_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out)
{
    cu_choice type;
    LOCH_TRY_RETURN(cuda_share_type(self, share, &type));
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemExportToShareableHandle, (out, handle, type, 0));
    if (result == LOCHI_CUDA_SUCCESS && share == LOCH_SHARE_FD) cuda_keep_exported(self);
    return LOCHI_CUDA_STATUS(result, cuMemExportToShareableHandle);
}

void lochi_cuda_end_exports(lochi_cuda_device *device)
{
    const int descriptor = atomic_load_explicit(&device->exported, memory_order_acquire) - 1;
    if (descriptor >= 0) close(descriptor);
}

loch_status lochi_cuda_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                     loch_driver_handle *out)
{
    (void)bytes;
    cu_choice type;
    LOCH_TRY_RETURN(cuda_share_type(self, share, &type));
    /* A file descriptor is passed by value, a fabric handle by address. The address is of a copy, because the
     * driver's parameter is not const. */
    unsigned char fabric[LOCH_SHARE_BYTES_MAX];
    void *given = fabric;
    if (share == LOCH_SHARE_FD) {
        int descriptor;
        memcpy(&descriptor, shared, sizeof descriptor);
        given = (void *)(intptr_t)descriptor;
    } else {
        memcpy(fabric, shared, sizeof fabric);
    }
    cu_memory memory = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemImportFromShareableHandle, (&memory, given, type));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemImportFromShareableHandle");
    *out = memory;
    return LOCH_OK;
}

/* --- mappings --- */

/* Maps memory and opens it for access. On failure does neither. */
static cu_result cuda_map_open(cu_address address, size_t bytes, cu_memory memory, const cu_access *accesses,
                               size_t count, const char **call)
{
    *call = "cuMemMap";
    cu_result result = lochi_cuda.cuMemMap(address, bytes, 0, memory, 0);
    if (result != LOCHI_CUDA_SUCCESS) return result;
    *call = "cuMemSetAccess";
    result = lochi_cuda.cuMemSetAccess(address, bytes, accesses, count);
    if (result != LOCHI_CUDA_SUCCESS) lochi_cuda.cuMemUnmap(address, bytes);
    return result;
}

/* Creates, maps, opens and gives back a granule that network cards could access. In the frame of the caller. */
static cu_result cuda_map_for_cards(const lochi_cuda_device *device)
{
    const size_t bytes = device->granule_bytes;
    const cu_access access = {.location = {LOCHI_CU_MEM_LOCATION_TYPE_DEVICE, device->index},
                              .flags = LOCHI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cu_allocation allocation = lochi_cuda_describe(device);
    allocation.allocFlags.gpuDirectRDMACapable = 1;
    cu_address address = 0;
    cu_memory memory = 0;
    cu_result result = lochi_cuda.cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != LOCHI_CUDA_SUCCESS) return result;
    result = lochi_cuda.cuMemCreate(&memory, bytes, &allocation, 0);
    if (result == LOCHI_CUDA_SUCCESS) {
        const char *call;
        result = cuda_map_open(address, bytes, memory, &access, 1, &call);
        if (result == LOCHI_CUDA_SUCCESS) lochi_cuda.cuMemUnmap(address, bytes);
        lochi_cuda.cuMemRelease(memory);
    }
    lochi_cuda.cuMemAddressFree(address, bytes);
    return result;
}

bool lochi_cuda_try_rdma(const lochi_cuda_device *device)
{
    lochi_cuda_frame frame;
    cu_result result = lochi_cuda_enter(device, LOCHI_CUDA_RELAXED, &frame);
    if (result != LOCHI_CUDA_SUCCESS) return false;
    result = cuda_map_for_cards(device);
    lochi_cuda_leave(&frame);
    return result == LOCHI_CUDA_SUCCESS || result == LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
}

loch_status lochi_cuda_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                           size_t peers_count)
{
    cu_access on_stack[CUDA_ACCESSES_ON_STACK], *accesses = on_stack;
    if (peers_count >= CUDA_ACCESSES_ON_STACK) {
        accesses = lochi_alloc_array(peers_count + 1, sizeof *accesses);
        if (!accesses) return LOCH_FAIL(HOST_MEMORY, "no host memory to open a mapping for %zu peers", peers_count);
    }
    for (size_t i = 0; i <= peers_count; i++) {
        const lochi_cuda_device *device = i ? peers[i - 1] : self;
        accesses[i] = (cu_access){.location = {LOCHI_CU_MEM_LOCATION_TYPE_DEVICE, device->index},
                                  .flags = LOCHI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    const char *call = "cuCtxPushCurrent";
    lochi_cuda_frame frame;
    cu_result result = lochi_cuda_enter(self, LOCHI_CUDA_RELAXED, &frame);
    if (result == LOCHI_CUDA_SUCCESS) {
        result = cuda_map_open(lochi_cuda_address(address), bytes, handle, accesses, peers_count + 1, &call);
        lochi_cuda_leave(&frame);
    }
    if (accesses != on_stack) lochi_free(accesses);
    return result == LOCHI_CUDA_SUCCESS ? LOCH_OK : lochi_cuda_fail(result, call);
}

loch_status lochi_cuda_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle)
{
    (void)handle;
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemUnmap, (lochi_cuda_address(address), bytes));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemUnmap);
}
