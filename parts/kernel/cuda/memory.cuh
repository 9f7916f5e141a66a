/* SPDX-License-Identifier: MIT */
/* Memory as kernels see it: vectors of words, and the place of a chunk in two layouts. */
#ifndef LOCH_KERNEL_MEMORY_CUH
#define LOCH_KERNEL_MEMORY_CUH

#include "convert.h"
#include "job.h"

/* B bytes, 1 to 32, in words of 32 bits. Loads and stores have B bytes, at most 16 at a time; the address is a multiple
 * of that. */
template <int B> struct words {
    u32 word[(B + 3) / 4];

    __device__ __forceinline__ void load(const void *from)
    {
        if constexpr (B >= 16) {
#pragma unroll
            for (int i = 0; i < B / 16; i++) {
                const uint4 value = ((const uint4 *)from)[i];
                word[4 * i] = value.x;
                word[4 * i + 1] = value.y;
                word[4 * i + 2] = value.z;
                word[4 * i + 3] = value.w;
            }
        } else if constexpr (B == 8) {
            const uint2 value = *(const uint2 *)from;
            word[0] = value.x;
            word[1] = value.y;
        } else if constexpr (B == 4) {
            word[0] = *(const u32 *)from;
        } else if constexpr (B == 2) {
            word[0] = *(const unsigned short *)from;
        } else {
            word[0] = *(const unsigned char *)from;
        }
    }

    __device__ __forceinline__ void store(void *to) const
    {
        if constexpr (B >= 16) {
#pragma unroll
            for (int i = 0; i < B / 16; i++)
                ((uint4 *)to)[i] = make_uint4(word[4 * i], word[4 * i + 1], word[4 * i + 2], word[4 * i + 3]);
        } else if constexpr (B == 8) {
            *(uint2 *)to = make_uint2(word[0], word[1]);
        } else if constexpr (B == 4) {
            *(u32 *)to = word[0];
        } else if constexpr (B == 2) {
            *(unsigned short *)to = (unsigned short)word[0];
        } else {
            *(unsigned char *)to = (unsigned char)word[0];
        }
    }
};

/* Returns element `i` of F bytes. */
template <int F, int B> static __device__ __forceinline__ u64 element_get(const words<B> &in, int i)
{
    if constexpr (F == 8) return in.word[2 * i] | (u64)in.word[2 * i + 1] << 32;
    else if constexpr (F == 4) return in.word[i];
    else if constexpr (F == 2) return in.word[i / 2] >> (16 * (i % 2)) & 0xffffu;
    else return in.word[i / 4] >> (8 * (i % 4)) & 0xffu;
}

/* Writes element `i` of T bytes. Elements of a word are written in order. */
template <int T, int B> static __device__ __forceinline__ void element_set(words<B> &out, int i, u64 bits)
{
    if constexpr (T == 8) {
        out.word[2 * i] = (u32)bits;
        out.word[2 * i + 1] = (u32)(bits >> 32);
    } else if constexpr (T == 4) {
        out.word[i] = (u32)bits;
    } else if constexpr (T == 2) {
        if (i % 2 == 0)
            out.word[i / 2] = (u32)bits & 0xffffu;
        else
            out.word[i / 2] |= (u32)bits << 16;
    } else {
        if (i % 4 == 0)
            out.word[i / 4] = (u32)bits & 0xffu;
        else
            out.word[i / 4] |= ((u32)bits & 0xffu) << (8 * (i % 4));
    }
}

#ifdef KERNEL_HAS_F8
/* Converts two numbers to an f8 each, rounded to nearest, saturated. They are not NaN. */
static __device__ __forceinline__ u32 native_f8_of_f32(u32 low, u32 high, u32 to)
{
    unsigned short both;
    const float a = f32_of_bits(low), b = f32_of_bits(high);
    if (to == TYPE_F8E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(b), "f"(a));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(b), "f"(a));
    return both;
}

static __device__ __forceinline__ u32 native_f8_of_f16(u32 halves, u32 to)
{
    unsigned short both;
    if (to == TYPE_F8E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(both) : "r"(halves));
    else
        asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(both) : "r"(halves));
    return both;
}

