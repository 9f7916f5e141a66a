/* SPDX-License-Identifier: MIT */
/* All loops of loch_convert as one list: X(to, from, expression that converts the element x). Each file that includes
 * it compiles the loops for one kind of processor. */
#ifndef LOCHI_CONVERT_LIST_H
#define LOCHI_CONVERT_LIST_H

#include "tensor/convert/table.h"
#include "tensor/convert/number.h"

/* From a hub to the narrow floats, without f16. `f32` converts the number to f32, rounded to odd if it does not fit. */
#define LOCHI_CONVERT_NARROW(X, from, f32)                                                                             \
    X(BF16, from, lochi_bf16_of_f32(f32(x)))                                                                           \
    X(F8E4M3, from, lochi_f8e4m3_of_f32(f32(x), 0x7e))                                                                 \
    X(F8E5M2, from, lochi_f8e5m2_of_f32(f32(x), 0x7b))

/* From a float to integers and bool. */
#define LOCHI_CONVERT_CLIP(X, from, suffix)                                                                            \
    X(I8, from, lochi_i8_of_##suffix(x))                                                                               \
    X(I16, from, lochi_i16_of_##suffix(x))                                                                             \
    X(I32, from, lochi_i32_of_##suffix(x))                                                                             \
    X(I64, from, lochi_i64_of_##suffix(x))                                                                             \
    X(U8, from, lochi_u8_of_##suffix(x))                                                                               \
    X(U16, from, lochi_u16_of_##suffix(x))                                                                             \
    X(U32, from, lochi_u32_of_##suffix(x))                                                                             \
    X(U64, from, lochi_u64_of_##suffix(x))                                                                             \
    X(BOOL, from, x != 0)

/* The pairs for which processors have an instruction. */
#define LOCHI_CONVERT_LIST_HALF(X)                                                                                     \
    X(F16, F32, lochi_f16_of_f32(x))                                                                                   \
    X(F32, F16, lochi_f32_of_f16(x))

/* All other pairs. Integer to integer conversions go through i64. A u64 source or target is treated as an i64: the low
 * bits are equal. */
#define LOCHI_CONVERT_LIST(X)                                                                                          \
    LOCHI_CONVERT_NARROW(X, F32, )                                                                                     \
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
    LOCHI_CONVERT_NARROW(X, F64, lochi_odd_of_f64)                                                                     \
    LOCHI_CONVERT_NARROW(X, I64, lochi_odd_of_i64)                                                                     \
    LOCHI_CONVERT_NARROW(X, U64, lochi_odd_of_u64)                                                                     \
    LOCHI_CONVERT_CLIP(X, F64, f64)                                                                                    \
    X(F16, F64, lochi_f16_of_f32(lochi_odd_of_f64(x)))                                                                 \
    X(F16, I64, lochi_f16_of_f32(lochi_odd_of_i64(x)))                                                                 \
    X(F16, U64, lochi_f16_of_f32(lochi_odd_of_u64(x)))                                                                 \
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
#define LOCHI_CONVERT_SPECIAL(X, from, f32)                                                                            \
    X(F8E4M3, from, lochi_f8e4m3_of_f32(f32(x), 0x7f))                                                                 \
    X(F8E5M2, from, lochi_f8e5m2_of_f32(f32(x), 0x7c))
#define LOCHI_CONVERT_LIST_SPECIAL(X)                                                                                  \
    LOCHI_CONVERT_SPECIAL(X, F32, )                                                                                    \
    LOCHI_CONVERT_SPECIAL(X, F64, lochi_odd_of_f64)                                                                    \
    LOCHI_CONVERT_SPECIAL(X, I64, lochi_odd_of_i64)                                                                    \
    LOCHI_CONVERT_SPECIAL(X, U64, lochi_odd_of_u64)

/* Tells gcc that iterations are independent: an element depends only on the element at its own index, also if both
 * ranges are the same. clang compares the addresses at run time instead; its pragma warns if the loop is not
 * vectorized. */
#if defined(__GNUC__) && !defined(__clang__)
#define LOCHI_CONVERT_APART _Pragma("GCC ivdep")
#else
#define LOCHI_CONVERT_APART
#endif

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
