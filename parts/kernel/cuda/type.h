/* SPDX-License-Identifier: MIT */
/* Words, bits of floats, and codes of types, for kernels and for hosts that compile their arithmetic. */
#ifndef LOCH_KERNEL_TYPE_H
#define LOCH_KERNEL_TYPE_H

typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

/* The values of loch_dtype; then: bits that are copied; the f8 types whose numbers out of range become special. */
enum {
    TYPE_F64 = 1,
    TYPE_F32,
    TYPE_F16,
    TYPE_BF16,
    TYPE_F8E4M3,
    TYPE_F8E5M2,
    TYPE_I8,
    TYPE_I16,
    TYPE_I32,
    TYPE_I64,
    TYPE_U8,
    TYPE_U16,
    TYPE_U32,
    TYPE_U64,
    TYPE_BOOL,
    TYPE_BITS,
    TYPE_F8E4M3_SPECIAL,
    TYPE_F8E5M2_SPECIAL
};

#ifdef __CUDACC__

#define DEVICE __device__ __forceinline__

static DEVICE u32 bits_of_f32(float value)
{
    return __float_as_uint(value);
}

static DEVICE float f32_of_bits(u32 bits)
{
    return __uint_as_float(bits);
}

static DEVICE u64 bits_of_f64(double value)
{
    return (u64)__double_as_longlong(value);
}

static DEVICE double f64_of_bits(u64 bits)
{
    return __longlong_as_double((i64)bits);
}

static DEVICE int leading_zeros(u32 value)
{
    return __clz((int)value);
}

/* What the processor has an instruction for, as convert.h says what it does: rounds a number to nearest, ties to even;
 * widens an f16. NaN gives any NaN. */
#define TYPE_HAS_F16 1

static DEVICE u32 native_f16_of_f32(u32 bits)
{
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(__uint_as_float(bits)));
    return half;
}

static DEVICE u32 native_f32_of_f16(u32 half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)half));
    return __float_as_uint(value);
}

/* Marks in the text of a kernel. The host writes eight other digits in their place. */
static DEVICE u32 mark_from(void)
{
    u32 value;
    asm("mov.u32 %0, 0x10c40001;" : "=r"(value));
    return value;
}

static DEVICE u32 mark_to(void)
{
    u32 value;
    asm("mov.u32 %0, 0x10c40002;" : "=r"(value));
    return value;
}

static DEVICE u32 mark_from_bytes(void)
{
    u32 value;
    asm("mov.u32 %0, 0x10c40003;" : "=r"(value));
    return value;
}

static DEVICE u32 mark_to_bytes(void)
{
    u32 value;
    asm("mov.u32 %0, 0x10c40004;" : "=r"(value));
    return value;
}

#else

#include <stdbool.h>
#include <string.h>

#define DEVICE inline
#define TYPE_HAS_F16 0

static DEVICE u32 bits_of_f32(float value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static DEVICE float f32_of_bits(u32 bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static DEVICE u64 bits_of_f64(double value)
{
    u64 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static DEVICE double f64_of_bits(u64 bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static DEVICE int leading_zeros(u32 value)
{
    return __builtin_clz(value);
}

#endif
#endif
