/* SPDX-License-Identifier: MIT */
/* A library that must not be loaded into a program with more rights than its user: it leaves a mark if it is loaded. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void intruder_leave_mark(void)
{
    const char *path = getenv("LOCH_TEST_MARK");
    const int file = path ? open(path, O_CREAT | O_WRONLY, 0644) : -1;
    if (file >= 0) close(file);
}
