// SPDX-License-Identifier: MIT
// Checks of the shim through PyTorch's public class, for what Python reaches on a GPU only: streams, routes, private
// pools, checkpoints. Each check is a function; test_checks.py calls every one by name.
#include <adapters/torch/door.h>
#include <adapters/torch/shim/peers.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <loch/loch.h>
#include <loch/observer.h>
#include <loch/sleep.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>
#include <tuple>

using c10::DataPtr;
using c10::MempoolId_t;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using c10::cuda::CUDACachingAllocator::get;

namespace
{

constexpr size_t kMiB = size_t{1} << 20;

#define REQUIRE(condition) TORCH_CHECK(condition, "line ", __LINE__, ": ", #condition)
#define REQUIRE_EQUAL(a, b) TORCH_CHECK((a) == (b), "line ", __LINE__, ": ", #a, " is ", (a), ", not ", (b))
#define REQUIRE_THROWS(call, words)                                                                                    \
    do {                                                                                                               \
        std::string said;                                                                                              \
        try {                                                                                                          \
            call;                                                                                                      \
        } catch (const std::exception &thrown) {                                                                       \
            said = thrown.what();                                                                                      \
        }                                                                                                              \
        TORCH_CHECK(said.find(words) != std::string::npos, "line ", __LINE__, ": ", #call, " said: ", said);           \
    } while (0)

const loch_torch_door *door;

// Makes a stream of the simulated device, as a cudaStream_t.
cudaStream_t make_stream()
{
    loch_stream *stream = nullptr;
    TORCH_CHECK(loch_stream_create(loch_allocator_get_device(door->get_pool(0)), nullptr, &stream) == LOCH_OK);
    return static_cast<cudaStream_t>(loch_stream_get_native(stream)); // never closed
}

MempoolId_t next_id()
{
    static unsigned long long number = 1000;
    return {number++, 0};
}

int64_t allocated()
{
    return get()->getDeviceStats(0).allocated_bytes[0].current;
}

int64_t reserved()
{
    return get()->getDeviceStats(0).reserved_bytes[0].current;
}

auto all_streams = [](cudaStream_t) { return true; };

// Routes allocations to a pool while it lives. The use of the pool stays until releasePool.
struct Routed {
    MempoolId_t id;
    explicit Routed(MempoolId_t wanted, std::function<bool(cudaStream_t)> filter = all_streams) : id(wanted)
    {
        get()->beginAllocateToPool(0, id, std::move(filter));
    }
    ~Routed() { get()->endAllocateToPool(0, id); }
};

bool is_in(MempoolId_t id, const void *ptr)
{
    for (const auto &segment : get()->snapshot(id).segments)
        if (reinterpret_cast<size_t>(ptr) - segment.address < segment.total_size) return true;
    return false;
}

// --- data pointers ---

void data_pointers_are_like_native_ones()
{
    DataPtr data = get()->allocate(1000);
    REQUIRE(data.get() && data.get() == data.get_context());
    REQUIRE(data.get_deleter() == get()->raw_deleter());
    REQUIRE(data.device() == c10::Device(c10::DeviceType::CUDA, 0));
    REQUIRE(get()->is_simple_data_ptr(data));
    REQUIRE(reinterpret_cast<uintptr_t>(data.get()) % 512 == 0);
    const DataPtr empty = get()->allocate(0);
    REQUIRE(!empty.get() && empty.get_deleter() == get()->raw_deleter());
    REQUIRE(empty.device() == data.device());
    REQUIRE(get()->raw_alloc(0) == nullptr);
    get()->raw_delete(nullptr);
    REQUIRE_THROWS(get()->allocate(size_t{1} << 60), "more than 1EB");
    // torch.compile's graphs take a deleter off and free by hand.
    void *ptr = data.get();
    REQUIRE(data.compare_exchange_deleter(get()->raw_deleter(), c10::detail::deleteNothing));
    get()->raw_delete(ptr);
    data.clear();
}

void a_foreign_pointer_is_refused()
{
    int mine = 0;
    REQUIRE_THROWS(get()->raw_delete(&mine), "invalid device pointer");
    void *ptr = get()->raw_alloc(4096);
    REQUIRE_THROWS(get()->raw_delete(static_cast<char *>(ptr) + 512), "invalid device pointer");
    get()->raw_delete(ptr);
    REQUIRE_THROWS(get()->raw_delete(ptr), "invalid device pointer");
}

// --- streams ---

void blocks_stay_with_their_streams()
{
    const cudaStream_t a = make_stream(), b = make_stream();
    void *first = get()->raw_alloc_with_stream(3 * kMiB, a);
    get()->raw_delete(first);
    void *other = get()->raw_alloc_with_stream(3 * kMiB, b);
    void *again = get()->raw_alloc_with_stream(3 * kMiB, a);
    REQUIRE(again == first);
    REQUIRE(other != first);
    get()->raw_delete(other);
    get()->raw_delete(again);
}

void a_thread_that_only_frees_is_counted()
{
    const auto before = get()->getDeviceStats(0);
    void *large = get()->raw_alloc(5 * kMiB), *small = get()->raw_alloc(100);
    std::thread([&] {
        get()->raw_delete(large);
        get()->raw_delete(small);
    }).join();
    const auto after = get()->getDeviceStats(0);
    for (const size_t i : {0, 1, 2}) {
        REQUIRE_EQUAL(after.allocated_bytes[i].current, before.allocated_bytes[i].current);
        REQUIRE_EQUAL(after.allocation[i].current, before.allocation[i].current);
    }
    REQUIRE_EQUAL(after.allocation[2].freed - before.allocation[2].freed, 1);
    REQUIRE_EQUAL(after.allocated_bytes[1].freed - before.allocated_bytes[1].freed, 512);
}

void threads_lose_no_counts()
{
    const auto before = get()->getDeviceStats(0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([i] {
            for (int round = 0; round < 2000; round++) {
                DataPtr a = get()->allocate(static_cast<size_t>(100 + i)), b = get()->allocate(2 * kMiB);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    const auto after = get()->getDeviceStats(0);
    REQUIRE_EQUAL(after.allocation[0].allocated - before.allocation[0].allocated, 16000);
    REQUIRE_EQUAL(after.allocation[2].allocated - before.allocation[2].allocated, 8000);
    REQUIRE_EQUAL(after.allocation[0].freed - before.allocation[0].freed, 16000);
    REQUIRE_EQUAL(after.allocated_bytes[0].current, before.allocated_bytes[0].current);
    REQUIRE_EQUAL(after.allocated_bytes[2].current, before.allocated_bytes[2].current);
}

// --- private pools ---

void routes_follow_their_filters()
{
    const cudaStream_t a = make_stream(), b = make_stream();
    const MempoolId_t id = next_id(), other = next_id();
    void *on_a = nullptr, *on_b = nullptr;
    {
        const Routed routed(id, [a](cudaStream_t stream) { return stream == a; });
        const Routed late(other); // the first match wins
        REQUIRE_THROWS(get()->beginAllocateToPool(0, id, all_streams), "already recording");
        on_a = get()->raw_alloc_with_stream(1000, a);
        on_b = get()->raw_alloc_with_stream(1000, b);
    }
    void *after = get()->raw_alloc_with_stream(1000, a);
    REQUIRE(is_in(id, on_a) && !is_in(other, on_a));
    REQUIRE(is_in(other, on_b) && !is_in(id, on_b));
    REQUIRE(!is_in(id, after));
    REQUIRE_THROWS(get()->endAllocateToPool(0, id), "not currently recording");
    for (void *ptr : {on_a, on_b, after})
        get()->raw_delete(ptr);
    get()->releasePool(0, id);
    get()->releasePool(0, other);
}

void a_filter_may_allocate()
{
    const MempoolId_t id = next_id();
    std::atomic<int> depth{0};
    void *inside = nullptr, *outside = nullptr;
    {
        const Routed routed(id, [&](cudaStream_t) {
            if (depth++ > 0) return false;
            inside = get()->raw_alloc(2000);
            depth--;
            return true;
        });
        outside = get()->raw_alloc(1000);
    }
    REQUIRE(is_in(id, outside) && !is_in(id, inside));
    get()->raw_delete(inside);
    get()->raw_delete(outside);
    get()->releasePool(0, id);
}

void use_counts_are_counted()
{
    const MempoolId_t id = next_id();
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 0);
    get()->createOrIncrefPool(0, id);
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 1);
    {
        const Routed routed(id);
        REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 2);
    }
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 2);
    get()->releasePool(0, id);
    get()->releasePool(0, id);
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 0);
    REQUIRE_THROWS(get()->releasePool(0, id), "no memory pool");
    REQUIRE_THROWS(get()->setUseOnOOM(0, id, true), "no memory pool");
}

void memory_of_a_released_pool_comes_back()
{
    get()->emptyCache();
    const int64_t before = reserved();
    const MempoolId_t id = next_id();
    void *ptr = nullptr;
    {
        const Routed routed(id);
        DataPtr freed = get()->allocate(64 * kMiB);
        ptr = get()->raw_alloc(8 * kMiB);
    }
    REQUIRE(reserved() - before >= static_cast<int64_t>(72 * kMiB));
    get()->emptyCache(); // takes nothing from a pool in use
    REQUIRE(reserved() - before >= static_cast<int64_t>(72 * kMiB));
    get()->releasePool(0, id);
    get()->emptyCache();
    REQUIRE(reserved() - before <= static_cast<int64_t>(10 * kMiB)); // the live block keeps its own
    get()->raw_delete(ptr);
    get()->emptyCache();
    REQUIRE_EQUAL(reserved(), before);
}

void a_pool_released_during_a_capture_ends_afterwards()
{
    get()->emptyCache();
    const int64_t before = reserved();
    const MempoolId_t id = next_id(), other = next_id();
    {
        const Routed routed(id);
        const DataPtr freed = get()->allocate(64 * kMiB);
    }
    {
        const Routed routed(other);
        get()->releasePool(0, id);
        REQUIRE(reserved() - before >= static_cast<int64_t>(64 * kMiB));
    }
    get()->releasePool(0, other);
    get()->emptyCache();
    REQUIRE_EQUAL(reserved(), before);
}

void many_pools_come_and_go()
{
    const int64_t before = allocated();
    void *kept = nullptr;
    for (int i = 0; i < 200; i++) {
        const MempoolId_t id = next_id();
        void *ptr = nullptr;
        {
            const Routed routed(id);
            ptr = get()->raw_alloc(1000);
        }
        void *plain = get()->raw_alloc(1000);
        get()->releasePool(0, id);
        if (i == 100)
            kept = ptr;
        else
            get()->raw_delete(ptr);
        get()->raw_delete(plain);
    }
    REQUIRE_EQUAL(allocated() - before, 1024);
    get()->raw_delete(kept);
    REQUIRE_EQUAL(allocated(), before);
}

void live_allocations_are_compared()
{
    const MempoolId_t id = next_id();
    void *a = nullptr, *b = nullptr;
    {
        const Routed routed(id);
        a = get()->raw_alloc(1000);
        b = get()->raw_alloc(5 * kMiB);
    }
    REQUIRE(get()->checkPoolLiveAllocations(0, id, {a, b}));
    REQUIRE(!get()->checkPoolLiveAllocations(0, id, {a}));
    REQUIRE(!get()->checkPoolLiveAllocations(0, id, {a, b, &b}));
    REQUIRE(!get()->checkPoolLiveAllocations(0, id, {a, &b}));
    get()->raw_delete(a);
    get()->raw_delete(b);
    REQUIRE(get()->checkPoolLiveAllocations(0, id, {}));
    get()->releasePool(0, id);
}

void an_empty_private_pool_gives_its_memory_back()
{
    get()->emptyCache();
    const int64_t before = reserved();
    const MempoolId_t id = next_id();
    get()->createOrIncrefPool(0, id);
    {
        const Routed routed(id);
        const DataPtr freed = get()->allocate(64 * kMiB);
    }
    REQUIRE(reserved() - before >= static_cast<int64_t>(64 * kMiB));
    get()->emptyCache(id);
    REQUIRE_EQUAL(reserved(), before);
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 2);
    get()->releasePool(0, id);
    get()->releasePool(0, id);
}