/* Converts floats to f8. Returns false if one of them is NaN, or if the types are others. */
template <int F, int V>
static __device__ __forceinline__ bool native_f8_of(const words<V * F> &in, words<V> &out, u32 from, u32 to)
{
    if (to != TYPE_F8E4M3 && to != TYPE_F8E5M2) return false;
    if (F == 4 ? from != TYPE_F32 : from != TYPE_F16 && from != TYPE_BF16) return false;
    u32 nan = 0;
#pragma unroll
    for (int i = 0; i < V * F / 4; i++) {
        if (F == 4)
            nan |= (in.word[i] & CONVERT_F32_ABS) + 0x007fffffu; /* above infinity: the sign's bit is set */
        else
            nan |= (in.word[i] & 0x7fff7fffu) + (from == TYPE_F16 ? 0x03ff03ffu : 0x007f007fu);
    }
    if (nan & (F == 4 ? 0x80000000u : 0x80008000u)) return false;
#pragma unroll
    for (int i = 0; i < V / 2; i++) {
        u32 both;
        if (F == 4)
            both = native_f8_of_f32(in.word[2 * i % (V * F / 4)], in.word[(2 * i + 1) % (V * F / 4)], to);
        else if (from == TYPE_F16)
            both = native_f8_of_f16(in.word[i % (V * F / 4)], to);
        else
            both = native_f8_of_f32(in.word[i % (V * F / 4)] << 16, in.word[i % (V * F / 4)] & 0xffff0000u, to);
        if (i % 2 == 0)
            out.word[i / 2] = both;
        else
            out.word[i / 2] |= both << 16;
    }
    return true;
}
#endif

/* Converts one element by the function of convert.cu, which the host puts in the place of the call (text.c). */
#ifdef __CUDACC__
#define CONVERT_DECLARE(F, T) extern "C" __device__ u64 loch_convert_##F##_##T(u64 bits);
CONVERT_PAIRS(CONVERT_DECLARE)
extern "C" __device__ u64 loch_convert_any(u64 bits); /* the one of the sizes of the marks */

template <int F, int T> static __device__ __forceinline__ u64 convert_call(u64 bits)
{
#define CONVERT_CALL(from_bytes, to_bytes)                                                                             \
    if constexpr (F == from_bytes && T == to_bytes) return loch_convert_##from_bytes##_##to_bytes(bits);
    CONVERT_PAIRS(CONVERT_CALL)
}
#else
template <int F, int T> static u64 convert_call(u64 bits)
{
    return convert_element(bits, F, mark_from(), T, mark_to());
}

static u64 loch_convert_any(u64 bits)
{
    return convert_element(bits, mark_from_bytes(), mark_from(), mark_to_bytes(), mark_to());
}
#endif

/* Converts V elements. */
template <int F, int T, int V>
static __device__ __forceinline__ void convert_words(const words<V * F> &in, words<V * T> &out, u32 from, u32 to)
{
    if constexpr (F == 16) {
#pragma unroll
        for (int i = 0; i < V * 4; i++)
            out.word[i] = in.word[i];
    } else {
        if (F == T && from == TYPE_BITS) { /* without taking words apart */
#pragma unroll
            for (int i = 0; i < (V * F + 3) / 4; i++)
                out.word[i] = in.word[i];
            return;
        }
#ifdef KERNEL_HAS_F8
        if constexpr (T == 1 && (F == 2 || F == 4) && V > 1)
            if (native_f8_of<F, V>(in, out, from, to)) return;
#endif
#pragma unroll
        for (int v = 0; v < V; v++)
            element_set<T>(out, v, convert_call<F, T>(element_get<F>(in, v)));
    }
}

/* Divides by the size of an axis. The number is below 2^31. */
static __device__ __forceinline__ u32 divide(const kernel_axis &axis, u32 number)
{
    return (__umulhi(number, axis.multiply) + number) >> axis.shift;
}

/* Adds the offsets of chunk `chunk` to both sides. Returns its index along the innermost axis. */
static __device__ __forceinline__ u32 place(const kernel_axis *axis, u32 axes, u32 chunk, i64 &to, i64 &from)
{
    u32 left = chunk, inner = chunk;
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 index = left;
        if (i + 1 < axes) {
            left = divide(axis[i], left);
            index -= left * axis[i].size;
        }
        if (i == 0) inner = index;
        to += (i64)index * axis[i].to;
        from += (i64)index * axis[i].from;
        if (i + 1 >= axes) return inner;
    }
#pragma unroll 1
    for (u32 i = 2; i < axes; i++) {
        const u32 outer = divide(axis[i], left), index = left - outer * axis[i].size;
        to += (i64)index * axis[i].to;
        from += (i64)index * axis[i].from;
        left = outer;
    }
    return inner;
}

#endif
