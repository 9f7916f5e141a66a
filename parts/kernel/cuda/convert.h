/* SPDX-License-Identifier: MIT */
/* Conversions of one element, for kernels. The results equal those of loch_convert bit for bit, NaNs included.
 *
 * Everything is integer arithmetic, or an addition or multiplication of floats that every processor rounds to nearest;
 * on a GPU also its own conversion between f16 and f32, for numbers that are not NaN.
 * Casts that processors treat differently, because of NaN or of numbers out of range, are made only where they are
 * defined. So a host compiles this file too, and tests/parts/kernel/test_numbers.c compares it with loch_convert.
 *
 * Types are codes that the compiler of the kernels does not know. A kernel is compiled for two sizes of elements, and
 * its text has a mark in place of each code (type.h). The text with the codes in place of the marks goes to the driver,
 * whose compiler removes all branches of other types. Elements travel as their bits, in the low bits of a word. */
#ifndef LOCH_KERNEL_CONVERT_H
#define LOCH_KERNEL_CONVERT_H

#include "type.h"

#define CONVERT_F32_ABS 0x7fffffffu
#define CONVERT_F32_INFINITY 0x7f800000u
#define CONVERT_F32_QUIET 0x00400000u
#define CONVERT_F64_ABS 0x7fffffffffffffffull
#define CONVERT_F64_INFINITY 0x7ff0000000000000ull

/* --- floats between sizes: as processors of the CPU do, which keep the sign and the upper bits of a NaN --- */

static DEVICE double convert_f64_of_f32(float value)
{
    const u32 bits = bits_of_f32(value);
    if ((bits & CONVERT_F32_ABS) <= CONVERT_F32_INFINITY) return (double)value;
    return f64_of_bits((u64)(bits & 0x80000000u) << 32 | 0x7ff8000000000000ull | (u64)(bits & 0x003fffffu) << 29);
}

static DEVICE float convert_f32_of_f64(double value)
{
    const u64 bits = bits_of_f64(value);
    if ((bits & CONVERT_F64_ABS) <= CONVERT_F64_INFINITY) return (float)value;
    return f32_of_bits(((u32)(bits >> 32) & 0x80000000u) | 0x7fc00000u | ((u32)(bits >> 29) & 0x003fffffu));
}

/* --- narrow floats to f32: exact --- */

/* Widens bits without a sign. Moving them to the place of an f32's divides the number by a power of two, for subnormal
 * numbers too. */
static DEVICE u32 convert_widen(u32 bits, u32 mantissa, u32 bias)
{
    return bits_of_f32(f32_of_bits(bits << (23 - mantissa)) * f32_of_bits((254u - bias) << 23));
}

static DEVICE float convert_f32_of_f16(u32 half)
{
    const u32 bits = half & 0x7fffu;
#if TYPE_HAS_F16
    const u32 nan = (half & 0x8000u) << 16 | CONVERT_F32_INFINITY | CONVERT_F32_QUIET | bits << 13;
    return f32_of_bits(bits > 0x7c00u ? nan : native_f32_of_f16(half));
#else
    const u32 special = CONVERT_F32_INFINITY | bits << 13 | (bits > 0x7c00u ? CONVERT_F32_QUIET : 0u);
    return f32_of_bits((bits >= 0x7c00u ? special : convert_widen(bits, 10, 15)) | (half & 0x8000u) << 16);
#endif
}

static DEVICE float convert_f32_of_f8e4m3(u32 byte)
{
    const u32 bits = byte & 0x7fu;
    const u32 value = bits == 0x7fu ? CONVERT_F32_INFINITY | CONVERT_F32_QUIET : convert_widen(bits, 3, 7);
    return f32_of_bits(value | (byte & 0x80u) << 24);
}

/* Returns the number of a float of up to four bytes. */
static DEVICE float convert_load(u32 bits, u32 bytes, u32 type)
{
    if (bytes == 4) return f32_of_bits(bits);
    if (bytes == 2) return type == TYPE_F16 ? convert_f32_of_f16(bits) : f32_of_bits(bits << 16);
    return type == TYPE_F8E4M3 ? convert_f32_of_f8e4m3(bits) : convert_f32_of_f16(bits << 8 & 0xffffu);
}

/* --- f32 to narrow floats: rounded to nearest, ties to even --- */

