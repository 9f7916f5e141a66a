/* SPDX-License-Identifier: MIT */
/* The decoder on a CUDA device. Activations are floats; weights and caches are floats or bf16. A step is one token of each
 * slot: embed, then for each layer product (queries, keys, values), attend, product (output), product (gate and up),
 * product (down), then product (logits), advance.
 *
 * At this size the time of a step is the time in which the weights are read. So a product reads each weight once, 16
 * bytes a load, and does everything else on the way: the norm before it, the rotation, SwiGLU or the sum behind it.
 *
 * Memory has to be busy while kernels begin and end, too. So kernels may begin early (LOCH_LAUNCH_EARLY) and wait for
 * the kernel in front of them behind what does not depend on it; and each fetches a part of the weights of a later
 * kernel into the second-level cache, behind its own loads. Activations of other kernels are read past the first-level cache, which may be older. */
// ptx: --gpu-architecture=compute_90 --fmad=true
#include "device.h"

typedef unsigned short bf16;
typedef unsigned long long u64;

#define LANES 32
#define ALL 0xffffffffu
#define LOWEST __uint_as_float(0xff800000u) /* minus infinity */
#define DEPTH 4 /* loads of a row that are in flight at a time */

__device__ __forceinline__ void wait_for_inputs()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void let_next_begin()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* --- types --- */

__device__ __forceinline__ float widen(bf16 x)
{
    return __uint_as_float((unsigned)x << 16);
}

__device__ __forceinline__ float widen(float x)
{
    return x;
}

__device__ __forceinline__ void narrow(float x, float *to)
{
    *to = x;
}

/* To nearest, ties to even. */
__device__ __forceinline__ void narrow(float x, bf16 *to)
{
    const unsigned bits = __float_as_uint(x);
    *to = x != x ? 0x7fc0 : (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* 16 bytes as floats. */
template <typename T> struct pack;

template <> struct pack<float> {
    enum { count = 4 };
    static __device__ __forceinline__ void open(const uint4 &raw, float *to)
    {
        to[0] = __uint_as_float(raw.x), to[1] = __uint_as_float(raw.y);
        to[2] = __uint_as_float(raw.z), to[3] = __uint_as_float(raw.w);
    }
};

template <> struct pack<bf16> {
    enum { count = 8 };
    static __device__ __forceinline__ void open(const uint4 &raw, float *to)
    {
        const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[2 * i] = __uint_as_float(words[i] << 16);
            to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
        }
    }
};

__device__ __forceinline__ float4 load_four(const float *from)
{
    return *(const float4 *)from;
}

__device__ __forceinline__ float4 load_four(const bf16 *from)
{
    const uint2 raw = *(const uint2 *)from;
    return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u),
                       __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xffff0000u));
}

/* Brings weights of later kernels into the second-level cache: each warp of the grid a part. */
__device__ __forceinline__ void fetch_ahead(const device_ahead &ahead)
{
    const unsigned warps = blockDim.x / LANES, blocks = gridDim.x * gridDim.y * gridDim.z, workers = warps * blocks;
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned worker = block * warps + threadIdx.x / LANES;
    if (threadIdx.x % LANES) return;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const unsigned each = ((ahead.bytes[i] + workers - 1) / workers + 127) / 128 * 128, start = worker * each;
        if (start >= ahead.bytes[i]) continue;
        const unsigned bytes = min(each, ahead.bytes[i] - start);
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(ahead.from[i] + start), "r"(bytes) : "memory");
    }
}

/* Brings the line at an address into the second-level cache. */
__device__ __forceinline__ void fetch_line(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

/* How caches treat weights: those that were read leave first, those that were fetched ahead stay. */
__device__ __forceinline__ u64 read_once()
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Loads 16 bytes of weights. */
__device__ __forceinline__ uint4 load_weights(const void *from, u64 policy)
{
    uint4 raw;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
        : "l"(from), "l"(policy));
    return raw;
}

__device__ __forceinline__ float sum_of_warp(float x)
{
#pragma unroll
    for (int distance = LANES / 2; distance; distance /= 2)
        x += __shfl_xor_sync(ALL, x, distance);
    return x;
}

