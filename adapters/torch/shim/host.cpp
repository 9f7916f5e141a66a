// SPDX-License-Identifier: MIT
// Pinned memory: at::HostAllocator on pools of pinned memory, one for each device.
//
// PyTorch's own allocator rounds each size up to a power of two. Loch's pools hold what was asked for, on the NUMA node
// of the GPU. The host fills a block as soon as it gets one, and no stream orders that. So all requests are made on a
// stream of their own that never has work, every stream that uses a block is told to the pool, and the streams of these
// pools do not wait for each other (LOCH_POOL_WAITS_NONE): a block comes back when its streams have passed it.
//
// Graphs. A block that was handed out while its stream was captured belongs to the graph's private pool, which is a
// child of the device's pool. If the capture used it, it is parked when it is freed: the graph uses it at every replay.
// Parked blocks go back by empty_cache() after PyTorch has released the pool and the device has run its work.
//
// Late blocks. An event cannot be recorded on a stream that is captured, and a pool knows the streams of its own device
// only. A freed block with such a use is late: it waits here until an event on that stream has passed.
//
// One lock guards all tables. Neither Loch nor PyTorch is called under it. Everything lives until the process ends.
#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <loch/observer.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <unordered_map>

namespace loch_torch
{

namespace
{

// Pinned memory of one device. Never changes once it is published.
struct Host {
    Device *device;
    loch_allocator *pool;
    loch_stream *idle; // of all requests; never has work
};

// A private pool of PyTorch. Its blocks keep it.
struct Private {
    MempoolId_t id{0, 0};
    int use_count = 0;
    bool is_dropped = false;                                 // the device has run all work of its graphs
    std::map<Host *, loch_allocator *> children;             // by device
    std::vector<std::pair<loch_allocator *, void *>> parked; // freed blocks that its graphs use
    ~Private();
};

// A stream of a device that a pool cannot be told of.
struct Use {
    Device *device;
    loch_stream *stream;
};

// A live block.
struct Block {
    Host *host = nullptr;
    loch_allocator *pool = nullptr; // the device's, or a child of it
    std::shared_ptr<Private> owner; // nullptr: no private pool
    size_t bytes = 0;               // as taken from the pool
    bool is_captured = false;       // its stream was captured when it was handed out
    bool is_used = false;           // by a stream that was captured
    std::vector<Use> uses;          // that make it late
#if LOCH_TORCH_AT_LEAST(14)
    std::shared_ptr<c10::GatheredContext> context;
#endif
};

// A freed block that waits for streams.
struct Late {
    loch_allocator *pool;
    void *ptr;
    std::vector<Use> pending; // no event could be recorded yet
    std::vector<loch_event *> events;
};

struct Route {
    MempoolId_t id;
    std::function<bool(c10::Stream)> filter;
};

std::atomic<Host *> hosts[kDevicesMax];
std::mutex hosts_lock;             // held to add a device
std::atomic<size_t> late_count{0}; // hint whether to look at late blocks; relaxed
std::atomic<size_t> routes_count{0};

std::mutex lock; // guards what follows
std::unordered_map<void *, Block> blocks;
std::unordered_map<void *, size_t> segments;    // of the pools, with their sizes
std::vector<std::shared_ptr<Private>> privates; // those that may be used again
std::vector<Route> routes;
std::vector<Late> late;
at::HostStats stats;

// What the calling thread is about to do with pools of this file; observers are called for all pools of a device.
thread_local bool is_inside;
thread_local size_t segments_taken, segments_gone;

// --- segments ---

void observe(loch_range_event event, const loch_range *range, void *)
{
    if (range->kind != LOCH_MEMORY_PINNED) return;
    const std::lock_guard<std::mutex> held(lock);
    const auto bytes = static_cast<size_t>(range->bytes);
    if (event == LOCH_RANGE_TAKEN) {
        if (!is_inside || !segments.emplace(range->address, bytes).second) return;
        stats.allocations.increase(1);
        stats.allocated_bytes.increase(bytes);
        stats.num_host_alloc++;
        stats.bucket_allocation[static_cast<size_t>(64 - __builtin_clzll(bytes | 1))]++;
        segments_taken++;
    } else if (segments.erase(range->address)) {
        stats.allocations.decrease(1);
        stats.allocated_bytes.decrease(bytes);
        stats.num_host_free++;
        segments_gone++;
    }
}

// Marks calls of pools by the thread, and measures those that pin memory or give it back.
class Inside
{
  public:
    Inside() : before_(is_inside), taken_(segments_taken), gone_(segments_gone), start_ns_(loch_host_now_ns())
    {
        is_inside = true;
    }
    ~Inside()
    {
        is_inside = before_;
        const size_t taken = segments_taken - taken_, gone = segments_gone - gone_;
        if (C10_LIKELY(!taken && !gone)) return;
        const auto us = static_cast<int64_t>((loch_host_now_ns() - start_ns_) / 1000);
        const std::lock_guard<std::mutex> held(lock);
        for (size_t i = 0; i < taken; i++)
            stats.host_alloc_time.increase(us / static_cast<int64_t>(taken));
        for (size_t i = 0; !taken && i < gone; i++)
            stats.host_free_time.increase(us / static_cast<int64_t>(gone));
    }

