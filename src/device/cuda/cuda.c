/* SPDX-License-Identifier: MIT */
/* The CUDA driver: finding and opening GPUs, their properties, peers, and the table of slots.
 *
 * No CUDA library is linked; api.h says how the driver is loaded. A device is ordinal N of the driver for "cuda:N"
 * (counted among those that CUDA_VISIBLE_DEVICES leaves) with its primary context, which other libraries of the
 * process share. */
#include "device/cuda/cuda.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/options.h"
#include "kit/parse.h"
#include "device/cpu/cpu.h"
#include "device/cuda/kernels.h"
#include "device/cuda/memory.h"
#include "device/cuda/pinned.h"
#include "device/cuda/pitched.h"
#include "device/cuda/stream.h"
#include "device/state.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define CUDA_ALIGNMENT_BYTES 256 /* alignment of every block of cuMemAlloc */

/* --- finding --- */

static loch_status cuda_count(int *out)
{
    *out = 0;
    LOCH_TRY_RETURN(lochi_cuda_load());
    const cu_result result = lochi_cuda.cuDeviceGetCount(out);
    return LOCHI_CUDA_STATUS(result, cuDeviceGetCount);
}

static loch_status cuda_enumerate(loch_device_visitor *visitor, void *user)
{
    int count;
    char path[LOCH_OPTION_VALUE_MAX];
    /* An invalid option is an error, unlike a missing library. */
    LOCH_TRY_RETURN(lochi_option_text("cuda_library", path));
    const loch_error before = lochi_error_save();
    if (cuda_count(&count) != LOCH_OK) {
        LOCHI_LOG(INFO, "no CUDA devices: %s", loch_error_get()->sentence);
        lochi_error_restore(&before); /* a machine without CUDA is not a failure */
        return LOCH_OK;
    }
    for (int i = 0; i < count; i++) {
        char arguments[16];
        snprintf(arguments, sizeof arguments, "%d", i);
        LOCH_TRY_RETURN(visitor(arguments, user));
    }
    return LOCH_OK;
}

static loch_status cuda_find(const char *arguments, int *index)
{
    uint64_t number = 0;
    if (*arguments && !lochi_parse_number(arguments, &number))
        return LOCH_FAIL(INVALID, "\"cuda:%.40s\" is not a CUDA device: they are named cuda:0, cuda:1, ...", arguments);
    int count;
    LOCH_TRY_RETURN(cuda_count(&count));
    if (number >= (uint64_t)count)
        return LOCH_FAIL(NOT_FOUND, "there is no cuda:%.40s: this process sees %d CUDA device%s (CUDA_VISIBLE_DEVICES)",
                         *arguments ? arguments : "0", count, count == 1 ? ", cuda:0" : "s");
    *index = (int)number;
    return LOCH_OK;
}

/* --- opening --- */

/* Reads an attribute of the device; 0 if the driver does not know the attribute. */
static int cuda_attribute(const lochi_cuda_device *device, cu_choice attribute)
{
    int value = 0;
    return lochi_cuda.cuDeviceGetAttribute(&value, attribute, device->device) == LOCHI_CUDA_SUCCESS ? value : 0;
}

static bool cuda_has_peers(void)
{
    int count = 0;
    return lochi_cuda.cuDeviceGetCount(&count) == LOCHI_CUDA_SUCCESS && count > 1;
}

/* Tests whether a fabric handle can be created. The attribute describes the card only; the system may still forbid
 * fabric handles to a process. */
static bool cuda_can_share_fabric(const lochi_cuda_device *device)
{
    if (!cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) return false;
    cu_allocation allocation = lochi_cuda_describe(device);
    allocation.requestedHandleTypes = LOCHI_CU_MEM_HANDLE_TYPE_FABRIC;
    cu_memory memory = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemCreate, (&memory, device->granule_bytes, &allocation, 0));
    if (result != LOCHI_CUDA_SUCCESS) return false;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemRelease, (memory));
    return result == LOCHI_CUDA_SUCCESS;
}

