/* SPDX-License-Identifier: MIT */
/* The budgets of this user: all files with the right ending in one folder. */
#include "sweep.h"
#include "folder.h"
#include "state.h"
#include "table.h"
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

static loch_status sweep_walk(const char *except, loch_budget_visitor *visitor, void *user)
{
    char folder[64], path[sizeof folder + sizeof((struct dirent *)0)->d_name + 1];
    struct dirent **entries;
    loch_status status = LOCH_OK;
    lochi_budget_folder_path(folder, sizeof folder);
    const int count = scandir(folder, &entries, sweep_choose, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (status != LOCH_OK || (except && !strcmp(path, except)) || sweep_one(path)) continue;
        if (visitor) status = visitor(path, user);
    }
    if (count >= 0) free(entries);
    return status;
}

void lochi_budget_sweep(const char *path)
{
    (void)sweep_walk(path, NULL, NULL);
}

loch_status loch_budget_walk(loch_budget_visitor *visitor, void *user)
{
    if (!visitor) return loch_error_set(LOCH_E_INVALID, NULL, 0, "a walk needs a visitor");
    const int cancel = lochi_budget_cancel_hold();
    const loch_status status = sweep_walk(NULL, visitor, user);
    lochi_budget_cancel_restore(cancel);
    return status;
}
