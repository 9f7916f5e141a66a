/* SPDX-License-Identifier: MIT */
/* Files that are replaced as a whole. What is written goes to a new file beside the one that it replaces, which gets its name
 * at the end; what is no regular file (a pipe, a device, a link to nothing) is written to directly. Permissions are kept, and links followed. */
#ifndef LOCHI_WHOLE_FILE_H
#define LOCHI_WHOLE_FILE_H

#include <limits.h>
#include <loch/status.h>

typedef struct lochi_whole_file {
    const char *path; /* as the caller wrote it */
    int file;
    char final[PATH_MAX];     /* what it will be called: `path`, or where links lead to */
    char temporary[PATH_MAX]; /* what it is called now; "" when written directly */
} lochi_whole_file;

/* E_IO, as for all of them; closed in any case. `path` has to live until then. */
loch_status lochi_whole_file_open(lochi_whole_file *file, const char *path);
loch_status lochi_whole_file_write(lochi_whole_file *file, const void *from, size_t bytes);

/* Ends with the file in its place, written down with its folder, or, when `status` is a failure or this one fails, with nothing left of it. */
loch_status lochi_whole_file_close(lochi_whole_file *file, loch_status status);

#endif
