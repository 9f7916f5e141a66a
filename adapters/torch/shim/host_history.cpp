// SPDX-License-Identifier: MIT
// The history of pinned memory, which PyTorch asks for from 2.14 on: traces of blocks, and what the pools hold.
#include "host.h"

#include <algorithm>

namespace loch_torch::host
{

#if !LOCH_TORCH_AT_LEAST(14)

std::shared_ptr<c10::GatheredContext> gather(RecordContext)
{
    return nullptr;
}

void trace_alloc(const void *, const Block &)
{
}

void trace_free(const void *, const Block &, std::shared_ptr<c10::GatheredContext>)
{
}

#else

using c10::CachingDeviceAllocator::TraceEntry;

// Never destroyed, as State.
struct History {
    std::atomic<bool> is_on{false};
    std::atomic<int> when{0}; // RecordContext
    std::atomic<c10::CachingDeviceAllocator::CreateContextFn> recorder{nullptr};
    // Under State::lock: a ring once it is full.
    std::vector<TraceEntry> entries;
    size_t entries_max = 1, next = 0;

    // Returns the index of the oldest entry.
    size_t oldest() const { return entries.size() < entries_max || entries.empty() ? 0 : next % entries.size(); }
};

static History &history()
{
    static auto *const kept = new History;
    return *kept;
}

std::shared_ptr<c10::GatheredContext> gather(RecordContext least)
{
    History &own = history();
    if (C10_LIKELY(own.when.load(std::memory_order_acquire) < static_cast<int>(least))) return nullptr;
    const auto function = own.recorder.load(std::memory_order_relaxed);
    return function ? function() : nullptr;
}

static void add(TraceEntry::Action action, const void *ptr, const Block &block,
                std::shared_ptr<c10::GatheredContext> context)
{
    History &own = history();
    if (C10_LIKELY(!own.is_on.load(std::memory_order_relaxed))) return;
    if (own.when.load(std::memory_order_relaxed) < static_cast<int>(RecordContext::ALLOC)) context = nullptr;
    TraceEntry entry(action, -1, reinterpret_cast<size_t>(ptr), block.bytes, nullptr, id_of(block),
                     c10::getApproximateTime(), std::move(context));
    if (own.entries.size() < own.entries_max)
        own.entries.push_back(std::move(entry));
    else
        own.entries[own.next] = std::move(entry);
    own.next = (own.next + 1) % own.entries_max;
}

void trace_alloc(const void *ptr, const Block &block)
{
    add(TraceEntry::ALLOC, ptr, block, block.context);
}

void trace_free(const void *ptr, const Block &block, std::shared_ptr<c10::GatheredContext> context)
{
    if (!context) context = block.context;
    add(TraceEntry::FREE_REQUESTED, ptr, block, context);
    add(TraceEntry::FREE_COMPLETED, ptr, block, context);
}

void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn function, size_t max,
                    RecordContext least, bool clear)
{
    History &own = history();
    const std::lock_guard<std::mutex> held(state().lock);
    if (enabled) {
        auto &entries = own.entries;
        std::rotate(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(own.oldest()), entries.end());
        own.entries_max = std::max(max, size_t{1});
        if (entries.size() > own.entries_max)
            entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(own.entries_max));
        own.next = entries.size() % own.entries_max;
        own.recorder.store(function, std::memory_order_relaxed);
    }
    own.when.store(enabled ? static_cast<int>(least) : 0, std::memory_order_release);
    own.is_on.store(enabled);
    if (!clear) return;
    own.entries.clear();
    own.next = 0;
}

bool is_history_enabled()
{
    return history().is_on.load();
}

std::vector<TraceEntry> get_traces()
{
    static auto *const clock = new c10::ApproximateClockToUnixTimeConverter;
    std::vector<TraceEntry> result;
    {
        const History &own = history();
        const std::lock_guard<std::mutex> held(state().lock);
        for (size_t i = 0; i < own.entries.size(); i++)
            result.push_back(own.entries[(own.oldest() + i) % own.entries.size()]);
    }
    const auto to_ns = clock->makeConverter();
    for (TraceEntry &entry : result)
        entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
    return result;
}

// --- segments ---

static loch_status add_segment(const loch_memory_piece *piece, void *user)
{
    at::HostSegmentInfo info;
    info.address = reinterpret_cast<size_t>(piece->address);
    info.size = piece->bytes;
    info.allocated = piece->state == LOCH_PIECE_USED;
    info.active = info.allocated || piece->state == LOCH_PIECE_WAITING;
    try {
        static_cast<std::vector<at::HostSegmentInfo> *>(user)->push_back(std::move(info));
        return LOCH_OK;
    } catch (const std::bad_alloc &) { // Loch calls from C
        return LOCH_E_HOST_MEMORY;
    }
}

// Returns all pools with the ids of their private pools. The caller releases them.
static std::vector<std::pair<loch_allocator *, MempoolId_t>> list_pools()
{
    std::vector<std::pair<loch_allocator *, MempoolId_t>> result;
    for (auto &host : state().hosts)
        if (Host *open = host.load(std::memory_order_acquire))
            result.emplace_back(loch_allocator_retain(open->pool), MempoolId_t{0, 0});
    const std::lock_guard<std::mutex> held(state().lock);
    for (const auto &one : state().privates)
        for (const auto &[host, child] : one->children)
            result.emplace_back(loch_allocator_retain(child), one->id);
    return result;
}

// Returns the live blocks, and the free memory of the pools' segments.
std::vector<at::HostSegmentInfo> get_segments()
{
    std::vector<at::HostSegmentInfo> result;
    loch_status status = LOCH_OK;
    for (const auto &[pool, id] : list_pools()) {
        const size_t first = result.size();
        if (status == LOCH_OK) status = loch_pool_walk_memory(pool, add_segment, &result);
        for (size_t i = first; i < result.size(); i++)
            result[i].owner_private_pool_id = id;
        loch_allocator_release(pool);
    }
    check("walk over pinned memory", status);
    const std::lock_guard<std::mutex> held(state().lock);
    for (at::HostSegmentInfo &segment : result) {
        const auto found = state().blocks.find(reinterpret_cast<void *>(segment.address));
        if (found != state().blocks.end()) segment.context_when_allocated = found->second.context;
    }
    return result;
}

#endif

} // namespace loch_torch::host
