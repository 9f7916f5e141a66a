/* SPDX-License-Identifier: MIT */
/* Blocks of shared virtual memory.
 *
 * OpenCL has no call that reads the free memory of a device. So the bytes that Loch took are counted, and a device
 * gives at most the memory that it has. An OpenCL driver may give more by moving blocks to the host; a pool that fills
 * a device needs a limit instead.
 *
 * Pinned blocks are in a table: a copy from or to any other host memory has to wait, because its caller may change or
 * free that memory after the call. */
#include "memory.h"
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

loch_status lochi_opencl_memory_info(void *self, loch_memory_info *out)
{
    lochi_opencl_device *device = self;
    const size_t used = atomic_load_explicit(&device->used_bytes, memory_order_relaxed);
    out->total_bytes = device->total_bytes;
    out->free_bytes = used < device->total_bytes ? device->total_bytes - used : 0;
    return LOCH_OK;
}

static loch_status memory_claim(lochi_opencl_device *device, size_t bytes)
{
    if (bytes > device->block_bytes_max)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, "opencl", 0,
                              "a block of %zu MiB is larger than the device allows: %zu MiB "
                              "(CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
                              bytes / MIB, device->block_bytes_max / MIB);
    size_t used = atomic_load_explicit(&device->used_bytes, memory_order_relaxed);
    do {
        if (bytes > device->total_bytes || used > device->total_bytes - bytes)
            return loch_error_set(LOCH_E_DEVICE_MEMORY, "opencl", 0,
                                  "%zu bytes do not fit: the device has %zu MiB, of which Loch holds %zu MiB", bytes,
                                  device->total_bytes / MIB, used / MIB);
    } while (!atomic_compare_exchange_weak_explicit(&device->used_bytes, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return LOCH_OK;
}

static void memory_unclaim(lochi_opencl_device *device, size_t bytes)
{
    atomic_fetch_sub_explicit(&device->used_bytes, bytes, memory_order_relaxed);
}

static loch_status memory_take(lochi_opencl_device *device, cl_bits flags, size_t bytes, size_t alignment, void **out)
{
    if (alignment > LOCHI_OPENCL_ALIGNMENT_BYTES)
        return loch_error_set(LOCH_E_UNSUPPORTED, "opencl", 0, "OpenCL aligns blocks to %d bytes at most, not to %zu",
                              LOCHI_OPENCL_ALIGNMENT_BYTES, alignment);
    LOCH_RETURN(memory_claim(device, bytes));
    void *address =
        lochi_opencl.clSVMAlloc(device->context, LOCHI_CL_MEM_READ_WRITE | flags, bytes, LOCHI_OPENCL_ALIGNMENT_BYTES);
    if (!address) { /* there is no code that says more */
        memory_unclaim(device, bytes);
        return loch_error_set(LOCH_E_DEVICE_MEMORY, "opencl", 0, "clSVMAlloc: no memory for a block of %zu bytes",
                              bytes);
    }
    *out = address;
    return LOCH_OK;
}

loch_status lochi_opencl_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    return memory_take(self, 0, bytes, alignment, out);
}

loch_status lochi_opencl_raw_free(void *self, void *address, size_t bytes)
{
    lochi_opencl_device *device = self;
    lochi_opencl.clSVMFree(device->context, address);
    memory_unclaim(device, bytes);
    return LOCH_OK;
}

/* --- pinned blocks --- */

/* Returns the number of pinned blocks that start at or before `address`. Lock held. */
static size_t memory_rank(const lochi_opencl_device *device, uintptr_t address)
{
    size_t low = 0, high = device->pinned_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (device->pinned[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Makes room for one more block in the table. Lock held. */
static bool memory_make_room(lochi_opencl_device *device)
{
    if (device->pinned_count < device->pinned_room) return true;
    const size_t room = device->pinned_room ? 2 * device->pinned_room : 16;
    lochi_opencl_block *grown = realloc(device->pinned, room * sizeof *grown);
    if (!grown) return false;
    device->pinned = grown;
    device->pinned_room = room;
    return true;
}

static bool memory_enter(lochi_opencl_device *device, void *address, size_t bytes)
{
    pthread_mutex_lock(&device->lock);
    const bool has_room = memory_make_room(device);
    if (has_room) {
        const size_t at = memory_rank(device, (uintptr_t)address);
        memmove(&device->pinned[at + 1], &device->pinned[at], (device->pinned_count - at) * sizeof *device->pinned);
        device->pinned[at] = (lochi_opencl_block){(uintptr_t)address, bytes};
        device->pinned_count++;
    }
    pthread_mutex_unlock(&device->lock);
    return has_room;
}

loch_status lochi_opencl_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    lochi_opencl_device *device = self;
    if (!device->has_pinned)
        return loch_error_set(LOCH_E_UNSUPPORTED, "opencl", 0,
                              "the device has no fine-grained shared virtual memory, so no pinned memory");
    void *address = NULL;
    LOCH_RETURN(memory_take(device, LOCHI_CL_MEM_SVM_FINE_GRAIN_BUFFER, bytes, alignment, &address));
    if (!memory_enter(device, address, bytes)) {
        lochi_opencl_raw_free(device, address, bytes);
        return loch_error_set(LOCH_E_HOST_MEMORY, "opencl", 0, "no host memory to record a pinned block");
    }
    *out = address;
    return LOCH_OK;
}

loch_status lochi_opencl_pinned_free(void *self, void *address, size_t bytes)
{
    lochi_opencl_device *device = self;
    pthread_mutex_lock(&device->lock);
    const size_t at = memory_rank(device, (uintptr_t)address) - 1; /* Loch frees what it was given */
    device->pinned_count--;
    memmove(&device->pinned[at], &device->pinned[at + 1], (device->pinned_count - at) * sizeof *device->pinned);
    pthread_mutex_unlock(&device->lock);
    return lochi_opencl_raw_free(device, address, bytes);
}

bool lochi_opencl_is_pinned(lochi_opencl_device *device, const void *address, size_t bytes)
{
    if (!device->has_pinned) return false;
    const uintptr_t start = (uintptr_t)address;
    pthread_mutex_lock(&device->lock);
    const size_t rank = memory_rank(device, start);
    const lochi_opencl_block *block = rank ? &device->pinned[rank - 1] : NULL;
    const bool is_pinned =
        block && start - block->start < block->bytes && bytes <= block->bytes - (start - block->start);
    pthread_mutex_unlock(&device->lock);
    return is_pinned;
}
