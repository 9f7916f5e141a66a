// SPDX-License-Identifier: MIT
// What happens when memory is short.
#include "allocator.h"

namespace loch_torch
{

void *reclaim_and_allocate(Pool &, size_t, loch_stream *, loch_status status)
{
    TORCH_CHECK_WITH(OutOfMemoryError, status == LOCH_OK, "CUDA out of memory. ", loch_error_get()->sentence);
    return nullptr;
}

} // namespace loch_torch