/* Rounds bits without a sign to a float with fewer mantissa bits. Adding a power of two leaves only those bits of the
 * number that the narrow float has; `least` is the exponent of its smallest normal number. Numbers that are too large
 * become 2^17, which is above the largest number of every narrow float. NaN gives any result. */
static DEVICE u32 convert_narrow(u32 bits, u32 mantissa, u32 bias)
{
    const u32 least = (128u - bias) << 23, cut = 23 - mantissa;
    const u32 number = bits < 0x48000000u ? bits : 0x48000000u;
    const u32 exponent = (number & 0x7f800000u) > least ? number & 0x7f800000u : least;
    const u32 power = exponent + (cut << 23);
    const u32 rounded = bits_of_f32(f32_of_bits(number) + f32_of_bits(power)) - power;
    return rounded + ((exponent - least) >> cut);
}

static DEVICE u32 convert_least(u32 a, u32 b)
{
    return a < b ? a : b;
}

static DEVICE u32 convert_f16_of_f32(u32 all)
{
    const u32 bits = all & CONVERT_F32_ABS;
    const u32 nan = 0x7e00u | (bits >> 13 & 0x3ffu);
#if TYPE_HAS_F16
    return bits > CONVERT_F32_INFINITY ? nan | (all >> 16 & 0x8000u) : native_f16_of_f32(all);
#else
    const u32 number = convert_least(convert_narrow(bits, 10, 15), 0x7c00u);
    return (bits > CONVERT_F32_INFINITY ? nan : number) | (all >> 16 & 0x8000u);
#endif
}

static DEVICE u32 convert_bf16_of_f32(u32 all)
{
    const u32 number = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
    return (all & CONVERT_F32_ABS) > CONVERT_F32_INFINITY ? all >> 16 | 0x40u : number;
}

static DEVICE u32 convert_f8e4m3_of_f32(u32 all, u32 beyond)
{
    const u32 bits = all & CONVERT_F32_ABS;
    const u32 number = convert_least(convert_narrow(bits, 3, 7), beyond);
    return (bits > CONVERT_F32_INFINITY ? 0x7fu : number) | (all >> 24 & 0x80u);
}

static DEVICE u32 convert_f8e5m2_of_f32(u32 all, u32 beyond)
{
    const u32 bits = all & CONVERT_F32_ABS;
    const u32 number = convert_least(convert_narrow(bits, 2, 15), beyond);
    return (bits > CONVERT_F32_INFINITY ? 0x7eu : number) | (all >> 24 & 0x80u);
}

/* Converts an f16 to an f8 in fewer steps than through convert_load: infinity is widened as if it were 2^16, which is
 * above the largest number of both types. */
static DEVICE u32 convert_f8_of_f16(u32 half, u32 type)
{
    const u32 bits = half & 0x7fffu;
    const bool is_e4m3 = type == TYPE_F8E4M3 || type == TYPE_F8E4M3_SPECIAL;
    u32 number, nan;
    if (is_e4m3) {
        number = convert_least(convert_narrow(convert_widen(bits, 10, 15), 3, 7), type == TYPE_F8E4M3 ? 0x7eu : 0x7fu);
        nan = 0x7fu;
    } else { /* the upper half of an f16 */
        number = convert_least((bits + 0x7fu + (bits >> 8 & 1u)) >> 8, type == TYPE_F8E5M2 ? 0x7bu : 0x7cu);
        nan = 0x7eu;
    }
    return (bits > 0x7c00u ? nan : number) | (half >> 8 & 0x80u);
}

/* Returns the bits of a narrow float. */
static DEVICE u32 convert_store(float value, u32 bytes, u32 type)
{
    const u32 all = bits_of_f32(value);
    if (bytes == 2) return type == TYPE_F16 ? convert_f16_of_f32(all) : convert_bf16_of_f32(all);
    if (type == TYPE_F8E4M3 || type == TYPE_F8E4M3_SPECIAL)
        return convert_f8e4m3_of_f32(all, type == TYPE_F8E4M3 ? 0x7eu : 0x7fu);
    return convert_f8e5m2_of_f32(all, type == TYPE_F8E5M2 ? 0x7bu : 0x7cu);
}

/* --- wide numbers to an f32 that a second rounding can take: what is cut off is left in the last bit --- */

