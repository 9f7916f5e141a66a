// SPDX-License-Identifier: MIT
// Private pools: of graphs, of MemPools. Each is a child pool whose memory belongs to graphs: what was freed serves
// later requests of the pool on the same stream, and stays mapped until the pool ends.
//
// A pool ends when its use count falls to 0. Its free memory goes back then, and the memory of live blocks when they
// are freed. The end waits for the device, which no capture allows; so while something is routed to a pool, the end
// waits for that, too.
//
// A graph may use a block of a pool that has ended: a tensor of a graph that was reset, read by the next one and freed
// while that is captured. Its memory would be unmapped by then. So the block is kept until the pool of the capture
// ends, or emptyCache gives all back. The native allocator keeps such memory until emptyCache.
#include "allocator.h"
#include "source.h"

namespace loch_torch
{

static std::string print_id(MempoolId_t id)
{
    return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

static bool is_main(MempoolId_t id)
{
    return id.first == 0 && id.second == 0;
}

// Counts the routes of all devices: allocations look for routes while there are some.
static void count_routes(int more)
{
    static std::mutex lock;
    static int count;
    const std::lock_guard<std::mutex> held(lock);
    count += more;
    set_rare(kRareRoutes, count > 0);
}

// --- finding ---

Pool *find_route(Device &device, cudaStream_t stream)
{
    std::shared_ptr<const Routes> routes;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        routes = device.routes;
    }
    if (!routes) return nullptr;
    for (const Route &route : *routes) // without the lock: a filter may call the driver or take Python's lock
        if (route.filter(stream)) return route.pool;
    return nullptr;
}

Pool *find_pool(Device &device, MempoolId_t id)
{
    if (is_main(id)) return &device.main;
    for (Pool *pool : device.pools)
        if (pool->id == id && pool->use_count > 0) return pool;
    return nullptr;
}

static Pool &require_pool(Device &device, MempoolId_t id)
{
    Pool *pool = find_pool(device, id);
    TORCH_CHECK(pool, "there is no memory pool with id ", print_id(id), " on device ", device.number);
    return *pool;
}

// --- making ---

static std::vector<Pool *> spare_pools; // records that can be used again; under spare_lock
static std::mutex spare_lock;

static Pool *take_record()
{
    const std::lock_guard<std::mutex> held(spare_lock);
    if (spare_pools.empty()) return new Pool;
    Pool *pool = spare_pools.back();
    spare_pools.pop_back();
    return pool;
}

static void leave_record(Pool *pool)
{
    const std::lock_guard<std::mutex> held(spare_lock);
    spare_pools.push_back(pool);
}

Pool *make_pool(Device &device, MempoolId_t id, const char *name, const loch_pool_options *options)
{
    loch_child_options child{};
    child.size = sizeof child;
    child.kind = LOCH_CHILD_QUOTA;
    child.pool = options;
    loch_allocator *made = nullptr;
    check("make a private pool", loch_pool_create_child(device.main.loch, name, &child, &made));
    Pool *pool = take_record();
    pool->loch = made;
    pool->device = &device;
    pool->id = id;
    pool->is_private = true;
    pool->use_count = 1;
    pool->is_on_oom = pool->is_unsplit = pool->is_released = false;
    pool->behind = nullptr;
    pool->planned = nullptr;
    pool->tag.clear();
    pool->source = nullptr;
    add_owner(*pool);
    device.pools.push_back(pool);
    return pool;
}

static Pool *make_private(Device &device, MempoolId_t id, const std::string &tag, std::shared_ptr<CUDAAllocator> source,
                          bool is_unsplit)
{
    loch_pool_options options{};
    options.size = sizeof options;
    options.captures = LOCH_POOL_CAPTURES_SHARED;
    options.handle = handle_options(device.loch);
    if (is_unsplit) options.preset = LOCH_POOL_NO_SPLIT;
    const std::string name = "torch cuda:" + std::to_string(device.number) + " pool " + print_id(id);
    const std::unique_ptr<loch_allocator, void (*)(loch_allocator *)> segments(
        source ? make_source(device, id, source) : nullptr, loch_allocator_release); // the pool keeps it
    options.source = segments.get();
    Pool *pool = make_pool(device, id, name.c_str(), &options);
    pool->source = std::move(source);
    pool->tag = tag;
    pool->is_unsplit = is_unsplit;
    return pool;
}

// --- ending ---

static bool has_routes(const Device &device)
{
    return device.routes && !device.routes->empty();
}

bool keep_for_graphs(Pool &pool, void *ptr, size_t bytes)
{
    const Device &device = *pool.device;
    if (!has_routes(device)) return false;
    device.routes->back().pool->kept.push_back({&pool, ptr, bytes});
    return true;
}

static void free_all(const std::vector<Kept> &kept)
{
    for (const Kept &block : kept)
        free_kept(block);
}

// Ends a pool without users, unless something is routed to a pool.
static void end_pool(Pool &pool)
{
    Device &device = *pool.device;
    loch_allocator *ended = nullptr;
    std::vector<Kept> kept;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        if (pool.use_count > 0 || pool.is_released || has_routes(device)) return;
        hide_owner(pool);
        ended = pool.loch;
        kept.swap(pool.kept);
    }
    loch_allocator_release(ended);
    retire_if_empty(pool);
    free_all(kept);
    note_private_memory(device);
}

