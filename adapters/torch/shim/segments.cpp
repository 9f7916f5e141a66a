// SPDX-License-Identifier: MIT
// Observers of mapped memory: ProcessGroupNCCL registers segments with them.
#include "allocator.h"

namespace loch_torch
{

void note_device(Device &)
{
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker)
{
    TORCH_CHECK(false, "Loch does not call observers of segments yet");
}

} // namespace loch_torch
