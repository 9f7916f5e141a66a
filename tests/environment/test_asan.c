/* SPDX-License-Identifier: MIT */
/* A program that is built with AddressSanitizer touches memory of a pool that it has freed: it dies with a report, also
 * when the library is an ordinary one. Skipped where the compiler has no AddressSanitizer. */
#include "run_program.h"

static char program[4096], text[65536];

static int run(const char *name)
{
    char *const arguments[] = {program, (char *)(uintptr_t)name, NULL};
    return run_program(arguments, text, sizeof text);
}

static void proper_use_is_not_reported(void **state)
{
    (void)state;
    const int code = run("properly");
    if (code) fail_msg("exit code %d:\n%s", code, text);
}

static void wrong_use_is_reported(void **state)
{
    (void)state;
    static const char *const names[] = {"small", "kept", "large", "beyond"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int code = run(names[i]);
        if (!code || !strstr(text, "use-after-poison")) fail_msg("%s: exit code %d:\n%s", names[i], code, text);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *folder = strrchr(argv[0], '/');
    snprintf(program, sizeof program, "%.*sasan_program", folder ? (int)(folder - argv[0] + 1) : 0, argv[0]);
    if (access(program, X_OK) != 0) {
        printf("skipped: %s was not built: no AddressSanitizer, or another sanitizer\n", program);
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proper_use_is_not_reported),
        cmocka_unit_test(wrong_use_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
