/* SPDX-License-Identifier: MIT */
/* Memory of the CUDA driver for tests: allocated, pinned, registered, managed, ordered by stream, virtual. A test
 * double: see fake.h. */
#include "fake.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY_BLOCK ((size_t)2 << 20) /* blocks of this size begin at a multiple of it */
#define MEMORY_SMALL 512               /* alignment of smaller blocks, and deliberately no more */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* --- bytes --- */

static size_t free_bytes(int device)
{
    const fake_switches *s = &fake.switches;
    const size_t taken = fake.used[device] + s->context_bytes;
    return taken < s->total_bytes ? s->total_bytes - taken : 0;
}

cu_result fake_take_bytes(int device, size_t bytes)
{
    if (bytes > free_bytes(device)) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    fake.used[device] += bytes;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuMemGetInfo_v2(size_t *free_out, size_t *total)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    *free_out = free_bytes(fake_current_device());
    *total = fake.switches.total_bytes;
    if (fake.switches.is_integrated)
        *free_out /= 4; /* the rest is the system's cache, which the driver does not count */
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* --- addresses --- */

uintptr_t fake_window_take(size_t bytes, size_t alignment)
{
    if (alignment < FAKE_PAGE) alignment = FAKE_PAGE;
    for (int round = 0; round < 2; round++) {
        uintptr_t at = fake.window + fake.window_next;
        for (;;) {
            at = round_up(at, alignment);
            if (at < fake.window || bytes > fake.window_bytes || at - fake.window > fake.window_bytes - bytes) break;
            if (!fake_ranges_overlap(&fake.ranges, at, bytes)) {
                fake.window_next = at + bytes - fake.window;
                return at;
            }
            at += FAKE_MIB;
        }
        fake.window_next = 0;
    }
    return 0;
}

static fake_range *range_make(fake_memory kind, uintptr_t start, size_t bytes, int device)
{
    fake_range *range = calloc(1, sizeof *range);
    if (!range) abort(); /* a test double on a machine without memory */
    *range = (fake_range){.kind = kind, .start = start, .bytes = bytes, .device = device};
    fake_ranges_add(kind == FAKE_MAPPED ? &fake.maps : &fake.ranges, range);
    return range;
}

/* --- the memory below --- */

static bool file_open(int device)
{
    if (fake.file[device] >= 0) return true;
    fake.file[device] = memfd_create("loch-fake-cuda", MFD_CLOEXEC);
    return fake.file[device] >= 0;
}

/* Makes memory that maps can share. What may be exported has a file of its own. Offsets in the device's file are never
 * used again: the file is sparse, and holes are punched. */
fake_physical *fake_physical_make(int device, size_t bytes, bool is_exportable)
{
    fake_physical *physical = calloc(1, sizeof *physical);
    if (!physical) return NULL;
    *physical = (fake_physical){.refs = 1, .bytes = bytes, .device = device, .descriptor = -1};
    bool is_good;
    if (is_exportable) {
        struct stat about = {0};
        physical->descriptor = memfd_create("loch-fake-cuda", MFD_CLOEXEC);
        is_good = physical->descriptor >= 0 && ftruncate(physical->descriptor, (off_t)bytes) == 0 &&
                  fstat(physical->descriptor, &about) == 0;
        physical->inode = about.st_ino;
    } else {
        physical->offset = fake.file_end[device];
        is_good = file_open(device) && ftruncate(fake.file[device], (off_t)(physical->offset + bytes)) == 0;
        fake.file_end[device] += bytes;
    }
    if (is_good) return physical;
    if (physical->descriptor >= 0) close(physical->descriptor);
    free(physical);
    return NULL;
}

void fake_physical_drop(fake_physical *physical)
{
    if (--physical->refs) return;
    if (!physical->is_foreign) fake.used[physical->device] -= physical->bytes;
    if (physical->descriptor >= 0)
        close(physical->descriptor);
    else
        (void)fallocate(fake.file[physical->device], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)physical->offset, (off_t)physical->bytes);
    free(physical);
}

