// SPDX-License-Identifier: MIT
// The history of allocations: traces, contexts, annotations, observers of failures.
//
// While nothing is recorded, allocations test one bit (kRareHistory) and this file is not called.
#include "history.h"

#include <c10/util/ApproximateClock.h>
#include <loch/pool.h>

#include <deque>
#include <map>
#include <unordered_set>

namespace loch_torch
{

// What is known of a live block. Noted while the history is recorded. Afterwards the call stacks stay, but frees are
// not noted: from then on the id tells whether the block is still the same.
struct Live {
    size_t bytes;
    cudaStream_t stream;
    Context context;
    bool is_recorded; // record_stream was called: the free may have to wait
    uint64_t id;      // of the block; 0 if it is the same for sure
};

// Entries in order of time; the oldest one goes when there is no room.
template <typename Entry> struct Ring {
    std::deque<Entry> entries;
    size_t max = 1;

    // Adds an entry. Entries that go are moved to `gone`, to be destroyed without the lock.
    void add(Entry entry, std::deque<Entry> &gone)
    {
        entries.push_back(std::move(entry));
        shrink(gone);
    }
    void shrink(std::deque<Entry> &gone)
    {
        while (entries.size() > max) {
            gone.push_back(std::move(entries.front()));
            entries.pop_front();
        }
    }
};

static struct {
    // Read without the lock.
    std::atomic<bool> is_on{false};
    std::atomic<RecordContext> when{RecordContext::NEVER};
    std::atomic<CreateContextFn> gather{nullptr};