  private:
    bool before_;
    size_t taken_, gone_;
    uint64_t start_ns_;
};

// --- devices ---

loch_pool_options pool_options()
{
    loch_pool_options options{};
    options.size = sizeof options;
    options.kind = LOCH_MEMORY_PINNED;
    options.waits = LOCH_POOL_WAITS_NONE;
    return options;
}

Host *make_host(Device &device)
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
DeviceIndex choose_device()
{
    const DeviceIndex current = current_device();
    if (settings().is_simulated || hosts[current].load(std::memory_order_acquire)) return current;
    const std::optional<DeviceIndex> used = c10::cuda::getDeviceIndexWithPrimaryContext();
    if (!device_count()) allocator()->init(c10::cuda::device_count());
    return used.value_or(current);
}

Host &open_host()
{
    const DeviceIndex number = choose_device();
    if (Host *host = hosts[number].load(std::memory_order_acquire)) return *host;
    Device &device = open_device(number);
    const std::lock_guard<std::mutex> held(hosts_lock);
    Host *host = hosts[number].load(std::memory_order_acquire);
    if (host) return *host;
    host = make_host(device);
    hosts[number].store(host, std::memory_order_release);
    return *host;
}

// --- streams ---

// Returns Loch's device and stream of a stream of PyTorch.
Use find_use(const c10::Stream &stream)
{
    Device &device = open_device(settings().is_simulated ? 0 : stream.device_index());
    if (settings().is_simulated) return {&device, nullptr};
    return {&device, find_stream(device, CUDAStream(stream).stream())};
}

// Tells whether a stream is captured. A simulated device has one stream, which counts as captured during a route.
bool is_capturing(const Use &use)
{
    if (settings().is_simulated) return routes_count.load(std::memory_order_relaxed) != 0;
    loch_capture_info info{};
    info.size = sizeof info;
    return use.stream && loch_stream_query_capture(use.stream, &info) == LOCH_OK && info.active;
}

// --- late blocks ---

void give_back(loch_allocator *pool, void *ptr)
{
    const Inside inside;
    (void)!loch_allocator_free(pool, ptr); // a failure has no receiver: deleters do not throw
}

// Records the events that can be recorded now. Returns whether all work on the block has ended.
bool has_ended(Late &block)
{
    auto &pending = block.pending;
    pending.erase(std::remove_if(pending.begin(), pending.end(),
                                 [&](const Use &use) {
                                     loch_event *event = nullptr;
                                     if (is_capturing(use)) return false;
                                     if (loch_event_create(use.device->loch, LOCH_EVENT_PLAIN, &event) != LOCH_OK)
                                         return false;
                                     if (loch_event_record(event, use.stream) != LOCH_OK) {
                                         loch_event_destroy(event);
                                         return false;
                                     }
                                     block.events.push_back(event);
                                     return true;
                                 }),
                  pending.end());
    auto &events = block.events;
    events.erase(std::remove_if(events.begin(), events.end(),
                                [](loch_event *event) {
                                    if (loch_event_query(event) != LOCH_OK) return false;
                                    loch_event_destroy(event);
                                    return true;
                                }),
                 events.end());
    return pending.empty() && events.empty();
}

// Frees the late blocks whose work has ended. Other threads look at other blocks meanwhile.
void collect_late()
{
    if (C10_LIKELY(!late_count.load(std::memory_order_relaxed))) return;
    std::vector<Late> taken;
    {
        const std::lock_guard<std::mutex> held(lock);
        taken.swap(late);
    }
    std::vector<Late> kept;
    for (Late &block : taken)
        if (has_ended(block))
            give_back(block.pool, block.ptr);
        else
            kept.push_back(std::move(block));
    const std::lock_guard<std::mutex> held(lock);
    for (Late &block : kept)
        late.push_back(std::move(block));
    late_count.store(late.size(), std::memory_order_relaxed);
}

// --- private pools ---

Private::~Private()
{
    const Inside inside;
    for (const auto &[host, child] : children)
        loch_allocator_release(child);
}

// Finds a private pool. `lock` is held.
std::shared_ptr<Private> find_private(MempoolId_t id)
{
    for (const auto &one : privates)
        if (one->id == id) return one;
    return nullptr;
}

// Returns the private pool that an allocation goes to, and whether its stream is captured.
std::shared_ptr<Private> find_route(const Host &host, bool *is_captured)
{
    *is_captured = false;
    if (C10_LIKELY(!routes_count.load(std::memory_order_relaxed))) return nullptr;
    std::vector<Route> now;
    {
        const std::lock_guard<std::mutex> held(lock);
        now = routes;
    }
    const c10::Stream stream =
        settings().is_simulated
            ? c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0))
            : c10::cuda::getCurrentCUDAStream(static_cast<DeviceIndex>(host.device->number)).unwrap();
    for (const Route &route : now)
        if (route.filter(stream)) {
            *is_captured = is_capturing(find_use(stream));
            const std::lock_guard<std::mutex> held(lock);
            return find_private(route.id);
        }
    return nullptr;
}

