// SPDX-License-Identifier: MIT
// The functions of the door are C: an exception of PyTorch becomes a result and a text.
#pragma once

#include "allocator.h"

#include <cstdio>

namespace loch_torch
{

// Calls a function that may throw, and writes what it throws to `error`. Returns 0, or 1 if it threw.
template <typename Function> int guarded(Function function, char *error, size_t error_bytes)
{
    if (error_bytes) *error = '\0';
    try {
        function();
        return 0;
    } catch (const c10::Error &thrown) {
        std::snprintf(error, error_bytes, "%s", thrown.what_without_backtrace());
    } catch (const std::exception &thrown) {
        std::snprintf(error, error_bytes, "%s", thrown.what());
    }
    return 1;
}

} // namespace loch_torch
