/* SPDX-License-Identifier: MIT */
/* Files that are replaced as a whole: the contents go to a new file beside the old one, which takes its name at the
 * end. A crash leaves the old file or the new one. */
#include "sink.h"
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINK_WRITE_MAX ((size_t)1 << 30)

static loch_status sink_fail(const safetensors_sink *sink, int error)
{
    return SAFETENSORS_FAIL(IO, "%s cannot be written: %s", safetensors_tail(sink->path), strerror(error));
}

static int sink_open_path(const char *path, int flags)
{
    for (;;) {
        const int number = open(path, flags | O_WRONLY | O_CLOEXEC, 0666);
        if (number >= 0 || errno != EINTR) return number;
    }
}

/* Creates a new file in the folder of the final one, with a short name of its own. */
static loch_status sink_open_temporary(safetensors_sink *sink)
{
    static atomic_ulong number;
    const char *slash = strrchr(sink->final, '/');
    const int folder = slash ? (int)(slash + 1 - sink->final) : 0;
    for (int tries = 0; tries < 100; tries++) {
        const int length = snprintf(sink->temporary, sizeof sink->temporary, "%.*s.loch-%ld-st%lu.tmp", folder,
                                    sink->final, (long)getpid(), atomic_fetch_add(&number, 1));
        if (length < 0 || (size_t)length >= sizeof sink->temporary)
            errno = ENAMETOOLONG;
        else
            sink->number = sink_open_path(sink->temporary, O_CREAT | O_EXCL);
        if (sink->number >= 0) return LOCH_OK;
        if (errno != EEXIST) break;
    }
    const int error = errno;
    sink->temporary[0] = '\0';
    return sink_fail(sink, error);
}

/* Opens a file beside an existing one, with its permissions. */
static loch_status sink_open_beside(safetensors_sink *sink, const struct stat *about)
{
    if (faccessat(AT_FDCWD, sink->path, W_OK, AT_EACCESS) != 0 || !realpath(sink->path, sink->final))
        return sink_fail(sink, errno);
    SAFETENSORS_TRY(sink_open_temporary(sink));
    (void)fchmod(sink->number, about->st_mode & 07777); /* fails on file systems without permissions */
    return LOCH_OK;
}

loch_status safetensors_sink_open(safetensors_sink *sink, const char *path)
{
    *sink = (safetensors_sink){.path = path, .number = -1};
    struct stat about;
    if (stat(path, &about) == 0) {
        if (S_ISREG(about.st_mode)) return sink_open_beside(sink, &about);
        sink->number = sink_open_path(path, 0); /* refuses a folder */
        return sink->number >= 0 ? LOCH_OK : sink_fail(sink, errno);
    }
    if (errno != ENOENT) return sink_fail(sink, errno);
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode)) { /* a link to a missing file */
        sink->number = sink_open_path(path, O_CREAT);
        return sink->number >= 0 ? LOCH_OK : sink_fail(sink, errno);
    }
    if (!*path || strlen(path) >= sizeof sink->final) return sink_fail(sink, *path ? ENAMETOOLONG : ENOENT);
    strcpy(sink->final, path);
    return sink_open_temporary(sink);
}

loch_status safetensors_sink_write(safetensors_sink *sink, const void *from, size_t bytes)
{
    for (const char *at = from; bytes;) {
        const ssize_t count = write(sink->number, at, bytes < SINK_WRITE_MAX ? bytes : SINK_WRITE_MAX);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return sink_fail(sink, count < 0 ? errno : ENOSPC);
        at += count;
        bytes -= (size_t)count;
    }
    return LOCH_OK;
}

/* Writes the folder with the new name in it to the disk. A failure is not told: the file is in its place. */
static void sink_sync_folder(safetensors_sink *sink)
{
    char *slash = strrchr(sink->final, '/');
    if (slash) slash[slash == sink->final] = '\0';
    const int folder = open(slash ? sink->final : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    (void)fsync(folder);
    close(folder);
}

loch_status safetensors_sink_close(safetensors_sink *sink, loch_status status)
{
    if (status == LOCH_OK && sink->temporary[0] && fsync(sink->number) != 0) status = sink_fail(sink, errno);
    if (sink->number >= 0 && close(sink->number) != 0 && errno != EINTR && status == LOCH_OK)
        status = sink_fail(sink, errno);
    if (!sink->temporary[0]) return status;
    if (status == LOCH_OK && rename(sink->temporary, sink->final) != 0) status = sink_fail(sink, errno);
    if (status == LOCH_OK)
        sink_sync_folder(sink);
    else
        unlink(sink->temporary);
    return status;
}
