/* SPDX-License-Identifier: MIT */
/* Conversions of one number, for the loops of list.h. They have no branches and no calls, so that compilers can
 * vectorize them.
 *
 * Narrow floats are stored as their bits and are converted to and from f32. A number that is wider than an f32 is first
 * converted to f32 with rounding to odd: it is truncated, and the last bit is set if a bit was lost. An f32 has at
 * least two bits more than any narrow float, so the second rounding gives the same result as a single rounding. All of
 * this relies on the default rounding mode, to nearest. */
#ifndef LOCHI_NUMBER_H
#define LOCHI_NUMBER_H

#include <loch/dtype.h>
#include <float.h>
#include <string.h>

/* The C type that stores an element of each type. */
typedef double lochi_number_F64;
typedef float lochi_number_F32;
typedef uint16_t lochi_number_F16;
typedef uint16_t lochi_number_BF16;
typedef uint8_t lochi_number_F8E4M3;
typedef uint8_t lochi_number_F8E5M2;
typedef int8_t lochi_number_I8;
typedef int16_t lochi_number_I16;
typedef int32_t lochi_number_I32;
typedef int64_t lochi_number_I64;
typedef uint8_t lochi_number_U8;
typedef uint16_t lochi_number_U16;
typedef uint32_t lochi_number_U32;
typedef uint64_t lochi_number_U64;
typedef uint8_t lochi_number_BOOL;

#define LOCHI_F64_ABS 0x7fffffffffffffffu
#define LOCHI_F32_ABS 0x7fffffffu
#define LOCHI_F32_INFINITY 0x7f800000u
#define LOCHI_F32_QUIET 0x00400000u

static inline uint32_t lochi_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint64_t lochi_f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float lochi_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t lochi_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Selects by bit operations. Around floating-point arithmetic compilers turn `?:` into a branch, which prevents
 * vectors. */
