// SPDX-License-Identifier: MIT
// DeviceStats, the memory fraction, cache info, and caching on and off.
//
// Where the figures come from, so that allocate and free pay next to nothing for them:
// - Blocks and bytes in use of the main pool, and their peaks, are Loch's own: exact for one thread, and within a
//   2048th part for several.
// - Sums since the start (allocated, freed) are counted by each thread for itself (Tally).
// - The split at 1 MiB: large blocks are counted by each thread for itself, small ones are the rest. A free learns from
//   a mark whether its block is large (owners.h). The peak of large blocks is exact for one thread. For several it is
//   the sum of the threads' peaks, and at most the peak of all: a thread that only allocates has no peak of its own.
//   The peak of small ones is the most that was seen when figures were read, and at least the peak of all less the peak
//   of large ones: an exact one would cost every free a search for its size.
// - Private pools are off the fast path, and count with shared atomics.
// - The peak of all pools: time is cut into spans in which private pools hold the same memory and use about as much of
//   it. The peak of a span is the most of the private pools plus the most of the main pool. That is at most a quarter
//   of the private pools' use too high, and more only within a tenth of a millisecond. Loch forgets the main pool's
//   peaks at the end of a span for one reader only (Base::view), not for others.
// - Segments are counted as they come and go (segments.cpp).
#include "allocator.h"

#include <cmath>
#include <loch/device.h>
#include <loch/direct.h>
#include <loch/host.h>
#include <loch/wrapper.h>

