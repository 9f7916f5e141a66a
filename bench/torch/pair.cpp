// SPDX-License-Identifier: MIT
// Times one allocation and its free through PyTorch's C++ calls, whatever allocator is installed. pair.py builds and
// drives it.
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <vector>

using c10::cuda::CUDACachingAllocator::get;

template <typename Function> static double time_rounds(long rounds, Function function)
{
    const auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < rounds; i++)
        function();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    return time.count() / static_cast<double>(rounds);
}

extern "C" {

// Returns nanoseconds for raw_alloc and raw_delete.
__attribute__((visibility("default"))) double pair_raw(size_t bytes, long rounds)
{
    return time_rounds(rounds, [&] { get()->raw_delete(get()->raw_alloc(bytes)); });
}

// Returns nanoseconds for allocate, as tensors do, and the DataPtr's end.
__attribute__((visibility("default"))) double pair_data(size_t bytes, long rounds)
{
    return time_rounds(rounds, [&] { const c10::DataPtr data = get()->allocate(bytes); });
}

// Returns nanoseconds for one of `width` blocks that are allocated in a row and then freed in a row.
__attribute__((visibility("default"))) double pair_many(size_t bytes, long rounds, size_t width)
{
    std::vector<c10::DataPtr> held(width);
    return time_rounds(rounds / static_cast<long>(width),
                       [&] {
                           for (c10::DataPtr &data : held)
                               data = get()->allocate(bytes);
                           for (c10::DataPtr &data : held)
                               data.clear();
                       }) /
           static_cast<double>(width);
}

// Holds the loop that valgrind counts (--toggle-collect).
__attribute__((visibility("default"), noinline)) void pair_counted(size_t bytes, long rounds)
{
    for (long i = 0; i < rounds; i++)
        const c10::DataPtr data = get()->allocate(bytes);
}
}