// Returns the child pool of a private pool on a device. Makes it on first use.
loch_allocator *open_child(Private &owner, Host &host)
{
    {
        const std::lock_guard<std::mutex> held(lock);
        const auto found = owner.children.find(&host);
        if (found != owner.children.end()) return found->second;
    }
    const loch_pool_options pool = pool_options();
    loch_child_options options{};
    options.size = sizeof options;
    options.pool = &pool;
    loch_allocator *child = nullptr;
    check("make a pool of pinned memory", loch_pool_create_child(host.pool, "torch graph pinned", &options, &child));
    std::unique_lock<std::mutex> held(lock);
    loch_allocator *&kept = owner.children[&host];
    std::swap(kept, child);
    if (child) std::swap(kept, child); // another thread was faster
    loch_allocator *result = kept;
    held.unlock();
    loch_allocator_release(child);
    return result;
}

// Gives back what released private pools hold. Their graphs are gone, but the device may still run them.
void drop_released()
{
    std::vector<std::shared_ptr<Private>> released;
    {
        const std::lock_guard<std::mutex> held(lock);
        const auto first =
            std::stable_partition(privates.begin(), privates.end(), [](const auto &one) { return one->use_count > 0; });
        released.assign(std::make_move_iterator(first), std::make_move_iterator(privates.end()));
        privates.erase(first, privates.end());
    }
    if (released.empty()) return;
    for (auto &host : hosts)
        if (Host *open = host.load(std::memory_order_acquire)) (void)!loch_device_sync(open->device->loch);
    for (const auto &one : released) {
        std::vector<std::pair<loch_allocator *, void *>> parked;
        {
            const std::lock_guard<std::mutex> held(lock);
            one->is_dropped = true; // its live blocks are freed like others from now on
            parked.swap(one->parked);
        }
        for (const auto &[pool, ptr] : parked)
            give_back(pool, ptr);
    }
}

// --- history, from PyTorch 2.14 on ---

#if LOCH_TORCH_AT_LEAST(14)
using c10::CachingDeviceAllocator::TraceEntry;

