/* SPDX-License-Identifier: MIT */
/* The arithmetic of the encoder on a CUDA device, besides matrix products. Every kernel has a form for f32 and one for
 * f16; sums, norms, biases and softmax are in f32 in both. Rows of all sentences lie end to end; sentence i has the rows
 * starts[i] to starts[i + 1].
 *
 * The attention for f16 runs on tensor cores: a block takes 64 rows of a head of a sentence, a warp 16 of them, and goes
 * through the keys 64 at a time with a running softmax, so that scores stay in registers. */
// ptx: --gpu-architecture=compute_80 --fmad=true
#include "instructions.h"

enum { WIDTH = 384, HEADS = 12, HEAD = 32, MLP = 1536, QKV = 3 * WIDTH };
enum { LANES = 32, TILE = 64, PITCH = HEAD + 8, LONGEST = 512 };

#define ALL_LANES 0xffffffffU
#define LOWEST __int_as_float(0xff800000) /* minus infinity */
#define NORM_EPSILON 1e-12F
#define SCORE_SCALE 0.17677670F /* 1 / sqrt(HEAD) */
#define LOG2_E 1.44269504F

/* --- f16 --- */

__device__ __forceinline__ float low_of(unsigned both)
{
    return widen((half)(both & 0xffff));
}

__device__ __forceinline__ float high_of(unsigned both)
{
    return widen((half)(both >> 16));
}

/* --- four elements at a time --- */

