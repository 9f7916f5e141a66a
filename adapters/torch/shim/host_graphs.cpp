// SPDX-License-Identifier: MIT
// Pinned memory of graphs: private pools, and late blocks, which wait for streams that their pool cannot be told of.
#include "host.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>

namespace loch_torch::host
{

// --- late blocks ---

// Records an event behind the work of a stream. Returns nullptr if that is not possible now.
static loch_event *mark(const Use &use)
{
    loch_event *event = nullptr;
    if (is_capturing(use) || loch_event_create(use.device->loch, LOCH_EVENT_PLAIN, &event) != LOCH_OK) return nullptr;
    if (loch_event_record(event, use.stream) == LOCH_OK) return event;
    loch_event_destroy(event);
    return nullptr;
}

// Records the events that can be recorded now, and polls all of them.
bool has_ended(Late &block)
{
    const auto is_marked = [&](const Use &use) {
        loch_event *event = mark(use);
        if (event) block.events.push_back(event);
        return event != nullptr;
    };
    const auto has_passed = [](loch_event *event) {
        if (loch_event_query(event) != LOCH_OK) return false;
        loch_event_destroy(event);
        return true;
    };
    auto &pending = block.pending;
    auto &events = block.events;
    pending.erase(std::remove_if(pending.begin(), pending.end(), is_marked), pending.end());
    events.erase(std::remove_if(events.begin(), events.end(), has_passed), events.end());
    return pending.empty() && events.empty();
}

void keep_late(Late &&block)
{
    State &own = state();
    const std::lock_guard<std::mutex> held(own.lock);
    own.late.push_back(std::move(block));
    own.late_count.store(own.late.size(), std::memory_order_relaxed);
}

// Takes all late blocks, so that no other thread looks at them meanwhile.
void collect_late()
{
    State &own = state();
    if (C10_LIKELY(!own.late_count.load(std::memory_order_relaxed))) return;
    std::vector<Late> taken;
    {
        const std::lock_guard<std::mutex> held(own.lock);
        taken.swap(own.late);
        own.late_count.store(0, std::memory_order_relaxed);
    }
    for (Late &block : taken)
        if (has_ended(block))
            give_back(block.pool, block.ptr);
        else
            keep_late(std::move(block));
}

// --- private pools ---

Private::~Private()
{
    const Inside inside;
    for (const auto &[host, child] : children)
        loch_allocator_release(child);
}

// Finds a private pool. State::lock is held.
static std::shared_ptr<Private> find_private(MempoolId_t id)
{
    for (const auto &one : state().privates)
        if (one->id == id) return one;
    return nullptr;
}

std::shared_ptr<Private> find_route(bool *is_captured)
{
    State &own = state();
    *is_captured = false;
    if (C10_LIKELY(!own.routes_count.load(std::memory_order_relaxed))) return nullptr;
    std::vector<Route> now;
    {
        const std::lock_guard<std::mutex> held(own.lock);
        now = own.routes;
    }
    const c10::Stream stream = settings().is_simulated ? c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0))
                                                       : c10::cuda::getCurrentCUDAStream().unwrap();
    for (const Route &route : now)
        if (route.filter(stream)) {
            *is_captured = is_capturing(find_use(stream));
            const std::lock_guard<std::mutex> held(own.lock);
            return find_private(route.id);
        }
    return nullptr;
}

loch_allocator *open_child(Private &owner, Host &host)
{
    State &own = state();
    {
        const std::lock_guard<std::mutex> held(own.lock);
        const auto found = owner.children.find(&host);
        if (found != owner.children.end()) return found->second;
    }
    const loch_pool_options pool = pool_options();
    loch_child_options options{};
    options.size = sizeof options;
    options.pool = &pool;
    loch_allocator *child = nullptr;
    check("make a pool of pinned memory", loch_pool_create_child(host.pool, "torch graph pinned", &options, &child));
    std::unique_lock<std::mutex> held(own.lock);
    const auto [place, is_new] = owner.children.emplace(&host, child);
    loch_allocator *const result = place->second;
    held.unlock();
    if (!is_new) loch_allocator_release(child); // another thread was faster
    return result;
}

// The graphs of a released pool are gone, but the device may still run them.
void drop_released()
{
    State &own = state();
    std::vector<std::shared_ptr<Private>> released;
    {
        const std::lock_guard<std::mutex> held(own.lock);
        auto &all = own.privates;
        const auto first =
            std::stable_partition(all.begin(), all.end(), [](const auto &one) { return one->use_count > 0; });
        released.assign(std::make_move_iterator(first), std::make_move_iterator(all.end()));
        all.erase(first, all.end());
    }
    if (released.empty()) return;
    for (auto &host : own.hosts)
        if (Host *open = host.load(std::memory_order_acquire)) (void)!loch_device_sync(open->device->loch);
    for (const auto &one : released) {
        std::vector<std::pair<loch_allocator *, void *>> parked;
        {
            const std::lock_guard<std::mutex> held(own.lock);
            one->is_dropped = true; // its live blocks are freed like others from now on
            parked.swap(one->parked);
        }
        for (const auto &[pool, ptr] : parked)
            give_back(pool, ptr);
    }
}

void begin_route(MempoolId_t id, std::function<bool(c10::Stream)> filter)
{
    State &own = state();
    const std::lock_guard<std::mutex> held(own.lock);
    for (const Route &route : own.routes)
        TORCH_CHECK(route.id != id, "beginAllocateToPool: already recording to mempool_id");
    std::shared_ptr<Private> owner = find_private(id);
    if (!owner) {
        owner = std::make_shared<Private>();
        owner->id = id;
        own.privates.push_back(owner);
    }
    owner->use_count++;
    own.routes.push_back({id, std::move(filter)});
    own.routes_count.store(own.routes.size());
}

void end_route(MempoolId_t id)
{
    State &own = state();
    const std::lock_guard<std::mutex> held(own.lock);
    const auto found =
        std::find_if(own.routes.begin(), own.routes.end(), [&](const Route &route) { return route.id == id; });
    TORCH_CHECK(found != own.routes.end(), "endAllocatePool: not currently recording to mempool_id");
    own.routes.erase(found);
    own.routes_count.store(own.routes.size());
}

void release_private(MempoolId_t id)
{
    const std::lock_guard<std::mutex> held(state().lock);
    const std::shared_ptr<Private> owner = find_private(id);
    TORCH_CHECK(owner && owner->use_count > 0, "there is no private pool of pinned memory with this id");
    owner->use_count--;
}

} // namespace loch_torch::host
