/* SPDX-License-Identifier: MIT */
/* Conversions between all types: against the slow reference, everywhere for the narrow types and where it matters for
 * the wide ones; each kind of loop against the others. */
#include "convert_reference.h"
#include "tensor/convert/avx2.h"
#include "tensor/convert/convert.h"

#include <float.h>
#include <math.h>

#define FOR_EACH_TYPE(dtype)                                                                                           \
    for (loch_dtype dtype = LOCH_F64; dtype < LOCH_DTYPE_COUNT; dtype = (loch_dtype)(dtype + 1))

static const loch_overflow overflows[] = {LOCH_OVERFLOW_SATURATE, LOCH_OVERFLOW_SPECIAL};
static const loch_dtype narrow_types[] = {LOCH_F16, LOCH_BF16, LOCH_F8E4M3, LOCH_F8E5M2};

/* A growing array of elements of one type. */
typedef struct elements {
    loch_dtype dtype;
    size_t count, room;
    char *bytes;
} elements;

static void elements_add(elements *list, uint64_t bits)
{
    const size_t bytes = loch_dtype_bytes(list->dtype);
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 1024;
        list->bytes = realloc(list->bytes, list->room * bytes);
        assert_non_null(list->bytes);
    }
    element_store(list->dtype, list->bytes + list->count++ * bytes, bits);
}

/* The number in the list's type, or the nearest to it, and its two neighbours; of both signs. */
static void elements_add_number(elements *list, exact value)
{
    const bool is_float = reference_is_float(list->dtype);
    for (int negative = 0; negative < 2; negative++) {
        value.negative = negative;
        const uint64_t bits = is_float ? reference_encode_float(list->dtype, value, LOCH_OVERFLOW_SATURATE)
                                       : reference_clip(list->dtype, value);
        elements_add(list, bits);
        elements_add(list, bits + 1);
        elements_add(list, bits - 1);
    }
}

static void elements_check(const elements *list, loch_dtype to)
{
    for (size_t i = 0; i < 2; i++)
        reference_check(to, list->dtype, overflows[i], list->bytes, list->count);
}

/* --- narrow types, everywhere --- */

static void every_narrow_value_agrees_with_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        elements all = {.dtype = narrow_types[i]};
        for (uint64_t bits = 0; bits <= reference_mask(all.dtype); bits++)
            elements_add(&all, bits);
        FOR_EACH_TYPE(to) elements_check(&all, to);
        free(all.bytes);
    }
}

static void every_small_integer_agrees_with_the_reference(void **state)
{
    (void)state;
    static const loch_dtype small[] = {LOCH_I8, LOCH_U8, LOCH_I16, LOCH_U16, LOCH_BOOL};
    for (size_t i = 0; i < 5; i++) {
        elements all = {.dtype = small[i]};
        for (uint64_t bits = 0; bits <= reference_mask(all.dtype); bits++)
            elements_add(&all, bits);
        FOR_EACH_TYPE(to) elements_check(&all, to);
        free(all.bytes);
    }
}

static float float_of_bits(uint64_t bits)
{
    const uint32_t narrow = (uint32_t)bits;
    float value;
    memcpy(&value, &narrow, sizeof value);
    return value;
}

static uint64_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float single_to_float(loch_dtype dtype, uint64_t bits)
{
    float value = 0;
    CHECK_OK(loch_convert(LOCH_F32, &value, dtype, &bits, 1, NULL));
    return value;
}

static uint64_t single_from_float(loch_dtype dtype, float value)
{
    uint64_t bits = 0;
    CHECK_OK(loch_convert(dtype, &bits, LOCH_F32, &value, 1, NULL));
    return bits;
}

static void single_numbers_come_back_as_they_were(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const loch_dtype dtype = narrow_types[i];
        for (uint64_t bits = 0; bits <= reference_mask(dtype); bits++) {
            const float value = single_to_float(dtype, bits);
            const uint64_t wide = reference_convert(LOCH_F32, dtype, bits, LOCH_OVERFLOW_SATURATE);
            assert_true(reference_agrees(LOCH_F32, bits_of_float(value), wide));
            const uint64_t back = reference_convert(dtype, LOCH_F32, wide, LOCH_OVERFLOW_SATURATE);
            assert_true(reference_agrees(dtype, single_from_float(dtype, value), back));
            if (reference_decode(dtype, bits).kind == FINITE) assert_true(back == bits);
        }
    }
}

/* --- rounding once --- */

