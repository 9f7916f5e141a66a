// SPDX-License-Identifier: MIT
// The history of allocations, for history.cpp, segments.cpp and snapshot.cpp.
//
// Traces are kept for each device in a ring. One lock guards them and the table of live blocks. Contexts (call stacks)
// are gathered and destroyed without that lock: both may take Python's lock.
#pragma once

#include "allocator.h"

#include <unordered_map>

namespace loch_torch
{

using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;

// --- history.cpp ---

// Returns the innermost request of the calling thread; one of kind kNone outside of requests.
const Request &current_request();

bool is_recording() noexcept;

// Adds an entry to the trace of a device, unless its action is skipped. `context` is kept if traces have stacks.
void record(int device, TraceEntry::Action action, size_t address, size_t bytes, void *stream, MempoolId_t pool,
            Context context);

// What is known of a freed block that streams still used when it was freed.
struct Waiting {
    const Pool *owner; // to compare
    int device;
    size_t bytes;
    size_t requested;
    void *stream;
    MempoolId_t pool;
    Context context;
};
// Returns the blocks of a device that wait, by address.
std::unordered_map<size_t, Waiting> read_waiting(int device);
// Records that blocks no longer wait.
void complete_waiting(int device, const std::vector<size_t> &addresses);

// Where a live block was allocated. `id` is that of the block if it has to be compared, because blocks may have been
// freed without notice; otherwise 0.
struct Known {
    Context context;
    uint64_t id;
};
// Returns the call stacks of live blocks by address.
std::unordered_map<const void *, Known> read_contexts();

std::vector<TraceEntry> read_trace(int device);
std::vector<AnnotationEntry> read_annotations();

// --- segments.cpp ---

// What is known of the memory in a range of addresses: the piece that came first.
struct Segment {
    int32_t counter = -1;  // of registration: rises with each piece; -1 if nothing is known
    bool is_whole = false; // comes and goes as a whole: from a foreign allocator, or from a device without mappings
    Context context;
};
Segment find_segment(const Device &device, uintptr_t start, size_t bytes);

} // namespace loch_torch
