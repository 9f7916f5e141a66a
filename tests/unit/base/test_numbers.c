/* SPDX-License-Identifier: MIT */
/* Checked arithmetic, and reading the numbers that people write. */
#include "base/checked.h"
#include "kit/parse.h"
#include "test.h"

static void sums_and_products_that_overflow_are_refused(void **state)
{
    (void)state;
    size_t out = 7;
    assert_true(lochi_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    out = 7;
    assert_false(lochi_add(SIZE_MAX, 1, &out));
    assert_false(lochi_add(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1, &out));
    assert_int_equal(out, 7);
    assert_true(lochi_mul(SIZE_MAX / 2, 2, &out));
    assert_true(out == SIZE_MAX - 1);
    out = 7;
    assert_false(lochi_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_int_equal(out, 7);
    assert_true(lochi_mul(0, SIZE_MAX, &out));
    assert_int_equal(out, 0);
}

static void powers_multiples_and_rounding_are_exact_to_the_ends(void **state)
{
    (void)state;
    assert_false(lochi_is_power_of_two(0));
    for (size_t bit = 1; bit; bit <<= 1) {
        assert_true(lochi_is_power_of_two(bit));
        assert_false(lochi_is_power_of_two(bit | 1) && bit > 1);
        assert_true(lochi_is_multiple(0, bit));
        assert_true(lochi_is_multiple(bit, bit));
        assert_false(bit > 1 && lochi_is_multiple(bit + 1, bit));
    }
    assert_false(lochi_is_power_of_two(SIZE_MAX));
    size_t out = 7;
    assert_true(lochi_round_up(0, 4096, &out));
    assert_int_equal(out, 0);
    assert_true(lochi_round_up(1, 4096, &out));
    assert_int_equal(out, 4096);
    assert_true(lochi_round_up(4096, 4096, &out));
    assert_int_equal(out, 4096);
    assert_true(lochi_round_up(SIZE_MAX - 4095, 4096, &out));
    assert_true(out == SIZE_MAX - 4095);
    out = 7;
    assert_false(lochi_round_up(SIZE_MAX - 4094, 4096, &out));
    assert_false(lochi_round_up(SIZE_MAX, 2, &out));
    assert_int_equal(out, 7);
}

static void ranges_that_wrap_around_do_not_fit(void **state)
{
    (void)state;
    void *last = (void *)UINTPTR_MAX;
    assert_true(lochi_range_fits(NULL, 0));
    assert_true(lochi_range_fits(NULL, SIZE_MAX));
    assert_true(lochi_range_fits(last, 0));
    assert_false(lochi_range_fits(last, 1));
    assert_false(lochi_range_fits((void *)4096, SIZE_MAX));
}

static void numbers_are_read(void **state)
{
    (void)state;
    uint64_t out = 7;
    assert_true(lochi_parse_number("0", &out) && out == 0);
    assert_true(lochi_parse_number("42", &out) && out == 42);
    assert_true(lochi_parse_number("18446744073709551615", &out) && out == UINT64_MAX);
    const char *wrong[] = {
        "", " 1", "1 ", "-1", "+1", "0x10", "1.5", "18446744073709551616", "99999999999999999999999", "one", "1a"};
    out = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lochi_parse_number(wrong[i], &out));
    assert_int_equal(out, 7);
}

static void sizes_are_read(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},
        {"512", 512},
        {"512B", 512},
        {"64KiB", 64 * TEST_KIB},
        {"1.5GiB", TEST_GIB + TEST_GIB / 2},
        {"0.25KiB", 256},
        {"80GiB", 80 * TEST_GIB},
        {"8G", 8 * TEST_GIB},
        {"8M", 8 * TEST_MIB},
        {"2MB", 2000000},
        {"3kB", 3000},
        {"1TiB", 1024 * TEST_GIB},
        {"2PiB", 2 * 1024 * 1024 * TEST_GIB},
    };
    const char *wrong[] = {"",
                           "GiB",
                           "-1GiB",
                           "+1",
                           "1.GiB",
                           ".5GiB",
                           "1..5GiB",
                           "1 GiB",
                           "1GiBs",
                           "1XiB",
                           "1ii",
                           "1.5",
                           "1GiB,backed",
                           "99999999999999999999GiB",
                           "16777216TiB",
                           "18446744073709551615KiB"};
    size_t out;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        out = 7;
        if (!lochi_parse_bytes(good[i].text, &out) || out != good[i].bytes)
            fail_msg("%s was read as %zu", good[i].text, out);
    }
    out = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (lochi_parse_bytes(wrong[i], &out)) fail_msg("\"%s\" was read as %zu", wrong[i], out);
    assert_int_equal(out, 7);
}

static void switches_are_read(void **state)
{
    (void)state;
    const char *on[] = {"on", "1", "yes", "true"}, *off[] = {"off", "0", "no", "false"};
    const char *wrong[] = {"", "o", "onn", "2", "maybe", " on"};
    bool out = false;
    for (size_t i = 0; i < 4; i++) {
        assert_true(lochi_parse_switch(on[i], &out) && out);
        assert_true(lochi_parse_switch(off[i], &out) && !out);
    }
    out = true;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(lochi_parse_switch(wrong[i], &out));
    assert_true(out);
}

static void lists_are_taken_apart(void **state)
{
    (void)state;
    char piece[8];
    const char *rest = lochi_parse_piece("a,bc,,d", piece, sizeof piece);
    assert_string_equal(piece, "a");
    rest = lochi_parse_piece(rest, piece, sizeof piece);
    assert_string_equal(piece, "bc");
    rest = lochi_parse_piece(rest, piece, sizeof piece);
    assert_string_equal(piece, "");
    rest = lochi_parse_piece(rest, piece, sizeof piece);
    assert_string_equal(piece, "d");
    assert_null(rest);
    rest = lochi_parse_piece("much too long for it,next", piece, sizeof piece);
    assert_string_equal(piece, "much to");
    assert_string_equal(rest, "next");
    assert_null(lochi_parse_piece("", piece, sizeof piece));
    assert_string_equal(piece, "");
    rest = lochi_parse_piece("end,", piece, sizeof piece);
    assert_non_null(rest);
    assert_string_equal(rest, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_that_overflow_are_refused),
        cmocka_unit_test(powers_multiples_and_rounding_are_exact_to_the_ends),
        cmocka_unit_test(ranges_that_wrap_around_do_not_fit),
        cmocka_unit_test(numbers_are_read),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(switches_are_read),
        cmocka_unit_test(lists_are_taken_apart),
    };
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
