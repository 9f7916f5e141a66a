// SPDX-License-Identifier: MIT
// Maps PyTorch's numbers of devices and its streams to Loch's. Look-ups take no lock: devices and streams are only
// added, and published when they are complete.
#include "allocator.h"

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <loch/device.h>
#include <pthread.h>

namespace loch_torch
{

static std::mutex devices_lock; // held to add a device
static std::atomic<Device *> devices[kDevicesMax];
static std::atomic<int> count; // devices that init() announced
std::atomic<World> world{World::kMany};

// CUDA's handle of the per-thread default stream: one value that means a different stream in each thread.
static const auto stream_of_thread = reinterpret_cast<cudaStream_t>(2);

// --- numbers ---

bool Allocator::initialized()
{
    return count.load(std::memory_order_acquire) > 0;
}

// Notes that there are at least so many devices.
static void announce(int device_count)
{
    const int wanted = std::min(device_count, kDevicesMax);
    int seen = count.load();
    while (seen < wanted && !count.compare_exchange_weak(seen, wanted)) {}
    if (settings().is_simulated)
        world.store(World::kSimulated);
    else
        world.store(count.load() == 1 ? World::kOne : World::kMany);
}

void Allocator::init(int device_count)
{
    announce(device_count);
}

std::string Allocator::name()
{
    return "loch";
}

int device_count() noexcept
{
    return count.load(std::memory_order_acquire);
}

DeviceIndex current_device()
{
    DeviceIndex number = 0;
    if (world.load(std::memory_order_relaxed) != World::kMany || settings().is_simulated) return number;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&number));
    return number;
}

// --- devices ---

// Builds the name of a device: the setting with its first %d replaced.
static std::string device_name(int number)
{
    std::string name = settings().device;
    const size_t place = name.find("%d");
    TORCH_CHECK(place != std::string::npos || number == 0, "Loch's device \"", name,
                "\" is one device: write %d into it for number ", number);
    if (place != std::string::npos) name.replace(place, 2, std::to_string(number));
    return name;
}

static Device *make_device(int number)
{
    auto device = std::make_unique<Device>();
    const std::string name = device_name(number), pool_name = "torch cuda:" + std::to_string(number);
    loch_pool_options options{};
    options.size = sizeof options;
    loch_device_properties properties{};
    properties.size = sizeof properties;
    device->number = number;
    device->torch.set_index(static_cast<DeviceIndex>(number));
    check("open a device", loch_device_open(name.c_str(), &device->loch));
    check("read a device's properties", loch_device_get_properties(device->loch, &properties));
    device->total_bytes = properties.total_bytes;
    device->fraction = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::per_process_memory_fraction();
    options.limit_bytes = limit_of(*device, device->fraction);
    options.handle = handle_options(device->loch);
    options.captures = LOCH_POOL_CAPTURES_ELSEWHERE; // PyTorch routes the requests of captures to private pools
    check("make a pool", loch_pool_create(device->loch, pool_name.c_str(), &options, &device->main.loch));
    device->main.device = device.get();
    device->main.use_count = 1;
    device->base = make_base(device->main.loch);
    add_owner(device->main);
    return device.release();
}

Device *find_device(int number) noexcept
{
    if (number < 0 || number >= kDevicesMax) return nullptr;
    return devices[number].load(std::memory_order_acquire);
}

Device &open_device(DeviceIndex number)
{
    if (Device *device = find_device(number)) return *device;
    TORCH_CHECK(number >= 0 && number < std::max(device_count(), 1), "Invalid device argument ", int{number},
                ": did you call init?");
    std::unique_lock<std::mutex> held(devices_lock);
    Device *device = find_device(number);
    if (device) return *device;
    device = make_device(number);
    devices[number].store(device, std::memory_order_release);
    held.unlock();
    if (settings().is_simulated) announce(number + 1); // nothing else does: there is no CUDA to initialise
    note_device(*device);
    return *device;
}

// --- streams ---

static std::atomic<Stream *> &bucket_of(Device &device, cudaStream_t native)
{
    const auto bits = (reinterpret_cast<uintptr_t>(native) >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return device.streams[(bits >> 58) % kStreamBuckets];
}

static loch_stream *seen_stream(Device &device, cudaStream_t native)
{
    const Stream *seen = bucket_of(device, native).load(std::memory_order_acquire);
    while (seen && seen->native != native)
        seen = seen->next;
    return seen ? seen->loch : nullptr;
}

loch_stream *find_stream(Device &device, cudaStream_t native)
{
    loch_stream *found = nullptr;
    if (!native) return nullptr; // the default stream of CUDA and of Loch
    if (native == stream_of_thread) {
        check("wrap a stream", loch_stream_wrap(device.loch, native, &found));
        return found;
    }
    if ((found = seen_stream(device, native))) return found;
    const std::lock_guard<std::mutex> held(device.lock);
    if ((found = seen_stream(device, native))) return found;
    auto added = std::make_unique<Stream>();
    check("wrap a stream", loch_stream_wrap(device.loch, native, &found));
    std::atomic<Stream *> &bucket = bucket_of(device, native);
    *added = Stream{native, found, bucket.load(std::memory_order_relaxed)};
    bucket.store(added.release(), std::memory_order_release);
    return found;
}

cudaStream_t find_native(Device &device, uint64_t stream_id)
{
    for (std::atomic<Stream *> &bucket : device.streams)
        for (const Stream *seen = bucket.load(std::memory_order_acquire); seen; seen = seen->next)
            if (loch_stream_get_id(seen->loch) == stream_id) return seen->native;
    return nullptr;
}

} // namespace loch_torch
