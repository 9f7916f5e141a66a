// SPDX-License-Identifier: MIT
// Private pools: of graphs, of MemPools.
#include "allocator.h"

namespace loch_torch
{

Pool *find_route(Device &, cudaStream_t)
{
    return nullptr;
}

Pool *find_pool(Device &, MempoolId_t)
{
    return nullptr;
}

Pool *make_pool(Device &, MempoolId_t, const char *, const loch_pool_options *)
{
    TORCH_CHECK(false, "Loch has no private pools yet");
}

void retire_if_empty(Pool &)
{
}

void Allocator::beginAllocateToPool(DeviceIndex, MempoolId_t, std::function<bool(cudaStream_t)>)
{
    TORCH_CHECK(false, "Loch has no private pools yet");
}

void Allocator::endAllocateToPool(DeviceIndex, MempoolId_t)
{
}

void Allocator::releasePool(DeviceIndex, MempoolId_t)
{
}

int Allocator::getPoolUseCount(DeviceIndex, MempoolId_t)
{
    return 0;
}

void Allocator::createOrIncrefPool(DeviceIndex, MempoolId_t, std::shared_ptr<CUDAAllocator>)
{
    TORCH_CHECK(false, "Loch has no private pools yet");
}

void Allocator::setUseOnOOM(DeviceIndex, MempoolId_t, bool)
{
}

void Allocator::setNoSplit(DeviceIndex, MempoolId_t)
{
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex, MempoolId_t, const std::unordered_set<void *> &)
{
    return true;
}

#if LOCH_TORCH_AT_LEAST(13)
void Allocator::markCaptureBegin(DeviceIndex)
{
}

void Allocator::markCaptureEnd(DeviceIndex)
{
}
#endif

} // namespace loch_torch
