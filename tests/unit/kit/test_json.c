/* SPDX-License-Identifier: MIT */
/* The reader of JSON takes what RFC 8259 allows, and nothing else. */
#include "kit/json.h"
#include "test.h"

static const char *wrong_with(const char *text, size_t bytes)
{
    lochi_json reader = lochi_json_begin(text, bytes);
    lochi_json_skip(&reader);
    return lochi_json_end(&reader) ? NULL : reader.wrong;
}

static void right_texts_are_skipped_whole(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        " true ",
        "false",
        "0",
        "-1.5e+10",
        "\"\"",
        "[]",
        "{}",
        "[1,[2,[]]]",
        "{\"a\":{\"b\":[true,null]}}",
        "\"\\u00e9\\ud83d\\ude00\\n\"",
        "[ ]",
        "{ }",
        "\t\r\n1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (wrong_with(texts[i], strlen(texts[i])))
            fail_msg("%s: %s", texts[i], wrong_with(texts[i], strlen(texts[i])));
}

static void wrong_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "nul",
        "[1,]",
        "[,1]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "[1 2]",
        "01",
        "1.",
        ".5",
        "1e",
        "+1",
        "--1",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\u0000\"",
        "{\"a\":}",
        "[1}",
        "{\"a\":1]",
        "1 2",
        "[",
        "{",
        "\"\\ud800\\u0041\"",
        "tru",
        "[1,2",
        "{\"a\":1",
        "\"\\",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!wrong_with(texts[i], strlen(texts[i]))) fail_msg("taken: %s", texts[i]);
    assert_non_null(wrong_with("1\0", 2));
    char deep[200];
    memset(deep, '[', sizeof deep);
    assert_string_equal(wrong_with(deep, sizeof deep), "objects and lists are more than 64 levels deep");
}

static void values_are_read(void **state)
{
    (void)state;
    static const char text[] = "{\"n\": 18446744073709551615, \"t\": \"a\\u00e9\\ud83d\\ude00\\/\", \"r\": -2.5e1, "
                               "\"b\": false, \"l\": [1, 2]}";
    lochi_json reader = lochi_json_begin(text, sizeof text - 1);
    char name[8], value[16] = "";
    uint64_t number = 0, sum = 0, item;
    double real = 0;
    bool truth = true;
    assert_int_equal(lochi_json_kind(&reader), '{');
    assert_true(lochi_json_open(&reader, '{'));
    while (lochi_json_member(&reader, name, sizeof name)) {
        if (*name == 'n') lochi_json_number(&reader, &number);
        if (*name == 't') lochi_json_text(&reader, value, sizeof value);
        if (*name == 'r') lochi_json_real(&reader, &real);
        if (*name == 'b') lochi_json_truth(&reader, &truth);
        if (*name != 'l') continue;
        assert_true(lochi_json_open(&reader, '['));
        for (; lochi_json_item(&reader); sum += item)
            assert_true(lochi_json_number(&reader, &item));
    }
    assert_true(lochi_json_end(&reader));
    assert_true(number == UINT64_MAX && sum == 3 && real == -25 && !truth);
    assert_string_equal(value, "a\xc3\xa9\xf0\x9f\x98\x80/");
}

static void values_of_another_kind_are_mistakes(void **state)
{
    (void)state;
    char text[4];
    uint64_t number;
    lochi_json reader = lochi_json_begin("18446744073709551616", 20);
    assert_false(lochi_json_number(&reader, &number));
    assert_string_equal(reader.wrong, "a number is above 2^64 - 1");
    reader = lochi_json_begin("-1", 2);
    assert_false(lochi_json_number(&reader, &number));
    reader = lochi_json_begin("1.5", 3);
    assert_false(lochi_json_number(&reader, &number));
    reader = lochi_json_begin("\"abcd\"", 6);
    assert_false(lochi_json_text(&reader, text, sizeof text));
    assert_string_equal(reader.wrong, "a text is too long");
    assert_false(lochi_json_skip(&reader)); /* the first mistake ends the reading */
    assert_false(lochi_json_open(&reader, '['));
}

static void texts_are_read_in_place(void **state)
{
    (void)state;
    char text[] = "{\"a\\u00e9\": \"x\\ny\", \"n\":-1.5e3, \"skipped\": [\"\\t\", {}], \"last\":\"\"}";
    lochi_json reader = lochi_json_begin_in_place(text, sizeof text - 1);
    assert_true(lochi_json_open(&reader, '{'));
    const char *first = lochi_json_member_in_place(&reader), *value = lochi_json_text_in_place(&reader);
    const char *second = lochi_json_member_in_place(&reader), *number = lochi_json_number_in_place(&reader);
    assert_string_equal(lochi_json_member_in_place(&reader), "skipped");
    assert_true(lochi_json_skip(&reader));
    assert_string_equal(lochi_json_member_in_place(&reader), "last");
    assert_string_equal(lochi_json_text_in_place(&reader), "");
    assert_null(lochi_json_member_in_place(&reader));
    assert_true(lochi_json_end(&reader));
    assert_string_equal(first, "a\xc3\xa9"); /* all stay */
    assert_string_equal(value, "x\ny");
    assert_string_equal(second, "n");
    assert_string_equal(number, "-1.5e3");

    char wrong[] = "[\"\xff\"]", late[] = "[1, x]";
    reader = lochi_json_begin_in_place(wrong, sizeof wrong - 1);
    assert_false(lochi_json_open(&reader, '['));
    assert_string_equal(reader.wrong, "not UTF-8");
    assert_int_equal(reader.wrong_at, 2);
    reader = lochi_json_begin_in_place(late, sizeof late - 1);
    assert_false(lochi_json_skip(&reader));
    assert_int_equal(reader.wrong_at, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_texts_are_skipped_whole),
        cmocka_unit_test(wrong_texts_are_refused),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(values_of_another_kind_are_mistakes),
        cmocka_unit_test(texts_are_read_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