static inline uint32_t lochi_choose(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0 - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

/* --- narrow floats to f32: always exact; signalling NaNs become quiet --- */

/* Returns the f32 bits of a finite number without its sign, from a float with fewer mantissa bits and another bias. */
static inline uint32_t lochi_widen(uint32_t bits, unsigned mantissa, unsigned bias)
{
    const float unit = lochi_f32_of_bits((127u + 1 - bias - mantissa) << 23); /* the smallest subnormal number */
    const uint32_t subnormal = lochi_f32_bits((float)(int32_t)bits * unit);
    const uint32_t normal = (bits << (23 - mantissa)) + ((127u - bias) << 23);
    return lochi_choose(bits >> mantissa != 0, normal, subnormal);
}

static inline float lochi_f32_of_f16(uint16_t half)
{
    const uint32_t bits = half & 0x7fffu;
    const uint32_t special = LOCHI_F32_INFINITY | bits << 13 | (bits > 0x7c00 ? LOCHI_F32_QUIET : 0);
    const uint32_t value = lochi_choose(bits >= 0x7c00, special, lochi_widen(bits, 10, 15));
    return lochi_f32_of_bits(value | (half & 0x8000u) << 16);
}

static inline float lochi_f32_of_bf16(uint16_t half)
{
    return lochi_f32_of_bits((uint32_t)half << 16);
}

static inline float lochi_f32_of_f8e4m3(uint8_t byte)
{
    const uint32_t bits = byte & 0x7fu;
    const uint32_t nan = LOCHI_F32_INFINITY | LOCHI_F32_QUIET;
    const uint32_t value = lochi_choose(bits == 0x7f, nan, lochi_widen(bits, 3, 7));
    return lochi_f32_of_bits(value | (byte & 0x80u) << 24);
}

static inline float lochi_f32_of_f8e5m2(uint8_t byte)
{
    return lochi_f32_of_f16((uint16_t)(byte << 8));
}

/* --- f32 to narrow floats: rounded to nearest, ties to even --- */

/* Rounds the bits of a number without its sign (not NaN) to a float with fewer mantissa bits and another bias. A number
 * that is too large gives a result above the largest finite number of that float. A subnormal result is rounded by an
 * addition that shifts it to the end of an f32. */
static inline uint32_t lochi_narrow(uint32_t bits, unsigned mantissa, unsigned bias)
{
    const unsigned cut = 23 - mantissa;
    const uint32_t shifter = (127u + 1 - bias + 23 - mantissa) << 23;
    const uint32_t subnormal = lochi_f32_bits(lochi_f32_of_bits(bits) + lochi_f32_of_bits(shifter)) - shifter;
    const uint32_t half = (1u << (cut - 1)) - 1 + (bits >> cut & 1);
    const uint32_t normal = (bits - ((127u - bias) << 23) + half) >> cut;
    return lochi_choose(bits < (127u + 1 - bias) << 23, subnormal, normal);
}

static inline uint16_t lochi_f16_of_f32(float value)
{
    const uint32_t all = lochi_f32_bits(value), bits = all & LOCHI_F32_ABS;
    /* keeps the upper bits of the NaN's payload, as processors do */
    const uint32_t nan = 0x7e00 | (bits >> 13 & 0x3ff);
    const uint32_t number = lochi_min_u32(lochi_narrow(bits, 10, 15), 0x7c00);
    return (uint16_t)(lochi_choose(bits > LOCHI_F32_INFINITY, nan, number) | (all >> 16 & 0x8000));
}

static inline uint16_t lochi_bf16_of_f32(float value)
{
    const uint32_t all = lochi_f32_bits(value);
    const uint32_t nan = all >> 16 | 0x40;
    const uint32_t number = (all + 0x7fff + (all >> 16 & 1)) >> 16;
    return (uint16_t)lochi_choose((all & LOCHI_F32_ABS) > LOCHI_F32_INFINITY, nan, number);
}

/* Numbers above the largest finite one, 0x7e, become `beyond`. */
static inline uint8_t lochi_f8e4m3_of_f32(float value, uint32_t beyond)
{
    const uint32_t all = lochi_f32_bits(value), bits = all & LOCHI_F32_ABS;
    const uint32_t number = lochi_min_u32(lochi_narrow(bits, 3, 7), beyond);
    return (uint8_t)(lochi_choose(bits > LOCHI_F32_INFINITY, 0x7f, number) | (all >> 24 & 0x80));
}

/* Numbers above the largest finite one, 0x7b, become `beyond`. */
static inline uint8_t lochi_f8e5m2_of_f32(float value, uint32_t beyond)
{
    const uint32_t all = lochi_f32_bits(value), bits = all & LOCHI_F32_ABS;
    const uint32_t number = lochi_min_u32(lochi_narrow(bits, 2, 15), beyond);
    return (uint8_t)(lochi_choose(bits > LOCHI_F32_INFINITY, 0x7e, number) | (all >> 24 & 0x80));
}

/* --- wide numbers to an f32, rounded to odd --- */

/* Numbers without their signs compare as their bits do. NaN stays NaN, since its last bit is set. */
static inline float lochi_odd_of_f64(double value)
{
    const float nearest = (float)value;
    const uint64_t given = lochi_f64_bits(value) & LOCHI_F64_ABS;
    const uint64_t rounded = lochi_f64_bits((double)nearest) & LOCHI_F64_ABS;
    const uint32_t cut = lochi_f32_bits(nearest) - (uint32_t)(rounded > given);
    return lochi_f32_of_bits(cut | (uint32_t)(rounded != given));
}

/* Below 2^53 an f64 is exact. Above, the 11 bits that an f64 may lack are combined into the bit before them. */
static inline float lochi_odd_of_u64(uint64_t value)
{
    const uint64_t gathered = (value | ((value & 0x7ff) + 0x7ff)) & ~(uint64_t)0x7ff;
    return lochi_odd_of_f64((double)(value >> 53 ? gathered : value));
}

static inline float lochi_odd_of_i64(int64_t value)
{
    const uint64_t sign = (uint64_t)value >> 63, magnitude = ((uint64_t)value ^ (0 - sign)) + sign;
    return lochi_f32_of_bits(lochi_f32_bits(lochi_odd_of_u64(magnitude)) | (uint32_t)sign << 31);
}

/* --- floats to integers: towards zero, clipped, NaN is 0 --- */

/* Defines lochi_i32_of_f32 and similar functions. `limit` is the first power of two above the range, `under` the float
 * before it. Clipping comes before the cast, because a cast is undefined outside of the range. Small integers are
 * converted through int32_t, as vector instructions do. */
#define LOCHI_CLIP(name, integer, way, real, epsilon, least, limit, most)                                              \
    static inline integer name(real value)                                                                             \
    {                                                                                                                  \
        const real under = (real)(limit) * (1 - (epsilon) / 2);                                                        \
        real inside = value < (real)(least) ? (real)(least) : value;                                                   \
        inside = inside > under ? under : inside;                                                                      \
        inside = inside == inside ? inside : 0;                                                                        \
        const way whole = (way)inside;                                                                                 \
        return (integer)(value >= (real)(limit) ? (way)(most) : whole);                                                \
    }

/* Defines the 64-bit conversions, which few vector units support. Checks the usual case first. */
#define LOCHI_CLIP_64(name, integer, real, least, limit, most)                                                         \
    static inline integer name(real value)                                                                             \
    {                                                                                                                  \
        if (value >= (real)(least) && value < (real)(limit)) return (integer)value;                                    \
        return value > 0 ? (most) : value < 0 ? (least) : 0;                                                           \
    }

#define LOCHI_CLIP_ALL(suffix, real, epsilon)                                                                          \
    LOCHI_CLIP(lochi_i8_of_##suffix, int8_t, int32_t, real, epsilon, INT8_MIN, 0x1p7, INT8_MAX)                        \
    LOCHI_CLIP(lochi_i16_of_##suffix, int16_t, int32_t, real, epsilon, INT16_MIN, 0x1p15, INT16_MAX)                   \
    LOCHI_CLIP(lochi_i32_of_##suffix, int32_t, int32_t, real, epsilon, INT32_MIN, 0x1p31, INT32_MAX)                   \
    LOCHI_CLIP_64(lochi_i64_of_##suffix, int64_t, real, INT64_MIN, 0x1p63, INT64_MAX)                                  \
    LOCHI_CLIP(lochi_u8_of_##suffix, uint8_t, int32_t, real, epsilon, 0, 0x1p8, UINT8_MAX)                             \
    LOCHI_CLIP(lochi_u16_of_##suffix, uint16_t, int32_t, real, epsilon, 0, 0x1p16, UINT16_MAX)                         \
    LOCHI_CLIP(lochi_u32_of_##suffix, uint32_t, uint32_t, real, epsilon, 0, 0x1p32, UINT32_MAX)                        \
    LOCHI_CLIP_64(lochi_u64_of_##suffix, uint64_t, real, 0, 0x1p64, UINT64_MAX)

LOCHI_CLIP_ALL(f32, float, FLT_EPSILON)
LOCHI_CLIP_ALL(f64, double, DBL_EPSILON)

#endif