std::atomic<bool> has_history{false};
std::atomic<int> when{0}; // RecordContext
std::atomic<c10::CachingDeviceAllocator::CreateContextFn> recorder{nullptr};
std::vector<TraceEntry> entries; // a ring once it is full; under `lock`
size_t entries_max = 1, entries_next = 0;

std::shared_ptr<c10::GatheredContext> gather(RecordContext least)
{
    if (C10_LIKELY(when.load(std::memory_order_acquire) < static_cast<int>(least))) return nullptr;
    const auto function = recorder.load(std::memory_order_relaxed);
    return function ? function() : nullptr;
}

// Adds an entry. `lock` is held.
void trace(TraceEntry::Action action, const void *ptr, size_t bytes, MempoolId_t id,
           std::shared_ptr<c10::GatheredContext> context)
{
    if (C10_LIKELY(!has_history.load(std::memory_order_relaxed))) return;
    if (when.load(std::memory_order_relaxed) < static_cast<int>(RecordContext::ALLOC)) context = nullptr;
    TraceEntry entry(action, -1, reinterpret_cast<size_t>(ptr), bytes, nullptr, id, c10::getApproximateTime(),
                     std::move(context));
    if (entries.size() < entries_max)
        entries.push_back(std::move(entry));
    else
        entries[entries_next] = std::move(entry);
    entries_next = (entries_next + 1) % entries_max;
}

MempoolId_t id_of(const Block &block)
{
    return block.owner ? block.owner->id : MempoolId_t{0, 0};
}
#endif

// --- blocks ---

// Frees a block: the deleter of all pinned memory. Never throws.
void free_pinned(void *ptr)
{
    if (!ptr) return;
    Block block;
#if LOCH_TORCH_AT_LEAST(14)
    auto context = gather(RecordContext::ALL);
#endif
    {
        const std::lock_guard<std::mutex> held(lock);
        const auto found = blocks.find(ptr);
        if (found == blocks.end()) return;
        block = std::move(found->second);
        blocks.erase(found);
        stats.active_requests.decrease(1);
        stats.active_bytes.decrease(block.bytes);
#if LOCH_TORCH_AT_LEAST(14)
        trace(TraceEntry::FREE_REQUESTED, ptr, block.bytes, id_of(block), context ? context : block.context);
        trace(TraceEntry::FREE_COMPLETED, ptr, block.bytes, id_of(block), context ? context : block.context);
#endif
        if (block.owner && block.is_captured && block.is_used && !block.owner->is_dropped) {
            block.owner->parked.emplace_back(block.pool, ptr);
            return;
        }
    }
    if (!block.uses.empty()) {
        Late waiting{block.pool, ptr, std::move(block.uses), {}};
        if (!has_ended(waiting)) {
            const std::lock_guard<std::mutex> held(lock);
            late.push_back(std::move(waiting));
            late_count.store(late.size(), std::memory_order_relaxed);
            return;
        }
    }
    give_back(block.pool, ptr);
}

size_t read_size(loch_allocator *pool, void *ptr, size_t bytes)
{
    loch_block found{};
    found.size = offsetof(loch_block, id);
    return loch_allocator_find(pool, ptr, &found) == LOCH_OK ? found.allocated_bytes : bytes;
}

class HostAllocator final : public at::HostAllocator
{
  public:
    DataPtr allocate(size_t bytes) override
    {
        if (!bytes) return {nullptr, nullptr, &free_pinned, c10::DeviceType::CPU};
        Block block;
#if LOCH_TORCH_AT_LEAST(14)
        block.context = gather(RecordContext::STATE);
#endif
        block.host = &open_host();
        block.owner = find_route(*block.host, &block.is_captured);
        block.pool = block.owner ? open_child(*block.owner, *block.host) : block.host->pool;
        collect_late();
        loch_request request{};
        request.size = sizeof request;
        request.bytes = bytes;
        request.stream = block.host->idle;
        void *ptr = nullptr;
        {
            const Inside inside;
            const loch_status status = loch_allocator_alloc(block.pool, &request, &ptr);
            if (C10_UNLIKELY(status != LOCH_OK)) fail("pin host memory", status);
        }
        block.bytes = read_size(block.pool, ptr, bytes);
        const std::lock_guard<std::mutex> held(lock);
        stats.active_requests.increase(1);
        stats.active_bytes.increase(block.bytes);
#if LOCH_TORCH_AT_LEAST(14)
        trace(TraceEntry::ALLOC, ptr, block.bytes, id_of(block), block.context);
#endif
        blocks.emplace(ptr, std::move(block));
        return {ptr, ptr, &free_pinned, c10::DeviceType::CPU};
    }

