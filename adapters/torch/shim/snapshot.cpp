// SPDX-License-Identifier: MIT
// Snapshots: segments, blocks and traces for PyTorch's viewers.
#include "history.h"

#include <c10/util/ApproximateClock.h>
#include <loch/pool.h>

#if LOCH_TORCH_AT_LEAST(14)
#include <ATen/core/CachingHostAllocator.h>
#endif

#include <algorithm>
#include <map>

namespace loch_torch
{

using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::SegmentInfo;

// The native allocator calibrates its clock when it is built, too.
static c10::ApproximateClockToUnixTimeConverter &clock_converter()
{
    static c10::ApproximateClockToUnixTimeConverter converter;
    return converter;
}

void prepare_clock()
{
    (void)clock_converter();
}

// --- one pool ---

// A walk over the memory of a pool. C calls the visitor, so an exception is kept until the walk has ended.
struct Walk {
    Device &device;
    MempoolId_t id;
    bool is_unsplit; // every block is a segment
    const std::unordered_map<const void *, Known> &contexts;
    const std::unordered_map<size_t, Waiting> &waiting;
    const std::unordered_set<const void *> &freed; // blocks that PyTorch has freed and that are kept for graphs
    std::map<uint64_t, cudaStream_t> streams{};
    std::vector<SegmentInfo> segments{};
    std::vector<size_t> waiting_seen{};
    bool has_free = false; // the last block is free, and the next free piece joins it
    std::exception_ptr failure{};

    void begin_segment(const loch_memory_piece &piece);
    void add(const loch_memory_piece &piece);
    cudaStream_t stream_of(uint64_t id);
};

cudaStream_t Walk::stream_of(uint64_t id)
{
    const auto found = streams.find(id);
    if (found != streams.end()) return found->second;
    return streams[id] = find_native(device, id);
}

void Walk::begin_segment(const loch_memory_piece &piece)
{
    const auto start = reinterpret_cast<uintptr_t>(is_unsplit ? piece.address : piece.range_address);
    const Segment known = find_segment(device, start, is_unsplit ? piece.bytes : piece.range_bytes);
    SegmentInfo &segment = segments.emplace_back();
    segment.device = static_cast<DeviceIndex>(device.number);
    segment.registration_counter = std::max(known.counter, 0);
    segment.address = start;
    segment.stream = stream_of(piece.stream_id);
    segment.is_expandable = !known.is_whole;
    segment.owner_private_pool_id = id;
    segment.context_when_allocated = known.context;
    has_free = false;
}

// A block that sleeps is live: its tensor is there. Its memory is not, but its addresses are.
static bool is_live(const loch_memory_piece &piece)
{
    return piece.state == LOCH_PIECE_USED || (piece.state == LOCH_PIECE_ASLEEP && piece.requested_bytes);
}

void Walk::add(const loch_memory_piece &piece)
{
    const auto address = reinterpret_cast<size_t>(piece.address);
    if (is_unsplit || segments.empty() || segments.back().address != reinterpret_cast<size_t>(piece.range_address))
        begin_segment(piece);
    SegmentInfo &segment = segments.back();
    const bool is_allocated = is_live(piece) && !freed.count(piece.address);
    const bool is_free = !is_allocated && piece.state != LOCH_PIECE_WAITING;
    segment.total_size += piece.bytes;
    if (!is_free || !has_free) segment.blocks.emplace_back();
    BlockInfo &block = segment.blocks.back();
    block.size += piece.bytes;
    segment.is_large = segment.is_large || block.size > kSmallMax; // it has or can serve a large block
    has_free = is_free;
    block.allocated = is_allocated;
    block.active = !is_free;
    if (block.allocated) {
        const auto found = contexts.find(piece.address);
        block.requested_size = piece.requested_bytes;
        if (found != contexts.end() && (!found->second.id || found->second.id == piece.id))
            block.context_when_allocated = found->second.context;
        if (!segment.allocated_size) segment.stream = stream_of(piece.stream_id);
        segment.allocated_size += piece.bytes;
    } else if (block.active) {
        const auto found = waiting.find(address);
        block.requested_size = found == waiting.end() ? piece.bytes : found->second.requested;
        waiting_seen.push_back(address);
    }
    if (block.active) {
        segment.active_size += piece.bytes;
        segment.requested_size += block.requested_size;
    }
}

static loch_status visit(const loch_memory_piece *piece, void *user)
{
    Walk &walk = *static_cast<Walk *>(user);
    try {
        walk.add(*piece);
        return LOCH_OK;
    } catch (...) {
        walk.failure = std::current_exception();
        return LOCH_E_HOST_MEMORY;
    }
}

// --- all pools of a device ---

static std::unordered_set<const void *> read_kept(Device &device)
{
    std::unordered_set<const void *> result;
    const std::lock_guard<std::mutex> held(device.lock);
    for (const Pool *pool : device.pools)
        for (const Kept &block : pool->kept)
            result.insert(block.address);
    return result;
}

// A device's snapshot under way.
struct Collection {
    Device &device;
    const std::unordered_map<const void *, Known> contexts = read_contexts();
    const std::unordered_set<const void *> freed = read_kept(device);
    const std::unordered_map<size_t, Waiting> waiting = read_waiting(device.number);
    std::unordered_set<size_t> waiting_seen{};
    std::vector<SegmentInfo> segments{};

