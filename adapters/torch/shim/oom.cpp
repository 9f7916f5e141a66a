// SPDX-License-Identifier: MIT
// What happens when memory is short: more ways to find some, then c10::OutOfMemoryError with a report.
//
// A pool of Loch has tried everything of its own before it fails, memory of other pools of the device included. What is
// left is PyTorch's: callbacks that free memory (tensors that other processes have let go), private pools that may
// serve others, private pools whose end waits for a capture.
#include "allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cstdio>

namespace loch_torch
{

static bool is_short(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED ||
           status == LOCH_E_OVERFLOW; // more than there are addresses: PyTorch has no other word for it
}

static bool run_callbacks()
{
    bool has_freed = false;
    auto *registry = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto &name : registry->Keys())
        has_freed |= registry->Create(name)->Execute();
    return has_freed;
}

// Allocates from the free memory of private pools that may serve others. They are used meanwhile, so that no other
// thread ends them. The pool that served stays in use: the caller releases it after it has counted the block.
static void *allocate_from_lenders(Pool *&pool, const loch_request &request)
{
    Device &device = *pool->device;
    std::vector<Pool *> lenders;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        for (Pool *other : device.pools)
            if (other->is_on_oom && other != pool && other->use_count > 0) lenders.push_back(other);
        for (Pool *lender : lenders)
            lender->use_count++;
    }
    void *ptr = nullptr;
    for (Pool *lender : lenders) {
        if (!ptr && loch_allocator_alloc(lender->loch, &request, &ptr) == LOCH_OK)
            pool = lender;
        else
            release_pool(*lender);
    }
    return ptr;
}

// --- the message ---

static std::string format_size(size_t bytes)
{
    char text[32];
    const double number = static_cast<double>(bytes);
    if (bytes <= 1024)
        std::snprintf(text, sizeof text, "%zu bytes", bytes);
    else if (bytes <= 1048576)
        std::snprintf(text, sizeof text, "%.2f KiB", number / 1024);
    else if (bytes <= 1073741824)
        std::snprintf(text, sizeof text, "%.2f MiB", number / 1048576);
    else
        std::snprintf(text, sizeof text, "%.2f GiB", number / 1073741824);
    return text;
}

// The first words are PyTorch's: programs search for them, and users know them.
static std::string describe(Pool &pool, size_t bytes, size_t free_bytes, const std::string &reason)
{
    Device &device = *pool.device;
    const std::pair<size_t, size_t> sums = sum_bytes(device);
    loch_pool_info info{};
    info.size = sizeof info;
    const bool has_info = loch_pool_get_info(device.main.loch, &info) == LOCH_OK;
    std::string text = "CUDA out of memory. Tried to allocate " + format_size(bytes) + ". GPU " +
                       std::to_string(device.number) + " has a total capacity of " + format_size(device.total_bytes) +
                       " of which " + format_size(free_bytes) + " is free. ";
    if (has_info && info.limit_bytes) text += format_size(info.limit_bytes) + " allowed; ";
    text += "Of the allocated memory " + format_size(sums.first) + " is allocated by PyTorch, and " +
            format_size(sums.second - std::min(sums.first, sums.second)) +
            " is reserved by PyTorch but unallocated.\nLoch: " + reason + "\n";
    char report[4096] = "";
    if (loch_pool_print(memory_of(pool), report, sizeof report, nullptr) == LOCH_OK) text += report;
    return text;
}

[[noreturn]] static void give_up(Pool &pool, size_t bytes, const std::string &reason)
{
    Device &device = *pool.device;
    loch_memory_info memory{};
    memory.size = sizeof memory;
    const bool is_known = loch_device_calculate_memory(device.loch, &memory) == LOCH_OK;
    const size_t free_bytes = is_known ? memory.free_bytes : 0;
    const std::pair<size_t, size_t> sums = sum_bytes(device);
    device.ooms.fetch_add(1);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), sums.first, sums.second,
                                     c10::Device(c10::DeviceType::CUDA, static_cast<DeviceIndex>(device.number)));
    const std::string text = describe(pool, bytes, free_bytes, reason);
    note_oom(device, bytes, free_bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

void *reclaim_and_allocate(Pool *&pool, const loch_request &request, loch_status status)
{
    if (!is_short(status)) fail("allocate", status);
    const std::string reason = loch_error_get()->sentence;
    void *ptr = nullptr;
    pool->device->retries.fetch_add(1);
    const bool has_freed = run_callbacks();
    release_waiting_pools(*pool->device);
    if (has_freed || !pool->is_direct) // a pool may have been released meanwhile, too
        if (loch_allocator_alloc(pool->loch, &request, &ptr) == LOCH_OK) return ptr;
    if ((ptr = allocate_from_lenders(pool, request))) return ptr;
    give_up(*pool, request.bytes, reason);
}

} // namespace loch_torch
