/* SPDX-License-Identifier: MIT */
/** @file dtype.h
 *  Types of elements: names, sizes, the type of a C expression, and conversions between all types.
 */
#ifndef LOCH_DTYPE_H
#define LOCH_DTYPE_H

#include <loch/status.h>
#include <limits.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

LOCH_BEGIN_DECLS

/** @name Types */
/** @{ */

/** The list of all types: suffix of the enum value, name, bytes. Values are stable: new types go to the end. */
#define LOCH_DTYPE_LIST(X)                                                                                             \
    X(F64, "f64", 8)                                                                                                   \
    X(F32, "f32", 4)                                                                                                   \
    X(F16, "f16", 2)       /* IEEE half */                                                                             \
    X(BF16, "bf16", 2)     /* the upper half of an f32 */                                                              \
    X(F8E4M3, "f8e4m3", 1) /* 4 bits of exponent; no infinity, one NaN of each sign, at most 448 */                    \
    X(F8E5M2, "f8e5m2", 1) /* 5 bits of exponent; the upper half of an f16, at most 57344 */                           \
    X(I8, "i8", 1)                                                                                                     \
    X(I16, "i16", 2)                                                                                                   \
    X(I32, "i32", 4)                                                                                                   \
    X(I64, "i64", 8)                                                                                                   \
    X(U8, "u8", 1)                                                                                                     \
    X(U16, "u16", 2)                                                                                                   \
    X(U32, "u32", 4)                                                                                                   \
    X(U64, "u64", 8)                                                                                                   \
    X(BOOL, "bool", 1) /* a byte: 0, or true for anything else; written as 1 */

/** The largest number of dimensions of a tensor. */
#define LOCH_DIMENSIONS_MAX 16

/** A type of element. LOCH_DTYPE_NONE is zero. */
typedef enum loch_dtype {
    LOCH_DTYPE_NONE,
#define LOCH_DTYPE_ENUM(suffix, name, bytes) LOCH_##suffix,
    LOCH_DTYPE_LIST(LOCH_DTYPE_ENUM)
#undef LOCH_DTYPE_ENUM
        LOCH_DTYPE_COUNT
} loch_dtype;

/** Returns the name of a type: "f32"; "none" for a value that is not a type. Static string. Any thread. */
LOCH_API const char *loch_dtype_name(loch_dtype dtype);

/** Returns the size of one element in bytes; 0 for a value that is not a type. Any thread. */
LOCH_API size_t loch_dtype_bytes(loch_dtype dtype);

/** Returns the type with a name: Loch's own ("f32"), or that of NumPy and PyTorch ("float32", "torch.bfloat16",
 *  "float8_e4m3fn"); LOCH_DTYPE_NONE if there is none. Any thread. */
LOCH_API loch_dtype loch_dtype_find(const char *name);

/** @} */
/** @name Types that C lacks */
/** @{ */

/** An IEEE half-precision float. */
typedef struct loch_f16 {
    uint16_t bits; /**< the 16 bits */
} loch_f16;

/** A bfloat16: the upper half of a float. */
typedef struct loch_bf16 {
    uint16_t bits; /**< the 16 bits */
} loch_bf16;

/** An 8-bit float with 4 bits of exponent. */
typedef struct loch_f8e4m3 {
    uint8_t bits; /**< the 8 bits */
} loch_f8e4m3;

/** An 8-bit float with 5 bits of exponent. */
typedef struct loch_f8e5m2 {
    uint8_t bits; /**< the 8 bits */
} loch_f8e5m2;

/** Evaluates to the type of a C expression, as a constant: loch_dtype_of(1.0f) is LOCH_F32. An expression of another
 *  type does not compile. C only; C++ has loch::dtype_of<T>() in loch.hpp. */
#ifndef __cplusplus
#define loch_dtype_of(expression)                                                                                      \
    _Generic((expression), double                                                                                      \
             : LOCH_F64, float                                                                                         \
             : LOCH_F32, loch_f16                                                                                      \
             : LOCH_F16, loch_bf16                                                                                     \
             : LOCH_BF16, loch_f8e4m3                                                                                  \
             : LOCH_F8E4M3, loch_f8e5m2                                                                                \
             : LOCH_F8E5M2, signed char                                                                                \
             : LOCH_I8, short                                                                                          \
             : LOCH_I16, int                                                                                           \
             : LOCH_I32, long                                                                                          \
             : (sizeof(long) == 8 ? LOCH_I64 : LOCH_I32), long long                                                    \
             : LOCH_I64, unsigned char                                                                                 \
             : LOCH_U8, unsigned short                                                                                 \
             : LOCH_U16, unsigned                                                                                      \
             : LOCH_U32, unsigned long                                                                                 \
             : (sizeof(long) == 8 ? LOCH_U64 : LOCH_U32), unsigned long long                                           \
             : LOCH_U64, char                                                                                          \
             : (CHAR_MIN < 0 ? LOCH_I8 : LOCH_U8), bool                                                                \
             : LOCH_BOOL)
