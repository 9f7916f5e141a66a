// SPDX-License-Identifier: MIT
// Segments: the memory that the pools of a device hold, in pieces as they came, and observers of it.
//
// Loch maps memory in pieces (handles). PyTorch calls that an expandable segment: a trace has segment_map and
// segment_unmap for each piece, and a snapshot shows the longest runs of mapped addresses. Segments of a foreign
// allocator, and of a device without mappings, are whole: segment_alloc and segment_free.
//
// ProcessGroupNCCL registers memory by a tracker, which knows segment_alloc and segment_free only, and checks that what
// ends was registered under the same address. Trackers therefore see the pieces of private pools as such: their
// mappings never change while the pool lives. Pieces of main pools come and go, so trackers see them as map and unmap,
// and the registration of all tensors is switched off, as PyTorch does with expandable segments.
#include "history.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/Logging.h>
#include <loch/observer.h>

#include <map>

namespace loch_torch
{

// A piece of memory as it came from the driver or from a foreign allocator.
struct Piece {
    size_t bytes;
    int32_t counter;
    bool is_whole;
    MempoolId_t pool;
    void *stream;
    Context context;
};

static struct {
    std::mutex lock;                                // guards what follows; nothing is called under it
    std::map<uintptr_t, Piece> pieces[kDevicesMax]; // by address
    bool has_mappings[kDevicesMax] = {};            // written before the device is observed
    Flow flows[kDevicesMax];
    std::vector<AllocatorTraceTracker> trackers;
    bool is_recording = false; // the history is on
} segments;

// --- events ---

static TraceEntry::Action action_of(const Piece &piece, bool is_taken, bool is_for_trackers)
{
    const bool is_segment = piece.is_whole || (is_for_trackers && piece.pool != MempoolId_t{0, 0});
    if (is_segment) return is_taken ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE;
    return is_taken ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP;
}

// Calls the trackers. What they throw ends here: below is C, and a free cannot fail. A tracker throws if the end of a
// piece comes that it registered as a part of a longer one.
static void tell_trackers(int device, uintptr_t address, const Piece &piece, bool is_taken,
                          const std::vector<AllocatorTraceTracker> &trackers) noexcept
{
    for (const AllocatorTraceTracker &tracker : trackers) {
        try {
            tracker(TraceEntry(action_of(piece, is_taken, true), static_cast<DeviceIndex>(device), address, piece.bytes,
                               piece.stream, piece.pool, c10::getApproximateTime(), piece.context));
        } catch (const std::exception &error) {
            VLOG(1) << "a tracker of segments refused " << piece.bytes << " bytes: " << error.what();
        }
    }
}

static void tell(int device, uintptr_t address, const Piece &piece, bool is_taken,
                 const std::vector<AllocatorTraceTracker> &trackers) noexcept
{
    tell_trackers(device, address, piece, is_taken, trackers);
    try {
        record(device, action_of(piece, is_taken, false), address, piece.bytes, piece.stream, piece.pool,
               piece.context);
    } catch (const std::exception &) { // no host memory for the entry: the trace has a gap
    }
}

static void take(Device &device, uintptr_t address, Piece piece)
{
    const Pool *pool = current_request().pool;
    if (pool && pool->is_private) device.has_aside_grown = true;
    std::vector<AllocatorTraceTracker> trackers;
    {
        const std::lock_guard<std::mutex> held(segments.lock);
        Flow &flow = segments.flows[device.number];
        segments.pieces[device.number].insert_or_assign(address, piece).first->second.counter =
            static_cast<int32_t>(flow.taken++); // alike in all ranks that allocate alike
        flow.taken_bytes += static_cast<int64_t>(piece.bytes);
        flow.peak = std::max(flow.peak, flow.taken - flow.given);
        trackers = segments.trackers;
    }
    tell(device.number, address, piece, true, trackers);
}

static void give(Device &device, uintptr_t address)
{
    std::vector<AllocatorTraceTracker> trackers;
    Piece piece{};
    {
        const std::lock_guard<std::mutex> held(segments.lock);
        const auto found = segments.pieces[device.number].find(address);
        if (found == segments.pieces[device.number].end()) return;
        piece = std::move(found->second);
        segments.pieces[device.number].erase(found);
        segments.flows[device.number].given++;
        trackers = segments.trackers;
    }
    if (current_request().context) piece.context = current_request().context; // what made it go
    tell(device.number, address, piece, false, trackers);
}

// Makes the piece that the calling thread's allocation takes.
static Piece make_piece(MempoolId_t pool, size_t bytes, bool is_whole)
{
    const Request &request = current_request();
    return {bytes, 0, is_whole, pool, request.pool ? request.stream : nullptr, request.context};
}

void note_segment(Device &device, MempoolId_t pool, void *address, size_t bytes, bool is_taken) noexcept
{
    const auto start = reinterpret_cast<uintptr_t>(address);
    try {
        if (is_taken)
            take(device, start, make_piece(pool, bytes, true));
        else
            give(device, start);
    } catch (const std::exception &) { // no host memory: a snapshot does not know the segment's number
    }
}

// Receives the ranges of a device from Loch, without locks.
static void observe(loch_range_event event, const loch_range *range, void *user)
{
    Device &device = *static_cast<Device *>(user);
    // Pools of a device with mappings have nothing else: raw blocks are those of the time while caching is off.
    const bool is_mapping = range->memory != nullptr;
    if (event == LOCH_RANGE_TAKEN && current_request().kind == Request::kImport) return;
    if (range->kind != LOCH_MEMORY_DEVICE || is_mapping != segments.has_mappings[device.number]) return;
    const auto start = reinterpret_cast<uintptr_t>(range->address);
    const Pool *pool = current_request().pool;
    try {
        if (event == LOCH_RANGE_TAKEN)
            take(device, start, make_piece(pool ? pool->id : MempoolId_t{0, 0}, range->bytes, !is_mapping));
        else
            give(device, start);
    } catch (const std::exception &) { // no host memory: a snapshot does not know the range
    }
}

void note_device(Device &device)
{
    segments.has_mappings[device.number] = loch_device_can(device.loch, LOCH_CAN_VIRTUAL);
    check("observe a device", loch_observer_add(device.loch, observe, &device));
}

// --- questions ---

Flow read_flow(const Device &device)
{
    const std::lock_guard<std::mutex> held(segments.lock);
    return segments.flows[device.number];
}

void restart_flow_peak(const Device &device)
{
    const std::lock_guard<std::mutex> held(segments.lock);
    Flow &flow = segments.flows[device.number];
    flow.peak = flow.taken - flow.given;
}

Segment find_segment(const Device &device, uintptr_t start, size_t bytes)
{
    Segment result;
    const std::lock_guard<std::mutex> held(segments.lock);
    const auto &pieces = segments.pieces[device.number];
    auto place = pieces.upper_bound(start);
    if (place != pieces.begin() && std::prev(place)->first + std::prev(place)->second.bytes > start) --place;
    for (; place != pieces.end() && place->first < start + bytes; ++place) {
        const Piece &piece = place->second;
        if (result.counter >= 0 && piece.counter >= result.counter) continue;
        result = {piece.counter, piece.is_whole, piece.context};
    }
    return result;
}

// --- trackers ---

// Sets the bit that makes allocations note their requests. The lock is held.
static void set_bit()
{
    set_rare(kRareHistory, segments.is_recording || !segments.trackers.empty());
}

void note_recording(bool is_on)
{
    const std::lock_guard<std::mutex> held(segments.lock);
    segments.is_recording = is_on;
    set_bit();
}

// Segments that exist are not reported: PyTorch reads them from a snapshot.
void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker)
{
    const std::lock_guard<std::mutex> held(segments.lock);
    segments.trackers.push_back(std::move(tracker));
    set_bit();
}

void prepare_trackers()
{
    static const char name[] = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK";
    const char *value = getenv(name);
    if (!value || !strcmp(value, "0")) return;
    LOG(WARNING) << "Loch switches " << name << " off: its memory is mapped in pieces, as expandable segments are. "
                 << "Register a torch.cuda.MemPool with the communicator instead (register_mem_pool).";
    setenv(name, "0", 1);
}

} // namespace loch_torch