    std::mutex lock; // guards what follows; nothing of PyTorch or Python is called under it
    std::map<int, Ring<TraceEntry>> traces;
    Ring<AnnotationEntry> annotations;
    std::unordered_set<int> skipped; // actions
    std::unordered_map<const void *, Live> live;
    std::map<size_t, Waiting> waiting; // by address
    std::vector<OutOfMemoryObserver> observers;
#if LOCH_TORCH_AT_LEAST(12)
    std::vector<c10::cuda::CUDACachingAllocator::OomRejectionObserver> rejection_observers;
#endif
} history;

static thread_local std::vector<std::string> compile_contexts;
static thread_local std::string metadata;

static thread_local const Request *innermost;

const Request &current_request()
{
    static const Request &none = *new Request(Request::kNone); // never destroyed: blocks are freed at the exit, too
    return innermost ? *innermost : none;
}

bool is_recording() noexcept
{
    return history.is_on.load(std::memory_order_relaxed);
}

// Takes a call stack, if they are wanted on this level. No lock of Loch may be held.
static Context gather(RecordContext level)
{
    if (history.when.load(std::memory_order_relaxed) < level) return nullptr;
    const CreateContextFn function = history.gather.load(std::memory_order_relaxed);
    return function ? function() : nullptr;
}

// --- traces ---

static TraceEntry make_entry(int device, TraceEntry::Action action, size_t address, size_t bytes, void *stream,
                             MempoolId_t pool, Context context)
{
    if (history.when.load(std::memory_order_relaxed) < RecordContext::ALLOC) context = nullptr;
    return {action,
            static_cast<DeviceIndex>(device),
            address,
            bytes,
            stream,
            pool,
            c10::getApproximateTime(),
            std::move(context),
            compile_contexts.empty() ? "N/A" : compile_contexts.back(),
            metadata};
}

// Adds an entry. The lock is held.
static void add_entry(TraceEntry entry, std::deque<TraceEntry> &gone)
{
    if (!is_recording() || history.skipped.count(entry.action_)) {
        gone.push_back(std::move(entry));
        return;
    }
    Ring<TraceEntry> &ring = history.traces[entry.device_];
    ring.max = history.annotations.max;
    ring.add(std::move(entry), gone);
}

void record(int device, TraceEntry::Action action, size_t address, size_t bytes, void *stream, MempoolId_t pool,
            Context context)
{
    if (!is_recording()) return;
    std::deque<TraceEntry> gone;
    TraceEntry entry = make_entry(device, action, address, bytes, stream, pool, std::move(context));
    const std::lock_guard<std::mutex> held(history.lock);
    add_entry(std::move(entry), gone);
}

std::vector<TraceEntry> read_trace(int device)
{
    const std::lock_guard<std::mutex> held(history.lock);
    const auto found = history.traces.find(device);
    if (found == history.traces.end()) return {};
    return {found->second.entries.begin(), found->second.entries.end()};
}

std::vector<AnnotationEntry> read_annotations()
{
    const std::lock_guard<std::mutex> held(history.lock);
    return {history.annotations.entries.begin(), history.annotations.entries.end()};
}

// --- blocks ---

Request::Request(Kind what, const Pool *for_pool, cudaStream_t on) : kind(what), pool(for_pool), stream(on)
{
    if (kind == kNone) return;
    if (kind != kImport) context = gather(kind == kAlloc ? RecordContext::STATE : RecordContext::ALL);
    outer = innermost;
    innermost = this;
}

Request::~Request()
{
    if (kind != kNone) innermost = outer;
}

// Records the end of waiting blocks that overlap addresses. The lock is held.
static void complete_overlap(size_t start, size_t bytes, std::deque<TraceEntry> &gone)
{
    auto place = history.waiting.lower_bound(start);
    if (place != history.waiting.begin() && std::prev(place)->first + std::prev(place)->second.bytes > start) --place;
    while (place != history.waiting.end() && place->first < start + bytes) {
        Waiting &block = place->second;
        add_entry(make_entry(block.device, TraceEntry::FREE_COMPLETED, place->first, block.requested, block.stream,
                             block.pool, std::move(block.context)),
                  gone);
        place = history.waiting.erase(place);
    }
}

// Records the end of all waiting blocks of a pool. The lock is held.
static void complete_all(const Pool &pool, std::deque<TraceEntry> &gone)
{
    std::vector<size_t> addresses;
    for (const auto &[address, block] : history.waiting)
        if (block.owner == &pool) addresses.push_back(address);
    for (const size_t address : addresses)
        complete_overlap(address, 1, gone);
}

static bool has_waiting()
{
    const std::lock_guard<std::mutex> held(history.lock);
    return !history.waiting.empty();
}

// Asks Loch whether streams still use freed blocks of a pool.
static bool is_waiting(const Pool &pool)
{
    loch_pool_info info{};
    info.size = sizeof info;
    return loch_pool_get_info(pool.loch, &info) != LOCH_OK || info.waiting_bytes;
}

void note_alloc(Pool &pool, void *ptr, size_t bytes, cudaStream_t stream)
{
    if (!is_recording()) return;
    const auto address = reinterpret_cast<size_t>(ptr);
    const Context &context = current_request().context;
    std::deque<TraceEntry> gone;
    Live live{bytes, stream, context, false, 0};
    TraceEntry entry = make_entry(pool.device->number, TraceEntry::ALLOC, address, bytes, stream, pool.id, context);
    const bool is_done = has_waiting() && !is_waiting(pool);
    const std::lock_guard<std::mutex> held(history.lock);
    if (!is_recording()) return; // it was switched off meanwhile: the free will not be noted
    if (is_done) complete_all(pool, gone);
    complete_overlap(address, bytes, gone);
    std::swap(history.live[ptr], live); // destroyed after the lock
    add_entry(std::move(entry), gone);
}

// Reads what Loch knows of a block that was allocated before the history was recorded.
static Live find_live(Pool &pool, const void *ptr)
{
    loch_block block{};
    block.size = sizeof block;
    if (loch_allocator_find(pool.loch, ptr, &block) != LOCH_OK) return {};
    return {block.requested_bytes, find_native(*pool.device, block.stream_id), nullptr, false, block.id};
}

// Returns what is known of a live block. `is_leaving`: it is about to be freed.
static Live look_up(Pool &pool, const void *ptr, bool is_leaving)
{
    Live live{};
    std::unique_lock<std::mutex> held(history.lock);
    const auto found = history.live.find(ptr);
    const bool is_known = found != history.live.end();
    if (is_known) {
        live = found->second;
        if (is_leaving) history.live.erase(found); // `live` keeps the context, which must not end under the lock
    }
    held.unlock();
    if (is_known && !live.id) return live;
    Live now = find_live(pool, ptr);
    return is_known && live.id == now.id ? live : now;
}

void note_use(const void *ptr, cudaStream_t stream)
{
    const std::lock_guard<std::mutex> held(history.lock);
    const auto found = history.live.find(ptr);
    if (found != history.live.end() && found->second.stream != stream) found->second.is_recorded = true;
}

void note_free(Pool &pool, void *ptr)
{
    if (!is_recording()) return;
    const auto address = reinterpret_cast<size_t>(ptr);
    const int number = pool.device->number;
    Context context = gather(RecordContext::ALL);
    std::deque<TraceEntry> gone;
    const Live live = look_up(pool, ptr, true);
    if (!context) context = live.context;
    TraceEntry requested =
        make_entry(number, TraceEntry::FREE_REQUESTED, address, live.bytes, live.stream, pool.id, context);
    TraceEntry completed =
        make_entry(number, TraceEntry::FREE_COMPLETED, address, live.bytes, live.stream, pool.id, context);
    const std::lock_guard<std::mutex> held(history.lock);
    if (!is_recording()) return;
    add_entry(std::move(requested), gone);
    if (live.is_recorded)
        history.waiting[address] = {&pool, number, live.bytes, live.bytes, live.stream, pool.id, std::move(context)};
    else
        add_entry(std::move(completed), gone);
}

std::unordered_map<size_t, Waiting> read_waiting(int device)
{
    std::unordered_map<size_t, Waiting> result;
    const std::lock_guard<std::mutex> held(history.lock);
    for (const auto &[address, block] : history.waiting)
        if (block.device == device) result.emplace(address, block);
    return result;
}

void complete_waiting(int device, const std::vector<size_t> &addresses)
{
    std::deque<TraceEntry> gone;
    const std::lock_guard<std::mutex> held(history.lock);
    for (const size_t address : addresses) {
        const auto found = history.waiting.find(address);
        if (found != history.waiting.end() && found->second.device == device) complete_overlap(address, 1, gone);
    }
}

std::unordered_map<const void *, Known> read_contexts()
{
    std::unordered_map<const void *, Known> result;
    const std::lock_guard<std::mutex> held(history.lock);
    for (const auto &[address, live] : history.live)
        if (live.context) result.emplace(address, Known{live.context, live.id});
    return result;
}

// Returns the id of a live block; 0 for none. The memory of a released pool is looked at under the device's lock, and
// that of a foreign allocator not at all: see free_private.
static uint64_t find_id(const void *ptr)
{
    Pool *pool = find_owner(ptr);
    if (!pool) return 0;
    const std::lock_guard<std::mutex> held(pool->device->lock);
    if (pool->is_released && (pool->source || pool->live.count.load() == 0)) return 0;
    return find_live(*pool, ptr).id;
}

// Reads the ids of the blocks whose call stacks are known, before frees are no longer noted.
static std::unordered_map<const void *, uint64_t> read_ids()
{
    std::unordered_map<const void *, uint64_t> ids;
    for (const auto &[address, known] : read_contexts())
        ids.emplace(address, find_id(address));
    return ids;
}

// Keeps the call stacks of blocks with an id and moves all others to `gone`. The lock is held.
static void keep_contexts(const std::unordered_map<const void *, uint64_t> &ids,
                          std::unordered_map<const void *, Live> &gone)
{
    history.live.swap(gone);
    for (auto &[address, live] : gone) {
        const auto found = ids.find(address);
        if (found == ids.end() || !found->second || (live.id && live.id != found->second)) continue;
        live.id = found->second;
        history.live.emplace(address, live); // a copy: contexts must not end under the lock
    }
}

// --- failures ---

void note_oom(Device &device, size_t bytes, size_t free_bytes)
{
    const Request &request = current_request();
    record(device.number, TraceEntry::OOM, free_bytes, bytes, request.stream,
           request.pool ? request.pool->id : MempoolId_t{0, 0}, request.context);
    std::vector<OutOfMemoryObserver> observers;
    double fraction;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        fraction = device.fraction;
    }
    {
        const std::lock_guard<std::mutex> held(history.lock);
        observers = history.observers;
    }
    const auto allowed =
        fraction < 1 ? static_cast<size_t>(fraction * static_cast<double>(device.total_bytes)) : device.total_bytes;
    for (const OutOfMemoryObserver &observer : observers)
        observer(device.number, bytes, allowed, free_bytes);
}