#endif

/** @} */
/** @name Conversion */
/** @{ */

/** What a conversion to an f8 type does with numbers out of range. */
typedef enum loch_overflow {
    LOCH_OVERFLOW_SATURATE, /**< the largest finite number, also for infinities; NaN stays NaN */
    LOCH_OVERFLOW_SPECIAL   /**< infinity, or NaN if the type has no infinity */
} loch_overflow;

/** Options of loch_convert. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_convert_options {
    size_t size;            /**< sizeof(loch_convert_options) */
    loch_overflow overflow; /**< what conversion to f8 does with numbers out of range */
} loch_convert_options;

/** Converts `count` elements in memory that the host reads and writes. The two ranges either start at the same
 *  address, with types of one size, or do not overlap.
 *
 *  To a narrower float: rounded once, to nearest, ties to even; numbers out of range become infinity in f32, f16 and
 *  bf16, and in f8 what the options say. Float to integer: rounded towards zero, clipped to the range; NaN becomes 0.
 *  Integer to integer: the low bits, as in C. To bool: whether the number is not zero; NaN is true. E_INVALID: a type
 *  is not valid, an address is NULL, or the ranges overlap. E_OVERFLOW: the size does not fit the address space. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_convert(loch_dtype to_type, void *to, loch_dtype from_type, const void *from,
                                                size_t count, const loch_convert_options *options);

/** @} */
/** @name Scalars */
/** @{ */

/** One number of any type, exact. */
typedef struct loch_scalar {
    /** Type of the number; it selects the member of `value`. LOCH_F64 is also valid for a narrower float. */
    loch_dtype dtype;
    /** The number: `f` for every float, `i` for signed integers, `u` for unsigned integers and bool. */
    union {
        double f;
        int64_t i;
        uint64_t u;
    } value;
} loch_scalar;

/** Returns a scalar of type LOCH_F64. loch_scalar_of calls it. */
LOCH_API loch_scalar loch_scalar_from_double(double value);

/** Returns a scalar of type LOCH_I64. loch_scalar_of calls it. */
LOCH_API loch_scalar loch_scalar_from_signed(long long value);

/** Returns a scalar of type LOCH_U64. loch_scalar_of calls it. */
LOCH_API loch_scalar loch_scalar_from_unsigned(unsigned long long value);

/** Makes a scalar from a C expression: loch_scalar_of(1.5f), loch_scalar_of(-3). An expression that is not a number
 *  does not compile. C only. */
#ifndef __cplusplus
#define loch_scalar_of(expression)                                                                                     \
    _Generic((expression), float                                                                                       \
             : loch_scalar_from_double, double                                                                         \
             : loch_scalar_from_double, bool                                                                           \
             : loch_scalar_from_unsigned, unsigned char                                                                \
             : loch_scalar_from_unsigned, unsigned short                                                               \
             : loch_scalar_from_unsigned, unsigned                                                                     \
             : loch_scalar_from_unsigned, unsigned long                                                                \
             : loch_scalar_from_unsigned, unsigned long long                                                           \
             : loch_scalar_from_unsigned, char                                                                         \
             : loch_scalar_from_signed, signed char                                                                    \
             : loch_scalar_from_signed, short                                                                          \
             : loch_scalar_from_signed, int                                                                            \
             : loch_scalar_from_signed, long                                                                           \
             : loch_scalar_from_signed, long long                                                                      \
             : loch_scalar_from_signed)(expression)
#endif

/** Writes a scalar as one element of `dtype` (loch_dtype_bytes at `to`), converted as by loch_convert with default
 *  options. E_INVALID: a type is not valid. */
LOCH_API LOCH_MUST_USE loch_status loch_scalar_store(loch_scalar scalar, loch_dtype dtype, void *to);

/** Reads one element of `dtype` at `from` as a scalar of type LOCH_F64, LOCH_I64, LOCH_U64 or LOCH_BOOL. E_INVALID:
 *  the type is not valid. */
LOCH_API LOCH_MUST_USE loch_status loch_scalar_load(loch_dtype dtype, const void *from, loch_scalar *out);

/** @} */

LOCH_END_DECLS

#endif