void a_pool_lends_its_memory_before_a_failure()
{
    get()->emptyCache();
    const MempoolId_t id = next_id();
    get()->createOrIncrefPool(0, id);
    {
        const Routed routed(id);
        const DataPtr freed = get()->allocate(5120 * kMiB);
    }
    REQUIRE_THROWS(get()->allocate(5120 * kMiB), "CUDA out of memory. Tried to allocate 5.00 GiB. GPU 0 has a total");
    get()->setUseOnOOM(0, id, true);
    {
        const DataPtr lent = get()->allocate(5120 * kMiB);
        REQUIRE(is_in(id, lent.get()));
    }
    get()->releasePool(0, id);
    get()->releasePool(0, id);
    const DataPtr whole = get()->allocate(5120 * kMiB); // the pool's memory came back
}

// Asks for more than there is, so that pools that may lend are asked too.
void ask_for_too_much(std::atomic<bool> &is_over, std::atomic<size_t> &failures)
{
    while (!is_over) {
        try {
            get()->raw_delete(get()->raw_alloc(4096 * kMiB));
        } catch (const c10::OutOfMemoryError &) {
            failures++;
        }
    }
}

void a_pool_that_lends_is_not_ended_meanwhile()
{
    get()->emptyCache();
    const DataPtr most = get()->allocate(5120 * kMiB);
    std::atomic<bool> is_over{false};
    std::atomic<size_t> failures{0};
    std::thread one(ask_for_too_much, std::ref(is_over), std::ref(failures));
    std::thread other(ask_for_too_much, std::ref(is_over), std::ref(failures));
    for (size_t i = 0; i < 2000 || failures < 100; i++) {
        const MempoolId_t id = next_id();
        get()->createOrIncrefPool(0, id);
        get()->setUseOnOOM(0, id, true);
        get()->releasePool(0, id);
    }
    is_over = true;
    one.join();
    other.join();
}