static void f32_on_a_stride_agrees_with_the_reference(void **state)
{
    (void)state;
    elements some = {.dtype = LOCH_F32};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4099)
        elements_add(&some, bits);
    for (size_t i = 0; i < 4; i++)
        elements_check(&some, narrow_types[i]);
    for (size_t i = 0; i < some.count; i += 97)
        for (size_t k = 0; k < 4; k++) {
            const uint64_t bits = element_load(LOCH_F32, some.bytes + i * 4);
            const uint64_t expected = reference_convert(narrow_types[k], LOCH_F32, bits, LOCH_OVERFLOW_SATURATE);
            assert_true(
                reference_agrees(narrow_types[k], single_from_float(narrow_types[k], float_of_bits(bits)), expected));
        }
    free(some.bytes);
}

/* Half way between any two neighbours, and a last place beside it: what two roundings get wrong. */
static void ties_of_narrow_floats_go_to_even(void **state)
{
    (void)state;
    static const loch_dtype wide[] = {LOCH_F32, LOCH_F64, LOCH_I32, LOCH_U32, LOCH_I64, LOCH_U64};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 6; k++) {
            const float_format *format = &reference_formats[narrow_types[i]];
            elements ties = {.dtype = wide[k]};
            for (uint64_t bits = 0; bits <= format->most; bits++)
                elements_add_number(&ties, reference_half_way(format, bits));
            elements_check(&ties, narrow_types[i]);
            free(ties.bytes);
        }
}

static void ties_of_f32_go_to_even(void **state)
{
    (void)state;
    static const loch_dtype wide[] = {LOCH_F64, LOCH_I64, LOCH_U64};
    for (size_t k = 0; k < 3; k++) {
        elements ties = {.dtype = wide[k]};
        for (uint64_t bits = 0; bits <= reference_formats[LOCH_F32].most; bits += 65521)
            elements_add_number(&ties, reference_half_way(&reference_formats[LOCH_F32], bits));
        elements_check(&ties, LOCH_F32);
        elements_check(&ties, LOCH_F64);
        free(ties.bytes);
    }
}

static void known_numbers_have_their_known_bits(void **state)
{
    (void)state;
    assert_int_equal(single_from_float(LOCH_F16, 65504), 0x7bff);
    assert_int_equal(single_from_float(LOCH_F16, 65519.996f), 0x7bff);
    assert_int_equal(single_from_float(LOCH_F16, 65520), 0x7c00);
    assert_int_equal(single_from_float(LOCH_F16, -INFINITY), 0xfc00);
    assert_int_equal(single_from_float(LOCH_F16, 0x1p-24f), 1);
    assert_int_equal(single_from_float(LOCH_F16, 0x1p-25f), 0);
    assert_int_equal(single_from_float(LOCH_F16, -0x1.8p-25f), 0x8001);
    assert_int_equal(single_from_float(LOCH_F16, 0.1f), 0x2e66);
    assert_int_equal(single_from_float(LOCH_BF16, 0.1f), 0x3dcd);
    assert_int_equal(single_from_float(LOCH_BF16, FLT_MAX), 0x7f80);
    assert_int_equal(single_from_float(LOCH_F8E4M3, 1), 0x38);
    assert_int_equal(single_from_float(LOCH_F8E4M3, 464), 0x7e);
    assert_int_equal(single_from_float(LOCH_F8E4M3, 1e9f), 0x7e);
    assert_int_equal(single_from_float(LOCH_F8E4M3, -INFINITY), 0xfe);
    assert_int_equal(single_from_float(LOCH_F8E4M3, NAN), 0x7f);
    assert_int_equal(single_from_float(LOCH_F8E4M3, -NAN), 0xff);
    assert_int_equal(single_from_float(LOCH_F8E5M2, 1), 0x3c);
    assert_int_equal(single_from_float(LOCH_F8E5M2, 61440), 0x7b);
    assert_int_equal(single_from_float(LOCH_F8E5M2, INFINITY), 0x7b);
    assert_int_equal(single_from_float(LOCH_F8E5M2, -NAN), 0xfe);
    assert_true(single_to_float(LOCH_F8E4M3, 0x7e) == 448);
    assert_true(single_to_float(LOCH_F8E4M3, 0x01) == 0x1p-9f);
    assert_true(single_to_float(LOCH_F8E5M2, 0x7b) == 57344);
    assert_true(isinf(single_to_float(LOCH_F8E5M2, 0x7c)));
    assert_true(isnan(single_to_float(LOCH_F8E4M3, 0x7f)));
}