static uint32_t cuda_virtual_capabilities(const lochi_cuda_device *device)
{
    uint32_t set = LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS;
    const bool can_share = lochi_cuda.cuMemExportToShareableHandle && lochi_cuda.cuMemImportFromShareableHandle;
    if (cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) &&
        lochi_cuda_try_rdma(device))
        set |= LOCH_CAN_RDMA;
    if (can_share && cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        set |= LOCH_CAN_SHARE_FD;
    if (can_share && cuda_can_share_fabric(device)) set |= LOCH_CAN_SHARE_FABRIC;
    return set;
}

static uint32_t cuda_capabilities(const lochi_cuda_device *device)
{
    uint32_t set = LOCH_CAN_PINNED | LOCH_CAN_ASYNC | LOCH_CAN_TIMING;
    if (cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)) set |= LOCH_CAN_REGISTER;
    if (cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)) set |= LOCH_CAN_MANAGED;
    if (cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) && lochi_cuda.cuMemAllocAsync &&
        lochi_cuda.cuMemFreeAsync)
        set |= LOCH_CAN_ORDERED;
    if (lochi_cuda.cuThreadExchangeStreamCaptureMode &&
        (lochi_cuda.cuStreamGetCaptureInfo_v2 || lochi_cuda.cuStreamGetCaptureInfo))
        set |= LOCH_CAN_CAPTURE;
    if (cuda_has_peers()) set |= LOCH_CAN_PEER;
    if (device->granule_bytes) set |= cuda_virtual_capabilities(device);
    return set;
}

/* Reads the granule; 0 if the device has no virtual memory. */
static loch_status cuda_read_granule(lochi_cuda_device *device)
{
    device->granule_bytes = 0;
    if (!cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return LOCH_OK;
    const cu_allocation allocation = lochi_cuda_describe(device);
    cu_result result;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemGetAllocationGranularity,
                    (&device->granule_bytes, &allocation, LOCHI_CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return LOCHI_CUDA_STATUS(result, cuMemGetAllocationGranularity);
}

static void cuda_close(void *self)
{
    lochi_cuda_device *device = self;
    lochi_cuda_end_exports(device);
    lochi_cuda_end_kernels(device);
    if (device->context && !lochi_cuda_is_forked) {
        lochi_cuda_frame frame;
        lochi_cuda_relax(&frame);
        const cu_result result = lochi_cuda.cuDevicePrimaryCtxRelease_v2(device->device);
        lochi_cuda_restore(&frame);
        if (result != LOCHI_CUDA_SUCCESS && lochi_cuda_fail_giving_back(result, "cuDevicePrimaryCtxRelease") != LOCH_OK)
            LOCHI_LOG(WARNING, "cuda:%d: %s", device->index, loch_error_get()->sentence);
    }
    lochi_free(device);
}

static loch_status cuda_retain(lochi_cuda_device *device)
{
    cu_result result = lochi_cuda.cuDeviceGet(&device->device, device->index);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuDeviceGet");
    result = lochi_cuda.cuDeviceTotalMem_v2(&device->total_bytes, device->device);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuDeviceTotalMem");
    lochi_cuda_frame frame;
    lochi_cuda_relax(&frame);
    result = lochi_cuda.cuDevicePrimaryCtxRetain(&device->context, device->device);
    lochi_cuda_restore(&frame);
    if (result == LOCHI_CUDA_SUCCESS) return LOCH_OK;
    device->context = NULL;
    return lochi_cuda_fail(result, "cuDevicePrimaryCtxRetain");
}

/* Returns the NUMA node of the card as the system reports it, by bus id in lower case; -1 if the system does not
 * report it. */
static int cuda_numa_node(const char *bus_id)
{
    LOCHI_NOT_CANCELLED;
    char path[96];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus_id);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    int node = -1;
    if (fscanf(file, "%d", &node) != 1) node = -1;
    fclose(file);
    return node;
}

/* Reads the bus id of the card, in lower case as the system writes it. */
static loch_status cuda_read_bus_id(const lochi_cuda_device *device, char *bus_id, int bytes)
{
    const cu_result result = lochi_cuda.cuDeviceGetPCIBusId(bus_id, bytes, device->device);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuDeviceGetPCIBusId");
    for (char *c = bus_id; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return LOCH_OK;
}

/* Lowers the total of an integrated device to what the process may have of the host's memory. */
static void cuda_limit_to_host(lochi_cuda_device *device)
{
    const size_t host = lochi_cpu_read_total("", -1);
    if (host && host < device->total_bytes) device->total_bytes = host;
}

static loch_status cuda_open(const char *arguments, void **self)
{
    int index = 0;
    LOCH_TRY_RETURN(cuda_find(arguments, &index));
    lochi_cuda_device *device = lochi_zalloc(sizeof *device);
    if (!device) return LOCH_FAIL(HOST_MEMORY, "no host memory for cuda:%d", index);
    device->index = index;
    loch_status status;
    LOCH_TRY(cuda_retain(device), fail);
    LOCH_TRY(cuda_read_granule(device), fail);
    char bus_id[sizeof((loch_device_properties *)NULL)->bus_id];
    LOCH_TRY(cuda_read_bus_id(device, bus_id, sizeof bus_id), fail);
    device->numa_node = cuda_numa_node(bus_id);
    device->capabilities = cuda_capabilities(device);
    device->is_integrated = cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_INTEGRATED);
    if (device->is_integrated) cuda_limit_to_host(device);
    device->pitch_max = (size_t)cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    device->is_registering =
        (device->capabilities & LOCH_CAN_REGISTER) &&
        cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) &&
        lochi_cuda_can_pin_pages(device);
    *self = device;
    return LOCH_OK;
fail:;
    const loch_error saved = lochi_error_save();
    cuda_close(device);
    lochi_error_restore(&saved);
    return status;
}