void the_peak_covers_private_pools()
{
    get()->resetPeakStats(0);
    const int64_t before = allocated();
    const MempoolId_t id = next_id();
    {
        const DataPtr outside = get()->allocate(10 * kMiB);
        const Routed routed(id);
        const DataPtr a = get()->allocate(20 * kMiB), b = get()->allocate(30 * kMiB);
        REQUIRE_EQUAL(allocated() - before, static_cast<int64_t>(60 * kMiB));
    }
    REQUIRE_EQUAL(get()->getDeviceStats(0).allocated_bytes[0].peak - before, static_cast<int64_t>(60 * kMiB));
    get()->releasePool(0, id);
    REQUIRE_EQUAL(get()->getDeviceStats(0).allocated_bytes[0].peak - before, static_cast<int64_t>(60 * kMiB));
    get()->resetPeakStats(0);
    REQUIRE_EQUAL(get()->getDeviceStats(0).allocated_bytes[0].peak, before);
}

// --- segments of a foreign allocator ---

// Hands out memory of the host and counts, as MemPools of NCCL and of symmetric memory have an allocator of their own.
struct Foreign final : torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
    std::map<void *, size_t> blocks;
    int calls = 0;
    Foreign() : CUDAPluggableAllocator(nullptr, nullptr) {}
    void *raw_alloc(size_t bytes) override
    {
        void *ptr = std::aligned_alloc(2 * kMiB, (bytes + 2 * kMiB - 1) & ~(2 * kMiB - 1));
        blocks[ptr] = bytes;
        calls++;
        return ptr;
    }
    void raw_delete(void *ptr) override
    {
        REQUIRE(blocks.erase(ptr) == 1);
        std::free(ptr);
    }
};