// Frees the blocks that are kept for graphs, unless something is routed to a pool.
static void free_kept_blocks(Device &device)
{
    std::vector<Kept> kept;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        if (has_routes(device)) return;
        for (Pool *pool : device.pools) {
            kept.insert(kept.end(), pool->kept.begin(), pool->kept.end());
            pool->kept.clear();
        }
    }
    free_all(kept);
}

void retire_if_empty(Pool &pool)
{
    Device &device = *pool.device;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        if (!pool.is_released || pool.live.count.load() != 0) return;
        const auto place = std::find(device.pools.begin(), device.pools.end(), &pool);
        if (place == device.pools.end()) return; // another thread was faster
        device.pools.erase(place);
    }
    remove_owner(pool);
    leave_record(&pool);
}

// Forgets all pools that were released and have no blocks.
static void retire_empty_pools(Device &device)
{
    std::vector<Pool *> released;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        for (Pool *pool : device.pools)
            if (pool->is_released) released.push_back(pool);
    }
    for (Pool *pool : released)
        retire_if_empty(*pool);
}

void release_pool(Pool &pool)
{
    {
        const std::lock_guard<std::mutex> held(pool.device->lock);
        TORCH_CHECK(pool.use_count > 0, "memory pool ", print_id(pool.id), " has no users");
        if (--pool.use_count > 0) return;
    }
    end_pool(pool);
}

void release_waiting_pools(Device &device)
{
    std::vector<Pool *> waiting;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        for (Pool *pool : device.pools)
            if (pool->use_count == 0 && !pool->is_released) waiting.push_back(pool);
    }
    for (Pool *pool : waiting)
        end_pool(*pool);
}

// Puts a new pool in the place of one without blocks, so that the memory of the old one goes back. Returns false if the
// pool has blocks, or something is routed to a pool.
static bool replace_pool(Device &device, MempoolId_t id, bool is_unsplit)
{
    loch_allocator *old = nullptr;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        Pool &pool = require_pool(device, id);
        if (!pool.is_private || pool.live.count.load() != 0 || has_routes(device)) return false;
        Pool *fresh = make_private(device, id, pool.tag, pool.source, is_unsplit);
        fresh->kept.swap(pool.kept);
        fresh->use_count = pool.use_count;
        fresh->is_on_oom = pool.is_on_oom;
        pool.use_count = 0;
        hide_owner(pool);
        old = pool.loch;
    }
    loch_allocator_release(old);
    retire_empty_pools(device);
    note_private_memory(device);
    return true;
}

// --- PyTorch's calls ---

void Allocator::createOrIncrefPool(DeviceIndex number, MempoolId_t id, std::shared_ptr<CUDAAllocator> source)
{
    Device &device = open_device(number);
    const std::string tag = current_tag();
    const std::lock_guard<std::mutex> held(device.lock);
    if (Pool *pool = find_pool(device, id))
        pool->use_count++;
    else
        make_private(device, id, tag, std::move(source), false);
}