    c10::DeleterFnPtr raw_deleter() const override
    {
        return &free_pinned;
    }

    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        std::memcpy(to, from, bytes);
    }

    // `ctx` is the address of the block; `ptr` may lie inside of it. False: neither is ours.
    bool record_event(void *ptr, void *ctx, c10::Stream stream) override
    {
        std::unique_lock<std::mutex> held(lock);
        auto found = blocks.find(ctx);
        if (found == blocks.end()) found = blocks.find(ptr);
        if (found == blocks.end()) return false;
        void *const start = found->first;
        loch_allocator *const pool = found->second.pool;
        const Host *const host = found->second.host;
        held.unlock(); // the caller holds the block
        const Use use = find_use(stream);
        const bool is_under_way = routes_count.load(std::memory_order_relaxed) && is_capturing(use);
        if (!is_under_way && use.device == host->device) {
            check("record a use of pinned memory", loch_allocator_record_use(pool, start, use.stream));
            return true;
        }
        held.lock();
        Block &block = blocks.at(start);
        if (is_under_way && block.is_captured) {
            block.is_used = true; // no event tells when the graph is done with it
            return true;
        }
        for (const Use &seen : block.uses)
            if (seen.device == use.device && seen.stream == use.stream) return true;
        block.uses.push_back(use);
        return true;
    }

    void empty_cache() override
    {
        collect_late();
        if (routes_count.load()) return; // giving memory back may wait, which breaks a capture
        drop_released();
        const Inside inside;
        for (auto &host : hosts)
            if (Host *open = host.load(std::memory_order_acquire))
                check("give pinned memory back", loch_allocator_trim(open->pool, 0, nullptr));
    }

    // --- figures ---

    at::HostStats get_stats() override
    {
        const std::lock_guard<std::mutex> held(lock);
        return stats;
    }

    void reset_accumulated_stats() override
    {
        const std::lock_guard<std::mutex> held(lock);
        for (at::Stat *stat : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
            stat->reset_accumulated();
        stats.host_alloc_time.reset_accumulated();
        stats.host_free_time.reset_accumulated();
        stats.num_host_alloc = stats.num_host_free = 0;
        std::fill(stats.bucket_allocation.begin(), stats.bucket_allocation.end(), 0);
    }

    void reset_peak_stats() override
    {
        const std::lock_guard<std::mutex> held(lock);
        for (at::Stat *stat : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes})
            stat->reset_peak();
        stats.host_alloc_time.reset_peak();
        stats.host_free_time.reset_peak();
    }

    // --- graphs ---

    void begin_allocate_to_pool(MempoolId_t id, std::function<bool(c10::Stream)> filter) override
    {
        const std::lock_guard<std::mutex> held(lock);
        for (const Route &route : routes)
            TORCH_CHECK(route.id != id, "beginAllocateToPool: already recording to mempool_id");
        std::shared_ptr<Private> owner = find_private(id);
        if (!owner) {
            owner = std::make_shared<Private>();
            owner->id = id;
            privates.push_back(owner);
        }
        owner->use_count++;
        routes.push_back({id, std::move(filter)});
        routes_count.store(routes.size());
    }

    void end_allocate_to_pool(MempoolId_t id) override
    {
        const std::lock_guard<std::mutex> held(lock);
        const auto found =
            std::find_if(routes.begin(), routes.end(), [&](const Route &route) { return route.id == id; });
        TORCH_CHECK(found != routes.end(), "endAllocatePool: not currently recording to mempool_id");
        routes.erase(found);
        routes_count.store(routes.size());
    }

    void release_pool(MempoolId_t id) override
    {
        const std::lock_guard<std::mutex> held(lock);
        const std::shared_ptr<Private> owner = find_private(id);
        TORCH_CHECK(owner && owner->use_count > 0, "there is no private pool of pinned memory with this id");
        owner->use_count--;
    }

    // --- history ---

