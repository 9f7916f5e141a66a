// SPDX-License-Identifier: MIT
// Times allocate + free through PyTorch's C++ call, with whatever allocator is installed: bars.py compiles and calls it.
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>

using Clock = std::chrono::steady_clock;

static double since(Clock::time_point start, long pairs)
{
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / static_cast<double>(pairs);
}

// Returns nanoseconds for one pair: a DataPtr is made and destroyed.
extern "C" double pair_ns(size_t bytes, long pairs)
{
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    for (int i = 0; i < 1000; i++)
        (void)allocator->allocate(bytes);
    const auto start = Clock::now();
    for (long i = 0; i < pairs; i++)
        (void)allocator->allocate(bytes);
    return since(start, pairs);
}

// Returns nanoseconds for one pair with `live` blocks alive: the oldest goes when a new one comes, as in programs.
extern "C" double pair_ring_ns(size_t bytes, long pairs, int live)
{
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    std::vector<c10::DataPtr> ring(static_cast<size_t>(live));
    for (long i = 0; i < 4L * live; i++)
        ring[static_cast<size_t>(i % live)] = allocator->allocate(bytes);
    const auto start = Clock::now();
    for (long i = 0; i < pairs; i++)
        ring[static_cast<size_t>(i % live)] = allocator->allocate(bytes);
    const double result = since(start, pairs);
    ring.clear();
    return result;
}
