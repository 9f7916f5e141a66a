/* SPDX-License-Identifier: MIT */
/* Files that are replaced as a whole (new_file.h). */
#include "kit/new_file.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_PATH_SHOWN 120 /* bytes of a path in a sentence */
#define FILE_TRIES 100      /* temporary names */
#define FILE_WRITE_MAX ((size_t)1 << 30)

/* Shows the end of a long path, and no part of a character: the name of the file tells more than the first folder. */
loch_status lochi_new_file_fail(const lochi_new_file *file, int error)
{
    const size_t length = strlen(file->path);
    const char *shown = file->path + (length > FILE_PATH_SHOWN ? length - FILE_PATH_SHOWN : 0);
    while (shown > file->path && ((unsigned char)*shown & 0xC0) == 0x80)
        shown++;
    return LOCH_FAIL_CODE(IO, NULL, error, "%s cannot be written: %s", shown, strerror(error));
}

static int file_open_path(const char *path, int flags, mode_t mode)
{
    for (;;) {
        const int number = open(path, flags | O_WRONLY | O_CLOEXEC, mode);
        if (number >= 0 || errno != EINTR) return number;
    }
}

static loch_status file_open_directly(lochi_new_file *file, int flags)
{
    file->number = file_open_path(file->path, flags, 0666);
    return file->number >= 0 ? LOCH_OK : lochi_new_file_fail(file, errno);
}

/* Writes a short name in the folder of the final one. It has the number of the process and the address of the struct,
 * which no other open file of the process has. */
static bool file_name_temporary(lochi_new_file *file, unsigned tries)
{
    const char *slash = strrchr(file->final, '/');
    const int length = snprintf(file->temporary, sizeof file->temporary, "%.*s.loch-%ld-%zx.tmp",
                                slash ? (int)(slash + 1 - file->final) : 0, file->final, (long)getpid(),
                                (size_t)(uintptr_t)file + tries);
    if (length >= 0 && (size_t)length < sizeof file->temporary) return true;
    errno = ENAMETOOLONG;
    return false;
}

/* Opens a file without a name in the folder of `temporary`: a program that is killed leaves nothing. Fails where the
 * file system has no such files, or where there is no /proc to name it by later. */
static bool file_open_unnamed(lochi_new_file *file, mode_t mode)
{
    char *slash = strrchr(file->temporary, '/');
    if (slash) slash[1] = '\0';
    file->number = file_open_path(slash ? file->temporary : ".", O_TMPFILE, mode);
    if (file->number < 0) return false;
    snprintf(file->unnamed, sizeof file->unnamed, "/proc/self/fd/%d", file->number);
    if (access(file->unnamed, F_OK) == 0) return true;
    close(file->number);
    file->number = -1;
    file->unnamed[0] = '\0';
    return false;
}

/* Gives a file without a name its temporary one, from which it can be renamed: a link cannot replace a file. */
static int file_link(lochi_new_file *file)
{
    for (unsigned tries = 0; tries < FILE_TRIES && file_name_temporary(file, tries); tries++) {
        if (linkat(AT_FDCWD, file->unnamed, AT_FDCWD, file->temporary, AT_SYMLINK_FOLLOW) == 0) return 0;
        if (errno != EEXIST) break;
    }
    const int error = errno;
    file->temporary[0] = '\0'; /* what has that name is not ours */
    return error;
}

/* Creates a new file in the folder of the final one. */
static loch_status file_open_temporary(lochi_new_file *file, mode_t mode)
{
    if (file_name_temporary(file, 0) && file_open_unnamed(file, mode)) return LOCH_OK;
    for (unsigned tries = 0; tries < FILE_TRIES && file_name_temporary(file, tries); tries++) {
        file->number = file_open_path(file->temporary, O_CREAT | O_EXCL, mode);
        if (file->number >= 0) return LOCH_OK;
        if (errno != EEXIST) break;
    }
    const int error = errno;
    file->temporary[0] = '\0';
    return lochi_new_file_fail(file, error);
}

/* Opens a file beside an existing one, with its permissions. Symbolic links to the old file lead to the new one. */
static loch_status file_open_beside(lochi_new_file *file, const struct stat *about)
{
    if (faccessat(AT_FDCWD, file->path, W_OK, AT_EACCESS) != 0 || !realpath(file->path, file->final))
        return lochi_new_file_fail(file, errno);
    LOCH_RETURN(file_open_temporary(file, 0666));
    (void)fchmod(file->number, about->st_mode & 07777); /* fails on file systems without permissions */
    return LOCH_OK;
}

