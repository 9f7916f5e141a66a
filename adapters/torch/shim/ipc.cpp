// SPDX-License-Identifier: MIT
// Tensors shared between processes.
#include "allocator.h"

namespace loch_torch
{

ShareableHandle Allocator::shareIpcHandle(void *)
{
    TORCH_CHECK(false, "Loch cannot share tensors between processes yet");
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string)
{
    TORCH_CHECK(false, "Loch cannot open tensors of other processes yet");
}

} // namespace loch_torch