void segments_come_from_the_pools_own_allocator()
{
    const MempoolId_t id = next_id();
    const auto foreign = std::make_shared<Foreign>();
    get()->createOrIncrefPool(0, id, foreign);
    void *a = nullptr, *b = nullptr;
    {
        const Routed routed(id);
        a = get()->raw_alloc(3 * kMiB);
        b = get()->raw_alloc(1000);
    }
    const auto is_foreign = [&](void *ptr) {
        return std::any_of(foreign->blocks.begin(), foreign->blocks.end(), [&](const auto &block) {
            return ptr >= block.first && ptr < static_cast<char *>(block.first) + block.second;
        });
    };
    REQUIRE(is_foreign(a) && is_foreign(b));
    get()->raw_delete(a);
    get()->raw_delete(b);
    get()->releasePool(0, id);
    get()->releasePool(0, id);
    get()->emptyCache();
    REQUIRE(foreign->blocks.empty());
    REQUIRE(foreign->calls > 0);
}

void blocks_of_an_unsplit_pool_are_segments()
{
    const MempoolId_t id = next_id();
    get()->createOrIncrefPool(0, id);
    get()->setNoSplit(0, id);
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 1);
    void *a = nullptr, *b = nullptr;
    {
        const Routed routed(id);
        a = get()->raw_alloc(1000);
        b = get()->raw_alloc(1000);
        REQUIRE_THROWS(get()->setNoSplit(0, id), "has blocks");
    }
    const auto segments = get()->snapshot(id).segments;
    REQUIRE_EQUAL(segments.size(), size_t{2});
    for (const auto &segment : segments)
        REQUIRE(segment.address == reinterpret_cast<size_t>(a) || segment.address == reinterpret_cast<size_t>(b));
    get()->raw_delete(a);
    get()->raw_delete(b);
    get()->releasePool(0, id);
    get()->releasePool(0, id);
}