__device__ __forceinline__ void load(const float *from, float to[4])
{
    const float4 x = *(const float4 *)from;
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

__device__ __forceinline__ void load(const half *from, float to[4])
{
    const uint2 x = *(const uint2 *)from;
    to[0] = low_of(x.x), to[1] = high_of(x.x), to[2] = low_of(x.y), to[3] = high_of(x.y);
}

__device__ __forceinline__ void store(float *to, const float x[4])
{
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

__device__ __forceinline__ void store(half *to, const float x[4])
{
    *(uint2 *)to = make_uint2(pack(x[0], x[1]), pack(x[2], x[3]));
}

/* --- rows: one warp each, in blocks of 4 warps --- */

enum { PARTS = WIDTH / (4 * LANES) }; /* a lane has 4 elements of each part */

__device__ __forceinline__ float sum_lanes(float x)
{
    for (int step = LANES / 2; step; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

template <typename T>
__device__ __forceinline__ void norm_row(float x[PARTS][4], const float *weight, const float *bias, T *to, int lane)
{
    float sum = 0, squares = 0;
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < 4; i++)
            sum += x[part][i];
    const float mean = sum_lanes(sum) / WIDTH;
    for (int part = 0; part < PARTS; part++)
        for (int i = 0; i < 4; i++)
            squares += (x[part][i] - mean) * (x[part][i] - mean);
    const float scale = rsqrtf(sum_lanes(squares) / WIDTH + NORM_EPSILON);
    for (int part = 0; part < PARTS; part++) {
        const int at = (part * LANES + lane) * 4;
        float w[4], b[4], y[4];
        load(weight + at, w);
        load(bias + at, b);
        for (int i = 0; i < 4; i++)
            y[i] = (x[part][i] - mean) * scale * w[i] + b[i];
        store(to + at, y);
    }
}

/* The embeddings of all tokens: word, place in the sentence, kind 0, normalised. */
template <typename T>
__device__ __forceinline__ void embed_rows(const int *tokens, const int *places, int rows, const T *words,
                                           const T *place_table, const float *kind, const float *weight,
                                           const float *bias, T *x)
{
    const int row = blockIdx.x * 4 + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (row >= rows) return;
    float sum[PARTS][4];
    for (int part = 0; part < PARTS; part++) {
        const int at = (part * LANES + lane) * 4;
        float word[4], place[4], zero[4];
        load(words + (size_t)tokens[row] * WIDTH + at, word);
        load(place_table + (size_t)places[row] * WIDTH + at, place);
        load(kind + at, zero);
        for (int i = 0; i < 4; i++)
            sum[part][i] = word[i] + place[i] + zero[i];
    }
    norm_row(sum, weight, bias, x + (size_t)row * WIDTH, lane);
}

/* x = norm(x + y + added): the end of an attention and of a two-layer network. */
template <typename T>
__device__ __forceinline__ void join_rows(T *x, const T *y, const float *added, int rows, const float *weight,
                                          const float *bias)
{
    const int row = blockIdx.x * 4 + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    if (row >= rows) return;
    float sum[PARTS][4];
    for (int part = 0; part < PARTS; part++) {
        const int at = (part * LANES + lane) * 4;
        float a[4], b[4], c[4];
        load(x + (size_t)row * WIDTH + at, a);
        load(y + (size_t)row * WIDTH + at, b);
        load(added + at, c);
        for (int i = 0; i < 4; i++)
            sum[part][i] = a[i] + b[i] + c[i];
    }
    norm_row(sum, weight, bias, x + (size_t)row * WIDTH, lane);
}

/* x = gelu(x + bias); rows of MLP elements, four for each thread. */
template <typename T> __device__ __forceinline__ void gelu_rows(T *x, const float *bias, int rows)
{
    const size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (at >= (size_t)rows * MLP) return;
    float y[4], b[4];
    load(x + at, y);
    load(bias + at % MLP, b);
    for (int i = 0; i < 4; i++) {
        const float z = y[i] + b[i];
        y[i] = 0.5F * z * (1.0F + erff(z * 0.70710678F));
    }
    store(x + at, y);
}

__device__ __forceinline__ float element(const float *from)
{
    return *from;
}

__device__ __forceinline__ float element(const half *from)
{
    return widen(*from);
}

/* The mean over the rows of a sentence, divided by its length. A block of WIDTH threads for each sentence. */
template <typename T> __device__ __forceinline__ void pool_rows(const T *x, const int *starts, float *vectors)
{
    __shared__ float squares[WIDTH / LANES];
    const int start = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    float mean = 0, total = 0;
#pragma unroll 8
    for (int row = start; row < end; row++)
        mean += element(x + (size_t)row * WIDTH + threadIdx.x);
    mean /= (float)(end - start);
    const float sum = sum_lanes(mean * mean);
    if (threadIdx.x % LANES == 0) squares[threadIdx.x / LANES] = sum;
    __syncthreads();
    for (int i = 0; i < WIDTH / LANES; i++)
        total += squares[i];
    vectors[(size_t)blockIdx.x * WIDTH + threadIdx.x] = mean / fmaxf(sqrtf(total), 1e-12F);
}

/* --- attention in f32: a warp for each row of a head --- */

__device__ __forceinline__ float score_of(const float *query, const float *key, const float *bias)
{
    float sum = 0;
    for (int i = 0; i < HEAD; i += 4) {
        float k[4], b[4];
        load(key + i, k);
        load(bias + i, b);
        for (int j = 0; j < 4; j++)
            sum += query[i + j] * (k[j] + b[j]);
    }
    return sum * SCORE_SCALE;
}

extern "C" __global__ void __launch_bounds__(128)
    attend_f32(const float *qkv, const float *bias, const int *starts, float *mixed)
{
    __shared__ float weights[4][LONGEST], queries[4][HEAD];
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, head = blockIdx.y * HEAD;
    const int start = starts[blockIdx.z], length = starts[blockIdx.z + 1] - start, row = blockIdx.x * 4 + warp;
    if (row >= length) return;
    queries[warp][lane] = qkv[(size_t)(start + row) * QKV + head + lane] + bias[head + lane];
    __syncwarp();
    float top = LOWEST, sum = 0, mix = 0;
    for (int j = lane; j < length; j += LANES) {
        const float *key = qkv + (size_t)(start + j) * QKV + WIDTH + head;
        const float score = score_of(queries[warp], key, bias + WIDTH + head);
        weights[warp][j] = score;
        top = fmaxf(top, score);
    }
    for (int step = LANES / 2; step; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, step));
    for (int j = lane; j < length; j += LANES) {
        weights[warp][j] = expf(weights[warp][j] - top);
        sum += weights[warp][j];
    }
    sum = sum_lanes(sum);
    __syncwarp();
    for (int j = 0; j < length; j++)
        mix += weights[warp][j] * qkv[(size_t)(start + j) * QKV + 2 * WIDTH + head + lane];
    mixed[(size_t)(start + row) * WIDTH + head + lane] = mix / sum + bias[2 * WIDTH + head + lane];
}

/* --- attention in f16 --- */

__device__ __forceinline__ unsigned add(unsigned both, const float *bias)
{
    return pack(low_of(both) + bias[0], high_of(both) + bias[1]);
}

/* The queries of a warp with their bias, scaled for powers of two. Rows behind the sentence are zero. */
__device__ __forceinline__ void load_queries(const half *rows, const float *bias, int first, int length, int lane,
                                             unsigned a[2][4])
{
    for (int step = 0; step < 2; step++)
        for (int i = 0; i < 4; i++) {
            const int row = first + lane / 4 + i % 2 * 8, column = step * 16 + lane % 4 * 2 + i / 2 * 8;
            a[step][i] = 0;
            if (row >= length) continue;
            const unsigned both = *(const unsigned *)(rows + (size_t)row * QKV + column);
            a[step][i] = pack((low_of(both) + bias[column]) * (SCORE_SCALE * LOG2_E),
                              (high_of(both) + bias[column + 1]) * (SCORE_SCALE * LOG2_E));
        }
}

/* 64 keys with their bias, and their values, to shared memory; zero behind the sentence. */
__device__ __forceinline__ void load_tile(const half *rows, const float *key_bias, int first, int length,
                                          half (*keys)[PITCH], half (*values)[PITCH])
{
    for (int piece = threadIdx.x; piece < TILE * HEAD / 8; piece += blockDim.x) {
        const int row = piece / (HEAD / 8), column = piece % (HEAD / 8) * 8;
        uint4 key = make_uint4(0, 0, 0, 0), value = key;
        if (first + row < length) {
            const half *from = rows + (size_t)(first + row) * QKV + column;
            const float *bias = key_bias + column;
            key = *(const uint4 *)(from + WIDTH);
            value = *(const uint4 *)(from + 2 * WIDTH);
            key = make_uint4(add(key.x, bias), add(key.y, bias + 2), add(key.z, bias + 4), add(key.w, bias + 6));
        }
        *(uint4 *)&keys[row][column] = key;
        *(uint4 *)&values[row][column] = value;
    }
}

/* What a warp keeps of its 16 rows: two of them in each lane. */
typedef struct rows_state {
    float mixed[4][4]; /* HEAD columns, 8 in each part */
    float top[2], sum[2];
} rows_state;

__device__ __forceinline__ void score_tile(const unsigned queries[2][4], half (*keys)[PITCH], int left, int lane,
                                           float scores[8][4])
{
    for (int part = 0; part < 8; part++) {
        const half *key = &keys[part * 8 + lane / 4][lane % 4 * 2];
        for (int i = 0; i < 4; i++)
            scores[part][i] = 0;
        for (int step = 0; step < 2; step++)
            multiply(scores[part], queries[step], *(const unsigned *)(key + step * 16),
                     *(const unsigned *)(key + step * 16 + 8));
        for (int i = 0; i < 4; i++)
            if (part * 8 + lane % 4 * 2 + i % 2 >= left) scores[part][i] = LOWEST;
    }
}

/* Turns scores into powers, relative to the largest of all scores so far. */
__device__ __forceinline__ void soften_tile(rows_state *rows, float scores[8][4])
{
    for (int half_row = 0; half_row < 2; half_row++) {
        float top = rows->top[half_row], sum = 0;
        for (int part = 0; part < 8; part++)
            top = fmaxf(top, fmaxf(scores[part][2 * half_row], scores[part][2 * half_row + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        const float scale = exp2f(rows->top[half_row] - top);
        for (int part = 0; part < 8; part++)
            for (int i = 2 * half_row; i < 2 * half_row + 2; i++) {
                scores[part][i] = exp2f(scores[part][i] - top);
                sum += scores[part][i];
            }
        for (int part = 0; part < 4; part++)
            for (int i = 2 * half_row; i < 2 * half_row + 2; i++)
                rows->mixed[part][i] *= scale;
        rows->sum[half_row] = rows->sum[half_row] * scale + sum;
        rows->top[half_row] = top;
    }
}

__device__ __forceinline__ void mix_tile(rows_state *rows, const float scores[8][4], half (*values)[PITCH], int lane)
{
    for (int step = 0; step < 4; step++) { /* 16 keys each */
        const float *left = scores[2 * step], *right = scores[2 * step + 1];
        const unsigned a[4] = {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]),
                               pack(right[2], right[3])};
        for (int side = 0; side < 2; side++) { /* 16 columns each */
            unsigned b[4];
            load_turned(&values[step * 16 + lane % 16][side * 16 + lane / 16 * 8], b);
            multiply(rows->mixed[2 * side], a, b[0], b[1]);
            multiply(rows->mixed[2 * side + 1], a, b[2], b[3]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
    attend_f16(const half *qkv, const float *bias, const int *starts, half *mixed)
{
    __shared__ __align__(16) half keys[TILE][PITCH], values[TILE][PITCH];
    const int lane = threadIdx.x % LANES, head = blockIdx.y * HEAD;
    const int start = starts[blockIdx.z], length = starts[blockIdx.z + 1] - start;
    const int first = blockIdx.x * TILE + threadIdx.x / LANES * 16;
    const half *rows = qkv + (size_t)start * QKV + head;
    if (blockIdx.x * TILE >= length) return;
    unsigned queries[2][4];
    rows_state state = {{{0}}, {LOWEST, LOWEST}, {0, 0}};
    load_queries(rows, bias + head, first, length, lane, queries);
    for (int tile = 0; tile < length; tile += TILE) {
        float scores[8][4];
        __syncthreads();
        load_tile(rows, bias + WIDTH + head, tile, length, keys, values);
        __syncthreads();
        score_tile(queries, keys, length - tile, lane, scores);
        soften_tile(&state, scores);
        mix_tile(&state, scores, values, lane);
    }
    for (int half_row = 0; half_row < 2; half_row++) {
        const int row = first + lane / 4 + half_row * 8;
        float sum = state.sum[half_row];
        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        if (row >= length) continue;
        for (int part = 0; part < 4; part++) {
            const int column = head + part * 8 + lane % 4 * 2;
            const float *value_bias = bias + 2 * WIDTH + column;
            *(unsigned *)(mixed + (size_t)(start + row) * WIDTH + column) =
                pack(state.mixed[part][2 * half_row] / sum + value_bias[0],
                     state.mixed[part][2 * half_row + 1] / sum + value_bias[1]);
        }
    }
}

/* --- the kernels by type --- */

#define KERNELS(type, name)                                                                                            \
    extern "C" __global__ void __launch_bounds__(128)                                                                  \
        embed_##name(const int *tokens, const int *places, int rows, const type *words, const type *place_table,       \
                     const float *kind, const float *weight, const float *bias, type *x)                               \
    {                                                                                                                  \
        embed_rows(tokens, places, rows, words, place_table, kind, weight, bias, x);                                   \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128)                                                                  \
        join_##name(type *x, const type *y, const float *added, int rows, const float *weight, const float *bias)      \
    {                                                                                                                  \
        join_rows(x, y, added, rows, weight, bias);                                                                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gelu_##name(type *x, const float *bias, int rows)                \
    {                                                                                                                  \
        gelu_rows(x, bias, rows);                                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(WIDTH) pool_##name(const type *x, const int *starts, float *vectors)  \
    {                                                                                                                  \
        pool_rows(x, starts, vectors);                                                                                 \
    }

KERNELS(float, f32)
KERNELS(half, f16)
