/* SPDX-License-Identifier: MIT */
/* The folder of this user's budgets (folder.c). */
#ifndef BUDGET_FOLDER_H
#define BUDGET_FOLDER_H

#include <loch/loch.h>

#define BUDGET_SUFFIX ".budget"

/* Writes the path of the folder: /dev/shm/loch-UID, or /tmp/loch-UID where there is no /dev/shm. */
void lochi_budget_folder_path(char *out, size_t bytes);

/* Makes the folder, and checks that it belongs to this user alone. E_IO, E_INVALID. */
loch_status lochi_budget_folder_make(void);

#endif
