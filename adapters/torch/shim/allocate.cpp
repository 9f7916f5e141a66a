// SPDX-License-Identifier: MIT
// Allocate and free. The fast path takes no lock and looks up nothing by hash.
#include "owners.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAStream.h>

namespace loch_torch
{

// The stream that the thread used last: programs stay on one stream for long.
struct Last {
    Device *device;
    cudaStream_t native;
    loch_stream *stream;
    int number;
};
static thread_local Last last __attribute__((tls_model("initial-exec")));

static Device &last_device(DeviceIndex number)
{
    if (C10_LIKELY(last.device && last.number == number)) return *last.device;
    Device &device = open_device(number);
    last.device = &device;
    last.number = number;
    last.native = nullptr;
    last.stream = nullptr;
    return device;
}

static loch_stream *last_stream(Device &device, cudaStream_t native)
{
    if (C10_LIKELY(last.device == &device && last.native == native)) return last.stream;
    loch_stream *stream = find_stream(device, native);
    last.device = &device;
    last.number = device.number;
    last.native = native;
    last.stream = stream;
    return stream;
}

// --- handing out ---

static void *allocate_plainly(Pool &pool, size_t bytes, loch_stream *stream)
{
    loch_request request{};
    request.size = sizeof request;
    request.bytes = bytes;
    request.alignment = kAlignment;
    request.stream = stream;
    void *ptr = nullptr;
    const loch_status status = loch_allocator_alloc(pool.loch, &request, &ptr);
    if (C10_UNLIKELY(status != LOCH_OK)) ptr = reclaim_and_allocate(pool, bytes, stream, status);
    return ptr;
}

void *allocate_from(Pool &pool, size_t bytes, cudaStream_t stream)
{
    if (C10_UNLIKELY(rare.load(std::memory_order_relaxed) & kRareHistory)) note_request(pool, stream);
    void *ptr = allocate_plainly(pool, bytes, last_stream(*pool.device, stream));
    if (&pool != &pool.device->main) pool.live.fetch_add(1, std::memory_order_relaxed);
    if (has_many_pools.load(std::memory_order_relaxed)) mark_owner(pool, ptr);
    if (rare.load(std::memory_order_relaxed) & kRareHistory) note_alloc(pool, ptr, bytes, stream);
    return ptr;
}

static void *allocate_on(Device &device, size_t bytes, cudaStream_t stream)
{
    const uint32_t features = rare.load(std::memory_order_relaxed);
    Pool *pool = nullptr;
    if (C10_UNLIKELY(features)) {
        if (features & kRareRoutes) pool = find_route(device, stream);
        if (!pool && features & kRareRegion) pool = find_region(device);
    }
    return allocate_from(pool ? *pool : device.main, bytes, stream);
}

void free_to(Pool &pool, void *ptr)
{
    if (rare.load(std::memory_order_relaxed) & kRareHistory) note_free(pool, ptr);
    check("free a block", loch_allocator_free(pool.loch, ptr));
    if (&pool != &pool.device->main && pool.live.fetch_sub(1) == 1) retire_if_empty(pool);
}

void delete_block(void *ptr)
{
    if (!ptr) return;
    Pool *pool = find_owner(ptr);
    TORCH_CHECK(pool, "invalid device pointer: ", ptr);
    free_to(*pool, ptr);
}

// --- PyTorch's calls ---

DataPtr make_data_ptr(void *ptr, DeviceIndex number)
{
    return {ptr, ptr, &delete_block, c10::Device(c10::DeviceType::CUDA, number)};
}

DataPtr Allocator::allocate(size_t bytes)
{
    TORCH_CHECK_WITH(OutOfMemoryError, bytes < size_t{1} << 60,
                     "CUDA out of memory. Tried to allocate more than 1EB memory.");
    const DeviceIndex number = current_device();
    if (!bytes) return make_data_ptr(nullptr, number);
    return make_data_ptr(allocate_on(last_device(number), bytes, current_stream(number)), number);
}

c10::DeleterFnPtr Allocator::raw_deleter() const
{
    return &delete_block;
}

void *Allocator::raw_alloc(size_t bytes)
{
    if (!bytes) return nullptr;
    const DeviceIndex number = current_device();
    return allocate_on(last_device(number), bytes, current_stream(number));
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream)
{
    return bytes ? allocate_on(last_device(current_device()), bytes, stream) : nullptr;
}

void Allocator::raw_delete(void *ptr)
{
    delete_block(ptr);
}

void Allocator::recordStream(const DataPtr &ptr, CUDAStream stream)
{
    if (!ptr.get() || ptr.get_deleter() != &delete_block) return; // empty, or memory of another process
    Pool *pool = find_owner(ptr.get());
    if (!pool) return;
    if (rare.load(std::memory_order_relaxed) & kRareHistory) note_use(ptr.get());
    check("record the use of a block",
          loch_allocator_record_use(pool->loch, ptr.get(), find_stream(*pool->device, stream.stream())));
}

} // namespace loch_torch
