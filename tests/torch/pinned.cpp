// SPDX-License-Identifier: MIT
// Calls of PyTorch's allocator of pinned memory, as C functions for ctypes: without a GPU Python cannot make them. They
// ask whatever allocator is installed (at::getHostAllocator). A function that fails returns -1; pinned_error() has its
// text.
#include <ATen/core/CachingHostAllocator.h>

#include <cstring>
#include <map>
#include <string>

#define PROBE extern "C" __attribute__((visibility("default")))

static std::string error;
static std::map<void *, c10::DataPtr> live;

template <typename Function> static long guarded(Function function)
{
    try {
        return static_cast<long>(function());
    } catch (const std::exception &thrown) {
        error = thrown.what();
        return -1;
    }
}

static at::HostAllocator *get()
{
    return at::getHostAllocator(c10::DeviceType::CUDA);
}

static c10::Stream default_stream()
{
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0));
}

PROBE const char *pinned_error()
{
    return error.c_str();
}

// Returns the address of a block, whose bytes are set to `fill`; 0 for no bytes.
PROBE long pinned_alloc(size_t bytes, int fill)
{
    return guarded([&] {
        c10::DataPtr block = get()->allocate(bytes);
        TORCH_CHECK(block.device() == c10::Device(c10::DeviceType::CPU), "the block is not on the CPU");
        TORCH_CHECK(block.get_deleter() == get()->raw_deleter(), "the deleter differs");
        void *ptr = block.get();
        if (bytes) std::memset(ptr, fill, bytes);
        if (bytes) live.emplace(ptr, std::move(block));
        return reinterpret_cast<uintptr_t>(ptr);
    });
}

// Returns 1 if all bytes of a block are `fill`.
PROBE long pinned_check(void *ptr, size_t bytes, int fill)
{
    const auto *at = static_cast<const unsigned char *>(ptr);
    return bytes == 0 || (*at == fill && std::memcmp(at, at + 1, bytes - 1) == 0);
}

PROBE long pinned_free(void *ptr)
{
    return guarded([&] { return live.erase(ptr) - 1; });
}

// Returns what record_event says about an address, with the context of the block at `base`, or `base` itself.
PROBE long pinned_record(char *ptr, void *base)
{
    return guarded([&] {
        const auto found = live.find(base);
        return get()->record_event(ptr, found == live.end() ? base : found->second.get_context(), default_stream());
    });
}

PROBE long pinned_copy(void *to, const void *from, size_t bytes)
{
    return guarded([&] { return get()->copy_data(to, from, bytes), 0; });
}

PROBE long pinned_begin(unsigned long first, unsigned long second, int is_for_all)
{
    return guarded([&] {
        get()->begin_allocate_to_pool({first, second}, [=](c10::Stream) { return is_for_all != 0; });
        return 0;
    });
}

PROBE long pinned_end(unsigned long first, unsigned long second)
{
    return guarded([&] { return get()->end_allocate_to_pool({first, second}), 0; });
}

PROBE long pinned_release(unsigned long first, unsigned long second)
{
    return guarded([&] { return get()->release_pool({first, second}), 0; });
}
