/* SPDX-License-Identifier: MIT */
/* Files that are replaced as a whole (whole_file.h). */
#include "base/whole_file.h"
#include "base/cancel.h"
#include "base/fail.h"
#include "base/logging.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHOLE_WRITE_MAX ((size_t)1 << 30)

static loch_status whole_fail(const lochi_whole_file *file, int error)
{
    return LOCH_FAIL(IO, "%.120s cannot be written: %s", file->path, strerror(error));
}

static int whole_open_again(const char *path, int flags, mode_t mode)
{
    for (;;) {
        const int number = open(path, flags | O_WRONLY | O_CLOEXEC, mode);
        if (number >= 0 || errno != EINTR) return number;
    }
}

/* Creates a new file in the folder of the final file, with a unique name that is short enough for every file system. */
static loch_status whole_open_temporary(lochi_whole_file *file, mode_t mode)
{
    static atomic_ulong number;
    const char *slash = strrchr(file->final, '/');
    const int folder = slash ? (int)(slash + 1 - file->final) : 0;
    for (int tries = 0; tries < 100; tries++) {
        const int length = snprintf(file->temporary, sizeof file->temporary, "%.*s.loch-%ld-%lu.tmp", folder,
                                    file->final, (long)getpid(), atomic_fetch_add(&number, 1));
        if (length < 0 || (size_t)length >= sizeof file->temporary)
            errno = ENAMETOOLONG;
        else
            file->file = whole_open_again(file->temporary, O_CREAT | O_EXCL, mode);
        if (file->file >= 0) return LOCH_OK;
        if (errno != EEXIST) break;
    }
    const int error = errno;
    file->temporary[0] = '\0';
    return whole_fail(file, error);
}

/* Opens a temporary file beside an existing file. The new file gets the old one's permissions, and symbolic links to
 * the old file lead to the new one. */
static loch_status whole_open_beside(lochi_whole_file *file, const struct stat *about)
{
    if (faccessat(AT_FDCWD, file->path, W_OK, AT_EACCESS) != 0 || !realpath(file->path, file->final))
        return whole_fail(file, errno);
    LOCH_TRY_RETURN(whole_open_temporary(file, 0666));
    (void)fchmod(file->file, about->st_mode & 07777); /* fails on file systems without permissions */
    return LOCH_OK;
}

/* Opens a temporary file that takes the name `path`, whatever has that name then. */
static loch_status whole_open_new(lochi_whole_file *file, mode_t mode)
{
    if (!*file->path || strlen(file->path) >= sizeof file->final)
        return whole_fail(file, *file->path ? ENAMETOOLONG : ENOENT);
    strcpy(file->final, file->path);
    return whole_open_temporary(file, mode);
}

loch_status lochi_whole_file_open(lochi_whole_file *file, const char *path)
{
    LOCHI_NOT_CANCELLED;
    *file = (lochi_whole_file){.path = path, .file = -1};
    struct stat about;
    if (stat(file->path, &about) == 0) {
        if (S_ISDIR(about.st_mode)) return whole_fail(file, EISDIR);
        if (S_ISREG(about.st_mode)) return whole_open_beside(file, &about);
        file->file = whole_open_again(file->path, 0, 0);
        return file->file >= 0 ? LOCH_OK : whole_fail(file, errno);
    }
    if (errno != ENOENT) return whole_fail(file, errno);
    if (lstat(file->path, &about) == 0 && S_ISLNK(about.st_mode)) { /* a link to a missing file */
        file->file = whole_open_again(file->path, O_CREAT, 0666);
        return file->file >= 0 ? LOCH_OK : whole_fail(file, errno);
    }
    return whole_open_new(file, 0666);
}

loch_status lochi_whole_file_open_private(lochi_whole_file *file, const char *path)
{
    LOCHI_NOT_CANCELLED;
    *file = (lochi_whole_file){.path = path, .file = -1};
    struct stat about;
    if (lstat(path, &about) != 0) return errno == ENOENT ? whole_open_new(file, 0600) : whole_fail(file, errno);
    if (S_ISREG(about.st_mode)) return whole_open_new(file, 0600);
    if (S_ISDIR(about.st_mode) || S_ISLNK(about.st_mode))
        return whole_fail(file, S_ISDIR(about.st_mode) ? EISDIR : ELOOP);
    file->file = whole_open_again(path, O_NOFOLLOW | O_NOCTTY, 0);
    return file->file >= 0 ? LOCH_OK : whole_fail(file, errno);
}

/* Writes the folder of the final file to disk, with the new name in it. A failure is only logged: the file is in its
 * place already. */
static void whole_sync_folder(lochi_whole_file *file)
{
    char *slash = strrchr(file->final, '/');
    if (slash) slash[slash == file->final] = '\0'; /* only the folder is needed from here on */
    const int folder = open(slash ? file->final : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    if (fsync(folder) != 0 && errno != EINVAL)
        LOCHI_LOG(WARNING, "the folder of %.120s could not be written to disk: %s", file->path, strerror(errno));
    close(folder);
}

/* Writes the contents to disk before the name leads to them, so that a crash leaves the old file or the new file. */
loch_status lochi_whole_file_close(lochi_whole_file *file, loch_status status)
{
    LOCHI_NOT_CANCELLED;
    if (status == LOCH_OK && file->temporary[0] && fsync(file->file) != 0) status = whole_fail(file, errno);
    if (file->file >= 0 && close(file->file) != 0 && errno != EINTR && status == LOCH_OK)
        status = whole_fail(file, errno);
    if (!file->temporary[0]) return status;
    if (status == LOCH_OK && rename(file->temporary, file->final) != 0) status = whole_fail(file, errno);
    if (status == LOCH_OK) {
        whole_sync_folder(file);
        return LOCH_OK;
    }
    unlink(file->temporary);
    return status;
}

loch_status lochi_whole_file_write(lochi_whole_file *file, const void *from, size_t bytes)
{
    LOCHI_NOT_CANCELLED;
    for (const char *at = from; bytes;) {
        const ssize_t count = write(file->file, at, bytes < WHOLE_WRITE_MAX ? bytes : WHOLE_WRITE_MAX);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return whole_fail(file, count < 0 ? errno : ENOSPC);
        at += count;
        bytes -= (size_t)count;
    }
    return LOCH_OK;
}
