/* SPDX-License-Identifier: MIT */
/* Files that the library writes. A file is on the disk before it replaces another one. The library's own files cannot
 * be read or redirected by other users. A pool does not give up memory for a file that does not return the contents.
 * The test watches the system calls, and makes them fail, by functions of the same names. */
#include "kit/new_file.h"
#include "pool_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <loch/recorder.h>
#include <loch/registry.h>
#include <loch/sleep.h>
#include <loch/snapshot.h>
#include <loch/wrapper.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB TEST_MIB

/* --- the system, watched --- */

static char calls[16]; /* in order: 's' fsync of a file, 'd' of a folder, 'r' rename */
static bool is_watching;
static int fsync_error;   /* for files */
static bool loses_writes; /* of pwrite: zeros are written in place of what was given */

static void note(char call)
{
    const size_t length = strlen(calls);
    if (is_watching && length + 1 < sizeof calls) calls[length] = call;
}

int fsync(int file)
{
    struct stat about;
    const bool is_folder = fstat(file, &about) == 0 && S_ISDIR(about.st_mode);
    note(is_folder ? 'd' : 's');
    if (fsync_error && !is_folder) {
        errno = fsync_error;
        return -1;
    }
    return (int)syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to)
{
    note('r');
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset)
{
    static const char zeros[4096];
    if (!loses_writes) return (ssize_t)syscall(SYS_pwrite64, file, from, bytes, offset);
    return (ssize_t)syscall(SYS_pwrite64, file, zeros, bytes < sizeof zeros ? bytes : sizeof zeros, offset);
}

/* --- a folder --- */

static char folder[] = "/tmp/loch-test-files-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[2][PATH_MAX];
    static unsigned turn;
    char *out = path[turn++ % 2];
    snprintf(out, PATH_MAX, "%s/%s", folder, name);
    return out;
}

static void put_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_file(const char *name, const char *text)
{
    char read[256] = {0};
    FILE *file = fopen(in_folder(name), "r");
    assert_non_null(file);
    assert_true(fread(read, 1, sizeof read - 1, file) < sizeof read);
    fclose(file);
    assert_string_equal(read, text);
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* every test has removed what it made */
}

/* --- files that are replaced as a whole --- */

static loch_status replace(const char *path, const char *text)
{
    lochi_new_file file;
    loch_status status = lochi_new_file_open(&file, path);
    if (status == LOCH_OK) status = lochi_new_file_write(&file, text, strlen(text));
    return lochi_new_file_close(&file, status);
}

static void contents_are_written_down_before_the_name(void **state)
{
    (void)state;
    is_watching = true;
    CHECK_OK(replace(in_folder("new"), "first"));
    assert_string_equal(calls, "srd");
    memset(calls, 0, sizeof calls);
    CHECK_OK(replace(in_folder("new"), "second"));
    assert_string_equal(calls, "srd");
    memset(calls, 0, sizeof calls);
    CHECK_OK(replace("/dev/null", "nothing")); /* no file: nothing to write down */
    assert_string_equal(calls, "");
    is_watching = false;
    expect_file("new", "second");
    assert_int_equal(unlink(in_folder("new")), 0);
}

static void a_disk_that_fails_late_leaves_the_old_file(void **state)
{
    (void)state;
    put_file("old", "old");
    fsync_error = EIO;
    CHECK_FAILS(replace(in_folder("old"), "new"), IO);
    CHECK_FAILS(replace(in_folder("none"), "new"), IO);
    fsync_error = 0;
    expect_file("old", "old");
    assert_int_not_equal(access(in_folder("none"), F_OK), 0);
    assert_int_equal(unlink(in_folder("old")), 0);
}