static void f8_beyond_its_range_on_request(void **state)
{
    (void)state;
    static const float values[] = {464, 464.5f, -1e9f, INFINITY, 57344, 61440, NAN, -NAN};
    static const uint8_t e4m3[] = {0x7e, 0x7f, 0xff, 0x7f, 0x7f, 0x7f, 0x7f, 0xff};
    static const uint8_t e5m2[] = {0x5f, 0x5f, 0xfc, 0x7c, 0x7b, 0x7c, 0x7e, 0xfe};
    const loch_convert_options special = {.size = sizeof special, .overflow = LOCH_OVERFLOW_SPECIAL};
    uint8_t out[8];
    CHECK_OK(loch_convert(LOCH_F8E4M3, out, LOCH_F32, values, 8, &special));
    assert_memory_equal(out, e4m3, 8);
    CHECK_OK(loch_convert(LOCH_F8E5M2, out, LOCH_F32, values, 8, &special));
    assert_memory_equal(out, e5m2, 8);
}

/* --- every pair --- */

/* Powers of two and what lies beside them, over the whole range of every type; then bits at random. */
static elements pair_values(loch_dtype dtype, test_random *random)
{
    static const uint64_t magnitudes[] = {
        1, 3, 29, 255, 2047, ((uint64_t)1 << 24) - 1, ((uint64_t)1 << 24) + 1, ((uint64_t)1 << 53) - 1, INT64_MAX};
    elements list = {.dtype = dtype};
    elements_add_number(&list, (exact){.kind = FINITE});
    elements_add_number(&list, (exact){.kind = INFINITE});
    elements_add_number(&list, (exact){.kind = NOT_A_NUMBER});
    for (int exponent = -160; exponent <= 130; exponent++)
        for (size_t i = 0; i < sizeof magnitudes / sizeof *magnitudes; i++)
            elements_add_number(&list, (exact){.magnitude = magnitudes[i], .exponent = exponent});
    for (int exponent = -1100; exponent <= 1030; exponent += 7)
        elements_add_number(&list, (exact){.magnitude = 3, .exponent = exponent});
    for (size_t i = 0; i < 3000; i++) {
        const uint64_t bits = test_random_next(random);
        elements_add(&list, bits);
        elements_add(&list, bits >> (bits & 63));
        elements_add(&list, 0 - (bits >> (bits & 63)));
    }
    return list;
}

static void every_pair_of_types_agrees_with_the_reference(void **state)
{
    (void)state;
    test_random random = {test_seed(5)};
    FOR_EACH_TYPE(from)
    {
        elements list = pair_values(from, &random);
        FOR_EACH_TYPE(to) elements_check(&list, to);
        free(list.bytes);
    }
}

static void integers_of_64_bits_at_their_ends(void **state)
{
    (void)state;
    static const uint64_t large[] = {UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 63) + 1, UINT64_MAX - 1024};
    static const double doubles[] = {0x1p64, 0x1p63, 0x1p63, 0x1.fffffffffffffp63};
    double out[4];
    CHECK_OK(loch_convert(LOCH_F64, out, LOCH_U64, large, 4, NULL));
    for (size_t i = 0; i < 4; i++)
        assert_true(out[i] == doubles[i]);
    uint64_t back[4];
    CHECK_OK(loch_convert(LOCH_U64, back, LOCH_F64, out, 4, NULL));
    assert_true(back[0] == UINT64_MAX && back[1] == large[1] && back[2] == large[1] && back[3] == UINT64_MAX - 2047);
    int64_t clipped[4];
    CHECK_OK(loch_convert(LOCH_I64, clipped, LOCH_F64, out, 4, NULL));
    assert_true(clipped[0] == INT64_MAX && clipped[1] == INT64_MAX);
}

/* --- the loops --- */

/* Random bits, with the values mixed in that loops treat apart. */
static void loop_values(loch_dtype dtype, char *to, size_t count, test_random *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = test_random_next(random);
        if (dtype == LOCH_F32 && bits & 1) { /* where f16 and f8 lie */
            const uint64_t exponent = 127 - 30 + (bits >> 8) % 50;
            bits = (bits & 0x807ff000) | (exponent << 23);
        }
        element_store(dtype, to + i * loch_dtype_bytes(dtype), bits);
    }
}

/* Converts `count` elements a few bytes off any alignment, native and portable, and compares all bytes around them
 * too. */