void Allocator::attachOutOfMemoryObserver(OutOfMemoryObserver observer)
{
    const std::lock_guard<std::mutex> held(history.lock);
    history.observers.push_back(std::move(observer));
}

// --- PyTorch's calls ---

bool Allocator::isHistoryEnabled()
{
    return is_recording();
}

void Allocator::recordHistory(bool enabled, CreateContextFn recorder, size_t entries_max, RecordContext when,
                              bool clear, const std::vector<std::string> &skipped)
{
    TORCH_CHECK(when == RecordContext::NEVER || recorder, "a history with call stacks needs a recorder of them");
    std::unordered_set<int> actions;
    for (const std::string &name : skipped)
        actions.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(name));
    std::unordered_map<const void *, uint64_t> ids;
    if (!enabled) ids = read_ids();
    // Destroyed without the lock.
    std::map<int, Ring<TraceEntry>> traces;
    std::unordered_map<const void *, Live> live;
    std::map<size_t, Waiting> waiting;
    std::deque<TraceEntry> gone;
    std::deque<AnnotationEntry> annotations;
    const std::lock_guard<std::mutex> held(history.lock);
    history.gather.store(enabled ? recorder : nullptr);
    history.when.store(enabled ? when : RecordContext::NEVER);
    history.skipped = std::move(actions);
    history.annotations.max = std::max<size_t>(entries_max, 1);
    history.annotations.entries.swap(annotations);
    if (!enabled || clear) history.traces.swap(traces);
    for (auto &[device, ring] : history.traces) {
        ring.max = history.annotations.max;
        ring.shrink(gone);
    }
    if (!enabled) {
        keep_contexts(ids, live);
        history.waiting.swap(waiting);
    }
    history.is_on.store(enabled);
    note_recording(enabled);
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs)
{
    if (!is_recording()) return;
    AnnotationEntry entry(current_device(), c10::getApproximateTime());
    for (const auto &[name, value] : pairs)
        entry.recordUserMetadata(name, value);
    std::deque<AnnotationEntry> gone;
    const std::lock_guard<std::mutex> held(history.lock);
    history.annotations.add(std::move(entry), gone);
}

