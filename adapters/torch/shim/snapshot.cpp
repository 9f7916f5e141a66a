// SPDX-License-Identifier: MIT
// Snapshots: segments, blocks and traces for PyTorch's viewers.
#include "allocator.h"

namespace loch_torch
{

SnapshotInfo Allocator::snapshot(MempoolId_t, bool)
{
    TORCH_CHECK(false, "Loch has no snapshots yet");
}

} // namespace loch_torch
