/* SPDX-License-Identifier: MIT */
/* Mixes: what a file may say, and every way to say it wrongly. */
#include "test.h"
#include "tool_heap.h"
#include "fleet_mix.h"

static bool parse(fleet_mix *mix, const char *text, const char *path)
{
    *mix = (fleet_mix){.count = 0};
    return fleet_mix_parse(mix, text, strlen(text), path);
}

static void test_a_mix_is_read(void **state)
{
    (void)state;
    static const char text[] = "# a comment\n"
                               "\n"
                               "serve.trace.gz weight=8 compute=20% # behind it\r\n"
                               "\t/data/train.trace limit=30GiB name=trainer compute=0.5\n"
                               "\"my file.trace\"\n"
                               "other/serve.loch weight=0.25\n"
                               ".hidden";
    fleet_mix mix;
    assert_true(parse(&mix, text, "folder/of/mix.txt"));
    assert_int_equal(mix.count, 5);
    assert_string_equal(mix.entries[0].path, "folder/of/serve.trace.gz");
    assert_string_equal(mix.entries[0].name, "serve");
    assert_true(mix.entries[0].weight == 8);
    assert_int_equal(mix.entries[0].compute, 200);
    assert_int_equal(mix.entries[0].limit_bytes, 0);
    assert_string_equal(mix.entries[1].path, "/data/train.trace");
    assert_string_equal(mix.entries[1].name, "trainer");
    assert_int_equal(mix.entries[1].limit_bytes, (uint64_t)30 << 30);
    assert_int_equal(mix.entries[1].compute, 500);
    assert_true(mix.entries[1].weight == 1);
    assert_string_equal(mix.entries[2].path, "folder/of/my file.trace");
    assert_string_equal(mix.entries[2].name, "my file");
    assert_string_equal(mix.entries[3].name, "serve-2");
    assert_true(mix.entries[3].weight == 0.25);
    assert_string_equal(mix.entries[4].name, ".hidden");
    fleet_mix_free(&mix);
    assert_true(parse(&mix, "t", "mix"));
    assert_string_equal(mix.entries[0].path, "t");
    fleet_mix_free(&mix);
    assert_true(parse(&mix, "", "mix"));
    assert_int_equal(mix.count, 0);
    fleet_mix_free(&mix);
}

static void test_mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"t weight=0", "m: line 1: \"weight=0\" has a value that is not understood"},
        {"t\nt weight=x", "m: line 2: \"weight=x\" has a value that is not understood"},
        {"t weight=-1", "m: line 1: \"weight=-1\" has a value that is not understood"},
        {"t weight=1e3", "m: line 1: \"weight=1e3\" has a value that is not understood"},
        {"t weight=", "m: line 1: \"weight=\" has a value that is not understood"},
        {"t weight=inf", "m: line 1: \"weight=inf\" has a value that is not understood"},
        {"t weight=1.2.3", "m: line 1: \"weight=1.2.3\" has a value that is not understood"},
        {"t limit=0", "m: line 1: \"limit=0\" has a value that is not understood"},
        {"t limit=3XiB", "m: line 1: \"limit=3XiB\" has a value that is not understood"},
        {"t limit=99999999TiB", "m: line 1: \"limit=99999999TiB\" has a value that is not understood"},
        {"t compute=101%", "m: line 1: \"compute=101%\" has a value that is not understood"},
        {"t compute=2", "m: line 1: \"compute=2\" has a value that is not understood"},
        {"t compute=%", "m: line 1: \"compute=%\" has a value that is not understood"},
        {"t name=", "m: line 1: \"name=\" has a value that is not understood"},
        {"t speed=3", "m: line 1: \"speed=3\" is not weight=, limit=, compute= or name="},
        {"t weight", "m: line 1: \"weight\" is not weight=, limit=, compute= or name="},
        {"t =", "m: line 1: \"=\" is not weight=, limit=, compute= or name="},
        {"t name=a\nu name=a", "m: line 2: there are two programs \"a\""},
        {"\"t", "m: line 1: a word is not ended or not text"},
        {"t \"weight=3", "m: line 1: a word is not ended or not text"},
        {"\"\"", "m: line 1: the name of the trace is empty"},
        {"\x1f\x8b\x08", "m: line 1: a word is not ended or not text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fleet_mix mix;
        assert_false(parse(&mix, cases[i].text, "m"));
        assert_string_equal(mix.error, cases[i].error);
        fleet_mix_free(&mix);
    }
}

