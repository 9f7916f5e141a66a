/* SPDX-License-Identifier: MIT */
/* The folders of this user's budgets (folder.c). */
#ifndef BUDGET_FOLDER_H
#define BUDGET_FOLDER_H

#include <loch/loch.h>
#include <stdbool.h>

#define BUDGET_SUFFIX ".budget"
#define BUDGET_FOLDERS 2
#define BUDGET_FOLDER_BYTES 256 /* of a path, with its final zero */

/* Writes the path of a folder, in the order in which budgets are made: $XDG_RUNTIME_DIR/loch (/run/user/UID/loch
 * without the variable), then /dev/shm/loch-UID (/tmp/loch-UID where there is no /dev/shm). E_NOT_FOUND: the first is
 * left out, because its parent is not a folder of this user alone. E_IO. */
loch_status lochi_budget_folder_path(size_t index, char out[BUDGET_FOLDER_BYTES]);

/* Checks that a folder belongs to this user alone. E_NOT_FOUND: there is none. E_INVALID: it belongs to another user,
 * or others may enter it; the sentence says what helps. E_IO. */
loch_status lochi_budget_folder_check(const char *path);

/* Makes a folder if it is missing, and checks it. LOCH_OK also if another process has removed it meanwhile. */
loch_status lochi_budget_folder_make(const char *path);

/* Removes the folder of a file if it is the second one and empty. The first one also has sockets (loch top). */
void lochi_budget_folder_remove(const char *file);

#endif