/* Puts memory under addresses of the second window. */
static bool place(uintptr_t start, size_t bytes, const fake_physical *physical)
{
    const int file = physical->descriptor >= 0 ? physical->descriptor : fake.file[physical->device];
    void *at = (void *)(start + fake.shift);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
             (off_t)physical->offset) == MAP_FAILED)
        return false;
    madvise(at, bytes, MADV_DONTFORK);
    return true;
}

static void displace(uintptr_t start, size_t bytes)
{
    void *at = (void *)(start + fake.shift);
    if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        abort(); /* a test double on a machine without memory */
    madvise(at, bytes, MADV_DONTFORK);
}

/* Ends a range of any kind but MAPPED, and its memory. */
void fake_range_end(fake_range *range)
{
    switch (range->kind) {
    case FAKE_ALLOCATED:
    case FAKE_ORDERED:
        displace(range->base, range->mapped);
        fake.used[range->device] -= range->mapped;
        break;
    case FAKE_MANAGED:
    case FAKE_PINNED: munmap((void *)range->base, range->mapped); break;
    default: break;
    }
    fake_ranges_remove(&fake.ranges, range);
    free(range);
}

/* --- allocated --- */

static cu_result allocate(fake_memory kind, size_t bytes, cu_address *address)
{
    const int device = fake_current_device();
    if (!bytes) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (bytes > fake.window_bytes) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    /* A small block begins inside of a page, as blocks of the driver do that share one. */
    const bool is_small = bytes < MEMORY_BLOCK;
    const size_t mapped = round_up(bytes + (is_small ? MEMORY_SMALL : 0), FAKE_PAGE);
    cu_result result = fake_take_bytes(device, mapped);
    if (result != LOCHI_CUDA_SUCCESS) return result;
    const uintptr_t base = fake_window_take(mapped, is_small ? FAKE_PAGE : MEMORY_BLOCK);
    void *at = (void *)(base + fake.shift);
    if (!base || mmap(at, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                      0) == MAP_FAILED) {
        fake.used[device] -= mapped;
        return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(at, mapped, MADV_DONTFORK);
    fake_range *range = range_make(kind, base + (is_small ? MEMORY_SMALL : 0), bytes, device);
    range->base = base;
    range->mapped = mapped;
    *address = range->start;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuMemAlloc_v2(cu_address *address, size_t bytes)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    return fake_drop(allocate(FAKE_ALLOCATED, bytes, address));
}

/* Waits for all work first, as the driver does: that of other devices may use the memory, too. */
cu_result cuMemFree_v2(cu_address address)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    if (!address) return fake_drop(LOCHI_CUDA_SUCCESS);
    fake_range *range = fake_ranges_find(&fake.ranges, (uintptr_t)address);
    const bool is_good = range && range->start == address && !range->is_freeing &&
                         (range->kind == FAKE_ALLOCATED || range->kind == FAKE_ORDERED || range->kind == FAKE_MANAGED);
    if (!is_good) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_context_await(NULL);
    fake_range_end(range);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemAllocManaged(cu_address *address, size_t bytes, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    if (!fake.switches.has_managed) return LOCHI_CUDA_ERROR_NOT_SUPPORTED;
    if (!bytes || (flags != 1 && flags != 2)) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    const size_t mapped = round_up(bytes + MEMORY_SMALL, FAKE_PAGE);
    if (mapped < bytes || bytes > 64 * fake.switches.total_bytes) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    fake_take();
    const size_t inside = bytes < MEMORY_BLOCK ? MEMORY_SMALL : 0;
    fake_range *range = range_make(FAKE_MANAGED, (uintptr_t)base + inside, bytes, fake_current_device());
    range->base = (uintptr_t)base;
    range->mapped = mapped;
    *address = range->start;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* --- pinned and registered --- */

cu_result cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    if (fake.switches.pinning) return (cu_result)fake.switches.pinning;
    if (!bytes || flags > 7) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    const size_t inside = bytes < MEMORY_BLOCK ? MEMORY_SMALL : 0, mapped = round_up(bytes + inside, FAKE_PAGE);
    if (mapped < bytes) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    madvise(base, mapped, MADV_DONTFORK);
    fake_take();
    fake_range *range = range_make(FAKE_PINNED, (uintptr_t)base + inside, bytes, fake_current_device());
    range->base = (uintptr_t)base;
    range->mapped = mapped;
    *address = (void *)range->start;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemFreeHost(void *address)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    fake_range *range = fake_ranges_find(&fake.ranges, (uintptr_t)address);
    if (!range || range->kind != FAKE_PINNED || range->start != (uintptr_t)address)
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_context_await(NULL);
    fake_range_end(range);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

static bool is_mapped(const void *address, size_t bytes)
{
    const uintptr_t first = (uintptr_t)address & ~(uintptr_t)(FAKE_PAGE - 1);
    const size_t pages = ((uintptr_t)address + bytes - first + FAKE_PAGE - 1) / FAKE_PAGE;
    unsigned char there[256];
    for (size_t at = 0; at < pages; at += sizeof there) {
        const size_t count = pages - at < sizeof there ? pages - at : sizeof there;
        if (mincore((void *)(first + at * FAKE_PAGE), count * FAKE_PAGE, there) != 0) return false;
    }
    return true;
}

cu_result cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    if (!fake.switches.has_register) return LOCHI_CUDA_ERROR_NOT_SUPPORTED;
    if (fake.switches.pinning) return (cu_result)fake.switches.pinning;
    if (fake.switches.registering) return (cu_result)fake.switches.registering;
    if (!address || !bytes || flags > 15) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    if (fake_ranges_overlap(&fake.ranges, (uintptr_t)address, bytes))
        return fake_drop(LOCHI_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    if ((uintptr_t)address + bytes < bytes || !is_mapped(address, bytes))
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    range_make(FAKE_REGISTERED, (uintptr_t)address, bytes, fake_current_device());
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemHostUnregister(void *address)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    fake_range *range = fake_ranges_find(&fake.ranges, (uintptr_t)address);
    if (!range || range->kind != FAKE_REGISTERED || range->start != (uintptr_t)address)
        return fake_drop(LOCHI_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    fake_range_end(range);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* --- ordered by stream --- */

#ifndef FAKE_OLD
cu_result cuMemAllocAsync(cu_address *address, size_t bytes, cu_stream *handle)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    if (!fake.switches.has_pools) return LOCHI_CUDA_ERROR_NOT_SUPPORTED;
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture) return fake_drop(LOCHI_CUDA_ERROR_NOT_SUPPORTED); /* memory of graphs: the fake has none */
    return fake_drop(allocate(FAKE_ORDERED, bytes, address));
}

cu_result cuMemFreeAsync(cu_address address, cu_stream *handle)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    cu_stream *stream = fake_stream_find(handle);
    if (!stream) return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture) return fake_drop(LOCHI_CUDA_ERROR_NOT_SUPPORTED);
    fake_range *range = fake_ranges_find(&fake.ranges, (uintptr_t)address);
    if (!range || range->kind != FAKE_ORDERED || range->start != address || range->is_freeing)
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    range->is_freeing = true;
    const fake_work work = {.kind = FAKE_FREE, .as.address = (uintptr_t)address};
    return fake_drop(fake_queue(stream, &work, NULL, 0, NULL));
}
#endif

