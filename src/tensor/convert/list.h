/* SPDX-License-Identifier: MIT */
/* All loops of loch_convert as one list: X(to, from, expression that converts the element x). Each file that includes
 * it compiles the loops for one kind of processor. */
#ifndef LOCHI_CONVERT_LIST_H
#define LOCHI_CONVERT_LIST_H

#include "tensor/convert/table.h"
#include "tensor/convert/number.h"

/* From a float to integers of up to two bytes. */
#define LOCHI_CONVERT_CLIP_NARROW(X, from, suffix)                                                                     \
    X(I8, from, lochi_i8_of_##suffix(x))                                                                               \
    X(I16, from, lochi_i16_of_##suffix(x))                                                                             \
    X(U8, from, lochi_u8_of_##suffix(x))                                                                               \
    X(U16, from, lochi_u16_of_##suffix(x))

/* From a float to wider integers and bool. */
#define LOCHI_CONVERT_CLIP(X, from, suffix)                                                                            \
    X(I32, from, lochi_i32_of_##suffix(x))                                                                             \
    X(I64, from, lochi_i64_of_##suffix(x))                                                                             \
    X(U32, from, lochi_u32_of_##suffix(x))                                                                             \
    X(U64, from, lochi_u64_of_##suffix(x))                                                                             \
    X(BOOL, from, x != 0)

/* The pairs for which processors have an instruction. */
#define LOCHI_CONVERT_LIST_HALF(X)                                                                                     \
    X(F16, F32, lochi_f16_of_f32(x))                                                                                   \
    X(F32, F16, lochi_f32_of_f16(x))

/* All other pairs with a loop. Integer to integer conversions go through i64. A u64 source or target is treated as an
 * i64: the low bits are equal. */
#define LOCHI_CONVERT_LIST(X)                                                                                          \
    X(BF16, F32, lochi_bf16_of_f32(x))                                                                                 \
    X(F8E4M3, F32, lochi_f8e4m3_of_f32(x, 0x7e))                                                                       \
    X(F8E5M2, F32, lochi_f8e5m2_of_f32(x, 0x7b))                                                                       \
    LOCHI_CONVERT_CLIP_NARROW(X, F32, f32)                                                                             \
    LOCHI_CONVERT_CLIP(X, F32, f32)                                                                                    \
    X(F64, F32, x)                                                                                                     \
    X(F32, F64, x)                                                                                                     \
    X(F32, BF16, lochi_f32_of_bf16(x))                                                                                 \
    X(F32, F8E4M3, lochi_f32_of_f8e4m3(x))                                                                             \
    X(F32, F8E5M2, lochi_f32_of_f8e5m2(x))                                                                             \
    X(F32, I8, (int32_t)x)                                                                                             \
    X(F32, I16, (int32_t)x)                                                                                            \
    X(F32, I32, x)                                                                                                     \
    X(F32, I64, x)                                                                                                     \
    X(F32, U8, (int32_t)x)                                                                                             \
    X(F32, U16, (int32_t)x)                                                                                            \
    X(F32, U32, x)                                                                                                     \
    X(F32, U64, x)                                                                                                     \
    X(F32, BOOL, (int32_t)(x != 0))                                                                                    \
    LOCHI_CONVERT_CLIP(X, F64, f64)                                                                                    \
    X(F64, I32, x)                                                                                                     \
    X(F64, U32, x)                                                                                                     \
    X(F64, I64, x)                                                                                                     \
    X(F64, U64, x)                                                                                                     \
    X(I64, I8, x)                                                                                                      \
    X(I64, I16, x)                                                                                                     \
    X(I64, I32, x)                                                                                                     \
    X(I64, U8, x)                                                                                                      \
    X(I64, U16, x)                                                                                                     \
    X(I64, U32, x)                                                                                                     \
    X(I64, BOOL, x != 0)                                                                                               \
    X(I8, I64, x)                                                                                                      \
    X(I16, I64, x)                                                                                                     \
    X(I32, I64, x)                                                                                                     \
    X(U8, I64, x)                                                                                                      \
    X(U16, I64, x)                                                                                                     \
    X(U32, I64, x)                                                                                                     \
    X(BOOL, I64, x != 0)

/* LOCH_OVERFLOW_SPECIAL: the pairs that differ from LOCH_OVERFLOW_SATURATE. */
#define LOCHI_CONVERT_LIST_SPECIAL(X)                                                                                  \
    X(F8E4M3, F32, lochi_f8e4m3_of_f32(x, 0x7f))                                                                       \
    X(F8E5M2, F32, lochi_f8e5m2_of_f32(x, 0x7c))

/* Wide numbers to f32, rounded to odd. Rounding the result again, to a narrow float or towards zero to a narrow
 * integer, gives what one rounding would give: the last bit tells that something was cut off. */
#define LOCHI_CONVERT_LIST_ODD(X)                                                                                      \
    X(F32, F64, lochi_odd_of_f64(x))                                                                                   \
    X(F32, I64, lochi_odd_of_i64(x))                                                                                   \
    X(F32, U64, lochi_odd_of_u64(x))

/* Wide numbers to narrow ones, in two loops: to an odd f32, and from there. X(to, from). */
#define LOCHI_CONVERT_NARROW_F8(X, from) X(F8E4M3, from) X(F8E5M2, from)
#define LOCHI_CONVERT_LIST_NARROW_F8(X)                                                                                \
    LOCHI_CONVERT_NARROW_F8(X, F64) LOCHI_CONVERT_NARROW_F8(X, I64) LOCHI_CONVERT_NARROW_F8(X, U64)
#define LOCHI_CONVERT_LIST_NARROW(X)                                                                                   \
    LOCHI_CONVERT_LIST_NARROW_F8(X)                                                                                    \
    X(F16, F64)                                                                                                        \
    X(F16, I64) X(F16, U64) X(BF16, F64) X(BF16, I64) X(BF16, U64) X(I8, F64) X(I16, F64) X(U8, F64) X(U16, F64)

/* Tells gcc that iterations are independent: an element depends only on the element at its own index, also if both
 * ranges are the same. clang compares the addresses at run time instead; its pragma warns if the loop is not
 * vectorized. */
#if defined(__GNUC__) && !defined(__clang__)
#define LOCHI_CONVERT_APART _Pragma("GCC ivdep")
#else
#define LOCHI_CONVERT_APART
#endif

/* Converts wide numbers to narrow ones of `bytes` each. */
static inline void lochi_convert_narrow(char *to, size_t bytes, const char *from, size_t count,
                                        lochi_convert_step *to_odd, lochi_convert_step *to_narrow)
{
    enum { BLOCK = 256 }; /* 1 KiB on the stack */
    float odd[BLOCK];
    for (size_t n; count; count -= n, to += n * bytes, from += n * sizeof(uint64_t)) {
        n = count < BLOCK ? count : BLOCK;
        to_odd(odd, from, n);
        to_narrow(to, odd, n);
    }
}

/* Defines a lochi_convert_step from a wide to a narrow type, through two others. */
#define LOCHI_CONVERT_TWICE(name, to_type, to_odd, to_narrow)                                                          \
    static void name(void *to, const void *from, size_t count)                                                         \
    {                                                                                                                  \
        lochi_convert_narrow(to, sizeof(lochi_number_##to_type), from, count, to_odd, to_narrow);                      \
    }

/* Defines a lochi_convert_step with that name. */
#define LOCHI_CONVERT_LOOP(name, to_type, from_type, expression)                                                       \
    static void name(void *to, const void *from, size_t count)                                                         \
    {                                                                                                                  \
        char *target = to;                                                                                             \
        const char *source = from;                                                                                     \
        LOCHI_CONVERT_APART                                                                                            \
        for (size_t i = 0; i < count; i++) {                                                                           \
            lochi_number_##from_type x;                                                                                \
            memcpy(&x, source + i * sizeof x, sizeof x);                                                               \
            const lochi_number_##to_type y = (lochi_number_##to_type)(expression);                                     \
            memcpy(target + i * sizeof y, &y, sizeof y);                                                               \
        }                                                                                                              \
    }

#endif
