/* SPDX-License-Identifier: MIT */
/* Private files of the library. */
#include "base/own_file.h"
#include "kit/new_file.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a path that is not a regular file. Fails with EAGAIN if the path has become another file since the caller
 * tested it. */
static int own_open_special(const char *path, int access)
{
    struct stat about;
    const int file = open(path, access | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
    if (file < 0) return -1;
    if (fstat(file, &about) == 0 && !S_ISREG(about.st_mode) && !lochi_new_file_is_foreign(&about)) return file;
    close(file);
    errno = EAGAIN;
    return -1;
}

int lochi_own_file_open(const char *path, int access, bool *is_special)
{
    struct stat about;
    const bool is_there = lstat(path, &about) == 0;
    *is_special = is_there && !S_ISREG(about.st_mode);
    if (is_there && S_ISLNK(about.st_mode)) {
        errno = ELOOP;
        return -1;
    }
    if (is_there && lochi_new_file_is_foreign(&about)) {
        errno = EACCES;
        return -1;
    }
    if (*is_special) return own_open_special(path, access);
    if (is_there && unlink(path) != 0) return -1;
    return open(path, access | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}
