/* SPDX-License-Identifier: MIT */
/* Fills: loch_fill_B stores chunks of B bytes of a pattern, which is repeated to 16 bytes. */
#include "job.h"
#include "memory.cuh"

template <int B> static __device__ __forceinline__ void fill_run(const kernel_chunks &job)
{
    constexpr int U = 4;
    const u32 first = blockIdx.x * (KERNEL_BLOCK * U) + threadIdx.x;
    words<B> pattern;
#pragma unroll
    for (int i = 0; i < (B + 3) / 4; i++)
        pattern.word[i] = job.pattern[i];
#pragma unroll
    for (int u = 0; u < U; u++) {
        const u32 chunk = first + u * KERNEL_BLOCK;
        if (chunk >= job.count) continue;
        i64 to = 0, from = 0;
        place(job.axis, job.axes, chunk, to, from);
        pattern.store((char *)job.to + to);
    }
}

#define FILL_DEFINE(B)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) loch_fill_##B(const kernel_chunks job)                 \
    {                                                                                                                  \
        fill_run<B>(job);                                                                                              \
    }

FILL_DEFINE(1)
FILL_DEFINE(2)
FILL_DEFINE(4)
FILL_DEFINE(8)
FILL_DEFINE(16)
