/* SPDX-License-Identifier: MIT */
/* Constant error records. */
#ifndef LOCHI_STATUS_H
#define LOCHI_STATUS_H

#include <loch/status.h>

/* Returns the error record of a thread without a room: a constant record, chosen by the status of the thread's last
 * failure. */
const loch_error *lochi_error_bare(void);

#endif
