/* SPDX-License-Identifier: MIT */
// ptx: --relocatable-device-code=true
/* Transposes through shared memory: loch_tiles_F_T converts elements of F bytes to elements of T bytes on the way.
 *
 * A tile has 32 by 32 blocks, or more along the rows of the target if its elements are small, so that a warp stores 128
 * bytes of a row. A block is a square of elements whose side is a word: 4 by 4 elements of one
 * byte, 2 by 2 of two bytes, or one larger element. A thread loads the words of a block, which are rows of the source,
 * transposes the block in registers, and stores its columns as words in shared memory. Then warps read whole rows of
 * the target there. The word of block (i, j) is at place (i + j) % 32 of its row, so that neither access has two lanes
 * of a warp in one bank; words that one lane stores together are 32 places apart. */
#include "convert.h"
#include "job.h"
#include "memory.cuh"

/* Transposes a block of K by K elements in words. */
template <int K, int W> static __device__ __forceinline__ void tile_turn(words<W> (&block)[K])
{
    if constexpr (K == 2) {
        const u32 a = block[0].word[0], b = block[1].word[0];
        block[0].word[0] = __byte_perm(a, b, 0x5410);
        block[1].word[0] = __byte_perm(a, b, 0x7632);
    } else if constexpr (K == 4) {
        const u32 a = block[0].word[0], b = block[1].word[0], c = block[2].word[0], d = block[3].word[0];
        const u32 ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
        const u32 cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
        block[0].word[0] = __byte_perm(ab_low, cd_low, 0x5410);
        block[1].word[0] = __byte_perm(ab_low, cd_low, 0x7632);
        block[2].word[0] = __byte_perm(ab_high, cd_high, 0x5410);
        block[3].word[0] = __byte_perm(ab_high, cd_high, 0x7632);
    }
}

/* Loads up to K elements of a row of a block, one by one. */
template <int F, int K, int W>
static __device__ __forceinline__ void tile_load_few(words<W> &out, const char *from, u32 x, u32 end)
{
#pragma unroll
    for (int i = 0; i < (W + 3) / 4; i++)
        out.word[i] = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (x + k >= end) continue;
        words<F> element;
        element.load(from + k * F);
        if constexpr (K == 1) {
#pragma unroll
            for (int i = 0; i < (F + 3) / 4; i++)
                out.word[i] = element.word[i];
        } else {
            out.word[0] |= element.word[0] << (8 * F * k);
        }
    }
}

/* Transposes block (i, j) and stores it in shared memory. */
template <int K, int Q, int W>
static __device__ __forceinline__ void tile_put(words<W> *tile, words<W> (&block)[K], u32 i, u32 j)
{
    tile_turn<K>(block);
#pragma unroll
    for (int k = 0; k < K; k++)
        tile[((i * K + k) * Q + j % Q) * KERNEL_SIDE + (j / Q + i) % KERNEL_SIDE] = block[k];
}

/* Stores up to K elements of a row of the target, one by one. */
template <int T, int K>
static __device__ __forceinline__ void tile_store_few(const words<K * T> &in, char *to, u32 y, u32 end)
{
    if constexpr (K > 1) {
#pragma unroll
        for (int k = 0; k < K; k++) {
            if (y + k >= end) continue;
            words<T> element;
            const u64 bits = element_get<T>(in, k);
            element.word[0] = (u32)bits;
            if constexpr (T == 8) element.word[1] = (u32)(bits >> 32);
            element.store(to + k * T);
        }
    }
}

template <int F, int T> static __device__ __forceinline__ void tiles_run(const kernel_tiles &job)
{
    constexpr int W = F > 4 ? F : 4, K = W / F, S = KERNEL_SIDE, ROWS = KERNEL_BLOCK / S;
    constexpr int Q = K * T >= 4 ? 1 : 4 / (K * T), R = S * Q / ROWS, N = K * Q; /* N elements of a lane in a row */
    __shared__ words<W> tile[S * K * S * Q];
    const u32 from_type = mark_from(), to_type = mark_to();
    const u32 lane = threadIdx.x % S, row = threadIdx.x / S;
    i64 to_offset = 0, from_offset = 0;
    u32 left = blockIdx.x;
    const u32 tile_x = left % job.tiles_x;
    left /= job.tiles_x;
    const u32 tile_y = left % job.tiles_y;
    left /= job.tiles_y;
    if (job.axes) place(job.axis, job.axes, left, to_offset, from_offset);
    const u32 x_start = tile_x * (S * K), y_start = tile_y * (S * N);
    const char *from = (const char *)job.from + from_offset + (u64)x_start * F + (i64)y_start * job.from_y;
    char *to = (char *)job.to + to_offset + (i64)x_start * job.to_x + (u64)y_start * T;
    const u32 x_end = job.x - x_start, y_end = job.y - y_start; /* of the tile, or beyond */

    if (x_end >= S * K && y_end >= S * N && job.is_from_aligned) { /* all loads before the first use */
        words<W> block[R][K];
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int k = 0; k < K; k++)
                block[r][k].load(from + (i64)((row + r * ROWS) * K + k) * job.from_y + lane * K * F);
#pragma unroll
        for (int r = 0; r < R; r++)
            tile_put<K, Q>(tile, block[r], lane, row + r * ROWS);
    } else {
#pragma unroll 1
        for (int r = 0; r < R; r++) {
            words<W> block[K];
#pragma unroll
            for (int k = 0; k < K; k++) {
                const u32 y = (row + r * ROWS) * K + k, x = lane * K;
                const char *at = from + (i64)y * job.from_y + x * F;
                if (y < y_end && x + K <= x_end && job.is_from_aligned)
                    block[k].load(at);
                else
                    tile_load_few<F, K>(block[k], at, x, y < y_end ? x_end : 0u);
            }
            tile_put<K, Q>(tile, block, lane, row + r * ROWS);
        }
    }
    __syncthreads();
#pragma unroll N == 1 ? 4 : 2
    for (int s = 0; s < S * K / ROWS; s++) {
        const u32 x = row + s * ROWS, y = lane * N;
        if (x >= x_end || y >= y_end) continue;
        words<W * Q> in;
#pragma unroll
        for (int q = 0; q < Q; q++) {
            const words<W> word = tile[(x * Q + q) * S + (lane + x / K) % S];
#pragma unroll
            for (int i = 0; i < W / 4; i++)
                in.word[q * (W / 4) + i] = word.word[i];
        }
        words<N * T> out;
        convert_words<F, T, N>(in, out, from_type, to_type);
        char *at = to + (i64)x * job.to_x + y * T;
        if (N == 1 || (y + N <= y_end && job.is_to_aligned))
            out.store(at);
        else
            tile_store_few<T, N>(out, at, y, y_end);
    }
}

#define TILES_DEFINE(F, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(KERNEL_BLOCK) loch_tiles_##F##_##T(const kernel_tiles job)           \
    {                                                                                                                  \
        tiles_run<F, T>(job);                                                                                          \
    }

TILES_DEFINE(1, 1)
TILES_DEFINE(1, 2)
TILES_DEFINE(1, 4)
TILES_DEFINE(1, 8)
TILES_DEFINE(2, 1)
TILES_DEFINE(2, 2)
TILES_DEFINE(2, 4)
TILES_DEFINE(2, 8)
TILES_DEFINE(4, 1)
TILES_DEFINE(4, 2)
TILES_DEFINE(4, 4)
TILES_DEFINE(4, 8)
TILES_DEFINE(8, 1)
TILES_DEFINE(8, 2)
TILES_DEFINE(8, 4)
TILES_DEFINE(8, 8)
TILES_DEFINE(16, 16)
