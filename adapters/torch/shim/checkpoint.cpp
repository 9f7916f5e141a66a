// SPDX-License-Identifier: MIT
// The live blocks of a private pool, saved and restored at the same addresses.
#include "allocator.h"

namespace loch_torch
{

std::shared_ptr<AllocatorState> Allocator::getCheckpointState(DeviceIndex, MempoolId_t)
{
    TORCH_CHECK(false, "Loch has no checkpoints yet");
}

CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex, std::shared_ptr<AllocatorState>)
{
    TORCH_CHECK(false, "Loch has no checkpoints yet");
}

#if LOCH_TORCH_AT_LEAST(13)
DataPtr Allocator::allocateWithAddress(size_t, void *)
{
    TORCH_CHECK(false, "Loch has no allocation at an address yet");
}
#endif

} // namespace loch_torch
