/* SPDX-License-Identifier: MIT */
/* Names without a path lie in a folder of the user in /dev/shm. It does not depend on the environment, because all
 * processes of one user must find the same budget. */
#include "folder.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void lochi_budget_folder_path(char *out, size_t bytes)
{
    const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(out, bytes, "%s/loch-%ld", top, (long)geteuid());
}

loch_status lochi_budget_folder_make(void)
{
    char path[64];
    struct stat found;
    lochi_budget_folder_path(path, sizeof path);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return loch_error_set(LOCH_E_IO, "system", errno, "folder %s of budgets: %s", path, strerror(errno));
    if (lstat(path, &found) != 0) {
        if (errno == ENOENT) return LOCH_OK; /* another process has removed it meanwhile: the caller tries again */
        return loch_error_set(LOCH_E_IO, "system", errno, "folder %s of budgets: %s", path, strerror(errno));
    }
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || found.st_mode & 077)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "%s is not a folder of this user with mode 0700", path);
    return LOCH_OK;
}
