// SPDX-License-Identifier: MIT
// Allocate and free. The fast path takes no lock, calls no driver and looks up nothing by hash.
//
// It asks c10 for the current device and stream, finds Loch's stream in a cache of one entry for each thread, and calls
// the pool. A free finds the pool from the address (owners.h). Everything that programs rarely use is behind one flag
// (Rare); what PyTorch keeps for a thread only, its profiler, is asked at every call, as the native allocator does.
#include "owners.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ScopeExit.h>

#include <pthread.h>

namespace loch_torch
{

constexpr size_t kBytesMax = size_t{1} << 60;

// The device and the stream that the thread used last: programs stay with them for long.
struct Last {
    Device *device;
    Tally *tally;
    loch_stream *stream;
    cudaStream_t native;
    c10::StreamId id; // PyTorch's number of the stream
    bool has_id;
};
static thread_local Last last __attribute__((tls_model("initial-exec")));

// --- counts of a thread ---

static pthread_key_t tally_key;

static void leave_tallies(void *)
{
    for (int i = 0; i < kDevicesMax; i++)
        if (Device *device = find_device(i))
            for (Tally *tally = device->tallies.load(std::memory_order_acquire); tally; tally = tally->next)
                if (tally->owner.load(std::memory_order_relaxed) == &last)
                    tally->owner.store(nullptr, std::memory_order_release);
    last = Last{}; // what ends later in this thread finds counts of its own again
}

// Finds the thread's counts on a device: its own, those of a thread that ended, or new ones.
static Tally *find_tally(Device &device)
{
    static const int is_made = pthread_key_create(&tally_key, leave_tallies);
    Tally *spare = nullptr;
    for (Tally *tally = device.tallies.load(std::memory_order_acquire); tally; tally = tally->next) {
        const void *owner = tally->owner.load(std::memory_order_acquire);
        if (owner == &last) return tally;
        if (!owner) spare = tally;
    }
    if (is_made == 0) (void)pthread_setspecific(tally_key, &last);
    const void *none = nullptr;
    if (spare && spare->owner.compare_exchange_strong(none, &last, std::memory_order_acq_rel)) return spare;
    auto *made = new Tally;
    made->request.size = sizeof made->request;
    made->request.alignment = kAlignment;
    made->owner.store(&last, std::memory_order_relaxed);
    made->next = device.tallies.load(std::memory_order_relaxed);
    while (!device.tallies.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {}
    return made;
}

static inline void add(std::atomic<int64_t> &figure, int64_t more)
{
    figure.store(figure.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

static inline void add(Counts &counts, const Large &block)
{
    add(counts.count, 1);
    add(counts.requested, static_cast<int64_t>(block.requested));
    add(counts.allocated, static_cast<int64_t>(block.allocated));
}

static inline void raise(std::atomic<int64_t> &peak, const std::atomic<int64_t> &made,
                         const std::atomic<int64_t> &freed)
{
    const int64_t use = made.load(std::memory_order_relaxed) - freed.load(std::memory_order_relaxed);
    if (use > peak.load(std::memory_order_relaxed)) peak.store(use, std::memory_order_relaxed);
}

// Returns the sizes of a block as PyTorch counts them.
static inline Large round_up(size_t bytes)
{
    return {(bytes + kAlignment - 1) & ~(kAlignment - 1), bytes};
}

static inline void count_bytes(Tally &tally, void *ptr, size_t bytes)
{
    const Large block = round_up(bytes);
    add(tally.made, block);
    if (bytes <= kSmallMax) return;
    put_large(ptr, bytes);
    add(tally.large_made, block);
    raise(tally.large_peak.count, tally.large_made.count, tally.large_freed.count);
    raise(tally.large_peak.requested, tally.large_made.requested, tally.large_freed.requested);
    raise(tally.large_peak.allocated, tally.large_made.allocated, tally.large_freed.allocated);
}

// --- the thread's device and stream ---

static void use(Device &device, cudaStream_t native)
{
    if (last.device != &device) {
        last.tally = find_tally(device);
        last.device = &device;
    }
    last.has_id = false;
    last.stream = last.tally->request.stream = nullptr;
    last.native = nullptr;
    last.stream = find_stream(device, native);
    last.native = native;
    last.tally->request.stream = last.stream;
}

// Makes a device and its current stream those of the thread.
C10_NOINLINE static void use_current(DeviceIndex number)
{
    Device &device = open_device(number);
    if (settings().is_simulated) {
        use(device, nullptr);
        last.id = 0;
    } else {
        const CUDAStream stream = c10::cuda::getCurrentCUDAStream(number);
        use(device, stream.stream());
        last.id = stream.id();
    }
    last.has_id = true;
}

// Brings the thread to the current device and stream.
static inline void follow()
{
    DeviceIndex number = 0;
    const World where = world.load(std::memory_order_relaxed);
    if (C10_UNLIKELY(where != World::kOne)) {
        if (settings().is_simulated) {
            if (C10_UNLIKELY(!last.has_id)) use_current(0);
            return;
        }
        C10_CUDA_CHECK(c10::cuda::GetDevice(&number));
    }
    const c10::StreamId id = c10::cuda::getCurrentCUDAStream(number).id();
    if (C10_UNLIKELY(!last.has_id || last.id != id || last.device->number != number)) use_current(number);
}

static inline void follow(Device &device, cudaStream_t native)
{
    if (C10_UNLIKELY(last.device != &device || last.native != native)) use(device, native);
}

// --- reports to PyTorch ---

// Tells PyTorch's profiler of a change. The sums are those of the device's pools.
C10_NOINLINE static void report(Device &device, void *ptr, int64_t bytes)
{
    const std::pair<size_t, size_t> sums = sum_bytes(device);
    c10::reportMemoryUsageToProfiler(ptr, bytes, sums.first, sums.second,
                                     c10::Device(c10::DeviceType::CUDA, static_cast<DeviceIndex>(device.number)));
}

static Large sizes_of(Pool &pool, void *ptr)
{
    loch_block block{};
    block.size = offsetof(loch_block, id);
    if (loch_allocator_find(pool.loch, ptr, &block) != LOCH_OK) return {0, 0};
    if (pool.planned) return round_up(block.requested_bytes); // places begin at multiples of the alignment
    return {block.allocated_bytes, block.requested_bytes};
}

static inline void trace_alloc(void *ptr)
{
    const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace();
    if (C10_UNLIKELY(interpreter))
        (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
}

static inline void trace_free(void *ptr)
{
    const c10::impl::PyInterpreter *interpreter = c10::impl::GPUTrace::get_trace();
    if (C10_UNLIKELY(interpreter))
        (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
}

// --- handing out ---

// Counts a block of a private pool that comes (sign 1) or goes (-1). Other threads do so too.
static void count_private(Pool &pool, const Large &block, int64_t sign)
{
    const int64_t requested = sign * static_cast<int64_t>(block.requested);
    const int64_t allocated = sign * static_cast<int64_t>(block.allocated);
    pool.live.allocated.fetch_add(allocated, std::memory_order_relaxed);
    if (sign > 0) pool.live.count.fetch_add(1, std::memory_order_relaxed);
    count_aside(*pool.device, sign, requested, allocated);
}

// Counts that Loch has a block of a private pool back.
static void leave_private(Pool &pool)
{
    if (pool.live.count.fetch_sub(1) == 1) retire_if_empty(pool); // the record may belong to another pool now
}

// Returns whether an allocation is noted. Segments of private pools always know their pool: NCCL registers them by it.
static inline bool is_noted(const Pool &pool)
{
    return pool.is_private || rare.load(std::memory_order_relaxed) & kRareHistory;
}

// Returns the bytes of a block beyond its size in units of PyTorch.
static int64_t slack_of(const Large &block)
{
    const size_t units = (block.requested + kAlignment - 1) / kAlignment;
    return static_cast<int64_t>(block.allocated) - static_cast<int64_t>(units * kAlignment);
}

void count_alloc(Pool &pool, void *ptr, size_t bytes, cudaStream_t stream)
{
    Device &device = *pool.device;
    follow(device, stream);
    if (has_many_pools.load(std::memory_order_relaxed)) mark_owner(pool, ptr);
    const bool is_reported = c10::memoryProfilingEnabled();
    const Large block = pool.is_private || is_reported ? sizes_of(pool, ptr) : Large{0, bytes};
    if (pool.is_private) count_private(pool, block, 1);
    if (!pool.is_direct) count_bytes(*last.tally, ptr, bytes);
    if (pool.is_private) add(last.tally->made.allocated, slack_of(block)); // a segment of its own has more
    if (is_noted(pool)) note_alloc(pool, ptr, bytes, stream);
    if (is_reported) report(device, ptr, static_cast<int64_t>(block.allocated));
}

void *allocate_from(Pool &pool, size_t bytes, cudaStream_t stream)
{
    follow(*pool.device, stream);
    loch_request request = last.tally->request; // a copy: callbacks may allocate, too
    request.bytes = bytes;
    if (rare.load(std::memory_order_relaxed) & kRareRegion) request.flags = region_flags(pool, bytes);
    const Request noted(is_noted(pool) ? Request::kAlloc : Request::kNone, &pool, stream);
    Pool *served = &pool;
    void *ptr = nullptr;
    const loch_status status = loch_allocator_alloc(pool.loch, &request, &ptr);
    if (C10_UNLIKELY(status != LOCH_OK)) ptr = reclaim_and_allocate(served, request, status);
    count_alloc(*served, ptr, bytes, stream);
    if (C10_UNLIKELY(served != &pool)) release_pool(*served);
    return ptr;
}

// Returns the pool for the thread's device and stream.
static Pool &pool_here()
{
    Device &device = *last.device;
    const uint32_t features = rare.load(std::memory_order_relaxed);
    Pool *pool = nullptr;
    if (features & kRareDisabled) return direct_pool(device);
    if (features & kRareRoutes) pool = find_route(device, last.native);
    if (!pool && features & kRareRegion) pool = find_region(device);
    return pool ? *pool : device.main;
}

Pool &choose_pool(Device **device, cudaStream_t *stream)
{
    follow();
    *device = last.device;
    *stream = last.native;
    return pool_here();
}

// Allocates for the thread's device and stream while a rare feature is on, or after the fast path failed.
C10_NOINLINE static void *allocate_rarely(size_t bytes)
{
    const cudaStream_t stream = last.native; // a filter may allocate, and so change `last`
    Device &device = *last.device;
    Pool &pool = pool_here();
    Pool *plan = nullptr;
    if (&pool == &device.main && rare.load(std::memory_order_relaxed) & kRarePlan) plan = hold_plan(device);
    if (C10_LIKELY(!plan)) return allocate_from(pool, bytes, stream);
    const auto done = c10::make_scope_exit([&] { release_pool(*plan); });
    return allocate_from(*plan, bytes, stream);
}

// Allocates for the thread's device and stream.
static inline void *allocate_here(size_t bytes)
{
    if (C10_UNLIKELY(rare.load(std::memory_order_relaxed) || c10::memoryProfilingEnabled()))
        return allocate_rarely(bytes);
    loch_request &request = last.tally->request;
    request.bytes = bytes;
    Pool &pool = last.device->main;
    void *ptr = nullptr;
    if (C10_UNLIKELY(loch_allocator_alloc(pool.loch, &request, &ptr) != LOCH_OK)) return allocate_rarely(bytes);
    if (C10_UNLIKELY(has_many_pools.load(std::memory_order_relaxed))) mark_owner(pool, ptr);
    count_bytes(*last.tally, ptr, bytes);
    return ptr;
}

// --- taking back ---

[[noreturn]] C10_NOINLINE static void fail_free(void *ptr, loch_status status)
{
    TORCH_CHECK(status != LOCH_E_FOREIGN && status != LOCH_E_INTERIOR && status != LOCH_E_DOUBLE_FREE,
                "invalid device pointer: ", ptr, " (", loch_error_get()->sentence, ")");
    fail("free a block", status);
}

static inline void count_large_free(const Pool &pool, const Large &block)
{
    Tally &tally = C10_LIKELY(last.device == pool.device) ? *last.tally : *find_tally(*pool.device);
    add(tally.large_freed, block);
}

// Frees a block and counts it if it is large. The mark of a large block is taken first: after the free, another thread
// may have the address.
static inline loch_status free_counted(Pool &pool, void *ptr)
{
    Large block;
    const bool is_large = take_large(ptr, &block);
    const loch_status status = loch_free(pool.loch, ptr);
    if (C10_LIKELY(!is_large)) return status;
    if (C10_UNLIKELY(status != LOCH_OK)) {
        put_large(ptr, block.requested);
        return status;
    }
    count_large_free(pool, block);
    return status;
}

// Frees a block of a private pool, or keeps it for graphs. The last block of a released pool ends it, so its frees hold
// the device's lock: others look at the pool under that lock. Memory of a foreign allocator is never looked at then.
static loch_status free_private(Pool &pool, void *ptr, size_t bytes, bool *is_kept)
{
    std::shared_lock<std::shared_mutex> present(pool.ending);
    if (!pool.is_released || pool.source) return free_counted(pool, ptr);
    present.unlock();
    const std::lock_guard<std::mutex> held(pool.device->lock);
    *is_kept = keep_for_graphs(pool, ptr, bytes);
    if (!*is_kept) return free_counted(pool, ptr);
    Large block;
    if (take_large(ptr, &block)) count_large_free(pool, block); // for PyTorch it is free
    return LOCH_OK;
}

void free_to(Pool &pool, void *ptr)
{
    Device &device = *pool.device;
    const bool is_private = pool.is_private, is_reported = c10::memoryProfilingEnabled();
    const Large block = is_private || is_reported ? sizes_of(pool, ptr) : Large{0, 0};
    if (rare.load(std::memory_order_relaxed) & kRareHistory) note_free(pool, ptr);
    bool is_kept = false;
    const loch_status status =
        is_private ? free_private(pool, ptr, block.allocated, &is_kept) : free_counted(pool, ptr);
    if (C10_UNLIKELY(status != LOCH_OK)) fail_free(ptr, status);
    if (is_private) count_private(pool, block, -1);
    if (!is_kept && is_private) leave_private(pool);
    if (is_reported) report(device, ptr, -static_cast<int64_t>(block.allocated));
}

void free_kept(const Kept &block)
{
    loch_status status;
    {
        const std::lock_guard<std::mutex> held(block.pool->device->lock);
        status = free_counted(*block.pool, block.address);
    }
    if (C10_UNLIKELY(status != LOCH_OK)) fail_free(block.address, status);
    leave_private(*block.pool);
}

C10_NOINLINE static void free_rarely(void *ptr)
{
    Pool *pool = find_owner(ptr);
    TORCH_CHECK(pool, "invalid device pointer: ", ptr);
    free_to(*pool, ptr);
}

static inline void free_block(void *ptr)
{
    if (C10_UNLIKELY(rare.load(std::memory_order_relaxed) & kRareHistory || c10::memoryProfilingEnabled()))
        return free_rarely(ptr);
    Pool *pool = guess_owner(ptr);
    if (C10_UNLIKELY(!pool || pool->is_private)) return free_rarely(ptr);
    if (C10_UNLIKELY(free_counted(*pool, ptr) != LOCH_OK)) free_rarely(ptr);
}

// Deleters are called by destructors, which must not throw: a failure becomes a warning. At the exit of the process
// the driver may be gone before the last tensor; then there is nothing to say.
C10_NOINLINE static void warn_of(const c10::Error &thrown)
{
    const loch_status status = loch_error_get()->status;
    if (status != LOCH_E_DRIVER && status != LOCH_E_DEVICE_LOST) TORCH_WARN(thrown.what_without_backtrace());
}

void delete_block(void *ptr)
{
    if (!ptr) return;
    try {
        free_block(ptr);
        trace_free(ptr);
    } catch (const c10::Error &thrown) {
        warn_of(thrown);
    }
}

// --- PyTorch's calls ---

DataPtr make_data_ptr(void *ptr, DeviceIndex number)
{
    return {ptr, ptr, &delete_block, c10::Device(c10::DeviceType::CUDA, number)};
}

DataPtr Allocator::allocate(size_t bytes)
{
    if (C10_UNLIKELY(bytes - 1 >= kBytesMax - 1)) {
        TORCH_CHECK_WITH(OutOfMemoryError, !bytes, "CUDA out of memory. Tried to allocate more than 1EB memory.");
        return make_data_ptr(nullptr, current_device());
    }
    follow();
    void *ptr = allocate_here(bytes);
    trace_alloc(ptr);
    return {ptr, ptr, &delete_block, last.device->torch};
}

c10::DeleterFnPtr Allocator::raw_deleter() const
{
    return &delete_block;
}

void *Allocator::raw_alloc(size_t bytes)
{
    if (!bytes) return nullptr;
    follow();
    void *ptr = allocate_here(bytes);
    trace_alloc(ptr);
    return ptr;
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream)
{
    if (!bytes) return nullptr;
    follow(open_device(current_device()), stream);
    void *ptr = allocate_here(bytes);
    trace_alloc(ptr);
    return ptr;
}

void Allocator::raw_delete(void *ptr)
{
    if (!ptr) return;
    free_block(ptr);
    trace_free(ptr);
}

void Allocator::recordStream(const DataPtr &ptr, CUDAStream stream)
{
    if (!ptr.get() || ptr.get_deleter() != &delete_block) return; // empty, or memory of another process
    Pool *pool = find_owner(ptr.get());
    if (!pool) return;
    if (rare.load(std::memory_order_relaxed) & kRareHistory) note_use(ptr.get(), stream.stream());
    check("record the use of a block",
          loch_allocator_record_use(pool->loch, ptr.get(), find_stream(*pool->device, stream.stream())));
}

} // namespace loch_torch
