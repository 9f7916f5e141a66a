/* SPDX-License-Identifier: MIT */
/* Sizes and times for people. */
#include "kit/size.h"
#include "test.h"

static void sizes_of_sentences_are_rounded_down(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536, "1.5 KiB"},
                 {1024 * 1024 - 1, "1023.9 KiB"},
                 {UINT64_C(64) << 20, "64 MiB"},
                 {UINT64_C(3) << 61, "6 EiB"},
                 {UINT64_MAX, "15.9 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(LOCHI_SIZE(cases[i].bytes), cases[i].text);
}

/* Every power of two with its neighbours and halves of the last digit. */
static void sizes_of_tables_are_rounded_as_printf_does(void **state)
{
    (void)state;
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    for (unsigned bit = 0; bit < 50; bit++)
        for (uint64_t eighths = 7; eighths < 2048; eighths++) {
            const uint64_t bytes = bit < 8 ? (eighths << bit) : (eighths << (bit - 8)) + eighths % 3 - 1;
            unsigned unit = 0;
            double value = (double)bytes;
            for (; value >= 1024; unit++)
                value /= 1024;
            for (unsigned decimals = 1; decimals <= 2; decimals++) {
                char expected[32];
                snprintf(expected, sizeof expected, "%.*f %s", unit ? (int)decimals : 0, value, units[unit]);
                assert_string_equal(LOCHI_SIZE_ROUND(bytes, decimals), expected);
            }
        }
    assert_string_equal(LOCHI_SIZE_ROUND(UINT64_MAX, 2), "16.00 EiB");
}

static void times_are_written_for_people(void **state)
{
    (void)state;
    static const struct {
        unsigned long long ns;
        const char *text;
    } cases[] = {{0, "0 ns"},
                 {999, "999 ns"},
                 {1000, "1.000 us"},
                 {3141592, "3.141 ms"},
                 {999999999, "999.999 ms"},
                 {1000000000, "1.000 s"},
                 {3600000000000, "3600.000 s"},
                 {~0ull, "18446744073.709 s"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(LOCHI_TIME(cases[i].ns), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_sentences_are_rounded_down),
        cmocka_unit_test(sizes_of_tables_are_rounded_as_printf_does),
        cmocka_unit_test(times_are_written_for_people),
    };
    return cmocka_run_group_tests_name("size", tests, NULL, NULL);
}