/* --- virtual memory --- */

static bool is_whole(size_t bytes)
{
    return bytes && bytes % fake.switches.granule_bytes == 0;
}

cu_result cuMemGetAllocationGranularity(size_t *granule, const cu_allocation *allocation, cu_choice_granularity which)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE);
    (void)allocation, (void)which;
    if (!fake.switches.has_virtual) return LOCHI_CUDA_ERROR_NOT_SUPPORTED;
    *granule = fake.switches.granule_bytes;
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuMemAddressReserve(cu_address *address, size_t bytes, size_t alignment, cu_address hint,
                              unsigned long long flags)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    (void)hint;
    if (!is_whole(bytes) || flags || (alignment & (alignment - 1))) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (alignment < fake.switches.granule_bytes) alignment = fake.switches.granule_bytes;
    fake_take();
    const uintptr_t start = fake_window_take(bytes, alignment);
    if (!start) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    range_make(FAKE_RESERVED, start, bytes, -1);
    *address = start;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemAddressFree(cu_address address, size_t bytes)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    fake_range *range = fake_ranges_find(&fake.ranges, (uintptr_t)address);
    if (!range || range->kind != FAKE_RESERVED || range->start != address || range->bytes != bytes ||
        fake_ranges_overlap(&fake.maps, (uintptr_t)address, bytes))
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_range_end(range);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