void Allocator::pushCompileContext(std::string &text)
{
    compile_contexts.push_back(text);
}

void Allocator::popCompileContext()
{
    TORCH_CHECK(!compile_contexts.empty(), "there is no compile context to end in this thread");
    compile_contexts.pop_back();
}

void Allocator::setUserMetadata(const std::string &text)
{
    metadata = text;
}

std::string Allocator::getUserMetadata()
{
    return metadata;
}

#if LOCH_TORCH_AT_LEAST(12)
std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void *ptr)
{
    Pool *pool = find_owner(ptr);
    return pool ? look_up(*pool, ptr, false).context : nullptr;
}

// Loch rejects nothing that it could serve, so these observers are kept and never called.
void Allocator::attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver observer)
{
    const std::lock_guard<std::mutex> held(history.lock);
    history.rejection_observers.push_back(std::move(observer));
}
#endif

#if LOCH_TORCH_AT_LEAST(14)
bool Allocator::supportsUserMetadata()
{
    return true;
}

void Allocator::annotateMemory(const void *ptr, const std::string &text)
{
    Pool *pool = ptr ? find_owner(ptr) : nullptr;
    if (!pool || !is_recording()) return;
    std::deque<TraceEntry> gone;
    const Live live = look_up(*pool, ptr, false);
    TraceEntry entry = make_entry(pool->device->number, TraceEntry::ANNOTATE, reinterpret_cast<size_t>(ptr), live.bytes,
                                  live.stream, pool->id, live.context);
    entry.user_metadata_ = text;
    const std::lock_guard<std::mutex> held(history.lock);
    add_entry(std::move(entry), gone);
}
#endif

} // namespace loch_torch