/* Opens a file that takes the name `path`, whatever has that name then. */
static loch_status file_open_new(lochi_new_file *file, mode_t mode)
{
    const char *path = file->path;
    if (!*path || strlen(path) >= sizeof file->final) return lochi_new_file_fail(file, *path ? ENAMETOOLONG : ENOENT);
    strcpy(file->final, path);
    return file_open_temporary(file, mode);
}

loch_status lochi_new_file_open(lochi_new_file *file, const char *path)
{
    LOCHI_NOT_CANCELLED;
    struct stat about;
    *file = (lochi_new_file){.path = path, .number = -1};
    if (stat(path, &about) == 0) /* opening refuses a folder */
        return S_ISREG(about.st_mode) ? file_open_beside(file, &about) : file_open_directly(file, 0);
    if (errno != ENOENT) return lochi_new_file_fail(file, errno);
    const bool is_link = lstat(path, &about) == 0 && S_ISLNK(about.st_mode); /* to a missing file */
    return is_link ? file_open_directly(file, O_CREAT) : file_open_new(file, 0666);
}

bool lochi_new_file_is_foreign(const struct stat *about)
{
    return S_ISFIFO(about->st_mode) && about->st_uid != geteuid() && about->st_uid != 0;
}

/* Opens what is no regular file. Looks before, because opening a pipe waits for its reader, and again at what it has
 * opened. */
static loch_status file_open_special(lochi_new_file *file, const struct stat *before)
{
    struct stat about;
    if (lochi_new_file_is_foreign(before)) return lochi_new_file_fail(file, EACCES);
    LOCH_RETURN(file_open_directly(file, O_NOFOLLOW | O_NOCTTY));
    if (fstat(file->number, &about) == 0 && !lochi_new_file_is_foreign(&about)) return LOCH_OK;
    return lochi_new_file_fail(file, EACCES);
}

loch_status lochi_new_file_open_private(lochi_new_file *file, const char *path)
{
    LOCHI_NOT_CANCELLED;
    struct stat about;
    *file = (lochi_new_file){.path = path, .number = -1};
    const int error = lstat(path, &about) == 0 ? 0 : errno;
    if (error == ENOENT || (!error && S_ISREG(about.st_mode))) return file_open_new(file, 0600);
    return error ? lochi_new_file_fail(file, error) : file_open_special(file, &about);
}

loch_status lochi_new_file_write(const lochi_new_file *file, const void *from, size_t bytes)
{
    LOCHI_NOT_CANCELLED;
    for (const char *at = from; bytes;) {
        const ssize_t count = write(file->number, at, bytes < FILE_WRITE_MAX ? bytes : FILE_WRITE_MAX);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return lochi_new_file_fail(file, count < 0 ? errno : ENOSPC);
        at += count;
        bytes -= (size_t)count;
    }
    return LOCH_OK;
}

loch_status lochi_new_file_open_stream(const lochi_new_file *file, FILE **out)
{
    const int number = fcntl(file->number, F_DUPFD_CLOEXEC, 0);
    *out = number >= 0 ? fdopen(number, "w") : NULL;
    if (*out) return LOCH_OK;
    const int error = errno;
    if (number >= 0) close(number);
    return lochi_new_file_fail(file, error);
}

/* Writes the folder with the new name in it to the disk. A failure is not reported: the file is in its place. */
static void file_sync_folder(lochi_new_file *file)
{
    char *slash = strrchr(file->final, '/');
    if (slash) slash[slash == file->final] = '\0';
    const int folder = open(slash ? file->final : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    (void)fsync(folder);
    close(folder);
}

loch_status lochi_new_file_close(lochi_new_file *file, loch_status status)
{
    LOCHI_NOT_CANCELLED;
    if (!file->path) return status;
    if (status == LOCH_OK && file->temporary[0] && fsync(file->number) != 0) status = lochi_new_file_fail(file, errno);
    if (file->unnamed[0]) {
        const int error = status == LOCH_OK ? file_link(file) : 0;
        if (error) status = lochi_new_file_fail(file, error);
        if (status != LOCH_OK) file->temporary[0] = '\0';
    }
    if (file->number >= 0 && close(file->number) != 0 && errno != EINTR && status == LOCH_OK)
        status = lochi_new_file_fail(file, errno);
    if (status == LOCH_OK && file->temporary[0] && rename(file->temporary, file->final) != 0)
        status = lochi_new_file_fail(file, errno);
    if (file->temporary[0] && status == LOCH_OK)
        file_sync_folder(file);
    else if (file->temporary[0])
        unlink(file->temporary);
    file->path = NULL;
    return status;
}