static fake_handle *handle_find(cu_memory memory)
{
    fake_handle *handle = fake.handles;
    while (handle && (uintptr_t)handle != memory)
        handle = handle->next;
    return handle;
}

cu_result cuMemCreate(cu_memory *memory, size_t bytes, const cu_allocation *allocation, unsigned long long flags)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    const int device = allocation->location.id;
    const cu_choice types = allocation->requestedHandleTypes;
    const cu_choice known = (fake.switches.has_descriptors ? LOCHI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u) |
                            (fake.switches.has_fabric ? LOCHI_CU_MEM_HANDLE_TYPE_FABRIC : 0u);
    if (!is_whole(bytes) || flags || allocation->type != LOCHI_CU_MEM_ALLOCATION_TYPE_PINNED ||
        allocation->location.type != LOCHI_CU_MEM_LOCATION_TYPE_DEVICE)
        return LOCHI_CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= fake.switches.devices) return FAKE_INVALID_DEVICE;
    if (types & ~known) return LOCHI_CUDA_ERROR_NOT_PERMITTED;
    if (allocation->allocFlags.gpuDirectRDMACapable && fake.switches.rdma < 0) return LOCHI_CUDA_ERROR_NOT_SUPPORTED;
    fake_take();
    cu_result result = fake_take_bytes(device, bytes);
    if (result != LOCHI_CUDA_SUCCESS) return fake_drop(result);
    fake_handle *handle = calloc(1, sizeof *handle);
    fake_physical *physical = handle ? fake_physical_make(device, bytes, types != 0) : NULL;
    if (!physical) {
        free(handle);
        fake.used[device] -= bytes;
        return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    }
    physical->is_for_cards = allocation->allocFlags.gpuDirectRDMACapable;
    *handle = (fake_handle){.next = fake.handles, .physical = physical, .types = types};
    fake.handles = handle;
    *memory = (uintptr_t)handle;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemRelease(cu_memory memory)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    fake_handle *handle = handle_find(memory);
    if (!handle) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    fake_handle **at = &fake.handles;
    while (*at != handle)
        at = &(*at)->next;
    *at = handle->next;
    fake_physical_drop(handle->physical);
    free(handle);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemMap(cu_address address, size_t bytes, size_t offset, cu_memory memory, unsigned long long flags)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    const uintptr_t start = (uintptr_t)address;
    fake_take();
    fake_handle *handle = handle_find(memory);
    const fake_range *reserved = fake_ranges_find(&fake.ranges, start);
    if (!handle || !reserved || reserved->kind != FAKE_RESERVED || flags || offset ||
        bytes != handle->physical->bytes || start % fake.switches.granule_bytes ||
        bytes > reserved->bytes - (start - reserved->start) || fake_ranges_overlap(&fake.maps, start, bytes))
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    if (handle->physical->maps && !fake.switches.has_alias) return fake_drop(LOCHI_CUDA_ERROR_NOT_SUPPORTED);
    if (!place(start, bytes, handle->physical)) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    fake_range *map = range_make(FAKE_MAPPED, start, bytes, handle->physical->device);
    map->physical = handle->physical;
    map->physical->refs++;
    map->physical->maps++;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* Tells whether maps fill a range from its first to its last byte. */
