/* SPDX-License-Identifier: MIT */
/* The conversions of Loch's own kernels, compiled for the host: the bits of loch_convert, for all values of types of
 * one and two bytes, and for many of wider ones, between all types. */
#include "support/test.h"
#include <cuda/convert.h>

#define COUNT ((size_t)1 << 17)

static test_random randomness;
static unsigned char *in, *wanted;

/* Values of 4 and 8 bytes: any bits, numbers near those that narrow types have, ties, specials. */
static uint64_t value_of(loch_dtype type)
{
    uint64_t bits = test_random_next(&randomness);
    const unsigned kind = (unsigned)test_random_below(&randomness, 8);
    const unsigned cut = (unsigned)test_random_below(&randomness, 64);
    if (kind == 0) return bits;
    if (type == LOCH_F32) {
        if (kind == 1) return 0x7f800000u | (bits & 0x807fffffu); /* infinity and NaN */
        if (kind < 6) bits = (bits & 0x807fffffu) | (97 + bits % 60) << 23;
        return bits & ~((1u << cut % 24) - 1);
    }
    if (type == LOCH_F64) {
        if (kind == 1) return 0x7ff0000000000000u | (bits & 0x800fffffffffffffu);
        if (kind < 6) bits = (bits & 0x800fffffffffffffu) | (993 + bits % 60) << 52;
        return (bits & ~(((uint64_t)1 << cut % 53) - 1)) | (kind == 5);
    }
    bits >>= cut;
    if (kind == 1) bits = 0 - bits;
    if (kind == 2) bits &= ~(((uint64_t)1 << cut) - 1);
    if (kind == 3) bits = ((uint64_t)1 << cut) - kind % 2;
    return bits;
}

static size_t fill_in(loch_dtype type)
{
    const size_t bytes = loch_dtype_bytes(type), count = bytes == 1 ? 256 : bytes == 2 ? 65536 : COUNT;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = bytes <= 2 ? i : value_of(type);
        memcpy(in + i * bytes, &bits, bytes);
    }
    return count;
}

/* Returns the code of a type in a kernel. */
static unsigned code_of(loch_dtype type, loch_overflow overflow)
{
    if (overflow == LOCH_OVERFLOW_SPECIAL && type == LOCH_F8E4M3) return TYPE_F8E4M3_SPECIAL;
    return overflow == LOCH_OVERFLOW_SPECIAL && type == LOCH_F8E5M2 ? TYPE_F8E5M2_SPECIAL : (unsigned)type;
}

static void expect_bits(loch_dtype to, loch_dtype from, size_t count, loch_overflow overflow)
{
    const size_t to_bytes = loch_dtype_bytes(to), from_bytes = loch_dtype_bytes(from);
    const loch_convert_options options = {.size = sizeof options, .overflow = overflow};
    CHECK_OK(loch_convert(to, wanted, from, in, count, &options));
    for (size_t i = 0; i < count; i++) {
        u64 bits = 0;
        memcpy(&bits, in + i * from_bytes, from_bytes);
        const u64 result = convert_element(bits, (u32)from_bytes, (u32)from, (u32)to_bytes, code_of(to, overflow));
        if (memcmp(&result, wanted + i * to_bytes, to_bytes) != 0)
            fail_msg("%s 0x%llx to %s: 0x%llx", loch_dtype_name(from), bits, loch_dtype_name(to), result);
    }
}

static void conversions_have_the_bits_of_the_library(void **state)
{
    (void)state;
    for (int from = 1; from < LOCH_DTYPE_COUNT; from++) {
        const size_t count = fill_in((loch_dtype)from);
        for (int to = 1; to < LOCH_DTYPE_COUNT; to++)
            for (int overflow = 0; to != from && overflow < 2; overflow++)
                expect_bits((loch_dtype)to, (loch_dtype)from, count, (loch_overflow)overflow);
    }
}

/* The codes of types in kernels are the values of loch_dtype. */
static void codes_are_types(void **state)
{
    (void)state;
    assert_int_equal(TYPE_F64, LOCH_F64);
    assert_int_equal(TYPE_F8E5M2, LOCH_F8E5M2);
    assert_int_equal(TYPE_I8, LOCH_I8);
    assert_int_equal(TYPE_U64, LOCH_U64);
    assert_int_equal(TYPE_BOOL, LOCH_BOOL);
    assert_int_equal(TYPE_BITS, LOCH_DTYPE_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_have_the_bits_of_the_library),
        cmocka_unit_test(codes_are_types),
    };
    randomness.state = test_seed(0xc0de);
    in = malloc(COUNT * 8);
    wanted = malloc(COUNT * 8);
    if (!in || !wanted) return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    free(in);
    free(wanted);
    return failures;
}
