/* SPDX-License-Identifier: MIT */
/* Copies and conversions between any two layouts, as templates: chunks.cu and narrow.cu have the kernels.
 *
 * A thread has a few chunks, and loads all of them before it stores the first. Threads beside each other have chunks
 * beside each other in the target. A vector has 16 bytes on the side with the larger elements. Runs that do not begin
 * or end with a whole vector have a first and a last chunk whose elements are converted one by one. */
#ifndef LOCH_KERNEL_CHUNKS_CUH
#define LOCH_KERNEL_CHUNKS_CUH

#include "convert.h"
#include "job.h"
#include "memory.cuh"

/* Where a chunk is. */
struct chunk_place {
    char *to;
    const char *from;
    u32 element; /* of its run, counted from the first of the first chunk */
};

static __device__ __forceinline__ chunk_place chunk_find(const kernel_chunks &job, u32 chunk, u32 vector)
{
    i64 to = 0, from = 0;
    const u32 inner = place(job.axis, job.axes, chunk, to, from);
    return {(char *)job.to + to, (const char *)job.from + from, inner * vector};
}

static __device__ __forceinline__ bool chunk_is_whole(const kernel_chunks &job, const chunk_place &at, u32 vector)
{
    return at.element >= job.head && at.element - job.head + vector <= job.run;
}

/* Converts the elements of a first or last chunk that are in the run. */
template <int F, int T, int V>
static __device__ __forceinline__ void chunk_convert_few(const kernel_chunks &job, const chunk_place &at, u32 from, u32 to)
{
#pragma unroll 1
    for (int v = 0; v < V; v++) {
        if (at.element + v < job.head || at.element + v - job.head >= job.run) continue;
        words<F> in;
        words<T> out;
        in.load(at.from + v * F);
        convert_words<F, T, 1>(in, out, from, to);
        out.store(at.to + v * T);
    }
}

template <int F, int T, int V, int U> static __device__ __forceinline__ void chunks_run(const kernel_chunks &job)
{
    const u32 from = mark_from(), to = mark_to();
    const u32 first = blockIdx.x * (KERNEL_BLOCK * U) + threadIdx.x;
    words<V * F> loaded[U];
    char *target[U]; /* NULL: not a whole chunk */
    bool has_few = false;
#pragma unroll
    for (int u = 0; u < U; u++) {
        const u32 chunk = first + u * KERNEL_BLOCK;
        target[u] = 0;
        if (chunk >= job.count) continue;
        const chunk_place at = chunk_find(job, chunk, V);
        if (V > 1 && !chunk_is_whole(job, at, V)) {
            has_few = true;
            continue;
        }
        target[u] = at.to;
        loaded[u].load(at.from);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        if (!target[u]) continue;
        words<V * T> out;
        convert_words<F, T, V>(loaded[u], out, from, to);
        out.store(target[u]);
    }
    if constexpr (V > 1) {
        if (!has_few) return;
#pragma unroll 1
        for (int u = 0; u < U; u++) {
            const u32 chunk = first + u * KERNEL_BLOCK;
            if (chunk >= job.count) return;
            const chunk_place at = chunk_find(job, chunk, V);
            if (!chunk_is_whole(job, at, V)) chunk_convert_few<F, T, V>(job, at, from, to);
        }
    }
}

#define CHUNKS_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CHUNKS_VECTOR(F, T) (KERNEL_CHUNK / CHUNKS_MAX(F, T))
#define CHUNKS_DEFINE_VECTORS(F, T)                                                                                    \
    extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) loch_chunks_##F##_##T(const kernel_chunks job)         \
    {                                                                                                                  \
        constexpr int V = CHUNKS_VECTOR(F, T);                                                                         \
        chunks_run<F, T, V, V >= 8 ? 1 : 8 / V>(job);                                                                  \
    }

#endif
