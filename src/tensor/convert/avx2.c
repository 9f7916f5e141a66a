/* SPDX-License-Identifier: MIT */
/* The loops of loch_convert for x86-64 processors with AVX2 and F16C: the list of list.h compiled for wider vectors,
 * and the instructions for f16. */
#include "tensor/convert/avx2.h"
#include "tensor/convert/list.h"
#include "tensor/convert/portable.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define AVX2 __attribute__((target("avx2,f16c")))

AVX2 static void avx2_F16_of_F32(void *to, const void *from, size_t count)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256 x = _mm256_loadu_ps((const float *)(const void *)(source + i * sizeof(float)));
        const __m128i y = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(target + i * sizeof(uint16_t)), y);
    }
    if (i < count)
        lochi_convert_portable.steps[LOCH_OVERFLOW_SATURATE][LOCH_F16][LOCH_F32](target + i * sizeof(uint16_t),
                                                                                 source + i * sizeof(float), count - i);
}

AVX2 static void avx2_F32_of_F16(void *to, const void *from, size_t count)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(source + i * sizeof(uint16_t)));
        _mm256_storeu_ps((float *)(void *)(target + i * sizeof(float)), _mm256_cvtph_ps(x));
    }
    if (i < count)
        lochi_convert_portable.steps[LOCH_OVERFLOW_SATURATE][LOCH_F32][LOCH_F16](
            target + i * sizeof(float), source + i * sizeof(uint16_t), count - i);
}

#define AVX2_LOOP(to, from, expression) AVX2 LOCHI_CONVERT_LOOP(avx2_##to##_of_##from, to, from, expression)
#define AVX2_SPECIAL_LOOP(to, from, expression) AVX2 LOCHI_CONVERT_LOOP(special_##to##_of_##from, to, from, expression)
LOCHI_CONVERT_LIST(AVX2_LOOP)
LOCHI_CONVERT_LIST_SPECIAL(AVX2_SPECIAL_LOOP)

#define AVX2_ODD_LOOP(to, from, expression) AVX2 LOCHI_CONVERT_LOOP(odd_of_##from, to, from, expression)
#define AVX2_NARROW(to, from) LOCHI_CONVERT_TWICE(avx2_##to##_of_##from, to, odd_of_##from, avx2_##to##_of_F32)
#define AVX2_SPECIAL_NARROW(to, from)                                                                                  \
    LOCHI_CONVERT_TWICE(special_##to##_of_##from, to, odd_of_##from, special_##to##_of_F32)
LOCHI_CONVERT_LIST_ODD(AVX2_ODD_LOOP)
LOCHI_CONVERT_LIST_NARROW(AVX2_NARROW)
LOCHI_CONVERT_LIST_NARROW_F8(AVX2_SPECIAL_NARROW)

#define AVX2_ENTRY(to, from, expression) [LOCH_##to][LOCH_##from] = avx2_##to##_of_##from,
#define AVX2_SPECIAL_ENTRY(to, from, expression) [LOCH_##to][LOCH_##from] = special_##to##_of_##from,
#define AVX2_NARROW_ENTRY(to, from) AVX2_ENTRY(to, from, )
#define AVX2_SPECIAL_NARROW_ENTRY(to, from) AVX2_SPECIAL_ENTRY(to, from, )
static const lochi_convert_table avx2_table = {
    .steps = {
        [LOCH_OVERFLOW_SATURATE] = {LOCHI_CONVERT_LIST_HALF(AVX2_ENTRY) LOCHI_CONVERT_LIST(AVX2_ENTRY)
                                        LOCHI_CONVERT_LIST_NARROW(AVX2_NARROW_ENTRY)},
        [LOCH_OVERFLOW_SPECIAL] = {LOCHI_CONVERT_LIST_SPECIAL(AVX2_SPECIAL_ENTRY)
                                       LOCHI_CONVERT_LIST_NARROW_F8(AVX2_SPECIAL_NARROW_ENTRY)},
    }};

/* Tells whether the processor has AVX2 and F16C. Some compilers' __builtin_cpu_supports cannot test for F16C. */
static bool avx2_is_there(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

const lochi_convert_table *lochi_convert_native(void)
{
    enum { UNKNOWN, NO, YES };
    /* cached: cpuid takes microseconds in a virtual machine; all threads find the same value */
    static atomic_int known = UNKNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = avx2_is_there() ? YES : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES ? &avx2_table : NULL;
}

#else

const lochi_convert_table *lochi_convert_native(void)
{
    return NULL;
}

#endif
