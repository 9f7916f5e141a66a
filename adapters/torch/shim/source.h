// SPDX-License-Identifier: MIT
// Foreign allocators of PyTorch's MemPools (NCCL's, symmetric memory's) as allocators of Loch.
#pragma once

#include "allocator.h"

namespace loch_torch
{

// Makes an allocator of Loch whose blocks are segments of the pool `id` and come from `source`. The caller has the
// reference.
loch_allocator *make_source(Device &device, MempoolId_t id, const std::shared_ptr<CUDAAllocator> &source);

} // namespace loch_torch