/* --- properties --- */

static loch_status cuda_get_properties(void *self, loch_device_properties *out)
{
    const lochi_cuda_device *device = self;
    const cu_result result = lochi_cuda.cuDeviceGetName(out->model, sizeof out->model, device->device);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuDeviceGetName");
    LOCH_TRY_RETURN(cuda_read_bus_id(device, out->bus_id, sizeof out->bus_id));
    out->capabilities = device->capabilities;
    out->index = device->index;
    out->numa_node = device->numa_node;
    out->total_bytes = device->total_bytes;
    out->granule_bytes = device->granule_bytes;
    out->alignment_bytes = CUDA_ALIGNMENT_BYTES;
    out->compute_major = cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    out->compute_minor = cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    out->multiprocessors = cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    out->l2_bytes = (size_t)cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    out->shared_bytes = (size_t)cuda_attribute(device, LOCHI_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    snprintf(out->driver_version, sizeof out->driver_version, "%d.%d", lochi_cuda.version / 1000,
             lochi_cuda.version % 1000 / 10);
    return LOCH_OK;
}

static loch_status cuda_memory_info(void *self, loch_memory_info *out)
{
    const lochi_cuda_device *device = self;
    size_t free_bytes = 0, total_bytes = 0;
    cu_result result;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemGetInfo_v2, (&free_bytes, &total_bytes));
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuMemGetInfo");
    if (device->is_integrated) { /* the driver does not count pages that the system would free: its caches */
        loch_memory_info host = {.size = sizeof host};
        lochi_cpu_read_memory("", -1, &host);
        if (host.free_bytes > free_bytes) free_bytes = host.free_bytes;
    }
    out->total_bytes = device->total_bytes;
    out->free_bytes = free_bytes < device->total_bytes ? free_bytes : device->total_bytes;
    return LOCH_OK;
}

/* --- the rest --- */

static loch_status cuda_device_sync(void *self)
{
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuCtxSynchronize, ());
    return LOCHI_CUDA_STATUS(result, cuCtxSynchronize);
}