void Allocator::beginAllocateToPool(DeviceIndex number, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
{
    Device &device = open_device(number);
    const std::string tag = current_tag();
    const std::lock_guard<std::mutex> held(device.lock);
    auto routes = device.routes ? std::make_shared<Routes>(*device.routes) : std::make_shared<Routes>();
    for (const Route &route : *routes)
        TORCH_CHECK(route.id != id, "beginAllocateToPool: already recording to mempool_id");
    Pool *pool = find_pool(device, id);
    if (pool)
        pool->use_count++;
    else
        pool = make_private(device, id, tag, nullptr, false);
    routes->push_back({id, std::move(filter), pool});
    device.routes = std::move(routes);
    count_routes(1);
}

void Allocator::endAllocateToPool(DeviceIndex number, MempoolId_t id)
{
    Device &device = open_device(number);
    {
        const std::lock_guard<std::mutex> held(device.lock);
        auto routes = device.routes ? std::make_shared<Routes>(*device.routes) : std::make_shared<Routes>();
        const auto place =
            std::find_if(routes->begin(), routes->end(), [&](const Route &route) { return route.id == id; });
        TORCH_CHECK(place != routes->end(), "endAllocatePool: not currently recording to mempool_id");
        routes->erase(place);
        device.routes = std::move(routes);
        count_routes(-1);
    }
    release_waiting_pools(device);
}

void Allocator::releasePool(DeviceIndex number, MempoolId_t id)
{
    Device &device = open_device(number);
    Pool *pool;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        pool = &require_pool(device, id);
    }
    if (pool->is_private) release_pool(*pool);
}

int Allocator::getPoolUseCount(DeviceIndex number, MempoolId_t id)
{
    Device &device = open_device(number);
    const std::lock_guard<std::mutex> held(device.lock);
    const Pool *pool = find_pool(device, id);
    return pool ? pool->use_count : 0;
}

void Allocator::setUseOnOOM(DeviceIndex number, MempoolId_t id, bool use_on_oom)
{
    Device &device = open_device(number);
    const std::lock_guard<std::mutex> held(device.lock);
    require_pool(device, id).is_on_oom = use_on_oom;
}

void Allocator::setNoSplit(DeviceIndex number, MempoolId_t id)
{
    TORCH_CHECK(replace_pool(open_device(number), id, true),
                "setNoSplit: the pool has blocks already, or allocations are routed to a pool");
}

static loch_status note_block(const loch_block *block, void *user)
{
    try {
        static_cast<std::vector<void *> *>(user)->push_back(block->address);
        return LOCH_OK;
    } catch (const std::bad_alloc &) { // Loch calls from C
        return LOCH_E_HOST_MEMORY;
    }
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex number, MempoolId_t id, const std::unordered_set<void *> &expected)
{
    Device &device = open_device(number);
    std::vector<void *> live;
    const std::lock_guard<std::mutex> held(device.lock);
    check("walk a pool", loch_allocator_walk(require_pool(device, id).loch, note_block, &live));
    return live.size() == expected.size() &&
           std::all_of(live.begin(), live.end(), [&](void *ptr) { return expected.count(ptr) == 1; });
}

#if LOCH_TORCH_AT_LEAST(13)
// Loch's pools notice captures by themselves.
void Allocator::markCaptureBegin(DeviceIndex)
{
}

void Allocator::markCaptureEnd(DeviceIndex)
{
}
#endif

// --- caches ---

// Gives the free memory of a private pool back. Graphs may use it as long as the pool lives, so only a pool without
// blocks is emptied. As with the native allocator, the caller knows that no graph needs it.
static void empty_private(Device &device, MempoolId_t id)
{
    bool is_unsplit = false;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        const Pool *pool = find_pool(device, id);
        if (!pool) return;
        is_unsplit = pool->is_unsplit;
    }
    (void)replace_pool(device, id, is_unsplit);
}

// Gives the free memory of regions back. A region that sleeps refuses.
static void empty_regions(Device &device)
{
    std::vector<loch_allocator *> regions;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        for (const Pool *pool : device.pools)
            if (is_main(pool->id) && !pool->is_released) regions.push_back(loch_allocator_retain(pool->loch));
    }
    for (loch_allocator *region : regions) {
        (void)!loch_allocator_trim(region, 0, nullptr);
        loch_allocator_release(region);
    }
    if (!regions.empty()) note_private_memory(device);
}

static void empty_device(Device &device, MempoolId_t id)
{
    release_waiting_pools(device);
    if (!is_main(id)) return empty_private(device, id);
    free_kept_blocks(device);
    empty_regions(device);
    check("trim a pool", loch_allocator_trim(device.main.loch, 0, nullptr));
}

void Allocator::emptyCache(MempoolId_t id)
{
    const bool is_noted = rare.load(std::memory_order_relaxed) & kRareHistory;
    const Request noted(is_noted ? Request::kGive : Request::kNone);
    for (int i = 0; i < kDevicesMax; i++)
        if (Device *device = find_device(i)) empty_device(*device, id);
}

} // namespace loch_torch