static void test_large_mixes_are_refused(void **state)
{
    (void)state;
    char text[5000];
    fleet_mix mix;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_false(parse(&mix, text, "m"));
    assert_string_equal(mix.error, "m: line 1: a word is not ended or not text");
    fleet_mix_free(&mix);
    text[FLEET_PATH_MAX] = 0;
    assert_false(parse(&mix, text, "m"));
    assert_string_equal(mix.error, "m: line 1: the name of the trace is too long");
    fleet_mix_free(&mix);
    text[0] = 0;
    for (int i = 0; i <= FLEET_PROGRAMS_MAX; i++)
        strcat(text, "t\n");
    assert_false(parse(&mix, text, "m"));
    assert_int_equal(mix.count, FLEET_PROGRAMS_MAX);
    assert_string_equal(mix.error, "a mix has at most 64 programs");
    assert_string_equal(mix.entries[63].name, "t-64");
    fleet_mix_free(&mix);
}

static void test_programs_of_the_command_line(void **state)
{
    (void)state;
    fleet_mix mix = {.count = 0};
    assert_true(fleet_mix_add(&mix, "a/b.trace"));
    assert_true(fleet_mix_add(&mix, "b.trace:2.5"));
    assert_true(fleet_mix_add(&mix, "in:3/b.trace"));
    assert_int_equal(mix.count, 3);
    assert_string_equal(mix.entries[0].path, "a/b.trace");
    assert_string_equal(mix.entries[1].path, "b.trace");
    assert_true(mix.entries[1].weight == 2.5);
    assert_string_equal(mix.entries[1].name, "b-2");
    assert_string_equal(mix.entries[2].path, "in:3/b.trace");
    assert_false(fleet_mix_add(&mix, "t:x"));
    assert_string_equal(mix.error, "\"x\" is not a weight");
    assert_false(fleet_mix_add(&mix, "t:0"));
    assert_false(fleet_mix_add(&mix, ""));
    assert_false(fleet_mix_add(&mix, ":1"));
    assert_int_equal(mix.count, 3);
    fleet_mix_free(&mix);
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    fleet_mix mix = {.count = 0};
    assert_false(fleet_mix_load(&mix, "/nonexistent/mix"));
    assert_string_equal(mix.error, "/nonexistent/mix: No such file or directory");
    assert_false(fleet_mix_load(&mix, "/"));
    assert_false(fleet_mix_load(&mix, "/dev/zero"));
    fleet_mix_free(&mix);
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1", 1},         {"512B", 512},       {"4k", 4096},
                {"1.5KiB", 1536}, {"2MB", 2000000},    {"2MiB", 2 << 20},
                {"1g", 1 << 30},  {"3GB", 3000000000}, {"0.5TiB", (uint64_t)1 << 39}};
    static const char *const bad[] = {"", "0", "-1", "GiB", "1.5", "1 GiB", "1GiBs", "1e9", "0x10", "9999999999TiB"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(fleet_parse_bytes(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(fleet_parse_bytes(bad[i], &bytes));
    assert_false(fleet_parse_bytes(NULL, &bytes));
}

static void test_a_mix_without_memory(void **state)
{
    (void)state;
    fleet_mix mix = {.count = 0};
    tool_heap_left = 0;
    assert_false(fleet_mix_add(&mix, "t"));
    assert_string_equal(mix.error, "there is no memory for the mix");
    assert_false(fleet_mix_load(&mix, "/dev/null"));
    assert_string_equal(mix.error, "there is no memory for the mix");
    tool_heap_left = UINT64_MAX;
    assert_true(fleet_mix_load(&mix, "/dev/null"));
    fleet_mix_free(&mix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mix_is_read),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_large_mixes_are_refused),
        cmocka_unit_test(test_programs_of_the_command_line),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_a_mix_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
