// SPDX-License-Identifier: MIT
// Regions and sleep.
#include "allocator.h"

#include <cstdio>

namespace loch_torch
{

static int refuse(char *error, size_t error_bytes)
{
    std::snprintf(error, error_bytes, "Loch's shim has no regions yet");
    return 1;
}

Pool *find_region(Device &)
{
    return nullptr;
}

int door_region_begin(const char *, const char *, char *error, size_t error_bytes)
{
    return refuse(error, error_bytes);
}

int door_region_end(char *error, size_t error_bytes)
{
    return refuse(error, error_bytes);
}

int door_sleep(const char *, const char *, char *error, size_t error_bytes)
{
    return refuse(error, error_bytes);
}

int door_wake(const char *, const char *, char *error, size_t error_bytes)
{
    return refuse(error, error_bytes);
}

} // namespace loch_torch
