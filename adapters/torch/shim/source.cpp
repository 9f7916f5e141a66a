// SPDX-License-Identifier: MIT
// An allocator of Loch on top of a CUDAAllocator: the segments of a MemPool that was made with an allocator of its own.
#include "source.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <optional>

namespace loch_torch
{

struct Source {
    Device &device;
    MempoolId_t id; // of the pool
    std::shared_ptr<CUDAAllocator> allocator;
};

// Lets the thread call the driver while a stream is captured: a foreign allocator may call what a capture forbids.
struct Relaxed {
    std::optional<c10::cuda::CUDAStreamCaptureModeGuard> guard;
    Relaxed()
    {
        if (!settings().is_simulated) guard.emplace(cudaStreamCaptureModeRelaxed);
    }
};

// Exceptions must not pass through Loch.
template <typename Function> static loch_status guarded(const char *what, Function function)
{
    try {
        return function();
    } catch (const std::exception &thrown) {
        return loch_error_set(LOCH_E_DEVICE_MEMORY, nullptr, 0, "a pool's own allocator could not %s: %.200s", what,
                              thrown.what());
    }
}

static loch_status source_alloc(void *self, const loch_request *request, void **out)
{
    return guarded("allocate", [&] {
        const Source &source = *static_cast<Source *>(self);
        const Relaxed relaxed;
        *out = source.allocator->raw_alloc(request->bytes);
        if (*out) note_segment(source.device, source.id, *out, request->bytes, true);
        if (*out) return LOCH_OK;
        return loch_error_set(LOCH_E_DEVICE_MEMORY, nullptr, 0, "a pool's own allocator has no %zu bytes",
                              request->bytes);
    });
}

static loch_status source_free(void *self, void *address, size_t bytes, loch_stream *)
{
    return guarded("free", [&] {
        const Source &source = *static_cast<Source *>(self);
        note_segment(source.device, source.id, address, bytes, false);
        const Relaxed relaxed;
        source.allocator->raw_delete(address);
        return LOCH_OK;
    });
}

static void source_destroy(void *self)
{
    delete static_cast<Source *>(self);
}

loch_allocator *make_source(Device &device, MempoolId_t id, const std::shared_ptr<CUDAAllocator> &source)
{
    loch_allocator_ops ops{};
    ops.size = sizeof ops;
    ops.kind = "torch";
    ops.traits = LOCH_TRAIT_THREAD_SAFE;
    ops.alloc = source_alloc;
    ops.free = source_free;
    ops.destroy = source_destroy;
    auto self = std::make_unique<Source>(Source{device, id, source});
    loch_allocator *made = nullptr;
    const std::string name = "torch cuda:" + std::to_string(device.number) + " " + source->name();
    check("use a pool's own allocator",
          loch_allocator_create(device.loch, name.substr(0, 63).c_str(), &ops, self.get(), &made));
    (void)self.release(); // the allocator destroys it
    return made;
}

} // namespace loch_torch
