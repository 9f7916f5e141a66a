/* SPDX-License-Identifier: MIT */
/* Environment variables that begin with LOCH_ but have no reader. */
#ifndef LOCHI_ENVIRONMENT_H
#define LOCHI_ENVIRONMENT_H

/* Logs one warning for each variable that loch_option_walk_unknown finds. Does so once in a process, the first time
 * that the log level includes warnings. */
void lochi_option_warn_unknown(void);

#endif
