// SPDX-License-Identifier: MIT
// The live blocks of a private pool, saved and restored at the same addresses. torch.compile's graphs use it: before it
// records a graph behind graphs that were replayed, the pool gets the blocks that are live then.
#include "allocator.h"

#include <cstring>

namespace loch_torch
{

struct SavedBlock {
    void *address;
    size_t bytes;
    cudaStream_t stream;
};

struct Checkpoint final : AllocatorState {
    MempoolId_t id;
    std::vector<SavedBlock> blocks;
};

struct Walk {
    Device *device;
    std::vector<SavedBlock> blocks;
};

static loch_status save_block(const loch_block *block, void *user)
{
    auto *walk = static_cast<Walk *>(user);
    try {
        walk->blocks.push_back({block->address, block->requested_bytes, find_native(*walk->device, block->stream_id)});
        return LOCH_OK;
    } catch (const std::bad_alloc &) { // Loch calls from C
        return LOCH_E_HOST_MEMORY;
    }
}

static std::vector<SavedBlock> save_blocks(Device &device, Pool &pool)
{
    Walk walk{&device, {}};
    check("walk a pool", loch_allocator_walk(pool.loch, save_block, &walk));
    return std::move(walk.blocks);
}

static Pool &require_private(Device &device, MempoolId_t id)
{
    const std::lock_guard<std::mutex> held(device.lock);
    Pool *pool = find_pool(device, id);
    TORCH_CHECK(pool && pool->is_private, "Could not find private pool id (", id.first, ", ", id.second, ")");
    return *pool;
}

// Allocates at an address. Throws if other blocks lie there.
static void *allocate_at(Pool &pool, void *address, size_t bytes, cudaStream_t stream)
{
    loch_request request{};
    request.size = sizeof request;
    request.bytes = bytes;
    request.alignment = kAlignment;
    request.stream = find_stream(*pool.device, stream);
    request.address = address;
    void *ptr = nullptr;
    const Request noted(Request::kAlloc, &pool, stream);
    check("place a block at its address", loch_allocator_alloc(pool.loch, &request, &ptr));
    count_alloc(pool, ptr, bytes, stream);
    return ptr;
}

std::shared_ptr<AllocatorState> Allocator::getCheckpointState(DeviceIndex number, MempoolId_t id)
{
    Device &device = open_device(number);
    auto state = std::make_shared<Checkpoint>();
    state->id = id;
    state->blocks = save_blocks(device, require_private(device, id));
    return state;
}

CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex number, std::shared_ptr<AllocatorState> state)
{
    const auto saved = std::dynamic_pointer_cast<Checkpoint>(state);
    TORCH_CHECK(saved, "expected a checkpoint of Loch's");
    Device &device = open_device(number);
    Pool &pool = require_private(device, saved->id);
    CheckpointDelta delta;
    for (const SavedBlock &block : save_blocks(device, pool)) {
        free_to(pool, block.address);
        delta.ptrs_freed.push_back(block.address);
    }
    for (const SavedBlock &block : saved->blocks)
        delta.dataptrs_allocd.push_back(
            make_data_ptr(allocate_at(pool, block.address, block.bytes, block.stream), number));
    return delta;
}

#if LOCH_TORCH_AT_LEAST(13)
DataPtr Allocator::allocateWithAddress(size_t bytes, void *address)
{
    Device *device = nullptr;
    cudaStream_t stream = nullptr;
    Pool &pool = choose_pool(&device, &stream);
    return make_data_ptr(allocate_at(pool, address, bytes, stream), static_cast<DeviceIndex>(device->number));
}
#endif

} // namespace loch_torch