/* Computes what lochi_odd_of_f64 of the library does, for NaNs too. */
static DEVICE float convert_odd_of_f64(double value)
{
    const float nearest = convert_f32_of_f64(value);
    const u64 given = bits_of_f64(value) & CONVERT_F64_ABS;
    const u64 rounded = bits_of_f64(convert_f64_of_f32(nearest)) & CONVERT_F64_ABS;
    return f32_of_bits((bits_of_f32(nearest) - (rounded > given ? 1u : 0u)) | (rounded != given ? 1u : 0u));
}

/* Gathers the 8 bits that an f32 may lack in the bit before them. */
static DEVICE float convert_odd_of_u32(u32 value)
{
    const u32 gathered = (value | ((value & 0xffu) + 0xffu)) & ~0xffu;
    return (float)(value >> 24 ? gathered : value);
}

static DEVICE float convert_odd_of_u64(u64 value)
{
    if (!(value >> 32)) return convert_odd_of_u32((u32)value);
    const u32 zeros = (u32)leading_zeros((u32)(value >> 32));
    const u64 shifted = value << zeros;
    const float upper = convert_odd_of_u32((u32)(shifted >> 32) | ((u32)shifted ? 1u : 0u));
    return f32_of_bits(bits_of_f32(upper) + ((32u - zeros) << 23));
}

/* --- numbers to integers: towards zero, clipped, NaN is 0 --- */

static DEVICE u64 convert_integer_of_f32(float value, u32 bytes, u32 type)
{
    if (bytes == 8) {
        if (type == TYPE_I64) {
            if (value >= -0x1p63f && value < 0x1p63f) return (u64)(i64)value;
            return value > 0 ? 0x7fffffffffffffffull : value < 0 ? 0x8000000000000000ull : 0;
        }
        if (value >= 0 && value < 0x1p64f) return (u64)value;
        return value > 0 ? ~0ull : 0;
    }
    if (bytes == 4) {
        if (type == TYPE_U32) return value >= 0x1p32f ? 0xffffffffu : value > 0 ? (u32)value : 0u;
        if (value >= 0x1p31f) return 0x7fffffffu;
        return value > -0x1p31f ? (u32)(i32)value : value == value ? 0x80000000u : 0u;
    }
    if (bytes == 1 && type == TYPE_BOOL) return (bits_of_f32(value) & CONVERT_F32_ABS) != 0;
    const bool is_signed = bytes == 1 ? type == TYPE_I8 : type == TYPE_I16;
    const float most = bytes == 1 ? is_signed ? 127.0f : 255.0f : is_signed ? 32767.0f : 65535.0f;
    const float least = !is_signed ? 0.0f : bytes == 1 ? -128.0f : -32768.0f;
    const float inside = value > most ? most : value > least ? value : value == value ? least : 0.0f;
    return (u32)(i32)inside;
}

static DEVICE u64 convert_integer_of_f64(double value, u32 bytes, u32 type)
{
    if (bytes == 8) {
        if (type == TYPE_I64) {
            if (value >= -0x1p63 && value < 0x1p63) return (u64)(i64)value;
            return value > 0 ? 0x7fffffffffffffffull : value < 0 ? 0x8000000000000000ull : 0;
        }
        if (value >= 0 && value < 0x1p64) return (u64)value;
        return value > 0 ? ~0ull : 0;
    }
    if (bytes == 4 && type == TYPE_U32) return value >= 0x1p32 ? 0xffffffffu : value > 0 ? (u32)value : 0u;
    if (bytes == 1 && type == TYPE_BOOL) return (bits_of_f64(value) & CONVERT_F64_ABS) != 0;
    const bool is_signed = bytes == 4 || (bytes == 1 ? type == TYPE_I8 : type == TYPE_I16);
    const double all = bytes == 1 ? 0x1p8 : bytes == 2 ? 0x1p16 : 0x1p32;
    const double most = (is_signed ? all / 2 : all) - 1, least = is_signed ? -all / 2 : 0.0;
    const double inside = value > most ? most : value > least ? value : value == value ? least : 0.0;
    return (u32)(i32)inside;
}

/* --- from one class of types --- */

/* Tells whether a type is an integer; bool counts as one. */
static DEVICE bool convert_is_integer(u32 type)
{
    return type >= TYPE_I8 && type <= TYPE_BOOL;
}

/* Each of these is told the size of the target's elements, which the compiler of a kernel knows, and the type. */

