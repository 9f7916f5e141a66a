/* SPDX-License-Identifier: MIT */
/* Private files of the library: contents of sleeping pools, logs of allocations. They may reveal what a program
 * works on. So only their user can read them, and their path is not trusted: it may be in a folder that every user
 * can write to. */
#ifndef LOCHI_OWN_FILE_H
#define LOCHI_OWN_FILE_H

#include <stdbool.h>

/* Opens `path` for `access` (O_WRONLY, O_RDWR), closed by exec. A regular file at `path` is replaced by a new one
 * that only its user can read (0600); processes that have the old file open, and other links to it, keep the old
 * file. A path that is not a regular file (a pipe, a terminal) is opened as it is, and *is_special is set to true. A
 * symbolic link in the last component is not followed. Returns -1 and errno on failure: ELOOP for a link, EACCES for a
 * pipe of another user. */
int lochi_own_file_open(const char *path, int access, bool *is_special);

#endif
