/* SPDX-License-Identifier: MIT */
/* Programs with more rights than their user: the environment is the user's, and must not say which code they load, what
 * they read, or where they write. The test makes a copy of itself setuid to one user and runs it as another; the same
 * copy without the bit sees the environment, so the test can fail. */
#include "base/sanitize.h"
#include "copy_file.h"
#include "test.h"

#include <errno.h>
#include <loch/insight.h>
#include <loch/option.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWNER 65534 /* an unprivileged user, not root: the program has few rights */
#define USER 54321  /* a third user */

enum { CHILD_SAFE = 20, CHILD_READ = 21, CHILD_MIXED = 22, CHILD_FAILED = 23 };

static char folder[] = "/tmp/loch-setuid-XXXXXX";
static char program[64], library[64], mark[64], unpacker[64], packed[64];

/* A value that an option takes and that is not its default. */
static const char *other_value(const loch_option *option)
{
    static char word[64];
    if (!strcmp(option->type, "text")) return library;
    if (!strcmp(option->type, "number")) return "7";
    if (!strcmp(option->type, "bytes")) return "7MiB";
    if (!strcmp(option->type, "switch")) return !strcmp(option->fallback, "on") ? "off" : "on";
    snprintf(word, sizeof word, "%s", strrchr(option->type, '|') + 1);
    if (!strcmp(word, option->fallback)) snprintf(word, strcspn(option->type, "|") + 1, "%s", option->type);
    return word;
}

/* --- in the copy --- */

/* Says whether the environment is heeded: in all options or in none. */
static int child(void)
{
    size_t heeded = 0;
    for (size_t i = 0; i < test_option_count(); i++) {
        const loch_option *option = test_option_at(i);
        char value[LOCH_OPTION_VALUE_MAX];
        if (loch_option_get(option->name, value) != LOCH_OK) return CHILD_FAILED;
        heeded += strcmp(value, option->fallback) != 0;
    }
    /* Loads what the options name, or what the system has: whether that works is not the question. */
    loch_device *device = NULL;
    if (loch_device_open("cuda:0", &device) == LOCH_OK) loch_device_release(device);
    const bool is_loaded = access(mark, F_OK) == 0;
    if (!heeded && !is_loaded) return CHILD_SAFE;
    return heeded == test_option_count() && is_loaded ? CHILD_READ : CHILD_MIXED;
}

/* Says whether a compressed recording is unpacked by the program that the user has put into PATH. */
static int child_unpack(void)
{
    loch_recording *recording = NULL;
    const loch_status status = loch_recording_load(packed, NULL, &recording);
    loch_recording_destroy(recording);
    return status != LOCH_OK ? CHILD_FAILED : access(mark, F_OK) == 0 ? CHILD_READ : CHILD_SAFE;
}

/* --- in the test --- */

