/* SPDX-License-Identifier: MIT */
/** @file dtype.h
 *  Types of elements: their names and sizes, the type of a C expression, and conversions between all of them.
 */
#ifndef LOCH_DTYPE_H
#define LOCH_DTYPE_H

#include <loch/status.h>
#include <limits.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif

LOCH_BEGIN_DECLS

/** The one list of types: enumerator suffix, name, bytes. Values are stable: new ones go to the end. */
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

/** A type of element. Zero is none. */
typedef enum loch_dtype {
    LOCH_DTYPE_NONE,
#define LOCH_DTYPE_ENUM(suffix, name, bytes) LOCH_##suffix,
    LOCH_DTYPE_LIST(LOCH_DTYPE_ENUM)
#undef LOCH_DTYPE_ENUM
        LOCH_DTYPE_COUNT
} loch_dtype;

/** @name The types that C lacks, by their bits */
/** @{ */
typedef struct loch_f16 {
    uint16_t bits; /**< */
} loch_f16;
typedef struct loch_bf16 {
    uint16_t bits; /**< */
} loch_bf16;
typedef struct loch_f8e4m3 {
    uint8_t bits; /**< */
} loch_f8e4m3;
typedef struct loch_f8e5m2 {
    uint8_t bits; /**< */
} loch_f8e5m2;
/** @} */

/** The type of a C expression: loch_dtype_of(1.0f) is LOCH_F32, and a constant. An expression of a type that is not in the
 *  list does not compile. C++ has loch::dtype_of<T>() in loch.hpp. */
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

/** "f32"; "none" for what is no type. Static string. Any thread. */
LOCH_API const char *loch_dtype_name(loch_dtype dtype);

/** Bytes of one element; 0 for what is no type. Any thread. */
LOCH_API size_t loch_dtype_bytes(loch_dtype dtype);

/** The type with that name: ours ("f32"), or NumPy's and PyTorch's ("float32", "torch.bfloat16", "float8_e4m3fn");
 *  LOCH_DTYPE_NONE when there is none. Any thread. */
LOCH_API loch_dtype loch_dtype_find(const char *name);

/** What becomes of numbers beyond the range of an f8. */
typedef enum loch_overflow {
    LOCH_OVERFLOW_SATURATE, /**< the largest finite one, infinities too; NaN stays NaN */
    LOCH_OVERFLOW_SPECIAL   /**< infinity, or NaN where the type has no infinity */
} loch_overflow;

/** How to convert; zero means default, NULL all defaults. */
typedef struct loch_convert_options {
    size_t size;            /**< sizeof(loch_convert_options) */
    loch_overflow overflow; /**< of f8 */
} loch_convert_options;

/** Converts `count` elements in memory that the host reads and writes. The two ranges are the same address, for types of one
 *  size, or do not overlap.
 *
 *  To a narrower float: rounded once, to nearest, ties to even; beyond f32, f16 and bf16 lies infinity, beyond f8 what
 *  the options say. Float to integer: towards zero, clipped to the range, NaN becomes 0. Integer to integer: the low
 *  bits, as in C. To bool: whether it is not zero; NaN is true. E_INVALID, E_OVERFLOW. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_convert(loch_dtype to_type, void *to, loch_dtype from_type, const void *from,
                                                size_t count, const loch_convert_options *options);

/** @name One number. f8 saturates here. Any thread. */
/** @{ */
LOCH_API float loch_f16_to_float(loch_f16 value);
LOCH_API float loch_bf16_to_float(loch_bf16 value);
LOCH_API float loch_f8e4m3_to_float(loch_f8e4m3 value);
LOCH_API float loch_f8e5m2_to_float(loch_f8e5m2 value);
LOCH_API loch_f16 loch_f16_from_float(float value);
LOCH_API loch_bf16 loch_bf16_from_float(float value);
LOCH_API loch_f8e4m3 loch_f8e4m3_from_float(float value);
LOCH_API loch_f8e5m2 loch_f8e5m2_from_float(float value);
/** @} */

/** One number of any type, exactly: a float of every width in `f`, signed integers in `i`, unsigned ones and bool in `u`. */
typedef struct loch_scalar {
    loch_dtype dtype; /**< which of them; LOCH_F64 for narrower floats that were read serves as well */
    union {
        double f;
        int64_t i;
        uint64_t u;
    } value; /**< the number */
} loch_scalar;

/** @name What loch_scalar_of is made of */
/** @{ */
LOCH_API loch_scalar loch_scalar_from_double(double value);
LOCH_API loch_scalar loch_scalar_from_signed(long long value);
LOCH_API loch_scalar loch_scalar_from_unsigned(unsigned long long value);
/** @} */

/** A scalar of a C expression: loch_scalar_of(1.5f), loch_scalar_of(-3). Others than numbers do not compile. */
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

/** Writes a scalar as one element of `dtype` (loch_dtype_bytes at `to`), converted as loch_convert does. */
LOCH_API LOCH_MUST_USE loch_status loch_scalar_store(loch_scalar scalar, loch_dtype dtype, void *to);

/** Reads one element as a scalar: LOCH_F64, LOCH_I64, LOCH_U64 or LOCH_BOOL. */
LOCH_API LOCH_MUST_USE loch_status loch_scalar_load(loch_dtype dtype, const void *from, loch_scalar *out);

LOCH_END_DECLS

#endif
