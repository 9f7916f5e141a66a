/* SPDX-License-Identifier: MIT */
/* Types of elements: names, sizes, the types of C expressions, scalars. */
#include "test.h"

#include <math.h>

#define FOR_EACH_TYPE(dtype)                                                                                           \
    for (loch_dtype dtype = LOCH_F64; dtype < LOCH_DTYPE_COUNT; dtype = (loch_dtype)(dtype + 1))

/* --- constants --- */

#define TYPE_IS(type, expected) _Static_assert(loch_dtype_of((type){0}) == (expected), #type)
TYPE_IS(double, LOCH_F64);
TYPE_IS(float, LOCH_F32);
TYPE_IS(loch_f16, LOCH_F16);
TYPE_IS(loch_bf16, LOCH_BF16);
TYPE_IS(loch_f8e4m3, LOCH_F8E4M3);
TYPE_IS(loch_f8e5m2, LOCH_F8E5M2);
TYPE_IS(signed char, LOCH_I8);
TYPE_IS(unsigned char, LOCH_U8);
TYPE_IS(char, CHAR_MIN < 0 ? LOCH_I8 : LOCH_U8);
TYPE_IS(short, LOCH_I16);
TYPE_IS(unsigned short, LOCH_U16);
TYPE_IS(int, LOCH_I32);
TYPE_IS(unsigned, LOCH_U32);
TYPE_IS(long, sizeof(long) == 8 ? LOCH_I64 : LOCH_I32);
TYPE_IS(unsigned long, sizeof(long) == 8 ? LOCH_U64 : LOCH_U32);
TYPE_IS(long long, LOCH_I64);
TYPE_IS(unsigned long long, LOCH_U64);
TYPE_IS(bool, LOCH_BOOL);
TYPE_IS(int8_t, LOCH_I8);
TYPE_IS(int16_t, LOCH_I16);
TYPE_IS(int32_t, LOCH_I32);
TYPE_IS(int64_t, LOCH_I64);
TYPE_IS(uint8_t, LOCH_U8);
TYPE_IS(uint16_t, LOCH_U16);
TYPE_IS(uint32_t, LOCH_U32);
TYPE_IS(uint64_t, LOCH_U64);

_Static_assert(loch_dtype_of(1.0f) == LOCH_F32, "a literal");
_Static_assert(loch_dtype_of('a') == LOCH_I32, "C's characters are ints");
_Static_assert(LOCH_DTYPE_NONE == 0 && LOCH_F64 == 1 && LOCH_BOOL == 15 && LOCH_DTYPE_COUNT == 16, "values are stable");
_Static_assert(sizeof(loch_f16) == 2 && sizeof(loch_bf16) == 2, "as their bits");
_Static_assert(sizeof(loch_f8e4m3) == 1 && sizeof(loch_f8e5m2) == 1, "as their bits");

static void variables_have_the_type_of_their_declaration(void **state)
{
    (void)state;
    const float constant = 1;
    volatile short unsteady = 1;
    const loch_bf16 bits = {0};
    const uint64_t array[2] = {0};
    const double real = 0, *pointer = &real;
    _Static_assert(loch_dtype_of(constant) == LOCH_F32, "const");
    _Static_assert(loch_dtype_of(unsteady) == LOCH_I16, "volatile");
    _Static_assert(loch_dtype_of(bits) == LOCH_BF16, "a const struct");
    _Static_assert(loch_dtype_of(array[0]) == LOCH_U64, "a const element");
    _Static_assert(loch_dtype_of(*pointer) == LOCH_F64, "through a pointer");
    (void)constant, (void)unsteady, (void)bits, (void)array, (void)pointer;
}

/* --- names --- */

static void every_type_has_a_name_and_a_size(void **state)
{
    (void)state;
    static const size_t sizes[LOCH_DTYPE_COUNT] = {0, 8, 4, 2, 2, 1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1};
    FOR_EACH_TYPE(dtype)
    {
        assert_int_equal(loch_dtype_bytes(dtype), sizes[dtype]);
        assert_int_equal(loch_dtype_find(loch_dtype_name(dtype)), dtype);
    }
    assert_string_equal(loch_dtype_name(LOCH_F8E4M3), "f8e4m3");
    assert_string_equal(loch_dtype_name(LOCH_BOOL), "bool");
    static const int none[] = {LOCH_DTYPE_NONE, LOCH_DTYPE_COUNT, 1000, -1};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(loch_dtype_name((loch_dtype)none[i]), "none");
        assert_int_equal(loch_dtype_bytes((loch_dtype)none[i]), 0);
    }
}

