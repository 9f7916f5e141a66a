// SPDX-License-Identifier: MIT
// Pinned memory: at::HostAllocator on pools of pinned memory, one for each device.
//
// PyTorch's own allocator rounds each size up to a power of two. Loch's pools hold what was asked for, on the NUMA node
// of the GPU. The host fills a block as soon as it gets one, and no stream orders that. So all requests are made on a
// stream of their own that never has work, every stream that uses a block is told to the pool, and the streams of these
// pools do not wait for each other (LOCH_POOL_WAITS_NONE): a block comes back when its streams have passed it.
//
// Graphs. A block that was handed out while its stream was captured belongs to the graph's private pool, which is a
// child of the device's pool. If the capture used it, it is parked when it is freed: the graph uses it at every replay.
// Parked blocks go back by empty_cache() after PyTorch has released the pool and the device has run its work.
//
// Late blocks. An event cannot be recorded on a stream that is captured, and a pool knows the streams of its own device
// only. A freed block with such a use is late: it waits here until an event on that stream has passed.
//
// One lock guards all tables. Neither Loch nor PyTorch is called under it. Everything lives until the process ends. The
// child of a fork has no pinned memory (Loch leaves it out), and the lock may have been held: the child forgets the
// blocks.
//
// | file | idea |
// |---|---|
// | host.cpp | devices, blocks, figures, the object that PyTorch gets |
// | host_graphs.cpp | private pools, late blocks |
// | host_history.cpp | traces and segments, from PyTorch 2.14 on |
#pragma once

#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <functional>
#include <map>
#include <unordered_map>

namespace loch_torch::host
{

// Pinned memory of one device. Never changes once it is published.
struct Host {
    Device *device;
    loch_allocator *pool;
    loch_stream *idle; // of all requests; never has work
};

// A private pool of PyTorch. Its blocks keep it.
struct Private {
    MempoolId_t id{0, 0};
    int use_count = 0;
    bool is_dropped = false;                                 // the device has run all work of its graphs
    std::map<Host *, loch_allocator *> children;             // by device
    std::vector<std::pair<loch_allocator *, void *>> parked; // freed blocks that its graphs use
    ~Private();
};

// A stream of PyTorch, as Loch knows it. nullptr stands for the default stream.
struct Use {
    Device *device;
    loch_stream *stream;
};

// A live block.
struct Block {
    Host *host = nullptr;
    loch_allocator *pool = nullptr; // the device's, or a child of it
    std::shared_ptr<Private> owner; // nullptr: no private pool
    size_t bytes = 0;               // as taken from the pool
    bool is_captured = false;       // its stream was captured when it was handed out
    bool is_used = false;           // by a stream that was captured
    std::vector<Use> uses;          // that make it late
    std::shared_ptr<c10::GatheredContext> context;
};

// A freed block that waits for streams.
struct Late {
    loch_allocator *pool;
    void *ptr;
    std::vector<Use> pending; // no event could be recorded yet
    std::vector<loch_event *> events;
};

// Allocations whose stream passes the filter go to the private pool.
struct Route {
    MempoolId_t id;
    std::function<bool(c10::Stream)> filter;
};

// All tables. Never destroyed: PyTorch frees blocks from static destructors.
struct State {
    std::atomic<Host *> hosts[kDevicesMax] = {};
    std::mutex hosts_lock;               // held to add a device
    std::atomic<size_t> late_count{0};   // hint whether to look at late blocks; relaxed
    std::atomic<size_t> routes_count{0}; // hint whether to look at routes

    bool is_forked = false; // a child of the process that used pinned memory. Written by the child alone

    std::mutex lock; // guards what follows
    std::unordered_map<void *, Block> blocks;
    std::unordered_map<void *, size_t> segments;    // of the pools, with their sizes
    std::vector<std::shared_ptr<Private>> privates; // those that may be used again
    std::vector<Route> routes;
    std::vector<Late> late;
    at::HostStats stats;
};
State &state();

// Marks calls of pools by the thread, and measures those that pin memory or give it back. Observers are called for all
// pools of a device; the mark tells which of them are these.
class Inside
{
  public:
    Inside();
    ~Inside();

  private:
    bool before_;
    size_t taken_, gone_;
    uint64_t start_ns_;
};

// --- host.cpp ---

loch_pool_options pool_options();
Use find_use(const c10::Stream &stream); // throws
bool is_capturing(const Use &use);
void give_back(loch_allocator *pool, void *ptr) noexcept;
MempoolId_t id_of(const Block &block);

// --- host_graphs.cpp ---

bool has_ended(Late &block);                                               // whether all work on a block has ended
void keep_late(Late &&block);                                              // lets a freed block wait
void collect_late();                                                       // frees those whose work has ended
std::shared_ptr<Private> find_route(bool *is_captured);                    // of the current stream; nullptr for none
loch_allocator *open_child(Private &owner, Host &host);                    // throws
void drop_released();                                                      // gives back what released pools hold
void begin_route(MempoolId_t id, std::function<bool(c10::Stream)> filter); // throws
void end_route(MempoolId_t id);                                            // throws
void release_private(MempoolId_t id);                                      // throws

// --- host_history.cpp ---

// Gathers the context of the caller, if the history keeps contexts of this kind. Takes no lock: it may wait for Python.
std::shared_ptr<c10::GatheredContext> gather(RecordContext least);
void trace_alloc(const void *ptr, const Block &block); // State::lock is held
void trace_free(const void *ptr, const Block &block,
                std::shared_ptr<c10::GatheredContext> context); // State::lock is held
#if LOCH_TORCH_AT_LEAST(14)
void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn function, size_t max,
                    RecordContext least, bool clear);
bool is_history_enabled();
std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces();
std::vector<at::HostSegmentInfo> get_segments();
#endif

} // namespace loch_torch::host
