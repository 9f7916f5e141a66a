/* SPDX-License-Identifier: MIT */
/* Conversions done slowly, in integers alone: a number is sign, magnitude and power of two, and rounding is a search
 * for the neighbours among all values of the other type. Shares nothing with the library but the list of types. */
#ifndef LOCH_TEST_CONVERT_REFERENCE_H
#define LOCH_TEST_CONVERT_REFERENCE_H

#include "test.h"

typedef struct exact {
    enum { FINITE, INFINITE, NOT_A_NUMBER } kind;
    bool negative;
    uint64_t magnitude;
    int exponent; /* magnitude * 2^exponent */
} exact;

typedef struct float_format {
    unsigned bits, mantissa;
    int bias;
    uint64_t most; /* the largest finite one, without its sign */
    bool has_infinity;
} float_format;

static const float_format reference_formats[LOCH_DTYPE_COUNT] = {
    [LOCH_F64] = {64, 52, 1023, 0x7fefffffffffffff, true},
    [LOCH_F32] = {32, 23, 127, 0x7f7fffff, true},
    [LOCH_F16] = {16, 10, 15, 0x7bff, true},
    [LOCH_BF16] = {16, 7, 127, 0x7f7f, true},
    [LOCH_F8E4M3] = {8, 3, 7, 0x7e, false},
    [LOCH_F8E5M2] = {8, 2, 15, 0x7b, true},
};

static inline bool reference_is_float(loch_dtype dtype)
{
    return reference_formats[dtype].bits != 0;
}

static inline bool reference_is_signed(loch_dtype dtype)
{
    return dtype >= LOCH_I8 && dtype <= LOCH_I64;
}

static inline unsigned reference_bits(loch_dtype dtype)
{
    return (unsigned)(8 * loch_dtype_bytes(dtype));
}

static inline uint64_t reference_mask(loch_dtype dtype)
{
    return UINT64_MAX >> (64 - reference_bits(dtype));
}

/* An element's bytes as an integer, and back. */
static inline uint64_t element_load(loch_dtype dtype, const void *from)
{
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (loch_dtype_bytes(dtype)) {
    case 1: memcpy(&u8, from, 1); return u8;
    case 2: memcpy(&u16, from, 2); return u16;
    case 4: memcpy(&u32, from, 4); return u32;
    default: memcpy(&u64, from, 8); return u64;
    }
}

static inline void element_store(loch_dtype dtype, void *to, uint64_t bits)
{
    const uint8_t u8 = (uint8_t)bits;
    const uint16_t u16 = (uint16_t)bits;
    const uint32_t u32 = (uint32_t)bits;
    switch (loch_dtype_bytes(dtype)) {
    case 1: memcpy(to, &u8, 1); break;
    case 2: memcpy(to, &u16, 2); break;
    case 4: memcpy(to, &u32, 4); break;
    default: memcpy(to, &bits, 8); break;
    }
}

static inline exact reference_decode_float(const float_format *format, uint64_t bits)
{
    const uint64_t sign = (uint64_t)1 << (format->bits - 1), absolute = bits & (sign - 1);
    const uint64_t implicit = (uint64_t)1 << format->mantissa;
    const int field = (int)(absolute >> format->mantissa);
    exact out = {.negative = (bits & sign) != 0};
    if (absolute > format->most) {
        const bool is_infinite = format->has_infinity && absolute == format->most + 1;
        out.kind = is_infinite ? INFINITE : NOT_A_NUMBER;
        return out;
    }
    out.magnitude = (absolute & (implicit - 1)) | (field ? implicit : 0);
    out.exponent = (field ? field : 1) - format->bias - (int)format->mantissa;
    return out;
}

static inline exact reference_decode(loch_dtype dtype, uint64_t bits)
{
    if (reference_is_float(dtype)) return reference_decode_float(&reference_formats[dtype], bits);
    if (dtype == LOCH_BOOL) return (exact){.magnitude = bits != 0};
    const bool negative = reference_is_signed(dtype) && bits >> (reference_bits(dtype) - 1);
    return (exact){.negative = negative, .magnitude = negative ? (0 - bits) & reference_mask(dtype) : bits};
}

/* -1, 0, 1: how two finite numbers compare without their signs. */
static inline int reference_compare(exact a, exact b)
{
    if (!a.magnitude || !b.magnitude) return (a.magnitude != 0) - (b.magnitude != 0);
    const int shift_a = __builtin_clzll(a.magnitude), shift_b = __builtin_clzll(b.magnitude);
    const int top_a = a.exponent - shift_a, top_b = b.exponent - shift_b;
    if (top_a != top_b) return top_a < top_b ? -1 : 1;
    const uint64_t left_a = a.magnitude << shift_a, left_b = b.magnitude << shift_b;
    return (left_a > left_b) - (left_a < left_b);
}