static void names_of_other_libraries_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        loch_dtype dtype;
    } known[] = {
        {"float64", LOCH_F64},
        {"double", LOCH_F64},
        {"float32", LOCH_F32},
        {"torch.float", LOCH_F32},
        {"float16", LOCH_F16},
        {"torch.half", LOCH_F16},
        {"torch.bfloat16", LOCH_BF16},
        {"bfloat16", LOCH_BF16},
        {"float8_e4m3fn", LOCH_F8E4M3},
        {"torch.float8_e4m3fn", LOCH_F8E4M3},
        {"float8_e5m2", LOCH_F8E5M2},
        {"torch.float8_e5m2", LOCH_F8E5M2},
        {"int8", LOCH_I8},
        {"torch.int16", LOCH_I16},
        {"torch.short", LOCH_I16},
        {"int32", LOCH_I32},
        {"torch.int", LOCH_I32},
        {"int64", LOCH_I64},
        {"torch.long", LOCH_I64},
        {"uint8", LOCH_U8},
        {"uint16", LOCH_U16},
        {"numpy.uint32", LOCH_U32},
        {"torch.uint64", LOCH_U64},
        {"bool", LOCH_BOOL},
        {"torch.bool", LOCH_BOOL},
        {"numpy.bool_", LOCH_BOOL},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(loch_dtype_find(known[i].name), known[i].dtype);
}

/* Also those that NumPy and PyTorch understand differently, and the other f8 of four bits of exponent. */
static void unknown_names_are_no_type(void **state)
{
    (void)state;
    static const char *const unknown[] = {"",
                                          "none",
                                          "F32",
                                          "f32 ",
                                          "f3",
                                          "float",
                                          "int",
                                          "long",
                                          "torch",
                                          "torch.",
                                          "torch.f32",
                                          "torch.torch.int8",
                                          "numpy.float",
                                          "half2",
                                          "int4",
                                          "float8_e4m3",
                                          "complex64",
                                          "<f4"};
    assert_int_equal(loch_dtype_find(NULL), LOCH_DTYPE_NONE);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_int_equal(loch_dtype_find(unknown[i]), LOCH_DTYPE_NONE);
}

/* --- scalars --- */

static void scalars_have_the_type_of_their_expression(void **state)
{
    (void)state;
    const char small = 7;
    const loch_scalar reals[] = {loch_scalar_of(1.5f), loch_scalar_of(1.5)};
    const loch_scalar minus[] = {loch_scalar_of((signed char)-3), loch_scalar_of((short)-3), loch_scalar_of(-3),
                                 loch_scalar_of(-3L), loch_scalar_of(-3LL)};
    const loch_scalar plus[] = {loch_scalar_of((unsigned char)3), loch_scalar_of((unsigned short)3), loch_scalar_of(3u),
                                loch_scalar_of(3UL), loch_scalar_of(3ULL)};
    for (size_t i = 0; i < 2; i++)
        assert_true(reals[i].dtype == LOCH_F64 && reals[i].value.f == 1.5);
    for (size_t i = 0; i < 5; i++) {
        assert_true(minus[i].dtype == LOCH_I64 && minus[i].value.i == -3);
        assert_true(plus[i].dtype == LOCH_U64 && plus[i].value.u == 3);
    }
    const loch_scalar truth = loch_scalar_of((bool)true), letter = loch_scalar_of(small);
    assert_true(truth.dtype == LOCH_U64 && truth.value.u == 1);
    assert_true(letter.dtype == LOCH_I64 && letter.value.i == 7);
    assert_true(loch_scalar_of(UINT64_MAX).value.u == UINT64_MAX);
    assert_true(loch_scalar_of(INT64_MIN).value.i == INT64_MIN);
}

/* The member that a type's numbers are in, when it is read. */
static loch_dtype scalar_kind(loch_dtype dtype)
{
    if (dtype == LOCH_BOOL) return LOCH_BOOL;
    return dtype <= LOCH_F8E5M2 ? LOCH_F64 : dtype <= LOCH_I64 ? LOCH_I64 : LOCH_U64;
}

