/* SPDX-License-Identifier: MIT */
/* Answers `loch top`: LOCH_TOP=on makes the process listen on a socket (top.c). */
#ifndef LOCHI_TOP_H
#define LOCHI_TOP_H

#include <loch/status.h>

/* Starts to listen if the option `top` asks for it and nothing was decided yet. E_INVALID: the option has a wrong
 * value. A process that cannot listen logs a warning and goes on. Call without locks. */
LOCH_MUST_USE loch_status lochi_top_start(void);

#endif
