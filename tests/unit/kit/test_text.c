/* SPDX-License-Identifier: MIT */
/* The bounded text writer: the same text whatever the room, and JSON strings that are JSON whatever the bytes. */
#include "kit/text.h"
#include "json_check.h"
#include "test.h"

static size_t write_all(char *text, size_t bytes)
{
    lochi_text out = lochi_text_begin(text, bytes);
    lochi_text_write(&out, "%d and ", 17);
    lochi_text_write_json(&out, "a\"b\\c\n\x01\x7f\xc3\xa9");
    lochi_text_write(&out, "%s", "");
    lochi_text_write(&out, ".");
    return out.length;
}

static void text_is_cut_at_every_length_and_its_length_told(void **state)
{
    (void)state;
    const char *whole = "17 and \"a\\\"b\\\\c\\u000a\\u0001\\u007f\xc3\xa9\".";
    char text[64];
    assert_int_equal(write_all(NULL, 0), strlen(whole));
    for (size_t bytes = 1; bytes < sizeof text; bytes++) {
        memset(text, '#', sizeof text);
        assert_int_equal(write_all(text, bytes), strlen(whole));
        const size_t kept = strlen(whole) < bytes ? strlen(whole) : bytes - 1;
        assert_memory_equal(text, whole, kept);
        assert_int_equal(strlen(text), kept);
        for (size_t i = bytes; i < sizeof text; i++)
            assert_int_equal(text[i], '#');
    }
    assert_string_equal(text, whole);
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

static void expect_json(const char *string, const char *expected)
{
    char text[128];
    lochi_text out = lochi_text_begin(text, sizeof text);
    lochi_text_write_json(&out, string);
    assert_string_equal(text, expected);
    assert_true(json_is_valid(text));
}

static void json_strings_are_valid_whatever_the_bytes(void **state)
{
    (void)state;
    expect_json(NULL, "\"\"");
    expect_json("", "\"\"");
    expect_json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    expect_json("\xff", "\"\\ufffd\"");
    expect_json("a\xc3", "\"a\\ufffd\"");          /* cut off */
    expect_json("\xc3(", "\"\\ufffd(\"");          /* no continuation */
    expect_json("\xc0\xaf", "\"\\ufffd\\ufffd\""); /* longer than need be */
    expect_json("\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\"");
    expect_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* half of a pair */
    expect_json("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
    expect_json("\xf0\x80\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
}

/* The checker is no use if it lets everything through. */
static void the_checker_of_json_refuses_what_is_none(void **state)
{
    (void)state;
    const char *good[] = {"{}", "[]", "[1, -2.5, \"x\", null, true]", "{\"a\": {\"b\": [0]}}", " 7 "};
    const char *bad[] = {"",        "{",  "{\"a\" 1}", "{\"a\": 1,}", "[1 2]", "\"\n\"",
                         "\"\\x\"", "01", "{a: 1}",    "[]]",         "1.",    "+1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(json_is_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(json_is_valid(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_at_every_length_and_its_length_told),
        cmocka_unit_test(times_are_written_for_people),
        cmocka_unit_test(json_strings_are_valid_whatever_the_bytes),
        cmocka_unit_test(the_checker_of_json_refuses_what_is_none),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
