/* SPDX-License-Identifier: MIT */
/* Pinned memory of a CUDA device.
 *
 * From 1 MiB on, Loch maps the pages itself (pages.c: near the GPU, in huge pages, made present by several threads)
 * and registers them with the driver. That takes a fraction of the time of cuMemHostAlloc, which clears and pins small
 * pages in one thread wherever it runs, and the size is exact to a page. `bench/core pinned` compares the two. Smaller
 * blocks come from cuMemHostAlloc, which puts several of them on one page; so do all blocks of a device whose driver
 * cannot register memory. The size alone says where a block came from, so that a free needs no table. */
#include "device/cuda/pinned.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/text.h"
#include "device/cuda/pages.h"

#define PINNED_MAPPED_FROM ((size_t)1 << 20)
#define PINNED_BLOCK_BYTES ((size_t)2 << 20) /* blocks of cuMemHostAlloc of this size have pages of their own */
#define PINNED_PAGE_BYTES 4096
#define PINNED_ALIGNMENT_MAX ((size_t)1 << 40)

static bool pinned_is_mapped(const lochi_cuda_device *device, size_t bytes)
{
    return device->is_registering && bytes >= PINNED_MAPPED_FROM;
}

static loch_status pinned_cannot_align(const char *what, size_t bytes, size_t alignment)
{
    return LOCH_FAIL(UNSUPPORTED, "%s cannot align %s to %zu bytes: ask for a smaller alignment", what,
                     LOCHI_SIZE(bytes), alignment);
}

/* --- registered memory --- */

static loch_status pinned_register(const lochi_cuda_device *device, void *address, size_t bytes)
{
    cu_result result;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemHostRegister_v2, (address, bytes, LOCHI_CU_MEMHOSTREGISTER_PORTABLE));
    if (result == LOCHI_CUDA_ERROR_OUT_OF_MEMORY)
        return loch_error_set(LOCH_E_HOST_MEMORY, "cuda", (long)result,
                              "cuMemHostRegister: the host has no %s left that can be page-locked", LOCHI_SIZE(bytes));
    return LOCHI_CUDA_STATUS(result, cuMemHostRegister);
}

static loch_status pinned_unregister(const lochi_cuda_device *device, void *address)
{
    cu_result result;
    LOCHI_CUDA_CALL(result, device, RELAXED, cuMemHostUnregister, (address));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemHostUnregister);
}

/* --- mapped here --- */

static loch_status pinned_map(const lochi_cuda_device *device, size_t bytes, size_t alignment, void **out)
{
    void *block;
    if (alignment > PINNED_ALIGNMENT_MAX) return pinned_cannot_align("the host", bytes, alignment);
    LOCH_TRY_RETURN(lochi_cuda_map_pages(bytes, alignment, device->numa_node, NULL, &block));
    const loch_status status = pinned_register(device, block, bytes);
    if (status != LOCH_OK) {
        lochi_cuda_unmap_pages(block, bytes);
        return status;
    }
    *out = block;
    return LOCH_OK;
}

/* The child of a fork has neither the registration nor the pages: other memory may be at the address there. */
static loch_status pinned_unmap(const lochi_cuda_device *device, void *address, size_t bytes)
{
    if (lochi_cuda_is_forked) return LOCH_OK;
    LOCH_TRY_RETURN(pinned_unregister(device, address));
    lochi_cuda_unmap_pages(address, bytes);
    return LOCH_OK;
}

bool lochi_cuda_can_pin_pages(const lochi_cuda_device *device)
{
    const loch_error saved = lochi_error_save();
    void *block;
    const bool can = pinned_map(device, PINNED_PAGE_BYTES, 0, &block) == LOCH_OK &&
                     pinned_unmap(device, block, PINNED_PAGE_BYTES) == LOCH_OK;
    lochi_error_restore(&saved);
    return can;
}

/* --- from the driver --- */

static loch_status pinned_take(void *self, size_t bytes, void **out)
{
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemHostAlloc, (out, bytes, LOCHI_CU_MEMHOSTALLOC_PORTABLE));
    if (result == LOCHI_CUDA_ERROR_OUT_OF_MEMORY)
        return loch_error_set(LOCH_E_HOST_MEMORY, "cuda", (long)result,
                              "cuMemHostAlloc: the host has no %s left that can be page-locked", LOCHI_SIZE(bytes));
    return LOCHI_CUDA_STATUS(result, cuMemHostAlloc);
}

static loch_status pinned_give_back(void *self, void *address)
{
    cu_result result;
    LOCHI_CUDA_CALL(result, self, RELAXED, cuMemFreeHost, (address));
    return LOCHI_CUDA_STATUS_GIVING_BACK(result, cuMemFreeHost);
}

static bool pinned_is_aligned(const void *address, size_t alignment)
{
    return !alignment || lochi_is_multiple((uintptr_t)address, alignment);
}

/* The driver puts several small blocks on one page. If a page-aligned block is requested and the first attempt is
 * not aligned, a block of at least a page is allocated. */
static loch_status pinned_take_aligned(void *self, size_t bytes, size_t alignment, void **out)
{
    if (alignment > PINNED_PAGE_BYTES) return pinned_cannot_align("cuMemHostAlloc", bytes, alignment);
    void *block = NULL;
    LOCH_TRY_RETURN(pinned_take(self, bytes, &block));
    if (!pinned_is_aligned(block, alignment) && bytes < PINNED_BLOCK_BYTES) {
        LOCH_TRY_RETURN(pinned_give_back(self, block));
        LOCH_TRY_RETURN(pinned_take(self, PINNED_BLOCK_BYTES, &block));
    }
    if (!pinned_is_aligned(block, alignment)) {
        LOCH_TRY_RETURN(pinned_give_back(self, block));
        return pinned_cannot_align("cuMemHostAlloc", bytes, alignment);
    }
    *out = block;
    return LOCH_OK;
}

/* --- slots --- */

loch_status lochi_cuda_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    return pinned_is_mapped(self, bytes) ? pinned_map(self, bytes, alignment, out)
                                         : pinned_take_aligned(self, bytes, alignment, out);
}

loch_status lochi_cuda_pinned_free(void *self, void *address, size_t bytes)
{
    return pinned_is_mapped(self, bytes) ? pinned_unmap(self, address, bytes) : pinned_give_back(self, address);
}

loch_status lochi_cuda_host_register(void *self, void *address, size_t bytes)
{
    return pinned_register(self, address, bytes);
}

loch_status lochi_cuda_host_unregister(void *self, void *address, size_t bytes)
{
    (void)bytes;
    return pinned_unregister(self, address);
}