/* --- caches --- */

/* Returns the keys of a layer at a position of a slot; the values are kv_heads * head elements behind. */
template <typename T>
__device__ __forceinline__ T *cache_row(const device_slots &slots, const device_shape &shape, int slot, int layer,
                                        int position)
{
    const long long kv_width = shape.kv_heads * shape.head, step = kv_width * 2 * shape.layers;
    long long row = position;
    T *base = (T *)slots.region;
    if (slots.pages) {
        const int page = ((const int *)slots.pages)[slot * slots.pages_each + position / slots.page];
        row = (long long)page * slots.page + position % slots.page;
    } else {
        base = ((T *const *)slots.caches)[slot];
    }
    return base + row * step + layer * 2 * kv_width;
}

/* --- products --- */

/* The place of an element of the input in shared memory: reordered, so that lanes that read 16 bytes each at a time read
 * from different banks. */
template <typename T> __device__ __forceinline__ int place_of(int column)
{
    enum { count = pack<T>::count };
    if (count == 4) return column;
    const int group = column / (LANES * count), in = column % (LANES * count), lane = in / count, j = in % count;
    return group * LANES * count + j / 4 * LANES * 4 + lane * 4 + j % 4;
}

/* Puts the input of all slots into shared memory, times the weights of the norm if there are any. Returns the factor of
 * the norm: lane i has that of slot i. */
template <typename T, int SLOTS>
__device__ __forceinline__ float stage(const float *input, const T *norm, int columns, int padded, float *staged)
{
    enum { ahead = SLOTS == 1 ? 4 : 8 / SLOTS }; /* all loads come first, so that they wait together */
    __shared__ float sums[SLOTS][LANES];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    float own[SLOTS] = {0};
    for (int start = threadIdx.x * 4; start < padded; start += blockDim.x * 4 * ahead) {
        float4 x[ahead][SLOTS], factors[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const int column = start + i * blockDim.x * 4;
            factors[i] = column < columns && norm ? load_four(norm + column) : make_float4(1, 1, 1, 1);
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot++)
                x[i][slot] = column < columns ? __ldcg((const float4 *)(input + (long long)slot * columns + column))
                                              : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const int column = start + i * blockDim.x * 4;
            if (column >= padded) break;
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot++) {
                const float4 y = x[i][slot], f = factors[i];
                own[slot] += y.x * y.x + y.y * y.y + y.z * y.z + y.w * y.w;
                *(float4 *)(staged + slot * padded + place_of<T>(column)) =
                    make_float4(y.x * f.x, y.y * f.y, y.z * f.z, y.w * f.w);
            }
        }
    }
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        const float sum = sum_of_warp(own[slot]);
        if (lane == 0) sums[slot][warp] = sum;
    }
    __syncthreads();
    if (!norm || lane >= SLOTS) return 1;
    float sum = 0;
    for (int i = 0; i < warps; i++)
        sum += sums[lane][i];
    return 1 / sqrtf(sum / (float)columns + 1e-5f);
}

/* The two rows of a task. */
template <typename T> struct row_pair {
    const T *rows[2];
    int first, second; /* numbers of the rows in their matrix */
    int part;          /* 0 queries, 1 keys, 2 values */
};

/* Rows that are rotated together are half a head apart; gate and up are the same row of two matrices. */
template <typename T>
__device__ __forceinline__ row_pair<T> find_rows(const device_product &what, const device_shape &shape, int task,
                                                 const T *first, const T *second, const T *third)
{
    row_pair<T> pair;
    const int columns = what.columns;
    pair.part = 0;
    pair.first = 2 * task, pair.second = 2 * task + 1;
    const T *matrix = first, *other = first;
    if (what.kind == PRODUCT_QKV) {
        const int queries = shape.heads * shape.head / 2, keys = shape.kv_heads * shape.head / 2;
        const int half = shape.head / 2;
        pair.part = task < queries ? 0 : task < queries + keys ? 1 : 2;
        const int local = task - (pair.part == 0 ? 0 : pair.part == 1 ? queries : queries + keys);
        pair.first = local / half * shape.head + local % half;
        pair.second = pair.first + half;
        matrix = other = pair.part == 0 ? first : pair.part == 1 ? second : third;
    } else if (what.kind == PRODUCT_SWIGLU) {
        pair.first = pair.second = task;
        other = second;
    }
    pair.rows[0] = matrix + (long long)pair.first * columns;
    pair.rows[1] = other + (long long)pair.second * columns;
    return pair;
}

