/* SPDX-License-Identifier: MIT */
/* A file that is written and replaces another as a whole (new_file.c). */
#ifndef LOCH_COMMON_NEW_FILE_H
#define LOCH_COMMON_NEW_FILE_H

#include <limits.h>
#include <loch/status.h>
#include <stddef.h>
#include <stdio.h>

/* A struct of zeros is a file that was not opened. */
typedef struct lochi_new_file {
    const char *path; /* as the caller wrote it; NULL: not opened */
    int number;
    char final[PATH_MAX];     /* the final name: `path`, or the target of its links */
    char temporary[PATH_MAX]; /* the present name; "" if the path is written directly */
} lochi_new_file;

/* Opens a file. A path that is not a regular file (a pipe, a device) is written directly. E_IO. Call
 * lochi_new_file_close in any case; `path` must stay until then. */
loch_status lochi_new_file_open(lochi_new_file *file, const char *path);

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
