/* SPDX-License-Identifier: MIT */
/* What is constant about failures. */
#ifndef LOCHI_STATUS_H
#define LOCHI_STATUS_H

#include <loch/status.h>

/* Returns the record of a thread without a room: a constant one, by the status of the thread's last failure. */
const loch_error *lochi_error_bare(void);

#endif