static DEVICE u64 convert_from_f32(float value, u32 bytes, u32 to)
{
    if (convert_is_integer(to)) return convert_integer_of_f32(value, bytes, to);
    if (bytes == 8) return bits_of_f64(convert_f64_of_f32(value));
    return bytes == 4 ? bits_of_f32(value) : convert_store(value, bytes, to);
}

static DEVICE u64 convert_from_f64(double value, u32 bytes, u32 to)
{
    if (bytes == 8 && to == TYPE_F64) return bits_of_f64(value);
    if (convert_is_integer(to)) return convert_integer_of_f64(value, bytes, to);
    return bytes >= 4 ? bits_of_f32(convert_f32_of_f64(value)) : convert_store(convert_odd_of_f64(value), bytes, to);
}

/* From integers of up to four bytes, with the sign or zeros in the upper bits, to floats. An f32 holds those of up to
 * two bytes exactly. */
static DEVICE u64 convert_from_32(u32 value, u32 from_bytes, bool is_signed, u32 bytes, u32 to)
{
    if (bytes == 8) return bits_of_f64(is_signed ? (double)(i32)value : (double)value);
    if (bytes == 4) return bits_of_f32(is_signed ? (float)(i32)value : (float)value);
    if (from_bytes <= 2) return convert_store((float)(i32)value, bytes, to);
    const bool is_negative = is_signed && (i32)value < 0;
    const float odd = convert_odd_of_u32(is_negative ? 0u - value : value);
    return convert_store(is_negative ? f32_of_bits(bits_of_f32(odd) | 0x80000000u) : odd, bytes, to);
}

static DEVICE u64 convert_from_64(u64 value, bool is_signed, u32 bytes, u32 to)
{
    if (bytes == 8) return bits_of_f64(is_signed ? (double)(i64)value : (double)value);
    if (bytes == 4) return bits_of_f32(is_signed ? (float)(i64)value : (float)value);
    const bool is_negative = is_signed && (i64)value < 0;
    const float odd = convert_odd_of_u64(is_negative ? 0ull - value : value);
    return convert_store(is_negative ? f32_of_bits(bits_of_f32(odd) | 0x80000000u) : odd, bytes, to);
}

/* Converts an element of `from_bytes` to one of `to_bytes`, both known when a kernel is compiled. TYPE_BITS copies. The
 * upper bits of the result may be set. */
static DEVICE u64 convert_element(u64 bits, u32 from_bytes, u32 from, u32 to_bytes, u32 to)
{
    if (from_bytes == to_bytes && from == TYPE_BITS) return bits;
    const bool is_to_bool = to_bytes == 1 && to == TYPE_BOOL;
    if (from_bytes == 8) {
        if (from == TYPE_F64) return convert_from_f64(f64_of_bits(bits), to_bytes, to);
        if (is_to_bool) return bits != 0;
        return convert_is_integer(to) ? bits : convert_from_64(bits, from == TYPE_I64, to_bytes, to);
    }
    const u32 word = (u32)bits;
    if (from_bytes == 2 && to_bytes == 1 && from == TYPE_F16 && !convert_is_integer(to))
        return convert_f8_of_f16(word, to);
    if (!convert_is_integer(from)) return convert_from_f32(convert_load(word, from_bytes, from), to_bytes, to);
    const bool is_signed = from_bytes == 1 ? from == TYPE_I8 : from_bytes == 2 ? from == TYPE_I16 : from == TYPE_I32;
    u32 value = word;
    if (from_bytes == 1 && from == TYPE_BOOL) value = word != 0;
    if (from_bytes == 1 && is_signed) value = (u32)(i32)(signed char)word;
    if (from_bytes == 2 && is_signed) value = (u32)(i32)(short)word;
    if (is_to_bool) return value != 0;
    if (!convert_is_integer(to)) return convert_from_32(value, from_bytes, is_signed, to_bytes, to);
    return to_bytes == 8 && is_signed ? (u64)(i64)(i32)value : value;
}

/* All pairs of sizes of elements that are converted. */
#define CONVERT_PAIRS(X)                                                                                               \
    X(1, 1)                                                                                                            \
    X(1, 2)                                                                                                            \
    X(1, 4) X(1, 8) X(2, 1) X(2, 2) X(2, 4) X(2, 8) X(4, 1) X(4, 2) X(4, 4) X(4, 8) X(8, 1) X(8, 2) X(8, 4) X(8, 8)

#endif
