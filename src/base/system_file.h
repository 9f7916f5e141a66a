/* SPDX-License-Identifier: MIT */
/* Small files in which the kernel tells about the process. */
#ifndef LOCHI_SYSTEM_FILE_H
#define LOCHI_SYSTEM_FILE_H

#include <stddef.h>

/* Reads the beginning of a file into `text`, with a final zero. Leaves "" if the file cannot be read. Needs no memory,
 * is no cancellation point, and does not change the error number. */
void lochi_system_file_read(const char *path, char *text, size_t bytes);

#endif