static loch_status cuda_peer_enable(void *self, void *peer)
{
    const lochi_cuda_device *device = self, *other = peer;
    if (device == other) return LOCH_OK;
    if (lochi_cuda_is_forked) return lochi_cuda_fail(LOCHI_CUDA_FORKED, "cuDeviceCanAccessPeer");
    int can = 0;
    cu_result result = lochi_cuda.cuDeviceCanAccessPeer(&can, device->device, other->device);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuDeviceCanAccessPeer");
    if (!can)
        return LOCH_FAIL(UNSUPPORTED, "cuda:%d cannot access the memory of cuda:%d: see nvidia-smi topo -p2p r",
                         device->index, other->index);
    LOCHI_CUDA_CALL(result, device, RELAXED, cuCtxEnablePeerAccess, (other->context, 0));
    if (result == LOCHI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return LOCH_OK;
    return LOCHI_CUDA_STATUS(result, cuCtxEnablePeerAccess);
}

const lochi_cuda_device *lochi_cuda_of(const loch_device *device)
{
    return device && device->driver->open == cuda_open ? device->self : NULL;
}

loch_status lochi_cuda_make_current(const lochi_cuda_device *device)
{
    const cu_result result = lochi_cuda_is_forked ? LOCHI_CUDA_FORKED : lochi_cuda.cuCtxSetCurrent(device->context);
    return LOCHI_CUDA_STATUS(result, cuCtxSetCurrent);
}

/* --- current in a thread --- */

/* Saves and sets the current context instead of pushing and popping. A pop removes the top of the stack whatever it
 * is; if the caller pushed or popped a context in between, the pop would remove the wrong one. Setting replaces the
 * top of the stack of contexts, as the runtime's cudaSetDevice does. */
static loch_status cuda_enter_thread(void *self, void **before)
{
    const lochi_cuda_device *device = self;
    if (lochi_cuda_is_forked) return lochi_cuda_fail(LOCHI_CUDA_FORKED, "cuCtxGetCurrent");
    cu_context *current = NULL;
    cu_result result = lochi_cuda.cuCtxGetCurrent(&current);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuCtxGetCurrent");
    if (current != device->context) result = lochi_cuda.cuCtxSetCurrent(device->context);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuCtxSetCurrent");
    *before = current;
    return LOCH_OK;
}

/* Empties the stack of contexts, because no context was current before. This also removes contexts that the caller
 * pushed meanwhile. */
static cu_result cuda_empty_stack(void)
{
    cu_context *current = NULL;
    cu_result result = lochi_cuda.cuCtxGetCurrent(&current);
    while (result == LOCHI_CUDA_SUCCESS && current) {
        result = lochi_cuda.cuCtxPopCurrent_v2(&current);
        if (result == LOCHI_CUDA_SUCCESS) result = lochi_cuda.cuCtxGetCurrent(&current);
    }
    return result;
}

/* If the caller has destroyed the earlier context meanwhile, no context is current afterwards, rather than the
 * device's. */
static loch_status cuda_leave_thread(void *self, void *before)
{
    (void)self;
    cu_context *current = NULL;
    if (lochi_cuda_is_forked) return LOCH_OK; /* no context of the parent is current in the child */
    if (!before) {
        const cu_result emptied = cuda_empty_stack();
        return LOCHI_CUDA_STATUS_GIVING_BACK(emptied, cuCtxPopCurrent);
    }
    cu_result result = lochi_cuda.cuCtxGetCurrent(&current);
    if (result == LOCHI_CUDA_SUCCESS && current == before) return LOCH_OK;
    result = lochi_cuda.cuCtxSetCurrent(before);
    if (result == LOCHI_CUDA_SUCCESS) return LOCH_OK;
    lochi_cuda.cuCtxSetCurrent(NULL);
    return lochi_cuda_fail_giving_back(result, "cuCtxSetCurrent");
}

/* --- addresses --- */

/* Attributes of an address; all zero for an address that the driver does not know. */
typedef struct cuda_pointer {
    cu_choice type;
    cu_choice is_managed; /* the driver writes a bool or an int, depending on its version */
    cu_choice is_mapped;  /* the driver writes a bool or an int, depending on its version */
    int ordinal;
    cu_address start;
    size_t bytes;
} cuda_pointer;

static cu_result cuda_pointer_read(const lochi_cuda_device *device, const void *address, cuda_pointer *pointer)
{
    cu_choice attributes[] = {
        LOCHI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      LOCHI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
        LOCHI_CU_POINTER_ATTRIBUTE_MAPPED,           LOCHI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        LOCHI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, LOCHI_CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    };
    *pointer = (cuda_pointer){.ordinal = -1};
    void *data[] = {&pointer->type,    &pointer->is_managed, &pointer->is_mapped,
                    &pointer->ordinal, &pointer->start,      &pointer->bytes};
    cu_result result;
    LOCHI_CUDA_CALL(result, device, AS_IS, cuPointerGetAttributes,
                    (sizeof data / sizeof *data, attributes, data, lochi_cuda_address(address)));
    return result;
}

/* Returns E_NOT_FOUND and E_FOREIGN without writing the record: they are the usual answers. Addresses are unified, so
 * the driver knows the memory of all devices: one answer is enough for memory that it does not know. */
static loch_status cuda_address_query(void *self, const void *address, loch_address_info *out)
{
    const lochi_cuda_device *device = self;
    cuda_pointer pointer;
    const cu_result result = cuda_pointer_read(device, address, &pointer);
    if (result != LOCHI_CUDA_SUCCESS) return lochi_cuda_fail(result, "cuPointerGetAttributes");
    if (!pointer.type && !pointer.is_managed) return LOCH_E_FOREIGN;
    if (pointer.ordinal != device->index) return LOCH_E_NOT_FOUND;
    if (pointer.is_managed)
        out->kind = LOCH_MEMORY_MANAGED;
    else if (pointer.type == LOCHI_CU_MEMORYTYPE_HOST)
        out->kind = LOCH_MEMORY_PINNED; /* or registered: the driver does not distinguish them */
    else if (pointer.type == LOCHI_CU_MEMORYTYPE_DEVICE && pointer.is_mapped)
        out->kind = LOCH_MEMORY_DEVICE;
    else
        return LOCH_E_NOT_FOUND;
    out->base = pointer.bytes ? (void *)(uintptr_t)pointer.start : (void *)(uintptr_t)address;
    out->bytes = pointer.bytes;
    return LOCH_OK;
}

/* Returns that the device did not survive the fork. Each call refuses by itself (frame.h). */
static loch_status cuda_forked(void *self)
{
    (void)self;
    return LOCH_E_FORKED;
}

const loch_driver lochi_cuda_driver = {
    .size = sizeof(loch_driver),
    .name = "cuda",
    .summary = "NVIDIA GPUs, through the CUDA driver when it is installed",
    .enumerate = cuda_enumerate,
    .open = cuda_open,
    .close = cuda_close,
    .get_properties = cuda_get_properties,
    .memory_info = cuda_memory_info,
    .raw_alloc = lochi_cuda_raw_alloc,
    .raw_free = lochi_cuda_raw_free,
    .pinned_alloc = lochi_cuda_pinned_alloc,
    .pinned_free = lochi_cuda_pinned_free,
    .managed_alloc = lochi_cuda_managed_alloc,
    .managed_free = lochi_cuda_raw_free,
    .host_register = lochi_cuda_host_register,
    .host_unregister = lochi_cuda_host_unregister,
    .ordered_alloc = lochi_cuda_ordered_alloc,
    .ordered_free = lochi_cuda_ordered_free,
    .reserve = lochi_cuda_reserve,
    .unreserve = lochi_cuda_unreserve,
    .handle_create = lochi_cuda_handle_create,
    .handle_release = lochi_cuda_handle_release,
    .map = lochi_cuda_map,
    .unmap = lochi_cuda_unmap,
    .handle_export = lochi_cuda_handle_export,
    .handle_import = lochi_cuda_handle_import,
    .copy = lochi_cuda_copy,
    .fill = lochi_cuda_fill,
    .stream_create = lochi_cuda_stream_create,
    .stream_destroy = lochi_cuda_stream_destroy,
    .stream_thread_default = lochi_cuda_stream_thread_default,
    .stream_wrap = lochi_cuda_stream_wrap,
    .stream_query = lochi_cuda_stream_query,
    .stream_sync = lochi_cuda_stream_sync,
    .stream_wait = lochi_cuda_stream_wait,
    .stream_call = lochi_cuda_stream_call,
    .event_create = lochi_cuda_event_create,
    .event_destroy = lochi_cuda_event_destroy,
    .event_record = lochi_cuda_event_record,
    .event_query = lochi_cuda_event_query,
    .event_sync = lochi_cuda_event_sync,
    .event_elapsed = lochi_cuda_event_elapsed,
    .device_sync = cuda_device_sync,
    .stream_capture = lochi_cuda_stream_capture,
    .peer_enable = cuda_peer_enable,
    .address_query = cuda_address_query,
    .copy_pitched = lochi_cuda_copy_pitched,
    .copy_strided = lochi_cuda_run_strided,
    .fill_strided = lochi_cuda_run_strided,
    .enter = cuda_enter_thread,
    .leave = cuda_leave_thread,
    .forked = cuda_forked,
};