static void loop_compare(loch_dtype to, loch_dtype from, loch_overflow overflow, const char *values, size_t count,
                         size_t shift)
{
    enum { ROOM = 70 * 8 + 32 };
    char source[ROOM], native[ROOM], portable[ROOM];
    memset(native, 0x5a, ROOM);
    memset(portable, 0x5a, ROOM);
    memcpy(source + shift, values, count * loch_dtype_bytes(from));
    const lochi_converter a = lochi_convert_find(to, from, overflow);
    const lochi_converter b = lochi_convert_find_in(NULL, to, from, overflow);
    lochi_convert_run(&a, native + 16 - shift, source + shift, count);
    lochi_convert_run(&b, portable + 16 - shift, source + shift, count);
    assert_memory_equal(native, portable, ROOM);
    for (size_t i = 0; i < ROOM; i++)
        if (i < 16 - shift || i >= 16 - shift + count * loch_dtype_bytes(to)) assert_int_equal(portable[i], 0x5a);
}

static void native_and_portable_loops_agree(void **state)
{
    (void)state;
    if (!lochi_convert_native()) print_message("no native loops on this processor\n");
    test_random random = {test_seed(6)};
    char values[70 * 8];
    FOR_EACH_TYPE(from)
    FOR_EACH_TYPE(to)
    for (size_t count = 0; count <= 70; count++) {
        loop_values(from, values, count, &random);
        loop_compare(to, from, overflows[count & 1], values, count, count % 11);
        loop_compare(to, from, overflows[~count & 1], values, count, count % 3);
    }
}

/* Every bit pattern of an f16 and a stride of f32 through both: the processor's own instructions are held to the
 * same. */
static void halves_agree_everywhere(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    uint32_t *native = malloc(COUNT * sizeof *native), *portable = malloc(COUNT * sizeof *portable);
    uint32_t *source = malloc(COUNT * sizeof *source);
    assert_true(native && portable && source);
    for (uint32_t i = 0; i < COUNT; i++)
        element_store(LOCH_F16, (char *)source + 2 * i, i);
    const lochi_converter a = lochi_convert_find(LOCH_F32, LOCH_F16, LOCH_OVERFLOW_SATURATE);
    const lochi_converter b = lochi_convert_find_in(NULL, LOCH_F32, LOCH_F16, LOCH_OVERFLOW_SATURATE);
    lochi_convert_run(&a, native, source, COUNT);
    lochi_convert_run(&b, portable, source, COUNT);
    assert_memory_equal(native, portable, COUNT * sizeof *native);
    const lochi_converter c = lochi_convert_find(LOCH_F16, LOCH_F32, LOCH_OVERFLOW_SATURATE);
    const lochi_converter d = lochi_convert_find_in(NULL, LOCH_F16, LOCH_F32, LOCH_OVERFLOW_SATURATE);
    for (uint32_t low = 0; low < 0x2000; low += 0x1ff) {
        for (uint32_t i = 0; i < COUNT; i++)
            source[i] = i << 16 | low << 3 | (low & 7);
        lochi_convert_run(&c, native, source, COUNT);
        lochi_convert_run(&d, portable, source, COUNT);
        assert_memory_equal(native, portable, COUNT * 2);
    }
    free(native);
    free(portable);
    free(source);
}

/* Longer than a block on the way through a hub, and in place where sizes are the same. */
static void long_arrays_are_converted_also_in_place(void **state)
{
    (void)state;
    enum { COUNT = 1301 };
    test_random random = {test_seed(7)};
    char *values = malloc(COUNT * 8), *out = malloc(COUNT * 8);
    assert_true(values && out);
    FOR_EACH_TYPE(from)
    FOR_EACH_TYPE(to)
    {
        const size_t to_bytes = loch_dtype_bytes(to), from_bytes = loch_dtype_bytes(from);
        loop_values(from, values, COUNT, &random);
        CHECK_OK(loch_convert(to, out, from, values, COUNT, NULL));
        for (size_t i = 0; i < COUNT; i += 13) {
            char one[8];
            CHECK_OK(loch_convert(to, one, from, values + i * from_bytes, 1, NULL));
            assert_memory_equal(one, out + i * to_bytes, to_bytes);
        }
        if (to_bytes != from_bytes) continue;
        CHECK_OK(loch_convert(to, values, from, values, COUNT, NULL));
        assert_memory_equal(values, out, COUNT * to_bytes);
    }
    free(values);
    free(out);
}

