// SPDX-License-Identifier: MIT
// Calls of PyTorch's allocator that Python makes only where there is a GPU, as C functions for ctypes. They go through
// the public class of PyTorch (c10::cuda::CUDACachingAllocator::get()), so they ask whatever allocator is installed.
//
// A function returns 0, or 1 after an exception; probe_error() has its text.
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/headeronly/version.h>

#include <cstring>
#include <string>
#include <vector>

using namespace c10::cuda::CUDACachingAllocator;
using c10::MempoolId_t;

#define PROBE extern "C" __attribute__((visibility("default")))

static thread_local std::string error;

template <typename Function> static int guarded(Function function)
{
    try {
        function();
        return 0;
    } catch (const std::exception &thrown) {
        error = thrown.what();
        return 1;
    }
}

PROBE const char *probe_error()
{
    return error.c_str();
}

// --- history ---

static std::shared_ptr<c10::GatheredContext> gather()
{
    return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

PROBE int probe_record_history(int is_on, size_t entries, int when, int clear, const char *skipped)
{
    return guarded([&] {
        std::vector<std::string> actions;
        for (std::string rest = skipped; !rest.empty();) {
            const size_t end = std::min(rest.find(','), rest.size());
            actions.push_back(rest.substr(0, end));
            rest.erase(0, end + 1);
        }
        get()->recordHistory(is_on != 0, gather, entries, static_cast<RecordContext>(when), clear != 0, actions);
    });
}

PROBE int probe_annotate(const char *name, const char *value)
{
    return guarded([&] { get()->recordAnnotation({{name, value}}); });
}

PROBE int probe_push_compile(const char *text)
{
    return guarded([&] {
        std::string copy = text;
        get()->pushCompileContext(copy);
    });
}

PROBE int probe_pop_compile()
{
    return guarded([&] { get()->popCompileContext(); });
}

// --- observers ---

struct Seen {
    int64_t numbers[5];
};
static std::vector<Seen> failures, segments;

PROBE int probe_attach_oom_observer()
{
    return guarded([] {
        get()->attachOutOfMemoryObserver([](int64_t device, size_t bytes, size_t total, size_t free) {
            failures.push_back({{device, int64_t(bytes), int64_t(total), int64_t(free), 0}});
        });
    });
}

// Entries of segments as action, device, address, bytes, first number of the pool. One tracker throws, as NCCL's does
// for a segment that it does not know.
PROBE int probe_attach_tracker(int is_throwing)
{
    return guarded([=] {
        get()->attachAllocatorTraceTracker([=](const TraceEntry &entry) {
            if (is_throwing) throw std::runtime_error("this segment is not registered");
            segments.push_back({{entry.action_, entry.device_, int64_t(entry.addr_), int64_t(entry.size_),
                                 int64_t(entry.mempool_.first)}});
        });
    });
}

static size_t give(std::vector<Seen> &from, size_t index, int64_t *numbers)
{
    if (index < from.size()) std::memcpy(numbers, from[index].numbers, sizeof from[index].numbers);
    return from.size();
}

PROBE size_t probe_oom_seen(size_t index, int64_t *numbers)
{
    return give(failures, index, numbers);
}

PROBE size_t probe_segment_seen(size_t index, int64_t *numbers)
{
    return give(segments, index, numbers);
}

// --- pools ---

PROBE int probe_begin_pool(unsigned long long first, unsigned long long second)
{
    return guarded([=] { get()->beginAllocateToPool(0, {first, second}, [](cudaStream_t) { return true; }); });
}

PROBE int probe_end_pool(unsigned long long first, unsigned long long second)
{
    return guarded([=] { get()->endAllocateToPool(0, {first, second}); });
}

PROBE int probe_release_pool(unsigned long long first, unsigned long long second)
{
    return guarded([=] { get()->releasePool(0, {first, second}); });
}

PROBE int probe_create_pool(unsigned long long first, unsigned long long second)
{
    return guarded([=] { get()->createOrIncrefPool(0, {first, second}); });
}

PROBE int probe_set_no_split(unsigned long long first, unsigned long long second)
{
    return guarded([=] { get()->setNoSplit(0, {first, second}); });
}

PROBE int probe_pool_use_count(unsigned long long first, unsigned long long second)
{
    int count = -1;
    (void)guarded([&] { count = get()->getPoolUseCount(0, {first, second}); });
    return count;
}

// --- blocks ---

PROBE void *probe_allocate(size_t bytes)
{
    void *result = nullptr;
    (void)guarded([&] { result = get()->raw_alloc(bytes); });
    return result;
}

// Says that a stream uses a block, as Tensor.record_stream does.
PROBE int probe_record_stream(size_t address, size_t stream)
{
    return guarded([=] {
        void *ptr = reinterpret_cast<void *>(address);
        c10::DataPtr data(ptr, ptr, get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
        get()->recordStream(data, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), 0));
        (void)data.release_context(); // the block stays
    });
}

PROBE int probe_empty_cache(unsigned long long first, unsigned long long second)
{
    return guarded([=] { get()->emptyCache({first, second}); });
}

// What PyTorch calls when CUDA is used for the first time.
PROBE int probe_init(int device_count)
{
    return guarded([=] { get()->init(device_count); });
}

// --- memory of other processes ---

PROBE int probe_share(size_t address, char *handle, size_t *bytes, size_t *offset)
{
    return guarded([=] {
        const ShareableHandle shared = get()->shareIpcHandle(reinterpret_cast<void *>(address));
        TORCH_CHECK(shared.handle.size() <= *bytes, "the handle has ", shared.handle.size(), " bytes");
        std::memcpy(handle, shared.handle.data(), shared.handle.size());
        *bytes = shared.handle.size();
        *offset = static_cast<size_t>(shared.offset);
    });
}

static std::vector<std::shared_ptr<void>> opened;

// Opens a handle; `base` is its address here. Each is closed by its number, in the order of opening from 0.
PROBE int probe_open(const char *handle, size_t bytes, size_t *base)
{
    return guarded([=] {
        opened.push_back(get()->getIpcDevPtr(std::string(handle, bytes)));
        *base = reinterpret_cast<size_t>(opened.back().get());
    });
}

PROBE int probe_close(size_t number)
{
    return guarded([=] { opened.at(number).reset(); });
}