/* What the end of a task needs besides its sums, for one slot. Loaded in front of the wait: positions and tables of a
 * step are complete before its first kernel begins. */
template <typename T> struct ending {
    int position; /* -1: nothing to do */
    float2 other; /* cosine and sine, or what the sums are added to */
    T *cache;     /* where keys or values go */
};

template <typename T>
__device__ __forceinline__ ending<T> prepare(const device_product &what, const device_shape &shape,
                                             const device_slots &slots, const row_pair<T> &pair, int slot)
{
    ending<T> end = {((const int *)slots.positions)[slot], make_float2(0, 0), 0};
    if (end.position < 0) return end;
    if (what.kind == PRODUCT_QKV) {
        const int half = shape.head / 2;
        if (pair.part < 2)
            end.other = ((const float2 *)slots.rotary)[end.position * half + pair.first % shape.head];
        if (pair.part > 0) end.cache = cache_row<T>(slots, shape, slot, what.layer, end.position);
        if (pair.part == 2) end.cache += shape.kv_heads * shape.head;
    }
    return end;
}

/* What becomes of the two sums of a task in one slot. */
template <typename T>
__device__ __forceinline__ void finish(const device_product &what, const device_shape &shape, const row_pair<T> &pair,
                                       const ending<T> &end, int slot, float a, float b, float *output)
{
    if (what.kind == PRODUCT_QKV) {
        if (pair.part < 2) {
            const float x = a, y = b;
            a = x * end.other.x - y * end.other.y;
            b = x * end.other.y + y * end.other.x;
        }
        if (pair.part == 0) {
            float *to = output + (long long)slot * shape.heads * shape.head;
            to[pair.first] = a, to[pair.second] = b;
        } else {
            narrow(a, end.cache + pair.first);
            narrow(b, end.cache + pair.second);
        }
    } else if (what.kind == PRODUCT_ADD) {
        *(float2 *)(output + (long long)slot * shape.width + pair.first) =
            make_float2(end.other.x + a, end.other.y + b);
    } else if (what.kind == PRODUCT_SWIGLU) {
        output[(long long)slot * shape.mlp + pair.first] = a / (1 + expf(-a)) * b;
    } else {
        *(float2 *)(output + (long long)slot * shape.vocabulary + pair.first) = make_float2(a, b);
    }
}

