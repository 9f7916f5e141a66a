/* SPDX-License-Identifier: MIT */
/* Pools on the CPU under valgrind's memcheck: they can be made and used, and what is used wrongly is reported. The
 * program runs itself there with the name of a case. Skipped where there is no valgrind. */
#include "base/sanitize.h"
#include "checker_program.h"
#include "run_program.h"

#define FOUND 9 /* exit code of a run with reports */

#if LOCHI_ASAN || LOCHI_TSAN || LOCHI_MSAN
static const bool is_sanitized = true; /* valgrind does not run such programs */
#else
static const bool is_sanitized = false;
#endif

#if defined(__has_include) && __has_include(<valgrind/memcheck.h>)
static const bool has_header = true; /* the library tells valgrind what is free */
#else
static const bool has_header = false;
#endif

static char *self;
static char text[1 << 20];

static int run(const char *name, const char *option)
{
    char *const arguments[] = {"valgrind",
                               "-q",
                               "--error-exitcode=9",
                               "--leak-check=full",
                               "--errors-for-leak-kinds=definite",
                               (char *)(uintptr_t)option,
                               self,
                               (char *)(uintptr_t)name,
                               NULL};
    return run_program(arguments, text, sizeof text);
}

static void proper_use_is_not_reported(void **state)
{
    (void)state;
    const int code = run("properly", "--show-leak-kinds=definite");
    if (code) fail_msg("exit code %d:\n%s", code, text);
}

static void wrong_use_is_reported(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"small", "Invalid read"},
                                           {"kept", "Invalid read"},
                                           {"large", "Invalid read"},
                                           {"beyond", "Invalid write"},
                                           {"uninitialised", "depends on uninitialised value"}};
    if (!has_header) {
        print_message("skipped: valgrind/memcheck.h was not there when the library was built\n");
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int code = run(cases[i][0], "--show-leak-kinds=definite");
        if (code != FOUND || !strstr(text, cases[i][1])) fail_msg("%s: exit code %d:\n%s", cases[i][0], code, text);
    }
}

/* The pool's own records lead to every block or near it, so a block that was forgotten is "reachable" or "possibly
 * lost". */
static void a_leak_is_listed(void **state)
{
    (void)state;
    if (!has_header) skip();
    assert_int_equal(run("leak", "--show-leak-kinds=all"), 0);
    if (!strstr(text, "777 bytes in 1 blocks are") || !strstr(text, "checker_take")) fail_msg("%s", text);
}

int main(int argc, char **argv)
{
    if (argc > 1) return checker_run(argv[1]);
    if (is_sanitized || system("valgrind --version > /dev/null 2>&1") != 0) { /* NOLINT: no input from outside */
        printf("skipped: %s\n", is_sanitized ? "valgrind does not run sanitized programs" : "there is no valgrind");
        return TEST_SKIPPED;
    }
    self = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proper_use_is_not_reported),
        cmocka_unit_test(wrong_use_is_reported),
        cmocka_unit_test(a_leak_is_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
