// SPDX-License-Identifier: MIT
// DeviceStats, the memory fraction, cache info, and caching on and off.
#include "allocator.h"

namespace loch_torch
{

DeviceStats Allocator::getDeviceStats(DeviceIndex number)
{
    DeviceStats out;
    Device *device = find_device(number);
    if (!device) return out;
    loch_stats stats{};
    stats.size = sizeof stats;
    check("read statistics", loch_allocator_get_stats(device->main.loch, &stats));
    out.allocated_bytes[0].current = static_cast<int64_t>(stats.allocated_bytes);
    out.allocated_bytes[0].peak = static_cast<int64_t>(stats.peak_allocated_bytes);
    out.reserved_bytes[0].current = static_cast<int64_t>(stats.reserved_bytes);
    out.reserved_bytes[0].peak = static_cast<int64_t>(stats.peak_reserved_bytes);
    return out;
}

void Allocator::resetAccumulatedStats(DeviceIndex)
{
}

void Allocator::resetPeakStats(DeviceIndex)
{
}

std::pair<size_t, size_t> Allocator::getMemoryInfo(DeviceIndex number)
{
    loch_memory_info info{};
    info.size = sizeof info;
    check("read the memory of a device", loch_device_calculate_memory(open_device(number).loch, &info));
    return {info.free_bytes, info.total_bytes};
}

double Allocator::getMemoryFraction(DeviceIndex number)
{
    return open_device(number).fraction;
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex number)
{
    open_device(number).fraction = fraction;
}

std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex)
{
    return {};
}

void Allocator::enable(bool value)
{
    set_rare(kRareDisabled, !value);
}

bool Allocator::isEnabled() const
{
    return !(rare.load() & kRareDisabled);
}

void Allocator::cacheInfo(DeviceIndex, size_t *)
{
}

void Allocator::emptyCache(MempoolId_t)
{
    for (int i = 0; i < kDevicesMax; i++)
        if (Device *device = find_device(i)) check("trim a pool", loch_allocator_trim(device->main.loch, 0, nullptr));
}

} // namespace loch_torch