// --- checkpoints ---

void checkpoints_restore_blocks_at_their_addresses()
{
    const cudaStream_t stream = make_stream();
    const MempoolId_t id = next_id();
    const int64_t before = allocated();
    std::vector<void *> saved;
    {
        const Routed routed(id);
        for (const size_t bytes : {size_t{100}, size_t{9000}, 3 * kMiB, size_t{700}, 40 * kMiB})
            saved.push_back(get()->raw_alloc_with_stream(bytes, stream));
    }
    const auto state = get()->getCheckpointState(0, id);
    const int64_t in_use = allocated();
    get()->raw_delete(saved[1]);
    get()->raw_delete(saved[4]);
    void *late = nullptr;
    {
        const Routed routed(id);
        late = get()->raw_alloc_with_stream(20 * kMiB, stream); // in the place of a saved block
    }
    auto delta = get()->setCheckpointPoolState(0, state);
    const std::set<void *> freed(delta.ptrs_freed.begin(), delta.ptrs_freed.end());
    REQUIRE(freed == (std::set<void *>{saved[0], saved[2], saved[3], late}));
    std::set<void *> made;
    for (const DataPtr &data : delta.dataptrs_allocd) {
        made.insert(data.get());
        REQUIRE(data.get_deleter() == get()->raw_deleter());
    }
    REQUIRE(made == std::set<void *>(saved.begin(), saved.end()));
    REQUIRE(get()->checkPoolLiveAllocations(0, id, {saved.begin(), saved.end()}));
    REQUIRE_EQUAL(allocated(), in_use);
    delta.dataptrs_allocd.clear();
    REQUIRE_EQUAL(allocated(), before);
    get()->setCheckpointPoolState(0, state);
    REQUIRE(get()->checkPoolLiveAllocations(0, id, {})); // the result was dropped
    REQUIRE_THROWS(get()->getCheckpointState(0, next_id()), "Could not find private pool");
    get()->releasePool(0, id);
    get()->releasePool(0, id);
    REQUIRE_EQUAL(get()->getPoolUseCount(0, id), 0);
}

