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

static void names_command_no_terminal(void **state)
{
    (void)state;
    char text[64];
    lochi_text out = lochi_text_begin(text, sizeof text);
    lochi_text_write_name(&out, "\x1b[2J\xc3\xa9\xc2\x9b\xff\n");
    assert_string_equal(text, "\\x1b[2J\xc3\xa9\\x9b?\\x0a");
    out = lochi_text_begin(text, sizeof text);
    lochi_text_write_json(&out, "\xc2\x9b\xc2\xa0");
    assert_string_equal(text, "\"\\u009b\xc2\xa0\"");
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
        cmocka_unit_test(json_strings_are_valid_whatever_the_bytes),
        cmocka_unit_test(names_command_no_terminal),
        cmocka_unit_test(the_checker_of_json_refuses_what_is_none),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
