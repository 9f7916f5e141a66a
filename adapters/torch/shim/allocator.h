// SPDX-License-Identifier: MIT
// The allocator that PyTorch gets, and what the files of the shim share.
//
// PyTorch asks one object for everything about CUDA memory: a c10::cuda::CUDACachingAllocator::CUDAAllocator. Allocator
// is that object. It keeps a Loch pool for each device, and a child pool for each private pool of PyTorch (a graph's, a
// MemPool's) and for each region that can sleep. Everything lives until the process ends: PyTorch frees blocks from
// static destructors.
//
// | file | idea |
// |---|---|
// | install.cpp | the door: options, installing, text for people |
// | devices.cpp | numbers of devices and cudaStream_t to Loch's devices and streams |
// | allocate.cpp | allocate and free: the fast path |
// | oom.cpp | what happens when memory is short |
// | statistics.cpp | DeviceStats, fraction, cache info, caching on and off |
// | pools.cpp | private pools: routes, use counts, foreign segments |
// | checkpoint.cpp | the live blocks of a private pool, saved and restored at the same addresses |
// | peer.cpp | copies between devices, memory that is opened to other devices (peers.h) |
// | ipc.cpp | tensors shared between processes |
// | host.cpp, host_graphs.cpp, host_history.cpp | pinned memory (host.h) |
// | history.cpp, snapshot.cpp, segments.cpp | traces, contexts, snapshots, observers of segments |
// | sleep.cpp | regions and sleep |
// | plan.cpp | steps of a training loop served by a planned pool |
#pragma once

#include "version.h"
#include <door.h>

