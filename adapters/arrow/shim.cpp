/* SPDX-License-Identifier: MIT */
/* The memory pool for Python: C functions around loch::arrow_pool, compiled on the user's machine against the Arrow
 * that runs (loch.arrow). Arrow's interface is C++ and changes with each version, so there is no compiled one to
 * ship. */
#include "loch_arrow.hpp"

#include <arrow/util/config.h>

#define SHIM_API extern "C" __attribute__((visibility("default")))

namespace
{

void copy(const std::string &text, char *out, size_t bytes)
{
    if (bytes) std::snprintf(out, bytes, "%s", text.c_str());
}

} // namespace

/* Returns the version of Arrow that this file was compiled for. Static string. */
SHIM_API const char *loch_arrow_get_version()
{
    return ARROW_VERSION_STRING;
}

/* Makes a memory pool on an allocator, which is retained, and returns it as an arrow::MemoryPool *. It stays until the
 * process ends: buffers keep plain pointers to it. NULL with a text in `error` on failure. Any thread. */
SHIM_API void *loch_arrow_make(loch_allocator *allocator, const char *tag, char *error, size_t bytes)
{
    auto made = loch::arrow_pool::make(allocator, tag);
    if (made.ok()) return static_cast<arrow::MemoryPool *>(made.MoveValueUnsafe().release());
    copy(made.status().message(), error, bytes);
    return nullptr;
}