/* The new file has no name until its contents are complete, on file systems that have such files. */
static void a_program_that_is_killed_leaves_nothing(void **state)
{
    (void)state;
    const int probe = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (probe < 0) skip();
    close(probe);
    const pid_t child = fork();
    if (!child) {
        lochi_new_file file;
        if (lochi_new_file_open(&file, in_folder("new")) != LOCH_OK) _exit(1);
        _exit(lochi_new_file_write(&file, "half", 4) == LOCH_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

/* --- logs --- */

static loch_status log_to(loch_allocator *pool, const char *path)
{
    const loch_logging_options options = {.size = sizeof options, .format = LOCH_LOGGING_TRACE, .path = path};
    loch_allocator *logging;
    const loch_status status = loch_logging_create(pool, NULL, &options, &logging);
    loch_allocator_release(logging);
    return status;
}

static loch_status save_snapshot(loch_allocator *pool, const char *path)
{
    (void)pool;
    return loch_snapshot_save(path);
}

static loch_status save_ring(loch_allocator *pool, const char *path)
{
    (void)pool;
    CHECK_OK(loch_recorder_start(NULL));
    const loch_status status = loch_recorder_save(path);
    CHECK_OK(loch_recorder_stop());
    return status;
}

/* Another user has made a pipe under the name of the file, and reads it. */
static void expect_no_writing_to_a_foreign_pipe(loch_status (*write_to)(loch_allocator *, const char *),
                                                loch_allocator *pool)
{
    char byte;
    if (geteuid() != 0) return; /* cannot make one */
    assert_int_equal(mkfifo(in_folder("log"), 0666), 0);
    assert_int_equal(chown(in_folder("log"), 65534, 65534), 0);
    const int reader = open(in_folder("log"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    CHECK_FAILS(write_to(pool, in_folder("log")), IO);
    assert_true(read(reader, &byte, 1) <= 0);
    close(reader);
    assert_int_equal(unlink(in_folder("log")), 0);
}

static void own_files_are_their_users_own(void **state)
{
    (void)state;
    static loch_status (*const writers[])(loch_allocator *, const char *) = {log_to, save_snapshot, save_ring};
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    const mode_t mask = umask(0);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        struct stat about;
        CHECK_OK(writers[i](pool, in_folder("log")));
        assert_int_equal(stat(in_folder("log"), &about), 0);
        assert_int_equal(about.st_mode & 0777, 0600);
        assert_true(about.st_size > 0);
        assert_int_equal(unlink(in_folder("log")), 0);

        put_file("secret", "secret"); /* a file of another user under the name of the log */
        assert_int_equal(link(in_folder("secret"), in_folder("log")), 0);
        assert_int_equal(chmod(in_folder("secret"), 0666), 0);
        CHECK_OK(writers[i](pool, in_folder("log")));
        expect_file("secret", "secret");
        assert_int_equal(stat(in_folder("log"), &about), 0);
        assert_int_equal(about.st_mode & 0777, 0600);
        assert_int_equal(unlink(in_folder("log")), 0);

        assert_int_equal(symlink("secret", in_folder("log")), 0);
        CHECK_FAILS(writers[i](pool, in_folder("log")), IO);
        expect_file("secret", "secret");
        assert_int_equal(unlink(in_folder("log")), 0);
        assert_int_equal(symlink("not there", in_folder("log")), 0);
        CHECK_FAILS(writers[i](pool, in_folder("log")), IO);
        assert_int_not_equal(access(in_folder("not there"), F_OK), 0);
        assert_int_equal(unlink(in_folder("log")), 0);
        assert_int_equal(unlink(in_folder("secret")), 0);
        CHECK_OK(writers[i](pool, "/dev/null")); /* no regular file: as it is */
        expect_no_writing_to_a_foreign_pipe(writers[i], pool);
        CHECK_FAILS(writers[i](pool, folder), IO);
    }
    umask(mask);
    pool_end(pool, device);
}

/* --- sleep --- */

static const char *const devices[] = {"cpu", "sim:64MiB,granule=64KiB,backed"}; /* without a stage, and with one */

static void expect_refused(loch_allocator *pool, char *block, const char *path)
{
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_FILE, .path = path};
    size_t released = 7;
    CHECK_FAILS(loch_pool_sleep(pool, &options, &released), IO);
    assert_int_equal(test_pattern_differs(block, 3 * MIB, 5), 3 * MIB);
    pool_expect_whole(pool);
}

static void no_memory_is_given_up_for_a_file_that_loses_it(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        char *block = pool_alloc(pool, 3 * MIB);
        test_pattern_write(block, 3 * MIB, 5);
        expect_refused(pool, block, "/dev/null");
        assert_int_equal(access("/dev/null", F_OK), 0);
        assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
        expect_refused(pool, block, in_folder("pipe"));
        assert_int_equal(unlink(in_folder("pipe")), 0);
        put_file("other", "other");
        assert_int_equal(symlink("other", in_folder("link")), 0);
        expect_refused(pool, block, in_folder("link"));
        expect_file("other", "other");
        assert_int_equal(unlink(in_folder("link")), 0);
        assert_int_equal(unlink(in_folder("other")), 0);
        loses_writes = true;
        expect_refused(pool, block, in_folder("kept"));
        expect_refused(pool, block, NULL);
        loses_writes = false;
        assert_int_not_equal(access(in_folder("kept"), F_OK), 0);
        const loch_sleep_options options = {
            .size = sizeof options, .contents = LOCH_SLEEP_FILE, .path = in_folder("kept")};
        CHECK_OK(loch_pool_sleep(pool, &options, NULL));
        CHECK_OK(loch_pool_wake(pool, NULL));
        assert_int_equal(test_pattern_differs(block, 3 * MIB, 5), 3 * MIB);
        CHECK_OK(loch_free(pool, block));
        test_end_defaults(); /* the stage's allocator */
        pool_end(pool, device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(contents_are_written_down_before_the_name),
        POOL_TEST(a_disk_that_fails_late_leaves_the_old_file),
        POOL_TEST(a_program_that_is_killed_leaves_nothing),
        POOL_TEST(own_files_are_their_users_own),
        POOL_TEST(no_memory_is_given_up_for_a_file_that_loses_it),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
