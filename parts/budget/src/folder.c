/* SPDX-License-Identifier: MIT */
/* Names without a path lie in a folder of the user. All processes of one user must find the same budget, whatever their
 * environment is: they look in both folders, and /run/user/UID is what XDG_RUNTIME_DIR names in sessions of systemd.
 * The folder in /dev/shm comes second, because any user can make one of that name before its owner does. */
#include "folder.h"
#include "kit/fail.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static loch_status folder_fail(const char *path)
{
    return loch_error_set(LOCH_E_IO, "system", errno, "folder %s of budgets: %s", path, strerror(errno));
}

static bool folder_is_own(const struct stat *found)
{
    return S_ISDIR(found->st_mode) && found->st_uid == geteuid() && !(found->st_mode & 077);
}

/* Writes the path of the second folder, which does not depend on the environment. */
static void folder_write_shared(char out[BUDGET_FOLDER_BYTES])
{
    const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(out, BUDGET_FOLDER_BYTES, "%s/loch-%ld", top, (long)geteuid());
}

loch_status lochi_budget_folder_path(size_t index, char out[BUDGET_FOLDER_BYTES])
{
    char parent[BUDGET_FOLDER_BYTES - sizeof "/loch"];
    struct stat found;
    if (index) {
        folder_write_shared(out);
        return LOCH_OK;
    }
    const char *run = secure_getenv("XDG_RUNTIME_DIR");
    const int length = run && *run == '/' ? snprintf(parent, sizeof parent, "%s", run)
                                          : snprintf(parent, sizeof parent, "/run/user/%ld", (long)geteuid());
    if (length < 0 || (size_t)length >= sizeof parent) return LOCH_E_NOT_FOUND;
    if (stat(parent, &found) != 0) {
        const bool is_none = errno == ENOENT || errno == ENOTDIR || errno == EACCES;
        return is_none ? LOCH_E_NOT_FOUND : folder_fail(parent);
    }
    if (!folder_is_own(&found)) return LOCH_E_NOT_FOUND;
    snprintf(out, BUDGET_FOLDER_BYTES, "%s/loch", parent);
    return LOCH_OK;
}

loch_status lochi_budget_folder_check(const char *path)
{
    struct stat found;
    if (lstat(path, &found) != 0) return errno == ENOENT ? LOCH_E_NOT_FOUND : folder_fail(path);
    if (folder_is_own(&found)) return LOCH_OK;
    char who[48] = "";
    if (found.st_uid != geteuid()) snprintf(who, sizeof who, " (it belongs to user %ld)", (long)found.st_uid);
    return LOCH_FAIL(INVALID,
                     "%s is not a folder of this user with mode 0700%s: remove it, set XDG_RUNTIME_DIR to a "
                     "folder of this user with mode 0700, or name the budget by a path",
                     path, who);
}

loch_status lochi_budget_folder_make(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return folder_fail(path);
    const loch_status status = lochi_budget_folder_check(path);
    return status == LOCH_E_NOT_FOUND ? LOCH_OK : status;
}

void lochi_budget_folder_remove(const char *file)
{
    char folder[BUDGET_FOLDER_BYTES];
    folder_write_shared(folder);
    const size_t length = strlen(folder);
    if (!strncmp(file, folder, length) && file[length] == '/') (void)rmdir(folder);
}