/* Orders tokens as unsigned numbers: the larger score first, then the smaller token. */
__device__ __forceinline__ u64 rank_of(const device_slots &slots, int slot, int position, float logit, int token)
{
    const int request = ((const int *)slots.numbers)[slot];
    const unsigned bits = __float_as_uint(score_of(logit, slots.temperature, slots.seed, request, position, token));
    return (u64)(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32 | (unsigned)~token;
}

/* Two rows of one or two matrices times the input of all slots: a task. `split` warps share it, a chunk of columns each
 * in turn. */
template <typename T, int SLOTS>
__device__ __forceinline__ void product(const device_product &what, const device_shape &shape,
                                        const device_slots &slots, const device_ahead &ahead, const float *input,
                                        const T *norm, const T *first, const T *second, const T *third, float *output)
{
    enum { count = pack<T>::count, chunk = DEPTH * LANES * count, warps_max = 16 };
    extern __shared__ float4 room[];
    float *staged = (float *)room;
    __shared__ u64 largest[SLOTS];
    __shared__ float shares[warps_max][2][SLOTS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, share = warp % what.split;
    const int task = (blockIdx.x * (blockDim.x / LANES) + warp) / what.split;
    const bool is_there = task < what.tasks;
    const int columns = what.columns, padded = (columns + LANES * count - 1) / (LANES * count) * (LANES * count);
    const row_pair<T> pair = find_rows<T>(what, shape, is_there ? task : 0, first, second, third);
    const u64 policy = read_once();
    uint4 next[2][DEPTH];
    float sums[2][SLOTS] = {{0}};

    let_next_begin();
    ending<T> end = {-1, make_float2(0, 0), 0};
    if (is_there && share == 0 && lane < SLOTS && lane < slots.slots)
        end = prepare<T>(what, shape, slots, pair, lane);
    wait_for_inputs();
    if (what.kind == PRODUCT_ADD && end.position >= 0)
        end.other = __ldcg((const float2 *)(output + (long long)lane * shape.width + pair.first));
#pragma unroll
    for (int i = 0; i < 2 * DEPTH; i++) {
        const int column = share * chunk + (i / 2 * LANES + lane) * count;
        next[i % 2][i / 2] =
            column < columns ? load_weights(pair.rows[i % 2] + column, policy) : make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x < SLOTS) largest[threadIdx.x] = 0;
    const float scale = stage<T, SLOTS>(input, norm, columns, padded, staged);
    bool is_ahead = false;
    for (int start = share * chunk; start < columns; start += what.split * chunk) {
        uint4 now[2][DEPTH];
#pragma unroll
        for (int i = 0; i < 2 * DEPTH; i++) {
            now[i % 2][i / 2] = next[i % 2][i / 2];
            const int column = start + what.split * chunk + (i / 2 * LANES + lane) * count;
            next[i % 2][i / 2] =
                column < columns ? load_weights(pair.rows[i % 2] + column, policy) : make_uint4(0, 0, 0, 0);
        }
        if (!is_ahead && start + 2 * what.split * chunk >= columns) { /* behind the last loads of its own */
            fetch_ahead(ahead);
            is_ahead = true;
        }
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            const int group = start + i * LANES * count;
            if (group >= columns) break;
            float a[count], b[count];
            pack<T>::open(now[0][i], a);
            pack<T>::open(now[1][i], b);
#pragma unroll
            for (int slot = 0; slot < SLOTS; slot++)
#pragma unroll
                for (int j = 0; j < count; j += 4) {
                    const float4 x = *(const float4 *)(staged + slot * padded + group + j * LANES + lane * 4);
                    sums[0][slot] += a[j] * x.x + a[j + 1] * x.y + a[j + 2] * x.z + a[j + 3] * x.w;
                    sums[1][slot] += b[j] * x.x + b[j + 1] * x.y + b[j + 2] * x.z + b[j + 3] * x.w;
                }
        }
    }
    float a = 0, b = 0; /* lane i has the sums of slot i */
#pragma unroll
    for (int slot = 0; slot < SLOTS; slot++) {
        const float one = sum_of_warp(sums[0][slot]), two = sum_of_warp(sums[1][slot]);
        a = lane == slot ? one : a;
        b = lane == slot ? two : b;
    }
    if (what.split > 1) {
        if (lane < SLOTS) shares[warp][0][lane] = a, shares[warp][1][lane] = b;
        __syncthreads();
        for (int other = 1; other < what.split && share == 0 && lane < SLOTS; other++)
            a += shares[warp + other][0][lane], b += shares[warp + other][1][lane];
    }
    if (end.position >= 0) {
        finish<T>(what, shape, pair, end, lane, a * scale, b * scale, output);
        if (what.kind == PRODUCT_LOGITS) {
            const u64 one = rank_of(slots, lane, end.position, a * scale, pair.first);
            const u64 two = rank_of(slots, lane, end.position, b * scale, pair.second);
            atomicMax(&largest[lane], one > two ? one : two);
        }
    }
    if (what.kind != PRODUCT_LOGITS) return;
    __syncthreads();
    if (threadIdx.x < SLOTS && (int)threadIdx.x < slots.slots)
        atomicMax((u64 *)slots.best + threadIdx.x, largest[threadIdx.x]);
}

#define PRODUCT(name, type, slots_of)                                                                                  \
    extern "C" __global__ void name(const device_product what, const device_shape shape, const device_slots slots,     \
                                    const device_ahead ahead, const float *input, const type *norm,                    \
                                    const type *first, const type *second, const type *third, float *output)           \
    {                                                                                                                  \
        product<type, slots_of>(what, shape, slots, ahead, input, norm, first, second, third, output);                 \
    }

PRODUCT(product_f32_1, float, 1)
PRODUCT(product_f32_4, float, 4)
PRODUCT(product_f32_8, float, 8)
PRODUCT(product_bf16_1, bf16, 1)
PRODUCT(product_bf16_4, bf16, 4)
PRODUCT(product_bf16_8, bf16, 8)

/* --- attention --- */

/* The running softmax over some positions: the largest score, the sum of exponentials, and the mixed values. */
template <int COUNT> struct running {
    float largest, sum, mixed[COUNT];
};

template <int COUNT>
__device__ __forceinline__ void merge(running<COUNT> &to, float largest, float sum, const float *mixed)
{
    const float top = fmaxf(to.largest, largest);
    const float own = to.sum > 0 ? expf(to.largest - top) : 0, other = sum > 0 ? expf(largest - top) : 0;
    to.largest = top;
    to.sum = to.sum * own + sum * other;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to.mixed[i] = to.mixed[i] * own + mixed[i] * other;
}

/* One head of one slot over a part of the positions: grid of heads, slots, parts. A group of lanes has one position at a
 * time, 16 bytes of its key and value each. The last block of a head merges the parts. */
template <typename T>
__device__ __forceinline__ void attend(int layer, const device_shape &shape, const device_slots &slots,
                                       const device_ahead &ahead, const float *query, float *mixed, float *partial,
                                       unsigned *arrived)
{
    enum { count = pack<T>::count, warps_max = 8, depth = 4 };
    __shared__ float merged[warps_max][LANES][count + 2];
    __shared__ bool is_last;
    const int h = blockIdx.x, slot = blockIdx.y, part = blockIdx.z, parts = gridDim.z;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    const int lanes_each = shape.head / count, groups = LANES / lanes_each;
    const int group = lane / lanes_each, in = lane % lanes_each;
    const int kv_width = shape.kv_heads * shape.head, kv = h / (shape.heads / shape.kv_heads) * shape.head + in * count;

    let_next_begin();
    fetch_ahead(ahead);
    const int position = ((const int *)slots.positions)[slot];
    if (position < 0) return;
    const int length = position + 1, each = (length + parts - 1) / parts;
    const int begin = part * each, end = min(begin + each, length), stride = warps * groups;
    for (int p = begin + warp * groups + group; p < end && in < 2; p += stride) /* a line of keys, one of values */
        fetch_line(cache_row<T>(slots, shape, slot, layer, p) + kv + in * (kv_width - count));
    wait_for_inputs();
    float q[count];
    const float *from = query + ((long long)slot * shape.heads + h) * shape.head + in * count;
    const float scale = 1 / sqrtf((float)shape.head);
#pragma unroll
    for (int i = 0; i < count; i++)
        q[i] = __ldcg(from + i) * scale;

    running<count> state = {LOWEST, 0, {0}};
    for (int p = begin + warp * groups; p < end; p += depth * stride) { /* the same for all lanes of a warp */
        uint4 keys[depth], values[depth];
#pragma unroll
        for (int i = 0; i < depth; i++) {
            const int at = min(p + i * stride + group, end - 1);
            const T *row = cache_row<T>(slots, shape, slot, layer, at) + kv;
            keys[i] = __ldcg((const uint4 *)row);
            values[i] = __ldcg((const uint4 *)(row + kv_width));
        }
#pragma unroll
        for (int i = 0; i < depth; i++) {
            float k[count], v[count], score = 0;
            pack<T>::open(keys[i], k);
#pragma unroll
            for (int j = 0; j < count; j++)
                score += q[j] * k[j];
            for (int distance = lanes_each / 2; distance; distance /= 2)
                score += __shfl_xor_sync(ALL, score, distance);
            if (p + i * stride + group < end) {
                pack<T>::open(values[i], v);
                merge<count>(state, score, 1, v);
            }
        }
    }
    for (int distance = lanes_each; distance < LANES; distance *= 2) {
        float other[count];
        const float largest = __shfl_xor_sync(ALL, state.largest, distance);
        const float sum = __shfl_xor_sync(ALL, state.sum, distance);
#pragma unroll
        for (int i = 0; i < count; i++)
            other[i] = __shfl_xor_sync(ALL, state.mixed[i], distance);
        merge<count>(state, largest, sum, other);
    }
    if (group == 0) {
        merged[warp][in][0] = state.largest, merged[warp][in][1] = state.sum;
#pragma unroll
        for (int i = 0; i < count; i++)
            merged[warp][in][2 + i] = state.mixed[i];
    }
    __syncthreads();
    if (warp == 0 && group == 0)
        for (int other = 1; other < warps; other++)
            merge<count>(state, merged[other][in][0], merged[other][in][1], merged[other][in] + 2);

    float *to = mixed + ((long long)slot * shape.heads + h) * shape.head + in * count;
    if (parts > 1) {
        const long long head_at = ((long long)slot * shape.heads + h) * parts, width = shape.head + 2 * lanes_each;
        if (warp == 0 && group == 0) {
            float *own = partial + (head_at + part) * width + in * (count + 2);
            own[0] = state.largest, own[1] = state.sum;
#pragma unroll
            for (int i = 0; i < count; i++)
                own[2 + i] = state.mixed[i];
            __threadfence();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned *counter = arrived + slot * shape.heads + h;
            is_last = atomicAdd(counter, 1) == (unsigned)parts - 1;
            if (is_last) *counter = 0;
            __threadfence();
        }
        __syncthreads();
        if (!is_last) return;
        if (warp == 0 && group == 0) {
            state = {LOWEST, 0, {0}};
            for (int other = 0; other < parts; other++) {
                const float *its = partial + (head_at + other) * width + in * (count + 2);
                float values[count];
#pragma unroll
                for (int i = 0; i < count; i++)
                    values[i] = __ldcg(its + 2 + i);
                merge<count>(state, __ldcg(its), __ldcg(its + 1), values);
            }
        }
    }
    if (warp == 0 && group == 0)
#pragma unroll
        for (int i = 0; i < count; i++)
            to[i] = state.mixed[i] / state.sum;
}

#define ATTEND(name, type)                                                                                             \
    extern "C" __global__ void name(int layer, const device_shape shape, const device_slots slots,                     \
                                    const device_ahead ahead, const float *query, float *mixed, float *partial,        \
                                    unsigned *arrived)                                                                 \
    {                                                                                                                  \
        attend<type>(layer, shape, slots, ahead, query, mixed, partial, arrived);                                      \
    }

ATTEND(attend_f32, float)
ATTEND(attend_bf16, bf16)

/* --- the ends of a step --- */

/* Fetches the embedding of the token at the position of each slot: a block a slot. */
template <typename T>
__device__ __forceinline__ void embed(const device_shape &shape, const device_slots &slots, const T *embedding, float *x)
{
    const int slot = blockIdx.x, position = ((const int *)slots.positions)[slot];
    let_next_begin();
    if (threadIdx.x == 0) ((u64 *)slots.best)[slot] = 0;
    const long long token = position < 0 ? 0 : ((const int *)slots.texts)[slot * slots.context + position];
    for (int i = threadIdx.x; i < shape.width; i += blockDim.x)
        x[(long long)slot * shape.width + i] = widen(embedding[token * shape.width + i]);
}

extern "C" __global__ void embed_f32(const device_shape shape, const device_slots slots, const float *embedding, float *x)
{
    embed<float>(shape, slots, embedding, x);
}

extern "C" __global__ void embed_bf16(const device_shape shape, const device_slots slots, const bf16 *embedding, float *x)
{
    embed<bf16>(shape, slots, embedding, x);
}

/* Moves every slot to its next position, and appends the best token behind the prompt. */
extern "C" __global__ void advance(const device_slots slots)
{
    wait_for_inputs();
    const int slot = threadIdx.x;
    int *position = (int *)slots.positions + slot;
    if (slot >= slots.slots || *position < 0) return;
    const int next = *position + 1;
    if (next >= ((const int *)slots.prompts)[slot] && next < slots.context)
        ((int *)slots.texts)[slot * slots.context + next] = (int)~(unsigned)((const u64 *)slots.best)[slot];
    *position = next;
}