static bool maps_fill(uintptr_t start, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const fake_range *map = fake_ranges_find(&fake.maps, start + at);
        if (!map || map->start != start + at || map->bytes > bytes - at) return false;
        at += map->bytes;
    }
    return bytes;
}

cu_result cuMemUnmap(cu_address address, size_t bytes)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    if (fake.switches.unmapping) return (cu_result)fake.switches.unmapping;
    fake_take();
    const uintptr_t start = (uintptr_t)address;
    if (!maps_fill(start, bytes)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    if (fake_await_unused(start, bytes)) fake_lose(LOCHI_CUDA_ERROR_ILLEGAL_ADDRESS); /* under work that uses it */
    for (size_t at = 0; at < bytes;) {
        fake_range *map = fake_ranges_find(&fake.maps, start + at);
        at += map->bytes;
        displace(map->start, map->bytes);
        map->physical->maps--;
        fake_physical_drop(map->physical);
        fake_ranges_remove(&fake.maps, map);
        free(map);
    }
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuMemSetAccess(cu_address address, size_t bytes, const cu_access *accesses, size_t count)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    const uintptr_t start = (uintptr_t)address;
    if (!maps_fill(start, bytes) || !count) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        if (accesses[i].location.type != LOCHI_CU_MEM_LOCATION_TYPE_DEVICE || accesses[i].location.id < 0 ||
            accesses[i].location.id >= fake.switches.devices)
            return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    for (size_t at = 0; at < bytes && fake.switches.rdma > 0;) {
        const fake_range *map = fake_ranges_find(&fake.maps, start + at);
        if (map->physical->is_for_cards) return fake_drop((cu_result)fake.switches.rdma);
        at += map->bytes;
    }
    for (size_t at = 0; at < bytes;) {
        fake_range *map = fake_ranges_find(&fake.maps, start + at);
        at += map->bytes;
        for (size_t i = 0; i < count; i++) {
            const uint32_t bit = 1u << accesses[i].location.id;
            map->access =
                accesses[i].flags == LOCHI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? map->access | bit : map->access & ~bit;
        }
    }
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* --- attributes --- */

static cu_result attribute_write(cu_choice attribute, const fake_range *range, void *out)
{
    const bool is_host = range && (range->kind == FAKE_PINNED || range->kind == FAKE_REGISTERED);
    const cu_choice type = !range ? 0 : is_host ? LOCHI_CU_MEMORYTYPE_HOST : LOCHI_CU_MEMORYTYPE_DEVICE;
    switch (attribute) {
    case LOCHI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE: memcpy(out, &type, sizeof type); break;
    case LOCHI_CU_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)out = range && range->kind == FAKE_MANAGED; break;
    case LOCHI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)out = range ? range->device : -2; break;
    case LOCHI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(cu_address *)out = range ? range->start : 0; break;
    case LOCHI_CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)out = range ? range->bytes : 0; break;
    case LOCHI_CU_POINTER_ATTRIBUTE_MAPPED: *(bool *)out = range && range->kind != FAKE_RESERVED; break;
    default: return LOCHI_CUDA_ERROR_INVALID_VALUE;
    }
    return LOCHI_CUDA_SUCCESS;
}

cu_result cuPointerGetAttributes(unsigned int count, cu_choice_pointer_attribute *attributes, void **data,
                                 cu_address address)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT);
    fake_take();
    const fake_range *range = fake_find((uintptr_t)address);
    cu_result result = LOCHI_CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == LOCHI_CUDA_SUCCESS; i++)
        result = attribute_write(attributes[i], range, data[i]);
    return fake_drop(result);
}
