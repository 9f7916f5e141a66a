/* SPDX-License-Identifier: MIT */
/* What every function that saves a file keeps: links are followed, permissions stay, nothing is left behind, and the
 * umask of the process is not touched, because other threads create files at the same time. The call is no cancellation
 * point. */
#ifndef LOCH_TEST_REPLACED_H
#define LOCH_TEST_REPLACED_H

#include "test.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef loch_status test_save_function(const char *path, void *user);

static int test_umask_calls;

/* Takes the place of that of libc. */
mode_t umask(mode_t mask)
{
    test_umask_calls++;
    return (mode_t)syscall(SYS_umask, mask);
}

static inline size_t test_count_files(const char *folder)
{
    size_t count = 0;
    DIR *list = opendir(folder);
    assert_non_null(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count - 2; /* . and .. */
}

static inline mode_t test_permissions(const char *path)
{
    struct stat about;
    assert_int_equal(lstat(path, &about), 0);
    return S_ISLNK(about.st_mode) ? 0 : about.st_mode & 07777;
}

typedef struct test_save {
    test_save_function *save;
    void *user;
    const char *path;
    loch_status status;
} test_save;

static inline void *test_save_cancelled(void *user)
{
    test_save *save = user;
    pthread_cancel(pthread_self());
    save->status = save->save(save->path, save->user);
    pthread_testcancel();
    return NULL;
}

/* Saves in a thread that is cancelled: the cancellation has to wait for the end of the call. */
static inline void test_saves_before_cancellation(test_save_function *function, void *user, const char *path)
{
    test_save save = {function, user, path, LOCH_E_CANCELLED};
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, test_save_cancelled, &save), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(save.status, LOCH_OK);
}

/* Saves to files with the name `name` in a folder of its own. */
static inline void test_replaces_files(test_save_function *save, void *user, const char *name)
{
    char folder[] = "/tmp/loch-replaced-XXXXXX", path[128], link[128], missing[160];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(link, sizeof link, "%s/link-%s", folder, name);
    snprintf(missing, sizeof missing, "%s/missing/%s", folder, name);
    const mode_t before = (mode_t)syscall(SYS_umask, 027);
    test_umask_calls = 0;
    CHECK_OK(save(path, user));
    assert_int_equal(test_permissions(path), 0640);
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(symlink(name, link), 0);
    CHECK_OK(save(link, user));
    assert_int_equal(test_permissions(link), 0); /* it is still a link */
    assert_int_equal(test_permissions(path), 0604);
    test_saves_before_cancellation(save, user, path);
    assert_int_equal(test_permissions(path), 0604);
    CHECK_FAILS(save(missing, user), IO);
    assert_non_null(strstr(loch_error_get()->sentence, missing));
    CHECK_FAILS(save(folder, user), IO);
    assert_int_equal(test_umask_calls, 0);
    syscall(SYS_umask, before);
    assert_int_equal(test_count_files(folder), 2);
    unlink(path);
    unlink(link);
    rmdir(folder);
}

#endif