namespace loch_torch
{

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

// Plain numbers of what Counts has.
struct Figures {
    int64_t count = 0, requested = 0, allocated = 0;
};

// What the figures of a device count from. Under Device::lock, except for the limits of the span.
struct Base {
    loch_allocator *view = nullptr; // the main pool, with peaks of the present span
    Figures made, large_made;       // when the sums were reset
    Figures freed, large_freed;
    Figures peak, small_peak; // seen since the peaks were reset
    int64_t reserved_peak = 0;
    int64_t retries = 0, ooms = 0, host_waits = 0; // when the sums were reset
    int64_t reserved_freed = 0;
    Flow flow;                            // when the sums were reset
    int64_t span_reserved = 0;            // bytes that private pools held when the span began
    std::atomic<int64_t> low{0}, high{0}; // bytes in private pools at which the span ends
    std::atomic<uint64_t> began_ns{0};    // time when the span began
    std::atomic<uint32_t> overdue{0};     // blocks beyond the limits so far: the clock is read for each 8th
};

constexpr uint64_t kSpanNs = 100'000; // least length of a span, unless memory comes: an end costs a microsecond

Base *make_base(loch_allocator *main)
{
    auto base = std::make_unique<Base>();
    loch_allocator_ops ops{};
    ops.size = sizeof ops;
    ops.kind = "view";
    check("watch a pool", loch_wrapper_create(main, nullptr, &ops, nullptr, &base->view));
    return base.release();
}

// --- sums ---

static Figures read(const Counts &counts)
{
    return {counts.count.load(std::memory_order_relaxed), counts.requested.load(std::memory_order_relaxed),
            counts.allocated.load(std::memory_order_relaxed)};
}

static Figures operator+(const Figures &a, const Figures &b)
{
    return {a.count + b.count, a.requested + b.requested, a.allocated + b.allocated};
}

static Figures operator-(const Figures &a, const Figures &b)
{
    return {a.count - b.count, a.requested - b.requested, a.allocated - b.allocated};
}

static Figures most(const Figures &a, const Figures &b)
{
    return {std::max(a.count, b.count), std::max(a.requested, b.requested), std::max(a.allocated, b.allocated)};
}

static Figures least(const Figures &a, const Figures &b)
{
    return {std::min(a.count, b.count), std::min(a.requested, b.requested), std::min(a.allocated, b.allocated)};
}

// All that is known of a device at one moment. Other threads go on, so figures may differ by what they do meanwhile.
struct Look {
    Figures all, all_peak, large, large_peak, made, large_made;
    int64_t reserved = 0, reserved_peak = 0, waiting = 0, host_waits = 0;
    Flow flow;
};

static loch_stats stats_of(loch_allocator *pool)
{
    loch_stats stats{};
    stats.size = sizeof stats;
    check("read statistics", loch_allocator_get_stats(pool, &stats));
    return stats;
}

static Figures use_of(const loch_stats &stats)
{
    return {static_cast<int64_t>(stats.blocks), static_cast<int64_t>(stats.requested_bytes),
            static_cast<int64_t>(stats.allocated_bytes)};
}

static Figures peak_of(const loch_stats &stats)
{
    return {static_cast<int64_t>(stats.peak_blocks), static_cast<int64_t>(stats.peak_requested_bytes),
            static_cast<int64_t>(stats.peak_allocated_bytes)};
}

static loch_pool_info info_of(Pool &pool)
{
    loch_pool_info info{};
    info.size = sizeof info;
    check("read a pool's figures", loch_pool_get_info(memory_of(pool), &info));
    return info;
}

// Returns the bytes that the private pools hold, and adds those that streams still use to `waiting`. Device::lock is
// held. The memory of a pool that is gone is known by its blocks alone.
static int64_t hold_private(Device &device, int64_t *waiting)
{
    int64_t reserved = 0;
    for (Pool *pool : device.pools) {
        for (const Kept &block : pool->kept)
            reserved += static_cast<int64_t>(block.bytes);
        if (pool->is_released) {
            reserved += pool->live.allocated.load(std::memory_order_relaxed);
            continue;
        }
        const loch_pool_info info = info_of(*pool);
        reserved += static_cast<int64_t>(info.reserved_bytes);
        if (waiting) *waiting += static_cast<int64_t>(info.waiting_bytes);
    }
    return reserved;
}

// Raises the peaks by those of the present span so far. Device::lock is held.
static void raise_peaks(Device &device, const loch_stats &main)
{
    Base &base = *device.base;
    base.peak = most(base.peak, read(device.aside_most) + peak_of(main));
    base.reserved_peak =
        std::max(base.reserved_peak, base.span_reserved + static_cast<int64_t>(main.peak_reserved_bytes));
}

static void store(Counts &counts, const Figures &figures)
{
    counts.count.store(figures.count, std::memory_order_relaxed);
    counts.requested.store(figures.requested, std::memory_order_relaxed);
    counts.allocated.store(figures.allocated, std::memory_order_relaxed);
}

// Ends the present span and begins another one. Device::lock is held.
static void begin_span(Device &device)
{
    Base &base = *device.base;
    const loch_stats main = stats_of(base.view);
    raise_peaks(device, main);
    device.has_aside_grown = false;
    const Figures now = read(device.aside);
    const int64_t reserved = hold_private(device, nullptr);
    const bool has_fallen = main.peak_blocks > main.blocks || main.peak_requested_bytes > main.requested_bytes ||
                            main.peak_allocated_bytes > main.allocated_bytes ||
                            main.peak_reserved_bytes > main.reserved_bytes;
    if (has_fallen) check("forget the peaks of a span", loch_allocator_reset_stats(base.view));
    store(device.aside_most, now);
    base.span_reserved = reserved;
    const int64_t step = now.allocated / 8 + static_cast<int64_t>(kSmallMax);
    base.low = now.allocated - step;
    base.high = now.allocated + step;
    base.overdue = 0;
    base.began_ns = loch_host_now_ns();
}

void note_private_memory(Device &device)
{
    const std::lock_guard<std::mutex> held(device.lock);
    begin_span(device);
}

// Looks at a device and remembers peaks. Device::lock is held.
static Look look_at(Device &device)
{
    Look look;
    Base &base = *device.base;
    const loch_stats main = stats_of(base.view);
    const loch_pool_info info = info_of(device.main);
    look.waiting = static_cast<int64_t>(info.waiting_bytes);
    look.host_waits = static_cast<int64_t>(info.waits_on_host);
    look.flow = read_flow(device);
    const int64_t private_reserved = hold_private(device, &look.waiting);
    look.reserved = static_cast<int64_t>(main.reserved_bytes) + private_reserved;
    look.all = read(device.aside) + use_of(main);
    raise_peaks(device, main);
    look.all_peak = base.peak = most(base.peak, look.all);
    look.reserved_peak = base.reserved_peak = std::max(base.reserved_peak, look.reserved);
    for (Tally *tally = device.tallies.load(std::memory_order_acquire); tally; tally = tally->next) {
        look.made = look.made + read(tally->made);
        look.large_made = look.large_made + read(tally->large_made);
        look.large = look.large + read(tally->large_made) - read(tally->large_freed);
        look.large_peak = look.large_peak + read(tally->large_peak);
    }
    look.large_peak = most(least(look.large_peak, look.all_peak), look.large);
    base.small_peak = most(base.small_peak, most(look.all - look.large, look.all_peak - look.large_peak));
    return look;
}

std::pair<size_t, size_t> sum_bytes(Device &device)
{
    const std::lock_guard<std::mutex> held(device.lock);
    const loch_stats main = stats_of(device.main.loch);
    return {main.allocated_bytes + static_cast<size_t>(read(device.aside).allocated),
            main.reserved_bytes + static_cast<size_t>(hold_private(device, nullptr))};
}

static void raise(std::atomic<int64_t> &most, int64_t seen)
{
    int64_t before = most.load(std::memory_order_relaxed);
    while (seen > before && !most.compare_exchange_weak(before, seen, std::memory_order_relaxed)) {}
}

// Tells whether the span is long enough to end it.
static bool is_span_over(Base &base)
{
    const uint32_t overdue = base.overdue.load(std::memory_order_relaxed);
    base.overdue.store(overdue + 1, std::memory_order_relaxed);
    return overdue % 8 == 0 && loch_host_now_ns() - base.began_ns >= kSpanNs;
}

void count_aside(Device &device, int64_t blocks, int64_t requested, int64_t allocated)
{
    Counts &now = device.aside, &most = device.aside_most;
    const Figures sum = {now.count.fetch_add(blocks, std::memory_order_relaxed) + blocks,
                         now.requested.fetch_add(requested, std::memory_order_relaxed) + requested,
                         now.allocated.fetch_add(allocated, std::memory_order_relaxed) + allocated};
    Base &base = *device.base;
    const bool is_other = sum.allocated < base.low.load(std::memory_order_relaxed) ||
                          sum.allocated > base.high.load(std::memory_order_relaxed);
    if (device.has_aside_grown.load(std::memory_order_relaxed) || (is_other && is_span_over(base)))
        note_private_memory(device);
    raise(most.count, sum.count);
    raise(most.requested, sum.requested);
    raise(most.allocated, sum.allocated);
}

// --- DeviceStats ---

static Stat make_stat(int64_t current, int64_t peak, int64_t made, int64_t freed)
{
    Stat stat;
    stat.current = current;
    stat.peak = std::max(peak, current);
    stat.allocated = made;
    stat.freed = freed;
    return stat;
}

// Makes the three statistics of one member of Figures.
static StatArray make_stats(int64_t Figures::*member, const Look &look, const Base &base)
{
    const int64_t all = look.all.*member, large = look.large.*member;
    const int64_t made = look.made.*member, large_made = look.large_made.*member;
    // What was freed is what was made and is not in use.
    const Stat whole = make_stat(all, look.all_peak.*member, made - base.made.*member, made - all - base.freed.*member);
    const Stat big = make_stat(large, look.large_peak.*member, large_made - base.large_made.*member,
                               large_made - large - base.large_freed.*member);
    const Stat small =
        make_stat(all - large, base.small_peak.*member, whole.allocated - big.allocated, whole.freed - big.freed);
    return {whole, small, big};
}

// Makes the statistics of a figure that Loch does not split: all of it is under "large".
static StatArray make_whole(int64_t current, int64_t peak, int64_t made, int64_t freed)
{
    const Stat stat = make_stat(current, peak, made, freed);
    return {stat, Stat{}, stat};
}

DeviceStats Allocator::getDeviceStats(DeviceIndex number)
{
    DeviceStats out;
    Device *device = find_device(number);
    if (!device) return out;
    const std::lock_guard<std::mutex> held(device->lock);
    const Look look = look_at(*device);
    const Base &base = *device->base;
    out.allocation = make_stats(&Figures::count, look, base);
    out.requested_bytes = make_stats(&Figures::requested, look, base);
    out.allocated_bytes = make_stats(&Figures::allocated, look, base);
    out.active = out.allocation;
    out.active_bytes = out.allocated_bytes;
    for (const size_t i : {size_t{0}, size_t{2}}) { // blocks that streams still use; Loch does not split them
        out.active_bytes[i].current += look.waiting;
        out.active_bytes[i].freed = std::max(int64_t{0}, out.active_bytes[i].freed - look.waiting);
        out.active_bytes[i].peak = std::max(out.active_bytes[i].peak, out.active_bytes[i].current);
    }
    const Flow &flow = look.flow, &from = base.flow;
    out.segment = make_whole(flow.taken - flow.given, flow.peak, flow.taken - from.taken, flow.given - from.given);
    out.reserved_bytes = make_whole(look.reserved, look.reserved_peak, flow.taken_bytes - from.taken_bytes,
                                    flow.taken_bytes - look.reserved - base.reserved_freed);
    // inactive_split stays 0, as with expandable segments of the native allocator: whole free pages can be given back.
    out.num_alloc_retries = device->retries.load() - base.retries;
    out.num_ooms = device->ooms.load() - base.ooms;
    out.num_sync_all_streams = look.host_waits - base.host_waits;
    out.num_device_alloc = flow.taken - from.taken;
    out.num_device_free = flow.given - from.given;
    out.max_split_size = -1; // no limit, as the native allocator says it
#if LOCH_TORCH_AT_LEAST(13)
    for (Pool *pool : device->pools) {
        if (pool->is_released || pool->planned || !pool->tag.empty()) continue;
        const auto reserved = static_cast<int64_t>(info_of(*pool).reserved_bytes);
        out.reserved_bytes_by_private_pools[pool->id] = make_whole(reserved, reserved, reserved, 0);
    }
#endif
    return out;
}

void Allocator::resetAccumulatedStats(DeviceIndex number)
{
    Device *device = find_device(number);
    if (!device) return;
    const std::lock_guard<std::mutex> held(device->lock);
    const Look look = look_at(*device);
    Base &base = *device->base;
    base.made = look.made;
    base.large_made = look.large_made;
    base.freed = look.made - look.all;
    base.large_freed = look.large_made - look.large;
    base.retries = device->retries.load();
    base.ooms = device->ooms.load();
    base.host_waits = look.host_waits;
    base.flow = look.flow;
    base.reserved_freed = look.flow.taken_bytes - look.reserved;
}

void Allocator::resetPeakStats(DeviceIndex number)
{
    Device *device = find_device(number);
    if (!device) return;
    const std::lock_guard<std::mutex> held(device->lock);
    check("reset the peaks", loch_allocator_reset_stats(device->main.loch));
    begin_span(*device);
    Base &base = *device->base;
    base.peak = base.small_peak = Figures{};
    base.reserved_peak = 0;
    restart_flow_peak(*device);
    for (Tally *tally = device->tallies.load(std::memory_order_acquire); tally; tally = tally->next) {
        store(tally->large_peak, read(tally->large_made) - read(tally->large_freed));
    }
}

// --- limits and caches ---

std::pair<size_t, size_t> Allocator::getMemoryInfo(DeviceIndex number)
{
    loch_memory_info info{};
    info.size = sizeof info;
    check("read the memory of a device", loch_device_calculate_memory(open_device(number).loch, &info));
    return {info.free_bytes, info.total_bytes};
}

double Allocator::getMemoryFraction(DeviceIndex number)
{
    Device &device = open_device(number);
    const std::lock_guard<std::mutex> held(device.lock);
    return device.fraction;
}

size_t limit_of(const Device &device, double fraction)
{
    const size_t limit = settings().limit_bytes;
    if (fraction >= 1) return limit;
    const auto allowed = static_cast<size_t>(fraction * static_cast<double>(device.total_bytes));
    return std::max(size_t{1}, limit ? std::min(limit, allowed) : allowed); // Loch takes 0 for no limit
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex number)
{
    TORCH_CHECK_VALUE(fraction >= 0 && fraction <= 1, "invalid fraction: ", fraction, ". Please set within [0, 1].");
    Device &device = open_device(number);
    check("set the limit of a device's pool", loch_pool_set_limit(device.main.loch, limit_of(device, fraction)));
    const std::lock_guard<std::mutex> held(device.lock);
    device.fraction = fraction;
}

std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex number)
{
    Device *device = find_device(number);
    if (!device) return {};
    return {StreamSegmentSize(nullptr, false, info_of(device->main).reserved_bytes)};
}

void Allocator::cacheInfo(DeviceIndex number, size_t *largest)
{
    if (!*largest) *largest = getMemoryInfo(number).first;
    // Merges what threads have cached; gives nothing back.
    check("merge free memory", loch_allocator_trim(open_device(number).main.loch, SIZE_MAX, nullptr));
    *largest = std::max(*largest, static_cast<size_t>(info_of(open_device(number).main).largest_free_bytes));
}

// --- caching off ---

void Allocator::enable(bool value)
{
    set_rare(kRareDisabled, !value);
}

bool Allocator::isEnabled() const
{
    return !(rare.load() & kRareDisabled);
}

Pool &direct_pool(Device &device)
{
    const std::lock_guard<std::mutex> held(device.lock);
    Pool &pool = device.direct;
    if (pool.loch) return pool;
    const std::string name = "torch direct cuda:" + std::to_string(device.number);
    check("make a direct allocator", loch_direct_create(device.loch, name.c_str(), nullptr, &pool.loch));
    pool.device = &device;
    pool.is_direct = true;
    add_owner(pool);
    return pool;
}

} // namespace loch_torch
