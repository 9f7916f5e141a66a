// SPDX-License-Identifier: MIT
// The history of allocations: traces, contexts, annotations, observers of failures.
//
// While nothing is recorded, allocations test one bit (kRareHistory) and this file is not called.
#include "history.h"

#include <c10/util/ApproximateClock.h>

#include <deque>
#include <map>
#include <unordered_set>

namespace loch_torch
{

// What is known of a live block. Kept only while the history is recorded.
struct Live {
    size_t bytes;
    cudaStream_t stream;
    Context context;
    bool is_recorded; // record_stream was called: the free may have to wait
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

Request &current_request()
{
    static thread_local Request request;
    return request;
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

void note_request(Pool &pool, cudaStream_t stream)
{
    Request &request = current_request();
    request.pool = &pool;
    request.stream = stream;
    request.context = gather(RecordContext::STATE);
}

void note_giving(bool is_begin)
{
    Request request;
    if (is_begin) request.context = gather(RecordContext::ALL);
    std::swap(request, current_request());
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

void note_alloc(Pool &pool, void *ptr, size_t bytes, cudaStream_t stream)
{
    Request request;
    std::swap(request, current_request());
    if (!is_recording()) return;
    const auto address = reinterpret_cast<size_t>(ptr);
    std::deque<TraceEntry> gone;
    Live live{bytes, stream, request.context, false};
    TraceEntry entry =
        make_entry(pool.device->number, TraceEntry::ALLOC, address, bytes, stream, pool.id, std::move(request.context));
    const std::lock_guard<std::mutex> held(history.lock);
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
    return {block.requested_bytes, find_native(*pool.device, block.stream_id), nullptr, false};
}

void note_use(const void *ptr)
{
    const std::lock_guard<std::mutex> held(history.lock);
    const auto found = history.live.find(ptr);
    if (found != history.live.end()) found->second.is_recorded = true;
}

void note_free(Pool &pool, void *ptr)
{
    if (!is_recording()) return;
    const auto address = reinterpret_cast<size_t>(ptr);
    const int number = pool.device->number;
    Context context = gather(RecordContext::ALL);
    std::deque<TraceEntry> gone;
    Live live{};
    std::unique_lock<std::mutex> held(history.lock);
    const auto found = history.live.find(ptr);
    const bool is_known = found != history.live.end();
    if (is_known) {
        live = std::move(found->second);
        history.live.erase(found);
    }
    held.unlock();
    if (!is_known) live = find_live(pool, ptr);
    if (!context) context = live.context;
    TraceEntry requested =
        make_entry(number, TraceEntry::FREE_REQUESTED, address, live.bytes, live.stream, pool.id, context);
    TraceEntry completed =
        make_entry(number, TraceEntry::FREE_COMPLETED, address, live.bytes, live.stream, pool.id, context);
    held.lock();
    add_entry(std::move(requested), gone);
    if (live.is_recorded)
        history.waiting[address] = {number, live.bytes, live.bytes, live.stream, pool.id, std::move(context)};
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

std::unordered_map<const void *, Context> read_contexts()
{
    std::unordered_map<const void *, Context> result;
    const std::lock_guard<std::mutex> held(history.lock);
    for (const auto &[address, live] : history.live)
        if (live.context) result.emplace(address, live.context);
    return result;
}

// --- failures ---

void note_oom(Device &device, size_t bytes, size_t free_bytes)
{
    Request request;
    std::swap(request, current_request());
    record(device.number, TraceEntry::OOM, free_bytes, bytes, request.stream,
           request.pool ? request.pool->id : MempoolId_t{0, 0}, std::move(request.context));
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
        history.live.swap(live);
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
    const std::lock_guard<std::mutex> held(history.lock);
    const auto found = history.live.find(ptr);
    return found == history.live.end() ? nullptr : found->second.context;
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
    Live live{};
    std::deque<TraceEntry> gone;
    std::unique_lock<std::mutex> held(history.lock);
    const auto found = history.live.find(ptr);
    const bool is_known = found != history.live.end();
    if (is_known) live = found->second;
    held.unlock();
    if (!is_known) live = find_live(*pool, ptr);
    TraceEntry entry = make_entry(pool->device->number, TraceEntry::ANNOTATE, reinterpret_cast<size_t>(ptr), live.bytes,
                                  live.stream, pool->id, live.context);
    entry.user_metadata_ = text;
    held.lock();
    add_entry(std::move(entry), gone);
}
#endif

} // namespace loch_torch