    void add_pool(loch_allocator *loch, MempoolId_t id, bool is_unsplit);
    void add_pools(MempoolId_t wanted);
};

void Collection::add_pool(loch_allocator *loch, MempoolId_t id, bool is_unsplit)
{
    Walk walk{device, id, is_unsplit, contexts, waiting, freed};
    const loch_status status = loch_pool_walk_memory(loch, visit, &walk);
    if (walk.failure) std::rethrow_exception(walk.failure);
    check("walk over a pool", status);
    waiting_seen.insert(walk.waiting_seen.begin(), walk.waiting_seen.end());
    std::move(walk.segments.begin(), walk.segments.end(), std::back_inserter(segments));
}

// Walks over the pools with an id, or over all for {0, 0}. A pool in use is kept by a reference. A released pool lives
// as long as its last block, which is freed under the device's lock.
void Collection::add_pools(MempoolId_t wanted)
{
    struct Kept {
        std::unique_ptr<loch_allocator, void (*)(loch_allocator *)> loch;
        MempoolId_t id;
        bool is_unsplit;
    };
    const bool is_all = wanted == MempoolId_t{0, 0};
    std::vector<Kept> kept;
    if (is_all) add_pool(device.main.loch, device.main.id, false);
    {
        const std::lock_guard<std::mutex> held(device.lock);
        for (const Pool *pool : device.pools) {
            if ((!is_all && pool->id != wanted) || (pool->is_released && pool->source)) continue;
            if (pool->is_released)
                add_pool(memory_of(*pool), pool->id, pool->is_unsplit);
            else
                kept.push_back(
                    {{loch_allocator_retain(memory_of(*pool)), loch_allocator_release}, pool->id, pool->is_unsplit});
        }
    }
    for (const Kept &pool : kept)
        add_pool(pool.loch.get(), pool.id, pool.is_unsplit);
}

static std::vector<SegmentInfo> snapshot_device(Device &device, MempoolId_t id)
{
    Collection all{device};
    all.add_pools(id);
    if (id == MempoolId_t{0, 0}) {
        std::vector<size_t> ended;
        for (const auto &entry : all.waiting)
            if (!all.waiting_seen.count(entry.first)) ended.push_back(entry.first);
        complete_waiting(device.number, ended);
    }
    std::sort(all.segments.begin(), all.segments.end(),
              [](const SegmentInfo &a, const SegmentInfo &b) { return a.address < b.address; });
    return std::move(all.segments);
}

// Notes the snapshot in the trace: a later one shows it.
static void record_snapshot(const Device &device, const std::vector<SegmentInfo> &segments, MempoolId_t id)
{
    size_t active = 0;
    for (const SegmentInfo &segment : segments)
        active += segment.active_size;
    record(device.number, TraceEntry::SNAPSHOT, 0, active, nullptr, id, nullptr);
}

// --- PyTorch's call ---

// Says what PyTorch was told. Loch itself reads none of these settings.
static c10::cuda::CUDACachingAllocator::AllocatorConfigInfo read_config()
{
    using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
    using CudaConfig = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
    c10::cuda::CUDACachingAllocator::AllocatorConfigInfo info{};
    info.garbage_collection_threshold = Config::garbage_collection_threshold();
    info.max_split_size = Config::max_split_size();
    info.pinned_num_register_threads = CudaConfig::pinned_num_register_threads();
    info.expandable_segments = Config::use_expandable_segments();
    info.release_lock_on_malloc = CudaConfig::release_lock_on_cudamalloc();
    info.pinned_use_host_register = CudaConfig::pinned_use_cuda_host_register();
    info.graph_capture_record_stream_reuse = CudaConfig::graph_capture_record_stream_reuse();
    info.last_allocator_settings = c10::CachingAllocator::getAllocatorSettings();
    info.roundup_power2_divisions = Config::roundup_power2_divisions();
#if LOCH_TORCH_AT_LEAST(13)
    info.max_round_threshold = Config::pinned_max_round_threshold();
    info.max_cached_size = Config::pinned_max_cached_size();
#endif
    return info;
}

SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces)
{
    const auto to_ns = clock_converter().makeConverter();
    SnapshotInfo result;
    int count = device_count();
    for (int number = count; number < kDevicesMax; number++)
        if (find_device(number)) count = number + 1;
    if (include_traces) result.device_traces.resize(static_cast<size_t>(count));
    for (int number = 0; number < count; number++) {
        Device *device = find_device(number);
        if (!device) continue;
        std::vector<SegmentInfo> segments = snapshot_device(*device, id);
        if (include_traces) result.device_traces[static_cast<size_t>(number)] = read_trace(number);
        record_snapshot(*device, segments, id);
        std::move(segments.begin(), segments.end(), std::back_inserter(result.segments));
    }
    if (include_traces) result.external_annotations = read_annotations();
    for (std::vector<TraceEntry> &trace : result.device_traces)
        for (TraceEntry &entry : trace)
            entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
    for (auto &entry : result.external_annotations)
        entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
    result.config_metadata = read_config();
#if LOCH_TORCH_AT_LEAST(14)
    if (at::HostAllocator *host = at::getHostAllocator(at::kCUDA)) {
        for (const auto &segment : host->get_segments())
            result.host_segments.push_back(segment);
        if (include_traces) result.host_traces = host->get_traces();
    }
#endif
    return result;
}

} // namespace loch_torch