#include <c10/cuda/CUDACachingAllocator.h>
#include <loch/child.h>
#include <loch/loch.h>
#include <loch/planned.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace loch_torch
{

using c10::CaptureId_t;
using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
using c10::cuda::CUDAStream;
using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::AllocatorTraceTracker;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
using c10::cuda::CUDACachingAllocator::CreateContextFn;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using c10::cuda::CUDACachingAllocator::DeviceStats;
using c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;
using c10::cuda::CUDACachingAllocator::RecordContext;
using c10::cuda::CUDACachingAllocator::ShareableHandle;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;
using c10::cuda::CUDACachingAllocator::StreamSegmentSize;

// Native blocks are multiples of 512 bytes and aligned to them; programs and memory_allocated() depend on it.
constexpr size_t kAlignment = 512;
constexpr size_t kSmallMax = size_t{1} << 20; // larger requests count as LARGE_POOL
constexpr int kDevicesMax = 128;              // PyTorch numbers devices by a signed byte

// --- objects ---

struct Device;
struct Pool;

// A block that PyTorch has freed and that Loch still has.
struct Kept {
    Pool *pool;
    void *address;
    size_t bytes; // allocated
};

// Counts that several threads change.
struct Counts {
    std::atomic<int64_t> count{0}, requested{0}, allocated{0}; // blocks, bytes asked for, bytes taken
};

// A Loch pool and what PyTorch knows of it. The main pool of a device has id {0, 0} and is never released. Records of
// private pools are never freed, because a search may hold one; they are used again.
struct Pool {
    loch_allocator *loch = nullptr; // owned until is_released; after that the live blocks keep it
    Device *device = nullptr;
    loch_allocator *behind = nullptr; // the pool behind a planned pool, which keeps it; nullptr for others
    loch_planned *planned = nullptr;  // of a plan (plan.cpp); `loch` is its allocator
    MempoolId_t id{0, 0};
    uint16_t number = 0;     // in the table of owners; 0 for none
    bool is_private = false; // a graph's, a MemPool's, a region's
    bool is_direct = false;  // straight from the driver
    struct {
        std::atomic<int64_t> count{0}, allocated{0};
    } live;                   // blocks in use and their bytes; of private pools only
    std::string tag;          // of a region; empty for others
    std::shared_mutex ending; // shared for frees of private pools; those of a released pool take Device::lock as well
    // Under Device::lock:
    int use_count = 0;
    bool is_on_oom = false;                // other pools may take its free memory before they fail
    bool is_unsplit = false;               // every block has granules of its own
    bool is_released = false;              // use_count fell to 0, and the reference was released
    std::shared_ptr<CUDAAllocator> source; // foreign allocator of its segments
    std::vector<Kept> kept;                // blocks of ended pools that its graphs may use (pools.cpp)
};

// Returns the Loch pool that has the memory of a pool.
inline loch_allocator *memory_of(const Pool &pool)
{
    return pool.behind ? pool.behind : pool.loch;
}

// Allocations whose stream passes the filter go to the pool.
struct Route {
    MempoolId_t id;
    std::function<bool(cudaStream_t)> filter;
    Pool *pool;
};
using Routes = std::vector<Route>;

// A stream that was used on a device. Never changed, never freed: PyTorch does not destroy its streams.
struct Stream {
    cudaStream_t native;
    loch_stream *loch;
    Stream *next;
};
constexpr size_t kStreamBuckets = 64;

// Counts of one thread on one device, which only that thread writes. Loch counts the blocks and bytes in use of the
// main pool, with their peaks; the rest of what PyTorch shows is here.
struct Tally {
    loch_request request{};                   // of the thread's present stream; complete except for the bytes
    Counts made;                              // so far
    Counts large_made, large_freed;           // blocks above kSmallMax so far
    Counts large_peak;                        // most of them in use, as far as this thread made and freed them
    std::atomic<const void *> owner{nullptr}; // thread; nullptr after its end
    Tally *next = nullptr;
};

struct Base; // what the figures of a device count from (statistics.cpp)

struct Device {
    int number = 0;
    loch_device *loch = nullptr;
    Pool main;
    Pool direct; // serves while caching is off; made on first use
    size_t total_bytes = 0;
    c10::Device torch{c10::DeviceType::CUDA, 0}; // as PyTorch names it
    std::atomic<int64_t> retries{0}, ooms{0};
    std::atomic<Stream *> streams[kStreamBuckets] = {}; // by native handle; grown under `lock`, read without it
    std::atomic<Tally *> tallies{nullptr};
    Base *base = nullptr;                     // never changed after opening
    Counts aside;                             // blocks in use of private pools, without those that are kept for graphs
    Counts aside_most;                        // most of them in the present span (statistics.cpp)
    std::atomic<bool> has_aside_grown{false}; // private pools have taken memory in the present span

    std::mutex lock; // guards what follows. No filter, observer, callback or foreign allocator is called under it.
    std::vector<Pool *> pools;            // private ones: in use, or with live blocks
    std::shared_ptr<const Routes> routes; // replaced, never changed; first match wins
    Pool *plan = nullptr;                 // serves what goes to no private pool and no region
    double fraction = 1.0;
};

// Rare features. While one of them is on, allocations leave the fast path.
enum Rare : uint32_t {
    kRareHistory = 1 << 0,  // history is recorded, or observers of blocks are attached (history.cpp)
    kRareRoutes = 1 << 1,   // a device has routes (pools.cpp)
    kRareDisabled = 1 << 2, // caching is off (statistics.cpp)
    kRareRegion = 1 << 3,   // a thread is inside a region (sleep.cpp)
    kRarePlan = 1 << 4,     // a plan serves a device (plan.cpp)
};
extern std::atomic<uint32_t> rare;
inline void set_rare(Rare bit, bool is_on)
{
    if (is_on)
        rare.fetch_or(bit);
    else
        rare.fetch_and(~uint32_t{bit});
}

struct Settings {
    std::string device = "cuda:%d";
    size_t limit_bytes = 0;
    bool has_pinned = true;
    bool has_sharing = true;
    bool is_simulated = false; // no CUDA device: number 0 and the default stream are current
};
const Settings &settings();

// --- errors ---

// Throws what Loch says of the thread's last failure, as c10::Error.
[[noreturn]] void fail(const char *what, loch_status status);
inline void check(const char *what, loch_status status)
{
    if (C10_UNLIKELY(status != LOCH_OK)) fail(what, status);
}

// --- devices.cpp ---

Device &open_device(DeviceIndex number);                       // opens it on first use; throws
Device *find_device(int number) noexcept;                      // nullptr if it was not opened
int device_count() noexcept;                                   // devices that init() announced
loch_stream *find_stream(Device &device, cudaStream_t native); // throws
cudaStream_t find_native(Device &device, uint64_t stream_id);  // of a stream of Loch; nullptr for the default one
DeviceIndex current_device();

// Which device a thread without further question is on.
enum class World {
    kMany,     // c10 knows
    kOne,      // number 0: there is one device only
    kSimulated // number 0, on the default stream
};
extern std::atomic<World> world;

// --- owners.cpp: from addresses to pools ---

void add_owner(Pool &pool);        // gives the pool a number
void remove_owner(Pool &pool);     // takes the number back; the pool has no blocks
void hide_owner(Pool &pool);       // searches no longer look into the pool
Pool *find_owner(const void *ptr); // the pool of a live block; nullptr for memory that is not Loch's

// --- allocate.cpp ---

void delete_block(void *ptr); // the deleter of every DataPtr; equals raw_deleter()
DataPtr make_data_ptr(void *ptr, DeviceIndex number);
// Allocates from one pool on a stream, without routes. Takes the steps for short memory and throws in the end.
void *allocate_from(Pool &pool, size_t bytes, cudaStream_t stream);
// Counts, marks and reports a block that was made in a pool by another call.
void count_alloc(Pool &pool, void *ptr, size_t bytes, cudaStream_t stream);
void free_to(Pool &pool, void *ptr); // frees a live block of the pool; throws
void free_kept(const Kept &block);   // frees a block that was kept. Device::lock is not held.
// Returns the pool, the device and the stream that the thread allocates from now.
Pool &choose_pool(Device **device, cudaStream_t *stream);

// --- oom.cpp ---

// Tries again after a failure: callbacks, pools that may be used, caches. Sets `pool` to the pool that served; if that
// is another one, the caller releases it by release_pool after the block is counted. Throws c10::OutOfMemoryError in
// the end.
void *reclaim_and_allocate(Pool *&pool, const loch_request &request, loch_status status);

// --- statistics.cpp ---

Base *make_base(loch_allocator *main);
size_t limit_of(const Device &device, double fraction); // bytes of the main pool that a fraction allows; 0 for no limit
std::pair<size_t, size_t> sum_bytes(Device &device);    // allocated and reserved bytes, of all pools of a device
void note_private_memory(Device &device);               // private pools hold more or less. Takes Device::lock.
// Counts blocks of private pools that come, or go if the numbers are negative. Takes Device::lock.
void count_aside(Device &device, int64_t blocks, int64_t requested, int64_t allocated);
Pool &direct_pool(Device &device);

// --- pools.cpp ---

Pool *find_route(Device &device, cudaStream_t stream); // private pool for a stream's allocations, or nullptr
Pool *find_pool(Device &device, MempoolId_t id);       // nullptr for none. Device::lock is held.
// Makes a child pool of the device's main pool, with use_count 1. Device::lock is held.
Pool *make_pool(Device &device, MempoolId_t id, const char *name, const loch_pool_options *options);
void release_pool(Pool &pool);              // takes one from use_count; ends the pool at 0. Device::lock is not held.
void retire_if_empty(Pool &pool);           // forgets a pool that is gone and whose last block was freed
void release_waiting_pools(Device &device); // ends pools whose end had to wait for captures
// Keeps a freed block of an ended pool for the graphs that are captured now. Returns false if there are none.
// Device::lock is held.
bool keep_for_graphs(Pool &pool, void *ptr, size_t bytes);

// --- history.cpp: called while kRareHistory is set; requests and note_alloc for private pools always ---

// What the calling thread is in as long as the object lives: an allocation, emptyCache, or an import. Requests nest: a
// callback of an allocation may allocate. Made without any lock, because the recorder of call stacks takes Python's.
class Request
{
  public:
    enum Kind {
        kNone,   // nothing: the object does nothing
        kAlloc,  // memory that comes is the pool's
        kGive,   // memory that goes does so because of emptyCache
        kImport, // memory that comes is another process's
    };
    explicit Request(Kind what, const Pool *for_pool = nullptr, cudaStream_t on = nullptr);
    ~Request();
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;

    const Kind kind;
    const Pool *const pool; // nullptr outside of allocations
    const cudaStream_t stream;
    std::shared_ptr<c10::GatheredContext> context; // nullptr if call stacks are not wanted

  private:
    const Request *outer = nullptr;
};
void note_alloc(Pool &pool, void *ptr, size_t bytes, cudaStream_t stream); // after the allocation, in its request
void note_use(const void *ptr, cudaStream_t stream);                       // a stream uses the block, too
void note_free(Pool &pool, void *ptr);                                     // before the free
// Records a failure and calls the observers, without any lock, before the exception is thrown. Always called, in the
// request of the allocation if there is one.
void note_oom(Device &device, size_t bytes, size_t free_bytes);

// --- segments.cpp: always called ---

void prepare_trackers();          // before PyTorch gets the allocator
void note_device(Device &device); // a device was opened
void note_recording(bool is_on);  // the history is switched on or off
// Pieces of memory that a device took and gave back so far, and the most that it had at a time.
struct Flow {
    int64_t taken = 0, given = 0, taken_bytes = 0, peak = 0;
};
Flow read_flow(const Device &device);
void restart_flow_peak(const Device &device);
// A foreign allocator gave a segment, or is about to get it back.
void note_segment(Device &device, MempoolId_t pool, void *address, size_t bytes, bool is_taken) noexcept;

// --- snapshot.cpp ---

void prepare_clock(); // at installing: times are better, the earlier this was called

// --- sleep.cpp ---

Pool *find_region(Device &device); // the region of the calling thread, or nullptr; called while kRareRegion is set
std::string current_tag();         // of the region of the calling thread; empty outside of regions
int door_region_begin(const char *tag, char *error, size_t error_bytes);
int door_region_end(char *error, size_t error_bytes);
int door_region_set_one_handle(int is_on, char *error, size_t error_bytes);
// Flags for a request of the calling thread to a region's pool; called while kRareRegion is set.
uint32_t region_flags(const Pool &pool, size_t bytes);
int door_sleep(const loch_torch_sleep_part *parts, size_t count, size_t *released, char *error, size_t error_bytes);
int door_wake(const char *const *tags, size_t count, int keeps_host, size_t *restored, char *error, size_t error_bytes);
const char *door_find_tag(const void *address);
int door_print_pools(char *text, size_t bytes, size_t *length, char *error, size_t error_bytes);

// --- plan.cpp ---

Pool *hold_plan(Device &device); // the plan of a device, or nullptr. The caller ends its use by release_pool.
int door_plan_begin(int number, const loch_planned_options *options, int *served, char *error, size_t error_bytes);
int door_plan_step(int number, char *error, size_t error_bytes);
int door_plan_record(int number, char *error, size_t error_bytes);
int door_plan_info(int number, loch_planned_info *out, char *error, size_t error_bytes);
int door_plan_end(int number, char *error, size_t error_bytes);

// --- ipc.cpp ---

// Options of the handles of every pool on a device: shareable if the settings want it and the device can.
loch_handle_options handle_options(const loch_device *device);

// --- host.cpp ---

void install_host(); // installs the allocator of pinned memory, if the settings want it

// --- the object ---

class Allocator final : public CUDAAllocator
{
  public:
    // allocate.cpp
    DataPtr allocate(size_t bytes) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void *raw_alloc(size_t bytes) override;
    void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
    void raw_delete(void *ptr) override;
    void recordStream(const DataPtr &ptr, CUDAStream stream) override;
    using CUDAAllocator::recordStream;

    // devices.cpp
    bool initialized() override;
    void init(int device_count) override;
    std::string name() override;

    // statistics.cpp
    DeviceStats getDeviceStats(DeviceIndex device) override;
    void resetAccumulatedStats(DeviceIndex device) override;
    void resetPeakStats(DeviceIndex device) override;
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;
    double getMemoryFraction(DeviceIndex device) override;
    void setMemoryFraction(double fraction, DeviceIndex device) override;
    std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
    void enable(bool value) override;
    bool isEnabled() const override;
    void cacheInfo(DeviceIndex device, size_t *largest) override;
    void emptyCache(MempoolId_t id = {0, 0}) override;

    // pools.cpp
    void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
    void releasePool(DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                            std::shared_ptr<CUDAAllocator> source = nullptr) override;
    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
    void setNoSplit(DeviceIndex device, MempoolId_t id) override;
    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override;
#if LOCH_TORCH_AT_LEAST(13)
    void markCaptureBegin(DeviceIndex device) override;
    void markCaptureEnd(DeviceIndex device) override;
#endif

    // checkpoint.cpp
    std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
    CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override;
#if LOCH_TORCH_AT_LEAST(13)
    DataPtr allocateWithAddress(size_t bytes, void *address) override;
#endif

    // peer.cpp
    void copy_data(void *to, const void *from, size_t bytes) const override;
    void *getBaseAllocation(void *ptr, size_t *size) override;
    void enablePeerAccess(DeviceIndex device, DeviceIndex to) override;
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                            cudaStream_t stream, bool p2p_enabled) override;

    // ipc.cpp
    ShareableHandle shareIpcHandle(void *ptr) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

    // history.cpp
    bool isHistoryEnabled() override;
    void recordHistory(bool enabled, CreateContextFn recorder, size_t entries_max, RecordContext when, bool clear,
                       const std::vector<std::string> &skipped) override;
    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs) override;
    void pushCompileContext(std::string &text) override;
    void popCompileContext() override;
    void setUserMetadata(const std::string &text) override;
    std::string getUserMetadata() override;
    void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
#if LOCH_TORCH_AT_LEAST(12)
    std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr) override;
    void attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) override;
#endif
#if LOCH_TORCH_AT_LEAST(14)
    bool supportsUserMetadata() override;
    void annotateMemory(const void *ptr, const std::string &text) override;
#endif

    // snapshot.cpp
    SnapshotInfo snapshot(MempoolId_t id = {0, 0}, bool include_traces = true) override;

    // segments.cpp
    void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;
};

// The one object. Built at installing, never destroyed.
Allocator *allocator() noexcept;

} // namespace loch_torch