void a_new_block_does_not_hit_restored_ones()
{
    const MempoolId_t id = next_id();
    const Routed routed(id);
    std::vector<DataPtr> blocks;
    for (int i = 0; i < 50; i++)
        blocks.push_back(get()->allocate(static_cast<size_t>(i) * 7000 + 1));
    const auto state = get()->getCheckpointState(0, id);
    std::vector<void *> addresses;
    for (DataPtr &data : blocks)
        addresses.push_back(data.get());
    blocks.clear();
    for (int i = 0; i < 50; i++)
        blocks.push_back(get()->allocate(static_cast<size_t>(50 - i) * 6000 + 1));
    for (DataPtr &data : blocks) // the checkpoint takes them
        (void)!data.compare_exchange_deleter(get()->raw_deleter(), c10::detail::deleteNothing);
    auto delta = get()->setCheckpointPoolState(0, state);
    REQUIRE_EQUAL(delta.dataptrs_allocd.size(), addresses.size());
    std::vector<std::pair<char *, size_t>> ranges;
    for (int i = 0; i < 50; i++)
        ranges.emplace_back(static_cast<char *>(addresses[static_cast<size_t>(i)]), static_cast<size_t>(i) * 7000 + 1);
    for (int i = 0; i < 50; i++) {
        const DataPtr fresh = get()->allocate(20000);
        auto *start = static_cast<char *>(fresh.get());
        for (const auto &range : ranges)
            REQUIRE(start + 20000 <= range.first || range.first + range.second <= start);
    }
    get()->releasePool(0, id);
}

#if TORCH_VERSION_MINOR >= 13
void blocks_are_placed_at_addresses()
{
    DataPtr data = get()->allocate(3 * kMiB);
    void *address = data.get();
    REQUIRE_THROWS(get()->allocateWithAddress(3 * kMiB, address), "in use");
    data.clear();
    const DataPtr again = get()->allocateWithAddress(3 * kMiB, address);
    REQUIRE(again.get() == address);
}
#endif

// --- limits and caches ---

void caching_can_be_switched_off()
{
    REQUIRE(get()->isEnabled());
    DataPtr before = get()->allocate(3 * kMiB);
    const int64_t in_use = allocated();
    get()->enable(false);
    REQUIRE(!get()->isEnabled());
    DataPtr during = get()->allocate(3 * kMiB);
    REQUIRE_EQUAL(allocated(), in_use); // not from a cache
    REQUIRE(during.get_deleter() == get()->raw_deleter());
    before.clear();
    get()->enable(true);
    during.clear();
    REQUIRE_EQUAL(allocated(), in_use - static_cast<int64_t>(3 * kMiB));
}

void the_largest_block_is_told()
{
    size_t largest = 0;
    get()->cacheInfo(0, &largest);
    REQUIRE(largest > 1024 * kMiB);
    largest = 1;
    {
        const DataPtr cached = get()->allocate(100 * kMiB);
    }
    get()->cacheInfo(0, &largest);
    REQUIRE(largest >= 100 * kMiB);
}

// --- sleep ---

// Notes which thread gives pinned memory back.
struct Unpinned {
    std::atomic<size_t> bytes{0};
    std::atomic<bool> is_here{false};
    std::thread::id here = std::this_thread::get_id();
};

void note_unpinned(loch_range_event event, const loch_range *range, void *user)
{
    auto &seen = *static_cast<Unpinned *>(user);
    if (event != LOCH_RANGE_GOING || range->kind != LOCH_MEMORY_PINNED) return;
    seen.bytes += range->bytes;
    if (std::this_thread::get_id() == seen.here) seen.is_here = true;
}

