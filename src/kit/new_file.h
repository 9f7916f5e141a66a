/* SPDX-License-Identifier: MIT */
/* Files that are replaced as a whole: the contents go to a new file in the folder of the old one and takes its name at
 * the end. A crash leaves the old file or the new one, and nothing else where the file system has files without a name.
 * A path that is not a regular file (a pipe, a device, a symbolic link to nothing) is written directly. Permissions are
 * kept, and symbolic links are followed. */
#ifndef LOCHI_NEW_FILE_H
#define LOCHI_NEW_FILE_H

#include <limits.h>
#include <loch/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

/* A struct of zeros is a file that was not opened. */
typedef struct lochi_new_file {
    const char *path; /* as the caller wrote it; NULL: not opened */
    int number;
    char final[PATH_MAX];     /* the final name: `path`, or the target of its links */
    char temporary[PATH_MAX]; /* the present name; "" if the path is written directly */
    char unnamed[32];         /* where the system shows a file that has no name yet; "" for others */
} lochi_new_file;

/* Opens a file. E_IO. Call lochi_new_file_close in any case; `path` must stay until then. */
loch_status lochi_new_file_open(lochi_new_file *file, const char *path);

/* Opens a file that may reveal what a program works on, in a folder that every user may write to. Only its user can
 * read it (0600), whatever permissions a file with that name had. A symbolic link in the last component is not
 * followed, and a pipe of another user is not written to: E_IO. */
loch_status lochi_new_file_open_private(lochi_new_file *file, const char *path);

/* Returns whether a file is a pipe that another user than root made: that user may read what is written to it. */
bool lochi_new_file_is_foreign(const struct stat *about);

/* Writes all of the bytes. E_IO. */
loch_status lochi_new_file_write(const lochi_new_file *file, const void *from, size_t bytes);

/* Opens a stream that writes to the file. The caller closes it before lochi_new_file_close. E_IO. */
loch_status lochi_new_file_open_stream(const lochi_new_file *file, FILE **out);

/* Closes a file. If `status` is LOCH_OK, writes it to the disk and gives it its name; otherwise removes it. Returns the
 * first failure. */
loch_status lochi_new_file_close(lochi_new_file *file, loch_status status);

/* Sets the error record for a file that cannot be written, with the text of an errno. Returns E_IO. */
loch_status lochi_new_file_fail(const lochi_new_file *file, int error);

#endif