#if LOCH_TORCH_AT_LEAST(14)
    void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn function, size_t max,
                        RecordContext least, bool clear) override
    {
        const std::lock_guard<std::mutex> held(lock);
        if (enabled) {
            std::rotate(entries.begin(), entries.begin() + static_cast<ptrdiff_t>(oldest()), entries.end());
            entries_max = std::max(max, size_t{1});
            if (entries.size() > entries_max)
                entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(entries_max));
            entries_next = entries.size() % entries_max;
            recorder.store(function, std::memory_order_relaxed);
        }
        when.store(enabled ? static_cast<int>(least) : 0, std::memory_order_release);
        has_history.store(enabled);
        if (!clear) return;
        entries.clear();
        entries_next = 0;
    }

    bool is_history_enabled() const override
    {
        return has_history.load();
    }

    std::vector<TraceEntry> get_traces() override
    {
        static c10::ApproximateClockToUnixTimeConverter clock;
        std::vector<TraceEntry> result;
        {
            const std::lock_guard<std::mutex> held(lock);
            for (size_t i = 0; i < entries.size(); i++)
                result.push_back(entries[(oldest() + i) % entries.size()]);
        }
        const auto to_ns = clock.makeConverter();
        for (TraceEntry &entry : result)
            entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
        return result;
    }

    // Live blocks, and the free memory of the pools' segments.
    std::vector<at::HostSegmentInfo> get_segments() override
    {
        std::vector<at::HostSegmentInfo> result;
        std::vector<loch_allocator *> pools;
        std::map<loch_allocator *, MempoolId_t> ids;
        {
            const std::lock_guard<std::mutex> held(lock);
            for (const auto &one : privates)
                for (const auto &[host, child] : one->children) {
                    pools.push_back(loch_allocator_retain(child));
                    ids[child] = one->id;
                }
        }
        for (auto &host : hosts)
            if (Host *open = host.load(std::memory_order_acquire)) pools.push_back(loch_allocator_retain(open->pool));
        for (loch_allocator *pool : pools) {
            const size_t first = result.size();
            const loch_status status = loch_pool_walk_memory(pool, add_segment, &result);
            for (size_t i = first; i < result.size(); i++)
                result[i].owner_private_pool_id = ids.count(pool) ? ids[pool] : MempoolId_t{0, 0};
            loch_allocator_release(pool);
            check("walk over pinned memory", status);
        }
        const std::lock_guard<std::mutex> held(lock);
        for (at::HostSegmentInfo &segment : result) {
            const auto found = blocks.find(reinterpret_cast<void *>(segment.address));
            if (found != blocks.end()) segment.context_when_allocated = found->second.context;
        }
        return result;
    }

  private:
    static loch_status add_segment(const loch_memory_piece *piece, void *user)
    {
        at::HostSegmentInfo info;
        info.address = reinterpret_cast<size_t>(piece->address);
        info.size = piece->bytes;
        info.allocated = piece->state == LOCH_PIECE_USED;
        info.active = info.allocated || piece->state == LOCH_PIECE_WAITING;
        static_cast<std::vector<at::HostSegmentInfo> *>(user)->push_back(std::move(info));
        return LOCH_OK;
    }

    // Returns the index of the oldest entry. `lock` is held.
    static size_t oldest()
    {
        return entries.size() < entries_max || entries.empty() ? 0 : entries_next % entries.size();
    }
#endif
};

void take_lock()
{
    lock.lock();
}

void drop_lock()
{
    lock.unlock();
}

} // namespace

void install_host()
{
    if (!settings().has_pinned) return;
    static auto *const kept = new HostAllocator; // never destroyed: PyTorch frees blocks from static destructors
    (void)pthread_atfork(take_lock, drop_lock, drop_lock);
    at::setHostAllocator(c10::DeviceType::CUDA, kept, 1);
}

} // namespace loch_torch