static int run_as_user(const char *argument)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) {
        for (size_t i = 0; i < test_option_count(); i++)
            setenv(test_option_at(i)->environment, other_value(test_option_at(i)), 1);
        setenv("LOCH_LOG", "error", 1);
        setenv("LOCH_TEST_MARK", mark, 1);
        char path[128];
        snprintf(path, sizeof path, "%s:/usr/bin:/bin", folder);
        setenv("PATH", path, 1);
        if (setgid(USER) != 0 || setuid(USER) != 0) _exit(CHILD_FAILED);
        execl(program, program, argument, folder, (char *)NULL);
        _exit(CHILD_FAILED);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void set_rights(mode_t mode)
{
    assert_int_equal(chown(program, OWNER, OWNER), 0); /* takes the bit off */
    assert_int_equal(chmod(program, mode), 0);
}

static void the_environment_is_heeded_without_the_bit(void **state)
{
    (void)state;
    unlink(mark);
    set_rights(0755);
    assert_int_equal(run_as_user("--child"), CHILD_READ);
}

static void the_environment_is_not_heeded_with_it(void **state)
{
    (void)state;
    unlink(mark);
    set_rights(04755);
    assert_int_equal(run_as_user("--child"), CHILD_SAFE);
    set_rights(02755); /* setgid is as good */
    assert_int_equal(run_as_user("--child"), CHILD_SAFE);
}

static void the_users_programs_run_without_the_bit(void **state)
{
    (void)state;
    unlink(mark);
    set_rights(0755);
    assert_int_equal(run_as_user("--unpack"), CHILD_READ);
}

static void the_users_programs_do_not_run_with_it(void **state)
{
    (void)state;
    for (mode_t bit = 02000; bit <= 04000; bit *= 2) {
        unlink(mark);
        set_rights(bit | 0755);
        assert_int_equal(run_as_user("--unpack"), CHILD_SAFE);
    }
}

static void put_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

/* Makes a program of the user's with the name of gzip, and a recording for it. */
static void make_unpacker(void)
{
    static const char script[] = "#!/bin/sh\n: >\"$LOCH_TEST_MARK\"\nPATH=/usr/bin:/bin\nexec gzip \"$@\"\n";
    static const uint8_t trace[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x4b, 0x54,
                                    0x30, 0x54, 0x30, 0x34, 0x30, 0x50, 0x00, 0x42, 0xae, 0x34, 0x20, 0xdb,
                                    0x94, 0x0b, 0x00, 0xb3, 0xa5, 0x6c, 0xd3, 0x12, 0x00, 0x00, 0x00};
    snprintf(unpacker, sizeof unpacker, "%s/gzip", folder);
    put_file(unpacker, script, sizeof script - 1);
    snprintf(packed, sizeof packed, "%s/trace.gz", folder);
    put_file(packed, trace, sizeof trace);
}

/* The folder of this program, in which the library was built, too. */
static void make_files(void)
{
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 32);
    assert_true(length > 0);
    self[length] = '\0';
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0777), 0);
    snprintf(program, sizeof program, "%s/program", folder);
    copy_file(self, program);
    strcpy(strrchr(self, '/') + 1, "intruder.so");
    snprintf(library, sizeof library, "%s/intruder.so", folder);
    copy_file(self, library);
    assert_int_equal(chmod(library, 0755), 0);
    snprintf(mark, sizeof mark, "%s/mark", folder);
    make_unpacker();
}

static void remove_files(void)
{
    unlink(unpacker);
    unlink(packed);
    unlink(mark);
    unlink(program);
    unlink(library);
    rmdir(folder);
}

/* Why the test cannot run here; NULL when it can. */
static const char *find_obstacle(void)
{
#if LOCHI_ASAN || LOCHI_TSAN || LOCHI_MSAN
    return "sanitizers do not run in setuid programs";
#else
    if (geteuid() != 0) return "only root can make a program setuid to another user";
    make_files();
    set_rights(04755);
    const int answer = run_as_user("--secure");
    if (answer == 1) return NULL;
    remove_files();
    return answer == 0 ? "the file system of /tmp ignores setuid bits" : "programs in /tmp cannot be run";
#endif
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        snprintf(mark, sizeof mark, "%s/mark", argv[2]);
        snprintf(packed, sizeof packed, "%s/trace.gz", argv[2]);
        _exit(!strcmp(argv[1], "--child")    ? child()
              : !strcmp(argv[1], "--unpack") ? child_unpack()
                                             : getauxval(AT_SECURE) != 0);
    }
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(the_environment_is_heeded_without_the_bit),
        cmocka_unit_test(the_environment_is_not_heeded_with_it),
        cmocka_unit_test(the_users_programs_run_without_the_bit),
        cmocka_unit_test(the_users_programs_do_not_run_with_it),
    };
    const char *obstacle = find_obstacle();
    if (obstacle) {
        printf("skipped: %s\n", obstacle);
        return TEST_SKIPPED;
    }
    const int failed = cmocka_run_group_tests(cases, NULL, NULL);
    remove_files();
    return failed;
}
