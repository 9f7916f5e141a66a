// SPDX-License-Identifier: MIT
// The history of allocations: traces, contexts, annotations, observers of failures.
#include "allocator.h"

namespace loch_torch
{

void note_alloc(Pool &, void *, size_t, cudaStream_t)
{
}

void note_free(Pool &, void *)
{
}

void note_oom(Device &, size_t, size_t)
{
}

bool Allocator::isHistoryEnabled()
{
    return false;
}

void Allocator::recordHistory(bool enabled, CreateContextFn, size_t, RecordContext, bool,
                              const std::vector<std::string> &)
{
    TORCH_CHECK(!enabled, "Loch does not record the history yet");
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &)
{
}

void Allocator::pushCompileContext(std::string &)
{
}

void Allocator::popCompileContext()
{
}

void Allocator::setUserMetadata(const std::string &)
{
}

std::string Allocator::getUserMetadata()
{
    return "";
}

void Allocator::attachOutOfMemoryObserver(OutOfMemoryObserver)
{
    TORCH_CHECK(false, "Loch does not call observers of failures yet");
}

#if LOCH_TORCH_AT_LEAST(12)
std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void *)
{
    return nullptr;
}

void Allocator::attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver)
{
    TORCH_CHECK(false, "Loch does not call observers of rejections yet");
}
#endif

#if LOCH_TORCH_AT_LEAST(14)
bool Allocator::supportsUserMetadata()
{
    return false;
}

void Allocator::annotateMemory(const void *, const std::string &)
{
}
#endif

} // namespace loch_torch