static void scalars_of_every_type_are_stored_and_read(void **state)
{
    (void)state;
    FOR_EACH_TYPE(dtype)
    {
        char bytes[9];
        loch_scalar read;
        memset(bytes, 0x5a, sizeof bytes);
        CHECK_OK(loch_scalar_store(loch_scalar_of(1), dtype, bytes));
        assert_int_equal(bytes[loch_dtype_bytes(dtype)], 0x5a);
        CHECK_OK(loch_scalar_load(dtype, bytes, &read));
        assert_int_equal(read.dtype, scalar_kind(dtype));
        if (read.dtype == LOCH_F64)
            assert_true(read.value.f == 1);
        else
            assert_true(read.value.u == 1);
        FOR_EACH_TYPE(other) /* and a scalar of every type into every type */
        {
            loch_scalar one = read;
            one.dtype = dtype;
            CHECK_OK(loch_scalar_store(one, other, bytes));
            CHECK_OK(loch_scalar_load(other, bytes, &one));
            assert_true(one.dtype == LOCH_F64 ? one.value.f == 1 : one.value.u == 1);
        }
    }
}

static void scalars_are_exact(void **state)
{
    (void)state;
    const int8_t minus = -5;
    const uint64_t most = UINT64_MAX;
    const int64_t odd = ((int64_t)1 << 53) + 1;
    loch_scalar read;
    CHECK_OK(loch_scalar_load(LOCH_I8, &minus, &read));
    assert_true(read.value.i == -5);
    CHECK_OK(loch_scalar_load(LOCH_U64, &most, &read));
    assert_true(read.value.u == UINT64_MAX);
    CHECK_OK(loch_scalar_load(LOCH_I64, &odd, &read));
    assert_true(read.value.i == odd);
    uint8_t truth = 0x80;
    CHECK_OK(loch_scalar_load(LOCH_BOOL, &truth, &read));
    assert_true(read.dtype == LOCH_BOOL && read.value.u == 1);
    uint8_t byte;
    CHECK_OK(loch_scalar_store(loch_scalar_of(1000.0), LOCH_U8, &byte));
    assert_int_equal(byte, 255);
    CHECK_OK(loch_scalar_store(loch_scalar_of(1000), LOCH_U8, &byte));
    assert_int_equal(byte, 1000 & 255);
    CHECK_OK(loch_scalar_store(loch_scalar_of(1e9), LOCH_F8E4M3, &byte));
    assert_int_equal(byte, 0x7e);
    int32_t whole;
    CHECK_OK(loch_scalar_store((loch_scalar){.dtype = LOCH_BOOL, .value.u = 6}, LOCH_I32, &whole));
    assert_int_equal(whole, 1);
    CHECK_OK(loch_scalar_store(loch_scalar_of(NAN), LOCH_I32, &whole));
    assert_int_equal(whole, 0);
}

static void bad_scalars_are_refused(void **state)
{
    (void)state;
    float place = 3;
    loch_scalar read;
    CHECK_FAILS(loch_scalar_store(loch_scalar_of(1), LOCH_DTYPE_NONE, &place), INVALID);
    CHECK_FAILS(loch_scalar_store(loch_scalar_of(1), LOCH_F32, NULL), INVALID);
    CHECK_FAILS(loch_scalar_store((loch_scalar){.dtype = LOCH_DTYPE_NONE}, LOCH_F32, &place), INVALID);
    CHECK_FAILS(loch_scalar_store((loch_scalar){.dtype = LOCH_DTYPE_COUNT}, LOCH_F32, &place), INVALID);
    CHECK_FAILS(loch_scalar_load(LOCH_DTYPE_COUNT, &place, &read), INVALID);
    assert_int_equal(read.dtype, LOCH_DTYPE_NONE);
    CHECK_FAILS(loch_scalar_load(LOCH_F32, NULL, &read), INVALID);
    CHECK_FAILS(loch_scalar_load(LOCH_F32, &place, NULL), INVALID);
    assert_true(place == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_have_the_type_of_their_declaration),
        cmocka_unit_test(every_type_has_a_name_and_a_size),
        cmocka_unit_test(names_of_other_libraries_are_understood),
        cmocka_unit_test(unknown_names_are_no_type),
        cmocka_unit_test(scalars_have_the_type_of_their_expression),
        cmocka_unit_test(scalars_of_every_type_are_stored_and_read),
        cmocka_unit_test(scalars_are_exact),
        cmocka_unit_test(bad_scalars_are_refused),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
