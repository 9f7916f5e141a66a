/* SPDX-License-Identifier: MIT */
/* Reads with one system call: the kernel makes the text of such a file at the first read. */
#include "base/system_file.h"
#include "kit/cancel.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void lochi_system_file_read(const char *path, char *text, size_t bytes)
{
    LOCHI_NOT_CANCELLED;
    const int saved = errno;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = file >= 0 ? read(file, text, bytes - 1) : 0;
    if (file >= 0) (void)close(file);
    text[length > 0 ? length : 0] = '\0';
    errno = saved;
}
