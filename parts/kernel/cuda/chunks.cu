/* SPDX-License-Identifier: MIT */
// ptx: --relocatable-device-code=true
/* Copies and conversions between any two layouts: loch_chunks_F_T converts vectors of elements of F bytes to vectors of
 * elements of T bytes (chunks.cuh), loch_each single elements of the sizes that marks say, and loch_each_16_16 copies
 * elements of 16 bytes. */
#include "chunks.cuh"

CONVERT_PAIRS(CHUNKS_DEFINE_VECTORS)

extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) loch_each_16_16(const kernel_chunks job)
{
    chunks_run<16, 16, 1, 4>(job);
}

static __device__ __forceinline__ u64 each_load(const char *from, u32 bytes)
{
    if (bytes == 8) return *(const u64 *)from;
    if (bytes == 4) return *(const u32 *)from;
    return bytes == 2 ? *(const unsigned short *)from : *(const unsigned char *)from;
}

static __device__ __forceinline__ void each_store(char *to, u32 bytes, u64 bits)
{
    if (bytes == 8)
        *(u64 *)to = bits;
    else if (bytes == 4)
        *(u32 *)to = (u32)bits;
    else if (bytes == 2)
        *(unsigned short *)to = (unsigned short)bits;
    else
        *(unsigned char *)to = (unsigned char)bits;
}

extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) loch_each(const kernel_chunks job)
{
    constexpr int U = 4;
    const u32 first = blockIdx.x * (KERNEL_BLOCK * U) + threadIdx.x;
    u64 loaded[U];
    char *target[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        const u32 chunk = first + u * KERNEL_BLOCK;
        target[u] = 0;
        if (chunk >= job.count) continue;
        const chunk_place at = chunk_find(job, chunk, 1);
        target[u] = at.to;
        loaded[u] = each_load(at.from, mark_from_bytes());
    }
#pragma unroll
    for (int u = 0; u < U; u++)
        if (target[u]) each_store(target[u], mark_to_bytes(), loch_convert_any(loaded[u]));
}