/* Half way from the finite value with these bits to the next; beyond the largest one, to where the next would be. */
static inline exact reference_half_way(const float_format *format, uint64_t bits)
{
    exact value = reference_decode_float(format, bits);
    value.magnitude = 2 * value.magnitude + 1;
    value.exponent--;
    return value;
}

static inline uint64_t reference_beyond(loch_dtype dtype, loch_overflow overflow)
{
    const bool saturates = overflow == LOCH_OVERFLOW_SATURATE && reference_formats[dtype].bits == 8;
    return reference_formats[dtype].most + (saturates ? 0 : 1); /* what follows the largest is infinity, or NaN */
}

/* NaN comes out as one with only the highest bit of its mantissa set, or e4m3's only one. */
static inline uint64_t reference_encode_float(loch_dtype dtype, exact value, loch_overflow overflow)
{
    const float_format *format = &reference_formats[dtype];
    const uint64_t sign = value.negative ? (uint64_t)1 << (format->bits - 1) : 0;
    const uint64_t quiet = format->has_infinity ? (uint64_t)1 << (format->mantissa - 1) : 0;
    if (value.kind == NOT_A_NUMBER) return sign | (format->most + 1) | quiet;
    if (value.kind == INFINITE) return sign | reference_beyond(dtype, overflow);
    uint64_t low = 0, high = format->most; /* the largest that is not above the value */
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (reference_compare(reference_decode_float(format, middle), value) <= 0)
            low = middle;
        else
            high = middle - 1;
    }
    const int side = reference_compare(value, reference_half_way(format, low));
    const bool up = side > 0 || (side == 0 && (low & 1));
    if (up && low == format->most) return sign | reference_beyond(dtype, overflow);
    return sign | (low + up);
}

/* The whole part, or UINT64_MAX with *large set. */
static inline uint64_t reference_whole(exact value, bool *large)
{
    *large = value.kind == INFINITE;
    if (value.kind != FINITE || !value.magnitude) return *large ? UINT64_MAX : 0;
    if (value.exponent <= 0) return value.exponent <= -64 ? 0 : value.magnitude >> -value.exponent;
    *large = value.exponent > __builtin_clzll(value.magnitude);
    return *large ? UINT64_MAX : value.magnitude << value.exponent;
}

static inline uint64_t reference_clip(loch_dtype dtype, exact value)
{
    const uint64_t mask = reference_mask(dtype);
    if (value.kind == NOT_A_NUMBER) return 0;
    bool large;
    const uint64_t whole = reference_whole(value, &large);
    if (!reference_is_signed(dtype)) return value.negative ? 0 : large || whole > mask ? mask : whole;
    const uint64_t most = (mask >> 1) + (value.negative ? 1 : 0);
    const uint64_t clipped = large || whole > most ? most : whole;
    return (value.negative ? 0 - clipped : clipped) & mask;
}

/* The bits of an element of `from` as one of `to`. */
static inline uint64_t reference_convert(loch_dtype to, loch_dtype from, uint64_t bits, loch_overflow overflow)
{
    const exact value = reference_decode(from, bits);
    if (to == LOCH_BOOL) return value.kind != FINITE || value.magnitude;
    if (to == from) return bits;
    if (reference_is_float(to)) return reference_encode_float(to, value, overflow);
    if (reference_is_float(from)) return reference_clip(to, value);
    return (value.negative ? 0 - value.magnitude : value.magnitude) & reference_mask(to);
}

/* Equal bits, or NaNs of one sign. */
static inline bool reference_agrees(loch_dtype dtype, uint64_t bits, uint64_t expected)
{
    if (bits == expected || !reference_is_float(dtype)) return bits == expected;
    const exact a = reference_decode(dtype, bits), b = reference_decode(dtype, expected);
    return a.kind == NOT_A_NUMBER && b.kind == NOT_A_NUMBER && a.negative == b.negative;
}

/* Converts an array of `count` elements with the library and holds each of them against the reference. */
static inline void reference_check(loch_dtype to, loch_dtype from, loch_overflow overflow, const void *elements,
                                   size_t count)
{
    const loch_convert_options options = {.size = sizeof options, .overflow = overflow};
    const size_t to_bytes = loch_dtype_bytes(to), from_bytes = loch_dtype_bytes(from);
    char *out = malloc(count * to_bytes + 1);
    assert_non_null(out);
    CHECK_OK(loch_convert(to, out, from, elements, count, &options));
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = element_load(from, (const char *)elements + i * from_bytes);
        const uint64_t got = element_load(to, out + i * to_bytes);
        const uint64_t expected = reference_convert(to, from, bits, overflow);
        if (reference_agrees(to, got, expected)) continue;
        print_error("%s 0x%llx to %s: 0x%llx, expected 0x%llx\n", loch_dtype_name(from), (unsigned long long)bits,
                    loch_dtype_name(to), (unsigned long long)got, (unsigned long long)expected);
        fail();
    }
    free(out);
}

#endif
