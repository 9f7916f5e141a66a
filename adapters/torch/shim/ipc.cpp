// SPDX-License-Identifier: MIT
// Tensors shared between processes, by libloch_share.
//
// PyTorch keeps a tensor that it has sent until all receivers have let go, and orders the two sides by events of its
// own. So a parcel here does not own a block: it stands for the mapped memory around one, which is what a receiver
// maps. Blocks in one piece of memory have one handle, and a receiver maps it once. A parcel whose memory the pool has
// given back is stale, and is replaced when the address is shared again.
//
// A handle is the place of the parcel's own block in the mapped memory, in eight bytes, and the token.
#include "allocator.h"

#include <loch/share.h>
#include <loch/virtual.h>
#include <cstring>
#include <map>
#include <unordered_map>

namespace loch_torch
{

loch_handle_options handle_options(const loch_device *device)
{
    loch_handle_options options{};
    options.size = sizeof options;
    if (settings().has_sharing && loch_device_can(device, LOCH_CAN_SHARE_FD)) options.share = LOCH_SHARE_FD;
    return options;
}

// --- the sender ---

using Range = std::pair<uintptr_t, size_t>; // start and bytes

static std::mutex parcels_lock;

struct Parcel {
    loch_parcel *loch;
    uint64_t place; // of its block in the range
};
static std::map<Range, Parcel> &parcels = *new std::map<Range, Parcel>;

// Finds the mappings around a block.
static Range find_range(const void *ptr, size_t bytes)
{
    const auto end = reinterpret_cast<uintptr_t>(ptr) + bytes;
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    Range range{0, 0};
    do {
        loch_virtual_info info{};
        info.size = sizeof info;
        check("find the memory of a tensor", loch_virtual_find(reinterpret_cast<const void *>(at), &info));
        if (!range.second) range.first = reinterpret_cast<uintptr_t>(info.start);
        at = reinterpret_cast<uintptr_t>(info.start) + info.bytes;
        range.second = at - range.first;
    } while (at < end);
    return range;
}

static bool is_stale(const loch_parcel *parcel)
{
    loch_parcel_info info{};
    info.size = sizeof info;
    return loch_parcel_get_info(parcel, &info) != LOCH_OK || info.state == LOCH_PARCEL_STALE;
}

// Offers a block. Nothing is queued on the stream of the parcel: a receiver waits for PyTorch's own event alone, and
// not for work of streams that have nothing to do with the tensor.
static loch_parcel *make_parcel(const Device &device, void *ptr, size_t bytes)
{
    loch_external external{};
    loch_parcel_options options{};
    loch_buffer *buffer = nullptr;
    loch_parcel *parcel = nullptr;
    options.size = sizeof options;
    check("share a tensor", loch_stream_create(device.loch, nullptr, &options.stream));
    external.size = sizeof external;
    external.device = device.loch;
    loch_status status = loch_buffer_wrap(ptr, bytes, &external, &buffer);
    if (status == LOCH_OK) status = loch_parcel_create(buffer, &options, &parcel);
    loch_buffer_release(buffer);
    loch_stream_release(options.stream);
    check("share a tensor", status);
    return parcel;
}

ShareableHandle Allocator::shareIpcHandle(void *ptr)
{
    Pool *pool = find_owner(ptr);
    TORCH_CHECK(pool, "invalid device pointer: ", ptr);
    TORCH_CHECK(settings().has_sharing, "sharing tensors between processes is off: enable Loch with sharing=on");
    loch_block block{};
    block.size = offsetof(loch_block, id);
    check("share a tensor", loch_allocator_find(pool->loch, ptr, &block));
    const size_t block_bytes = std::max<size_t>(block.requested_bytes, 1);
    const Range range = find_range(ptr, block_bytes);
    const uint64_t place = reinterpret_cast<uintptr_t>(ptr) - range.first;
    const std::lock_guard<std::mutex> held(parcels_lock);
    auto found = parcels.find(range);
    if (found == parcels.end() || is_stale(found->second.loch)) {
        for (auto at = parcels.begin(); at != parcels.end();) { // parcels of memory that is gone
            const bool is_gone = is_stale(at->second.loch);
            if (is_gone) loch_parcel_destroy(at->second.loch);
            at = is_gone ? parcels.erase(at) : std::next(at);
        }
        found = parcels.emplace(range, Parcel{make_parcel(*pool->device, ptr, block_bytes), place}).first;
    }
    size_t bytes = 0;
    const auto *token = static_cast<const char *>(loch_parcel_get_token(found->second.loch, &bytes));
    std::string handle(reinterpret_cast<const char *>(&found->second.place), sizeof found->second.place);
    handle.append(token, bytes);
    return {static_cast<ptrdiff_t>(place), std::move(handle)};
}

// --- the receiver ---

static std::mutex received_lock;
static std::unordered_map<std::string, std::weak_ptr<void>> &received =
    *new std::unordered_map<std::string, std::weak_ptr<void>>;

// Unmaps what no tensor uses any more.
static void release_received(const std::string &key, loch_buffer *buffer)
{
    {
        const std::lock_guard<std::mutex> held(received_lock);
        const auto found = received.find(key); // another thread may have received the memory again
        if (found != received.end() && found->second.expired()) received.erase(found);
    }
    loch_buffer_release(buffer);
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle)
{
    const DeviceIndex number = current_device();
    const std::string key = std::to_string(int{number}) + ":" + handle;
    {
        const std::lock_guard<std::mutex> held(received_lock);
        const auto found = received.find(key);
        if (found != received.end())
            if (std::shared_ptr<void> shared = found->second.lock()) return shared;
    }
    loch_buffer *buffer = nullptr;
    uint64_t place = 0;
    TORCH_CHECK(handle.size() > sizeof place, "a handle of ", handle.size(), " bytes is not one of Loch's");
    std::memcpy(&place, handle.data(), sizeof place);
    const Request noted(Request::kImport);
    check("open a tensor of another process", loch_parcel_import(open_device(number).loch, handle.data() + sizeof place,
                                                                 handle.size() - sizeof place, nullptr, &buffer));
    std::shared_ptr<void> shared(static_cast<char *>(loch_buffer_get_address(buffer)) - place,
                                 [key, buffer](void *) { release_received(key, buffer); });
    std::shared_ptr<void> earlier; // of a thread that was faster: one mapping, counted twice
    {
        const std::lock_guard<std::mutex> held(received_lock);
        std::weak_ptr<void> &entry = received[key];
        earlier = entry.lock();
        if (!earlier) entry = shared;
    }
    return earlier ? earlier : shared;
}

} // namespace loch_torch