// Unpinning takes as long as the copy of a wake, so the thread that wakes must not do it.
void a_wake_does_not_wait_for_unpinning()
{
    char error[500];
    size_t bytes = 0;
    loch_device *device = loch_allocator_get_device(door->get_pool(0));
    REQUIRE_EQUAL(door->region_begin("unpinned", error, sizeof error), 0);
    void *ptr = get()->raw_alloc(8 * kMiB);
    REQUIRE_EQUAL(door->region_end(error, sizeof error), 0);
    Unpinned seen;
    REQUIRE(loch_observer_add(device, note_unpinned, &seen) == LOCH_OK);
    for (size_t round = 1; round <= 3; round++) {
        const loch_torch_sleep_part part{"unpinned", LOCH_SLEEP_PINNED, nullptr};
        REQUIRE_EQUAL(door->sleep(&part, 1, &bytes, error, sizeof error), 0); // waits for the trim of the last round
        REQUIRE(seen.bytes >= (round - 1) * 8 * kMiB);
        REQUIRE_EQUAL(door->wake(nullptr, 0, 0, &bytes, error, sizeof error), 0);
        REQUIRE_EQUAL(bytes, 8 * kMiB);
    }
    REQUIRE_EQUAL(door->print_pools(nullptr, 0, &bytes, error, sizeof error), 0); // waits, too
    REQUIRE(seen.bytes >= 3 * 8 * kMiB);
    REQUIRE(!seen.is_here);
    REQUIRE(loch_observer_remove(device, note_unpinned, &seen) == LOCH_OK);
    get()->raw_delete(ptr);
    get()->emptyCache();
}

// --- peers ---

// Ranges that were opened: how often, by address, bytes and reader. Device 3 refuses while is_refusing.
struct Opened {
    static inline std::map<std::tuple<void *, size_t, int>, size_t> ranges;
    static inline std::atomic<bool> is_refusing{false};
    static int open(void *address, size_t bytes, int reader)
    {
        if (reader == 3 && is_refusing) return 101;
        ranges[{address, bytes, reader}]++;
        return 0;
    }
    static bool has(const void *address, int reader)
    {
        for (const auto &[key, count] : ranges)
            if (std::get<2>(key) == reader && static_cast<const char *>(address) >= std::get<0>(key) &&
                static_cast<const char *>(address) < static_cast<char *>(std::get<0>(key)) + std::get<1>(key))
                return true;
        return false;
    }
    static size_t sum()
    {
        size_t all = 0;
        for (const auto &[key, count] : ranges)
            all += count;
        return all;
    }
};

// Memory of a simulated device for a check.
struct Memory {
    loch_device *device = nullptr;
    loch_allocator *pool = nullptr;
    Memory(const char *name, loch_memory_kind kind)
    {
        loch_pool_options options{};
        options.size = sizeof options;
        options.kind = kind;
        REQUIRE(loch_device_open(name, &device) == LOCH_OK);
        REQUIRE(loch_pool_create(device, "peers", &options, &pool) == LOCH_OK);
    }
    ~Memory()
    {
        loch_allocator_release(pool);
        loch_device_release(device);
    }
    void *take(size_t bytes)
    {
        void *ptr = nullptr;
        REQUIRE(loch_alloc(pool, bytes, &ptr) == LOCH_OK);
        return ptr;
    }
};

