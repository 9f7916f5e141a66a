/* SPDX-License-Identifier: MIT */
/* Rows by index: loch_gather_B and loch_scatter_B copy rows in chunks of B bytes. An index that is out of range reads
 * and writes nothing there: a gathered row is zero, a row to scatter is left out. */
#include "job.h"
#include "memory.cuh"

enum { ROWS_CHUNKS = 4 }; /* of a thread */

/* Reads the index of a row: the code of the mark is that of its type. Negative numbers become large ones. */
static __device__ __forceinline__ u64 rows_index(const kernel_rows &job, u64 row)
{
    const char *at = (const char *)job.indices + (i64)row * job.index;
    return mark_from() == TYPE_I32 ? (u64)(i64) * (const i32 *)at : *(const u64 *)at;
}

template <int B, bool is_gather> static __device__ __forceinline__ void rows_run(const kernel_rows &job)
{
    const u32 first = blockIdx.x * (KERNEL_BLOCK * ROWS_CHUNKS) + threadIdx.x;
    words<B> value[ROWS_CHUNKS];
    char *target[ROWS_CHUNKS];
#pragma unroll
    for (int u = 0; u < ROWS_CHUNKS; u++) {
        const u32 chunk = first + u * KERNEL_BLOCK;
        target[u] = 0;
        if (chunk >= job.count) continue;
        const u32 row = divide(job.chunks, chunk), at = chunk - row * job.chunks.size;
        const u64 index = rows_index(job, row);
        const bool is_in = index < job.rows;
#pragma unroll
        for (int i = 0; i < (B + 3) / 4; i++)
            value[u].word[i] = 0;
        const char *source = (const char *)job.from + (i64)(is_gather ? index : row) * job.from_row + (u64)at * B;
        if (is_in) value[u].load(source);
        if (is_in || is_gather) target[u] = (char *)job.to + (i64)(is_gather ? row : index) * job.to_row + (u64)at * B;
    }
#pragma unroll
    for (int u = 0; u < ROWS_CHUNKS; u++)
        if (target[u]) value[u].store(target[u]);
}

#define ROWS_ENTRY(name, B, is_gather)                                                                                 \
    extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) name(const kernel_rows job)                            \
    {                                                                                                                  \
        rows_run<B, is_gather>(job);                                                                                   \
    }
#define ROWS_DEFINE(B) ROWS_ENTRY(loch_gather_##B, B, true) ROWS_ENTRY(loch_scatter_##B, B, false)

ROWS_DEFINE(1)
ROWS_DEFINE(2)
ROWS_DEFINE(4)
ROWS_DEFINE(8)
ROWS_DEFINE(16)
