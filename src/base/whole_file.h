/* SPDX-License-Identifier: MIT */
/* Files that are replaced as a whole. Contents are written to a new file beside the old one, which is renamed over
 * the old one at the end. A path that is not a regular file (a pipe, a device, a symbolic link to nothing) is
 * written directly. Permissions are kept, and symbolic links are followed. */
#ifndef LOCHI_WHOLE_FILE_H
#define LOCHI_WHOLE_FILE_H

#include <limits.h>
#include <loch/status.h>

typedef struct lochi_whole_file {
    const char *path; /* as the caller wrote it */
    int file;
    char final[PATH_MAX];     /* the final name: `path`, or the target of its links */
    char temporary[PATH_MAX]; /* the present name; "" if the path is written directly */
} lochi_whole_file;

/* Open a file, and write to it. E_IO on failure. Call lochi_whole_file_close in any case; `path` must stay valid
 * until then. */
loch_status lochi_whole_file_open(lochi_whole_file *file, const char *path);
loch_status lochi_whole_file_write(lochi_whole_file *file, const void *from, size_t bytes);

/* Opens a file that may reveal what a program works on, in a folder that every user may write to (own_file.h). Only its
 * user can read it (0600), whatever permissions a file with that name had. A symbolic link in the last component is not
 * followed: E_IO. */
loch_status lochi_whole_file_open_private(lochi_whole_file *file, const char *path);

/* Closes a file. If `status` is LOCH_OK, puts the file in its place and writes it and its folder to disk. If
 * `status` is a failure, or closing fails, removes the temporary file. Returns the first failure. */
loch_status lochi_whole_file_close(lochi_whole_file *file, loch_status status);

#endif