void mapped_memory_is_opened_to_peers()
{
    static auto &peers = *new loch_torch::Peers(Opened::open); // observes until the process ends
    Memory mapped("sim:1GiB,id=901", LOCH_MEMORY_DEVICE), other("sim:1GiB,id=902", LOCH_MEMORY_DEVICE);
    Memory pinned("sim:1GiB,id=901", LOCH_MEMORY_PINNED);
    int error = 0;
    void *host = pinned.take(kMiB), *first = mapped.take(4 * kMiB), *foreign = other.take(4 * kMiB);
    REQUIRE(peers.add(0, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE(!error && Opened::has(first, 0));
    void *second = mapped.take(64 * kMiB); // memory that comes later
    REQUIRE(Opened::has(second, 0));
    REQUIRE(!Opened::has(host, 0) && !Opened::has(foreign, 0)); // what is no mapping, or of another device
    const size_t before = Opened::sum();
    REQUIRE(peers.add(0, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE_EQUAL(Opened::sum(), before); // a second call does nothing
    REQUIRE(peers.add(2, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE(Opened::has(first, 2) && Opened::has(second, 2));
    // Mappings that come back after a sleep are new to the driver.
    const size_t awake = Opened::sum();
    loch_sleep_options options{};
    options.size = sizeof options;
    options.contents = LOCH_SLEEP_DROP;
    REQUIRE(loch_pool_sleep(mapped.pool, &options, nullptr) == LOCH_OK);
    REQUIRE(loch_pool_wake(mapped.pool, nullptr) == LOCH_OK);
    REQUIRE(Opened::sum() >= awake + 4);
    REQUIRE(loch_free(mapped.pool, first) == LOCH_OK && loch_free(mapped.pool, second) == LOCH_OK);
    REQUIRE(loch_free(pinned.pool, host) == LOCH_OK && loch_free(other.pool, foreign) == LOCH_OK);
}

void memory_that_cannot_be_opened_to_peers_is_reported()
{
    static auto &peers = *new loch_torch::Peers(Opened::open);
    Memory mapped("sim:1GiB,id=903", LOCH_MEMORY_DEVICE);
    int error = 0;
    void *first = mapped.take(4 * kMiB);
    Opened::is_refusing = true;
    REQUIRE(peers.add(3, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE_EQUAL(error, 101);
    Opened::is_refusing = false;
    void *second = mapped.take(64 * kMiB);
    REQUIRE(!Opened::has(second, 3)); // the pair was not added
    REQUIRE(peers.add(3, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE(!error && Opened::has(first, 3) && Opened::has(second, 3));
    Opened::is_refusing = true;
    void *third = mapped.take(128 * kMiB); // fails without a caller
    REQUIRE(!Opened::has(third, 3));
    REQUIRE(peers.add(3, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE_EQUAL(error, 101);
    Opened::is_refusing = false;
    REQUIRE(peers.add(3, 1, mapped.device, &error) == LOCH_OK);
    REQUIRE(!error && Opened::has(third, 3));
    for (void *ptr : {first, second, third})
        REQUIRE(loch_free(mapped.pool, ptr) == LOCH_OK);
}

struct Check {
    const char *name;
    void (*run)();
};
#define CHECK(name)                                                                                                    \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
const Check checks[] = {
    CHECK(data_pointers_are_like_native_ones),
    CHECK(a_foreign_pointer_is_refused),
    CHECK(blocks_stay_with_their_streams),
    CHECK(a_thread_that_only_frees_is_counted),
    CHECK(threads_lose_no_counts),
    CHECK(routes_follow_their_filters),
    CHECK(a_filter_may_allocate),
    CHECK(use_counts_are_counted),
    CHECK(memory_of_a_released_pool_comes_back),
    CHECK(a_pool_released_during_a_capture_ends_afterwards),
    CHECK(many_pools_come_and_go),
    CHECK(live_allocations_are_compared),
    CHECK(an_empty_private_pool_gives_its_memory_back),
    CHECK(a_pool_lends_its_memory_before_a_failure),
    CHECK(a_pool_that_lends_is_not_ended_meanwhile),
    CHECK(the_peak_covers_private_pools),
    CHECK(segments_come_from_the_pools_own_allocator),
    CHECK(blocks_of_an_unsplit_pool_are_segments),
    CHECK(checkpoints_restore_blocks_at_their_addresses),
    CHECK(a_new_block_does_not_hit_restored_ones),
#if TORCH_VERSION_MINOR >= 13
    CHECK(blocks_are_placed_at_addresses),
#endif
    CHECK(caching_can_be_switched_off),
    CHECK(the_largest_block_is_told),
    CHECK(a_wake_does_not_wait_for_unpinning),
    CHECK(mapped_memory_is_opened_to_peers),
    CHECK(memory_that_cannot_be_opened_to_peers_is_reported),
};

} // namespace

extern "C" {

// Returns the name of check `index`; NULL behind the last one.
__attribute__((visibility("default"))) const char *checks_name(size_t index)
{
    return index < sizeof checks / sizeof *checks ? checks[index].name : nullptr;
}

// Runs a check. Returns "" or what is wrong.
__attribute__((visibility("default"))) const char *checks_run(const loch_torch_door *given, size_t index)
{
    static std::string text;
    door = given;
    text.clear();
    try {
        get()->raw_delete(get()->raw_alloc(1)); // opens the device
        checks[index].run();
    } catch (const c10::Error &thrown) {
        text = thrown.what_without_backtrace();
    } catch (const std::exception &thrown) {
        text = thrown.what();
    }
    return text.c_str();
}
}
