// SPDX-License-Identifier: MIT
// Calls of PyTorch's allocator of pinned memory, as C functions for ctypes: without a GPU Python cannot make them. They
// ask whatever allocator is installed (at::getHostAllocator). A function that fails returns -1; pinned_error() has its
// text.
#include <ATen/core/CachingHostAllocator.h>

#include <cstring>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

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

// Allocates, writes, records, checks and frees blocks of random sizes. Several threads may run it. Returns 0, or 1 if a
// block was written by another thread.
PROBE long pinned_churn(unsigned long seed, size_t rounds)
{
    return guarded([&] {
        std::vector<std::pair<c10::DataPtr, size_t>> own(16);
        const int fill = static_cast<int>(seed % 251) + 1;
        long wrong = 0;
        for (size_t i = 0; i < rounds; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            auto &[block, bytes] = own[seed >> 60];
            if (block && !pinned_check(block.get(), bytes, fill)) wrong = 1;
            block = c10::DataPtr();
            bytes = ((seed >> 33) % (i % 64 ? 20000 : 3 << 20)) + 1;
            block = get()->allocate(bytes);
            std::memset(block.get(), fill, bytes);
            if (i % 3 == 0) get()->record_event(block.get(), block.get_context(), default_stream());
        }
        return wrong;
    });
}

// Forks while the process has live blocks. The child frees them, allocates and ends. Returns its exit code.
PROBE long pinned_fork(void *ptr)
{
    const pid_t child = fork();
    if (child == 0) {
        const bool is_ours = get()->record_event(ptr, ptr, default_stream());
        live.clear();
        try {
            (void)get()->allocate(100);
            _exit(2);
        } catch (const std::exception &) {
        }
        get()->empty_cache();
        _exit(is_ours ? 3 : 0);
    }
    int code = -1;
    waitpid(child, &code, 0);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 100;
}
