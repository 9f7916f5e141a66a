/* SPDX-License-Identifier: MIT */
/* LOCH_LEAKS: what a program prints at its end, and its exit code. leaks_program.c has the leaks. */
#include "run_program.h"

static char program[4096], text[65536];

static int run(const char *value, const char *name)
{
    char *const arguments[] = {program, (char *)(uintptr_t)name, NULL};
    if (value)
        setenv("LOCH_LEAKS", value, 1);
    else
        unsetenv("LOCH_LEAKS");
    return run_program(arguments, text, sizeof text);
}

#define CHECK_HAS(part)                                                                                                \
    do {                                                                                                               \
        if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);                                        \
    } while (0)

static size_t count(const char *part)
{
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        found++;
    return found;
}

static void a_program_without_leaks_prints_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "ended", "waiting", "moved-and-freed", "at-exit"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int code = run("exit", names[i]);
        if (code || *text) fail_msg("%s: exit code %d:\n%s", names[i], code, text);
    }
}

static void nothing_is_printed_unless_asked_for(void **state)
{
    (void)state;
    static const char *const values[] = {NULL, "", "off", "0"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(run(values[i], "some"), 0);
        assert_string_equal(text, "");
    }
}

static void leaks_are_listed_by_tag_and_call_site(void **state)
{
    (void)state;
    static const char *const values[] = {"1", "on"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(run(values[i], "some"), 0);
        CHECK_HAS("300 KiB in 1 block, tag \"weights\", allocator \"mine\" on cpu\n      at allocate_tagged (");
        CHECK_HAS("12 KiB in 3 blocks, no tag, allocator \"mine\" on cpu\n      at allocate_here (");
        CHECK_HAS("LOCH_LEAKS: 312 KiB in 4 blocks\n");
        assert_true(strstr(text, "weights") < strstr(text, "12 KiB")); /* largest first */
        assert_int_equal(count(" in 1 block,"), 1);
        assert_string_equal(strrchr(text, 'L'), "LEAKS: 312 KiB in 4 blocks\n"); /* the last line */
    }
}

static void the_exit_code_changes_if_asked_for(void **state)
{
    (void)state;
    assert_int_equal(run("exit", "some"), 23);
    CHECK_HAS("LOCH_LEAKS: 312 KiB in 4 blocks\n");
    assert_int_equal(run("exit", "by-exit"), 23);
    assert_int_equal(run("1", "by-exit"), 5);
    CHECK_HAS("LOCH_LEAKS: 312 KiB in 4 blocks\n");
}

static void what_was_printed_before_is_not_lost(void **state)
{
    (void)state;
    char command[5000];
    snprintf(command, sizeof command, "LOCH_LEAKS=exit '%s' some 2>/dev/null", program);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    char line[100] = "";
    assert_non_null(fgets(line, sizeof line, output));
    assert_string_equal(line, "printed before\n");
    const int status = pclose(output);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 23);
}

static void blocks_of_every_kind_are_listed_once(void **state)
{
    (void)state;
    assert_int_equal(run("1", "kinds"), 0);
    CHECK_HAS("  10 KiB in 1 block, tag \"of the session\", allocator \"mine\" on cpu\n");
    CHECK_HAS("  20 KiB in 1 block, no tag, allocator \"mine\" on cpu\n      at create_buffer_here (");
    CHECK_HAS("  30 KiB in 1 block, no tag, allocator \"mine\" on cpu\n      at create_tensor_here (");
    CHECK_HAS("  50 KiB in 1 block, no tag, allocator \"mine\" on cpu\n"); /* growable */
    CHECK_HAS("  60 KiB in 1 block, tag \"through wrappers\", allocator \"mine\" on cpu\n");
    CHECK_HAS("  70 KiB in 1 block, tag \"without a pool\", allocator \"direct\" on cpu\n");
    CHECK_HAS("  80 KiB in 1 block, tag \"of a child\", allocator \"child\" on cpu\n");
    CHECK_HAS("  90 KiB in 1 block, tag \"resized\", allocator \"mine\" on cpu\n");
    CHECK_HAS("LOCH_LEAKS: 410 KiB in 8 blocks\n");
}

static void blocks_of_the_library_are_not_listed(void **state)
{
    (void)state;
    assert_int_equal(run("1", "own"), 0);
    CHECK_HAS("  8 MiB in 1 block, no tag, allocator \"far\" on sim:1GiB\n");
    CHECK_HAS("LOCH_LEAKS: 8 MiB in 1 block\n");
}

static void a_moved_block_keeps_its_call_site(void **state)
{
    (void)state;
    assert_int_equal(run("1", "moved-and-kept"), 0);
    CHECK_HAS(" in 12 blocks, no tag, allocator \"narrow\" on sim:1GiB\n      at create_buffer_here (");
    CHECK_HAS(" in 12 blocks\n");
}

static void many_places_are_summed(void **state)
{
    (void)state;
    assert_int_equal(run("1", "places"), 0);
    for (unsigned i = 3; i <= 22; i++) { /* the largest twenty */
        char name[32];
        snprintf(name, sizeof name, "at place_%02u (", i);
        CHECK_HAS(name);
    }
    assert_null(strstr(text, "at place_02 ("));
    CHECK_HAS("  3 KiB in 2 blocks at 2 further places\n");
    CHECK_HAS("LOCH_LEAKS: 253 KiB in 22 blocks\n");
}

static void other_threads_may_still_run(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run("exit", "threads"), 23);
        CHECK_HAS("300 KiB in 1 block, tag \"weights\"");
    }
}

static void the_child_of_a_fork_lists_its_own_blocks(void **state)
{
    (void)state;
    assert_int_equal(run("1", "forked"), 0);
    CHECK_HAS("5 KiB in 1 block, tag \"of the child\"");
    CHECK_HAS("LOCH_LEAKS: 5 KiB in 1 block\n");
    assert_int_equal(count("LOCH_LEAKS:"), 2);
    assert_null(strstr(text, "of the parent"));
}

static void a_wrong_value_fails_the_making_of_allocators(void **state)
{
    (void)state;
    assert_int_equal(run("maybe", "none"), 9);
    CHECK_HAS("LOCH_LEAKS is \"maybe\": it takes off, 0, on, 1, exit");
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *folder = strrchr(argv[0], '/');
    snprintf(program, sizeof program, "%.*sleaks_program", folder ? (int)(folder - argv[0] + 1) : 0, argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_without_leaks_prints_nothing),
        cmocka_unit_test(nothing_is_printed_unless_asked_for),
        cmocka_unit_test(leaks_are_listed_by_tag_and_call_site),
        cmocka_unit_test(the_exit_code_changes_if_asked_for),
        cmocka_unit_test(what_was_printed_before_is_not_lost),
        cmocka_unit_test(blocks_of_every_kind_are_listed_once),
        cmocka_unit_test(blocks_of_the_library_are_not_listed),
        cmocka_unit_test(a_moved_block_keeps_its_call_site),
        cmocka_unit_test(many_places_are_summed),
        cmocka_unit_test(other_threads_may_still_run),
        cmocka_unit_test(the_child_of_a_fork_lists_its_own_blocks),
        cmocka_unit_test(a_wrong_value_fails_the_making_of_allocators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
