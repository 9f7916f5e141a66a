/* SPDX-License-Identifier: MIT */
/* Files that the library makes for itself: contents of sleeping pools, logs of allocations. They may tell what a program works on, so
 * nobody but its user reads them, and the path is trusted as little as one in a folder that everybody writes to. */
#ifndef LOCHI_OWN_FILE_H
#define LOCHI_OWN_FILE_H

#include <stdbool.h>

/* Opens `path` for `access` (O_WRONLY, O_RDWR), closed by exec. A regular file there makes room for a new one, which only its user
 * may read (0600): whoever has the old one open, or another name for it, keeps it. What is no regular file (a pipe, a
 * terminal) is opened as it is, and *is_special says so. A link in the last place is not followed. -1 with errno: ELOOP for a link. */
int lochi_own_file_open(const char *path, int access, bool *is_special);

#endif
