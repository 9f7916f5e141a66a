// SPDX-License-Identifier: MIT
// DeviceStats, the memory fraction, cache info, and caching on and off.
//
// Where the figures come from, so that allocate and free pay next to nothing for them:
// - Blocks and bytes in use of the main pool, and their peaks, are Loch's own: exact for one thread, and within a
//   2048th part for several.
// - Sums since the start (allocated, freed) are counted by each thread for itself (Tally).
// - The split at 1 MiB: large blocks are counted by each thread for itself, small ones are the rest. A free learns from
//   a mark whether its block is large (owners.h). The peak of large blocks is exact for one thread, and the sum of the
//   threads' peaks for several. The peak of small ones is the most that was seen when figures were read, and at least
//   the peak of all less the peak of large ones: an exact one would cost every free a search for its size.
// - Private pools are off the fast path, and count with shared atomics. The peak of all is that of the main pool plus
//   what private pools use now, or what was seen when private pools used more than ever.
#include "allocator.h"

#include <cmath>
#include <loch/device.h>
#include <loch/direct.h>

namespace loch_torch
{

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

// Plain numbers of what Counts has.
struct Figures {
    int64_t count = 0, requested = 0, allocated = 0;
};

// What the figures of a device count from. Under Device::lock, except for the private peak.
struct Base {
    Figures made, large_made; // when the sums were reset
    Figures freed, large_freed;
    Figures peak, small_peak; // seen since the peaks were reset
    int64_t reserved_peak = 0;
    int64_t retries = 0, ooms = 0;
    std::atomic<int64_t> private_peak{0}; // most bytes in private pools since the peaks were reset
};

Base *make_base()
{
    return new Base;
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

// All that is known of a device at one moment. Other threads go on, so figures may differ by what they do meanwhile.
struct Look {
    Figures all, all_peak, large, large_peak, made, large_made;
    int64_t reserved = 0, reserved_peak = 0, waiting = 0, segments = 0;
    int64_t device_allocs = 0, device_frees = 0, host_waits = 0;
};

static loch_stats stats_of(Pool &pool)
{
    loch_stats stats{};
    stats.size = sizeof stats;
    check("read statistics", loch_allocator_get_stats(pool.loch, &stats));
    return stats;
}

static loch_pool_info info_of(Pool &pool)
{
    loch_pool_info info{};
    info.size = sizeof info;
    check("read a pool's figures", loch_pool_get_info(pool.loch, &info));
    return info;
}

// Adds the device memory of a pool.
static void add_memory(Look &look, Pool &pool)
{
    const loch_pool_info info = info_of(pool);
    look.reserved += static_cast<int64_t>(info.reserved_bytes);
    look.waiting += static_cast<int64_t>(info.waiting_bytes);
    look.segments += static_cast<int64_t>(info.handles);
    look.device_allocs += static_cast<int64_t>(info.handles_created);
    look.device_frees += static_cast<int64_t>(info.handles_released);
    look.host_waits += static_cast<int64_t>(info.waits_on_host);
}

// Sums the private pools. Device::lock is held. The memory of a pool that is gone is known by its blocks alone.
static Figures look_at_private(Device &device, Look *look)
{
    Figures sum;
    for (Pool *pool : device.pools) {
        const Figures live = read(pool->live);
        sum = sum + live;
        sum.count -= static_cast<int64_t>(pool->kept.size()); // freed for PyTorch, and counted by their own pools
        if (!look) continue;
        for (const Kept &block : pool->kept)
            look->reserved += static_cast<int64_t>(block.bytes);
        if (pool->is_released)
            look->reserved += live.allocated;
        else
            add_memory(*look, *pool);
    }
    return sum;
}

// Looks at a device and remembers peaks. Device::lock is held.
static Look look_at(Device &device)
{
    Look look;
    Base &base = *device.base;
    const loch_stats stats = stats_of(device.main);
    add_memory(look, device.main);
    const int64_t main_reserved = look.reserved;
    const Figures aside = look_at_private(device, &look);
    look.all = aside + Figures{static_cast<int64_t>(stats.blocks), static_cast<int64_t>(stats.requested_bytes),
                               static_cast<int64_t>(stats.allocated_bytes)};
    look.all_peak =
        aside + Figures{static_cast<int64_t>(stats.peak_blocks), static_cast<int64_t>(stats.peak_requested_bytes),
                        static_cast<int64_t>(stats.peak_allocated_bytes)};
    look.reserved_peak = static_cast<int64_t>(stats.peak_reserved_bytes) + look.reserved - main_reserved;
    for (Tally *tally = device.tallies.load(std::memory_order_acquire); tally; tally = tally->next) {
        look.made = look.made + read(tally->made);
        look.large_made = look.large_made + read(tally->large_made);
        look.large = look.large + read(tally->large_made) - read(tally->large_freed);
        look.large_peak = look.large_peak + read(tally->large_peak);
    }
    look.large_peak = most(look.large_peak, look.large);
    look.all_peak = base.peak = most(base.peak, look.all_peak);
    look.reserved_peak = base.reserved_peak = std::max(base.reserved_peak, look.reserved_peak);
    base.small_peak = most(base.small_peak, most(look.all - look.large, look.all_peak - look.large_peak));
    return look;
}

std::pair<size_t, size_t> sum_bytes(Device &device)
{
    const std::lock_guard<std::mutex> held(device.lock);
    const loch_stats stats = stats_of(device.main);
    Look look;
    const Figures aside = look_at_private(device, &look);
    return {stats.allocated_bytes + static_cast<size_t>(aside.allocated),
            stats.reserved_bytes + static_cast<size_t>(look.reserved)};
}

void note_private_peak(Device &device)
{
    const std::lock_guard<std::mutex> held(device.lock);
    const Figures aside = look_at_private(device, nullptr);
    Base &base = *device.base;
    if (aside.allocated <= base.private_peak) return;
    base.private_peak = aside.allocated;
    const loch_stats stats = stats_of(device.main);
    base.peak =
        most(base.peak, aside + Figures{static_cast<int64_t>(stats.blocks), static_cast<int64_t>(stats.requested_bytes),
                                        static_cast<int64_t>(stats.allocated_bytes)});
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
        out.active_bytes[i].peak = std::max(out.active_bytes[i].peak, out.active_bytes[i].current);
    }
    out.segment = make_whole(look.segments, look.segments, look.device_allocs, look.device_frees);
    out.reserved_bytes =
        make_whole(look.reserved, look.reserved_peak, look.reserved_peak, look.reserved_peak - look.reserved);
    // All memory of a pool is one expandable segment, so all that is free in it counts as split.
    const int64_t idle = std::max(int64_t{0}, look.reserved - out.active_bytes[0].current);
    out.inactive_split_bytes = make_whole(idle, idle, 0, 0);
    out.num_alloc_retries = device->retries.load() - base.retries;
    out.num_ooms = device->ooms.load() - base.ooms;
    out.num_sync_all_streams = look.host_waits;
    out.num_device_alloc = look.device_allocs;
    out.num_device_free = look.device_frees;
    out.max_split_size = -1; // no limit, as the native allocator says it
#if LOCH_TORCH_AT_LEAST(13)
    for (Pool *pool : device->pools) {
        if (pool->is_released || !pool->tag.empty()) continue;
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
}

void Allocator::resetPeakStats(DeviceIndex number)
{
    Device *device = find_device(number);
    if (!device) return;
    const std::lock_guard<std::mutex> held(device->lock);
    check("reset the peaks", loch_allocator_reset_stats(device->main.loch));
    Base &base = *device->base;
    base.peak = base.small_peak = Figures{};
    base.reserved_peak = 0;
    base.private_peak = look_at_private(*device, nullptr).allocated;
    for (Tally *tally = device->tallies.load(std::memory_order_acquire); tally; tally = tally->next) {
        const Figures use = read(tally->large_made) - read(tally->large_freed);
        tally->large_peak.count.store(use.count, std::memory_order_relaxed);
        tally->large_peak.requested.store(use.requested, std::memory_order_relaxed);
        tally->large_peak.allocated.store(use.allocated, std::memory_order_relaxed);
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
