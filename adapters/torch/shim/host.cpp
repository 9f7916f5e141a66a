// SPDX-License-Identifier: MIT
// Pinned memory.
#include "allocator.h"

namespace loch_torch
{

void install_host()
{
}

} // namespace loch_torch
