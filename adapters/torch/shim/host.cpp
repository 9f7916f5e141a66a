// SPDX-License-Identifier: MIT
// Pinned memory: devices, blocks, figures, and the object that PyTorch gets. host.h says how it works.
#include "host.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <loch/observer.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace loch_torch::host
{

State &state()
{
    static auto *const kept = new State;
    return *kept;
}

// --- segments ---

static thread_local bool is_inside;
static thread_local size_t segments_taken, segments_gone;

static size_t bucket_of(size_t bytes)
{
    return bytes < 2 ? 0 : static_cast<size_t>(64 - __builtin_clzll(bytes - 1));
}

static void observe(loch_range_event event, const loch_range *range, void *)
{
    if (range->kind != LOCH_MEMORY_PINNED) return;
    State &own = state();
    at::HostStats &stats = own.stats;
    const std::lock_guard<std::mutex> held(own.lock);
    if (event == LOCH_RANGE_TAKEN) {
        if (!is_inside || !own.segments.emplace(range->address, range->bytes).second) return;
        stats.allocations.increase(1);
        stats.allocated_bytes.increase(range->bytes);
        stats.num_host_alloc++;
        stats.bucket_allocation[bucket_of(range->bytes)]++;
        segments_taken++;
    } else if (own.segments.erase(range->address)) {
        stats.allocations.decrease(1);
        stats.allocated_bytes.decrease(range->bytes);
        stats.num_host_free++;
        segments_gone++;
    }
}

Inside::Inside() : before_(is_inside), taken_(segments_taken), gone_(segments_gone), start_ns_(loch_host_now_ns())
{
    is_inside = true;
}

Inside::~Inside()
{
    is_inside = before_;
    const size_t taken = segments_taken - taken_, gone = segments_gone - gone_;
    if (C10_LIKELY(!taken && !gone)) return;
    const auto us = static_cast<int64_t>((loch_host_now_ns() - start_ns_) / 1000);
    const std::lock_guard<std::mutex> held(state().lock);
    for (size_t i = 0; i < taken; i++)
        state().stats.host_alloc_time.increase(us / static_cast<int64_t>(taken));
    for (size_t i = 0; !taken && i < gone; i++)
        state().stats.host_free_time.increase(us / static_cast<int64_t>(gone));
}

// --- devices and streams ---

loch_pool_options pool_options()
{
    loch_pool_options options{};
    options.size = sizeof options;
    options.kind = LOCH_MEMORY_PINNED;
    options.waits = LOCH_POOL_WAITS_NONE;
    return options;
}

static Host *make_host(Device &device)
{
    auto host = std::make_unique<Host>();
    const loch_pool_options options = pool_options();
    const std::string name = "torch pinned cuda:" + std::to_string(device.number);
    loch_stream_options stream{};
    stream.size = sizeof stream;
    stream.order = LOCH_STREAM_INDEPENDENT;
    host->device = &device;
    check("make a stream", loch_stream_create(device.loch, &stream, &host->idle));
    check("make a pool of pinned memory", loch_pool_create(device.loch, name.c_str(), &options, &host->pool));
    check("observe a device", loch_observer_add(device.loch, observe, nullptr));
    return host.release();
}

// Chooses the device whose node the memory is near to: the current one. If the program has not used that one, one that
// it has used, because pinned memory serves all devices, and a context takes hundreds of MiB.
static DeviceIndex choose_device()
{
    const DeviceIndex current = current_device();
    if (settings().is_simulated || state().hosts[current].load(std::memory_order_acquire)) return current;
    const std::optional<DeviceIndex> used = c10::cuda::getDeviceIndexWithPrimaryContext();
    if (!device_count()) allocator()->init(c10::cuda::device_count());
    return used.value_or(current);
}

static Host &open_host()
{
    State &own = state();
    const DeviceIndex number = choose_device();
    if (Host *host = own.hosts[number].load(std::memory_order_acquire)) return *host;
    Device &device = open_device(number);
    const std::lock_guard<std::mutex> held(own.hosts_lock);
    Host *host = own.hosts[number].load(std::memory_order_acquire);
    if (host) return *host;
    host = make_host(device);
    own.hosts[number].store(host, std::memory_order_release);
    return *host;
}

Use find_use(const c10::Stream &stream)
{
    Device &device = open_device(settings().is_simulated ? 0 : stream.device_index());
    if (settings().is_simulated) return {&device, nullptr};
    return {&device, find_stream(device, CUDAStream(stream).stream())};
}

// A simulated device has one stream, which counts as captured while there are routes.
bool is_capturing(const Use &use)
{
    if (settings().is_simulated) return state().routes_count.load(std::memory_order_relaxed) != 0;
    loch_capture_info info{};
    info.size = sizeof info;
    return use.stream && loch_stream_query_capture(use.stream, &info) == LOCH_OK && info.active;
}

// --- blocks ---

MempoolId_t id_of(const Block &block)
{
    return block.owner ? block.owner->id : MempoolId_t{0, 0};
}

void give_back(loch_allocator *pool, void *ptr) noexcept
{
    const Inside inside;
    (void)!loch_free(pool, ptr); // a failure has no receiver: deleters do not throw
}

// Frees a block: the deleter of all pinned memory.
static void free_pinned(void *ptr)
{
    State &own = state();
    if (!ptr || own.is_forked) return;
    Block block;
    auto context = gather(RecordContext::ALL);
    {
        const std::lock_guard<std::mutex> held(own.lock);
        const auto found = own.blocks.find(ptr);
        if (found == own.blocks.end()) return;
        block = std::move(found->second);
        own.blocks.erase(found);
        own.stats.active_requests.decrease(1);
        own.stats.active_bytes.decrease(block.bytes);
        trace_free(ptr, block, std::move(context));
        if (block.owner && block.is_captured && block.is_used && !block.owner->is_dropped) {
            block.owner->parked.emplace_back(block.pool, ptr);
            return;
        }
    }
    if (!block.uses.empty()) {
        Late waiting{block.pool, ptr, std::move(block.uses), {}};
        if (!has_ended(waiting)) return keep_late(std::move(waiting));
    }
    give_back(block.pool, ptr);
}

static size_t read_size(loch_allocator *pool, void *ptr, size_t bytes)
{
    loch_block found{};
    found.size = offsetof(loch_block, id);
    return loch_allocator_find(pool, ptr, &found) == LOCH_OK ? found.allocated_bytes : bytes;
}

// Allocates from the pool of a block.
static void *allocate_in(const Block &block, size_t bytes)
{
    loch_request request{};
    request.size = sizeof request;
    request.bytes = bytes;
    request.stream = block.host->idle;
    void *ptr = nullptr;
    const Inside inside;
    check("pin host memory", loch_allocator_alloc(block.pool, &request, &ptr));
    return ptr;
}

// --- the object ---

class HostAllocator final : public at::HostAllocator
{
  public:
    DataPtr allocate(size_t bytes) override
    {
        if (!bytes) return {nullptr, nullptr, &free_pinned, c10::DeviceType::CPU};
        Block block;
        block.context = gather(RecordContext::STATE);
        TORCH_CHECK(!state().is_forked, "pinned memory cannot be used in the child of a fork: start it by spawn");
        block.host = &open_host();
        block.owner = find_route(&block.is_captured);
        block.pool = block.owner ? open_child(*block.owner, *block.host) : block.host->pool;
        collect_late();
        void *const ptr = allocate_in(block, bytes);
        block.bytes = read_size(block.pool, ptr, bytes);
        State &own = state();
        const std::lock_guard<std::mutex> held(own.lock);
        own.stats.active_requests.increase(1);
        own.stats.active_bytes.increase(block.bytes);
        trace_alloc(ptr, block);
        own.blocks.emplace(ptr, std::move(block));
        return {ptr, ptr, &free_pinned, c10::DeviceType::CPU};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }

    void copy_data(void *to, const void *from, size_t bytes) const override { std::memcpy(to, from, bytes); }

    // `ctx` is the address of the block; `ptr` may lie inside of it. False: neither is the start of a live block.
    bool record_event(void *ptr, void *ctx, c10::Stream stream) override
    {
        State &own = state();
        if (own.is_forked) return false;
        std::unique_lock<std::mutex> held(own.lock);
        auto found = own.blocks.find(ctx);
        if (found == own.blocks.end()) found = own.blocks.find(ptr);
        if (found == own.blocks.end()) return false;
        void *const start = found->first;
        loch_allocator *const pool = found->second.pool;
        const Host *const host = found->second.host;
        held.unlock(); // the caller holds the block
        const Use use = find_use(stream);
        const bool is_in_capture = own.routes_count.load(std::memory_order_relaxed) && is_capturing(use);
        if (!is_in_capture && use.device == host->device) {
            check("record a use of pinned memory", loch_allocator_record_use(pool, start, use.stream));
            return true;
        }
        held.lock();
        Block &block = own.blocks.at(start);
        if (is_in_capture && block.is_captured)
            block.is_used = true; // no event tells when the graph is done with it
        else if (std::none_of(block.uses.begin(), block.uses.end(),
                              [&](const Use &seen) { return seen.device == use.device && seen.stream == use.stream; }))
            block.uses.push_back(use);
        return true;
    }

    void empty_cache() override
    {
        State &own = state();
        if (own.is_forked) return;
        collect_late();
        if (own.routes_count.load()) return; // giving memory back may wait, which breaks a capture
        drop_released();
        const Inside inside;
        for (auto &host : own.hosts)
            if (Host *open = host.load(std::memory_order_acquire))
                check("give pinned memory back", loch_allocator_trim(open->pool, 0, nullptr));
    }

    at::HostStats get_stats() override
    {
        const std::lock_guard<std::mutex> held(state().lock);
        return state().stats;
    }

    void reset_accumulated_stats() override
    {
        at::HostStats &stats = state().stats;
        const std::lock_guard<std::mutex> held(state().lock);
        for (at::Stat *stat : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
            stat->reset_accumulated();
        stats.host_alloc_time.reset_accumulated();
        stats.host_free_time.reset_accumulated();
        stats.num_host_alloc = stats.num_host_free = 0;
        std::fill(stats.bucket_allocation.begin(), stats.bucket_allocation.end(), 0);
    }

    void reset_peak_stats() override
    {
        at::HostStats &stats = state().stats;
        const std::lock_guard<std::mutex> held(state().lock);
        for (at::Stat *stat : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
            stat->reset_peak();
        stats.host_alloc_time.reset_peak();
        stats.host_free_time.reset_peak();
    }

    void begin_allocate_to_pool(MempoolId_t id, std::function<bool(c10::Stream)> filter) override
    {
        begin_route(id, std::move(filter));
    }

    void end_allocate_to_pool(MempoolId_t id) override { end_route(id); }

    void release_pool(MempoolId_t id) override { release_private(id); }

#if LOCH_TORCH_AT_LEAST(14)
    void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn function, size_t max,
                        RecordContext least, bool clear) override
    {
        host::record_history(enabled, function, max, least, clear);
    }

    bool is_history_enabled() const override
    {
        return host::is_history_enabled();
    }

    std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override
    {
        return host::get_traces();
    }

    std::vector<at::HostSegmentInfo> get_segments() override
    {
        return host::get_segments();
    }
#endif
};

// Runs in the child of a fork, which has one thread.
static void forget()
{
    State &own = state();
    new (&own.lock) std::mutex;
    new (&own.hosts_lock) std::mutex;
    for (const auto &host : own.hosts)
        if (host.load(std::memory_order_relaxed)) own.is_forked = true;
}

} // namespace loch_torch::host

namespace loch_torch
{

void install_host()
{
    if (!settings().has_pinned) return;
    static auto *const kept = new host::HostAllocator; // never destroyed: PyTorch frees blocks from static destructors
    (void)pthread_atfork(nullptr, nullptr, host::forget);
    at::setHostAllocator(c10::DeviceType::CUDA, kept, 1);
}

} // namespace loch_torch
