/* SPDX-License-Identifier: MIT */
/* The budgets of this user: all files with the right ending in their folders. */
#include "sweep.h"
#include "folder.h"
#include "state.h"
#include "table.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include <dirent.h>
#include <loch/budget.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sweep_choose(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name), ending = strlen(BUDGET_SUFFIX);
    return length > ending && entry->d_name[0] != '.' && !strcmp(entry->d_name + length - ending, BUDGET_SUFFIX);
}

/* Removes a file if all its processes have died. Returns whether it did. A file that is locked now has a process. */
static bool sweep_one(const char *path)
{
    budget_file file;
    const budget_process self = lochi_budget_process_self();
    bool is_gone = false;
    budget_table *table = malloc(sizeof *table);
    if (table && lochi_budget_file_begin(&file, path) == LOCH_OK) {
        if (lochi_budget_file_open(&file) == LOCH_OK && lochi_budget_file_lock(&file, 0) == LOCH_OK) {
            if (lochi_budget_table_read(&file, table) == LOCH_OK) {
                (void)lochi_budget_table_reap(&file, &self, table);
                is_gone = !lochi_budget_table_is_taken(table);
                if (is_gone) lochi_budget_table_remove(&file);
            }
            lochi_budget_file_unlock(&file);
        }
        lochi_budget_file_end(&file);
    }
    free(table);
    return is_gone;
}

/* Leaves out the budget named `except`; NULL for none. */
static loch_status sweep_walk_folder(const char *folder, const char *except, loch_budget_visitor *visitor, void *user)
{
    char path[BUDGET_FOLDER_BYTES + sizeof((struct dirent *)0)->d_name + 1];
    struct dirent **entries;
    loch_status status = LOCH_OK;
    const size_t length = except ? strlen(except) : 0;
    const int count = scandir(folder, &entries, sweep_choose, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        const bool is_excepted = except && !strncmp(name, except, length) && !strcmp(name + length, BUDGET_SUFFIX);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        free(entries[i]);
        if (status != LOCH_OK || is_excepted || sweep_one(path)) continue;
        if (visitor) status = visitor(path, user);
    }
    if (count >= 0) free(entries);
    return status;
}

/* Folders of other users are left out. */
static loch_status sweep_walk(const char *except, loch_budget_visitor *visitor, void *user)
{
    for (size_t i = 0; i < BUDGET_FOLDERS; i++) {
        char folder[BUDGET_FOLDER_BYTES];
        if (lochi_budget_folder_path(i, folder) != LOCH_OK || lochi_budget_folder_check(folder) != LOCH_OK) continue;
        const loch_status status = sweep_walk_folder(folder, except, visitor, user);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

void lochi_budget_sweep(const char *except)
{
    (void)sweep_walk(except, NULL, NULL);
}

loch_status loch_budget_walk(loch_budget_visitor *visitor, void *user)
{
    if (!visitor) return LOCH_FAIL(INVALID, "a walk needs a visitor");
    LOCHI_NOT_CANCELLED;
    const loch_status status = sweep_walk(NULL, visitor, user);
    return status;
}