/* Bits that are no numbers stay as they are where the type does. */
static void the_same_type_keeps_its_bits(void **state)
{
    (void)state;
    static const uint64_t patterns[] = {0x7ff0000000000001, 0xfff4000000000000, 0x7fa000017f800001, 0x7d017c01ff817f81};
    FOR_EACH_TYPE(dtype)
    {
        uint64_t out[4] = {0};
        if (dtype == LOCH_BOOL) continue;
        CHECK_OK(loch_convert(dtype, out, dtype, patterns, sizeof patterns / loch_dtype_bytes(dtype), NULL));
        assert_memory_equal(out, patterns, sizeof patterns);
    }
    const uint8_t truths[] = {0, 1, 2, 0x80, 0xff};
    uint8_t out[5];
    CHECK_OK(loch_convert(LOCH_BOOL, out, LOCH_BOOL, truths, 5, NULL));
    assert_memory_equal(out, "\0\1\1\1\1", 5);
}

/* --- bad input --- */

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    char bytes[64] = {0};
    loch_convert_options options = {.size = sizeof options};
    CHECK_FAILS(loch_convert(LOCH_DTYPE_NONE, bytes, LOCH_F32, bytes + 32, 1, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F32, bytes, LOCH_DTYPE_NONE, bytes + 32, 1, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_DTYPE_COUNT, bytes, LOCH_F32, bytes + 32, 1, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F32, bytes, (loch_dtype)-1, bytes + 32, 0, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F32, NULL, LOCH_F32, bytes, 1, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F32, bytes, LOCH_F32, NULL, 1, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F64, bytes, LOCH_F32, bytes + 32, SIZE_MAX / 4, NULL), OVERFLOW);
    CHECK_FAILS(loch_convert(LOCH_I8, bytes, LOCH_F32, bytes + 32, SIZE_MAX / 2, NULL), OVERFLOW);
    CHECK_FAILS(loch_convert(LOCH_I8, bytes, LOCH_I8, bytes, SIZE_MAX, NULL), OVERFLOW);
    options.overflow = (loch_overflow)2;
    CHECK_FAILS(loch_convert(LOCH_F32, bytes, LOCH_F16, bytes + 32, 1, &options), INVALID);
    options = (loch_convert_options){.size = 0};
    CHECK_FAILS(loch_convert(LOCH_F32, bytes, LOCH_F16, bytes + 32, 1, &options), INVALID);
    options.size = sizeof options.size; /* older, without the member */
    options.overflow = (loch_overflow)2;
    CHECK_OK(loch_convert(LOCH_F32, bytes, LOCH_F16, bytes + 32, 1, &options));
}

static void ranges_that_overlap_are_refused(void **state)
{
    (void)state;
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    CHECK_FAILS(loch_convert(LOCH_I32, values, LOCH_F32, values + 1, 4, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F64, values, LOCH_F32, values, 4, NULL), INVALID);
    CHECK_FAILS(loch_convert(LOCH_F16, values, LOCH_F32, values, 4, NULL), INVALID);
    assert_true(values[0] == 1 && values[7] == 8);
    CHECK_OK(loch_convert(LOCH_F32, values, LOCH_F32, values + 4, 4, NULL));
    CHECK_OK(loch_convert(LOCH_F32, values + 4, LOCH_F32, values, 4, NULL));
    CHECK_OK(loch_convert(LOCH_F32, values, LOCH_F64, values, 0, NULL));
    assert_true(values[0] == 5 && values[7] == 8);
}

static void no_elements_are_converted_from_anywhere(void **state)
{
    (void)state;
    FOR_EACH_TYPE(from)
    FOR_EACH_TYPE(to)
    CHECK_OK(loch_convert(to, NULL, from, NULL, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_narrow_value_agrees_with_the_reference),
        cmocka_unit_test(every_small_integer_agrees_with_the_reference),
        cmocka_unit_test(single_numbers_come_back_as_they_were),
        cmocka_unit_test(f32_on_a_stride_agrees_with_the_reference),
        cmocka_unit_test(ties_of_narrow_floats_go_to_even),
        cmocka_unit_test(ties_of_f32_go_to_even),
        cmocka_unit_test(known_numbers_have_their_known_bits),
        cmocka_unit_test(f8_beyond_its_range_on_request),
        cmocka_unit_test(every_pair_of_types_agrees_with_the_reference),
        cmocka_unit_test(integers_of_64_bits_at_their_ends),
        cmocka_unit_test(native_and_portable_loops_agree),
        cmocka_unit_test(halves_agree_everywhere),
        cmocka_unit_test(long_arrays_are_converted_also_in_place),
        cmocka_unit_test(the_same_type_keeps_its_bits),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(ranges_that_overlap_are_refused),
        cmocka_unit_test(no_elements_are_converted_from_anywhere),
    };
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
