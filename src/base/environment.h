/* SPDX-License-Identifier: MIT */
/* Variables of the environment that nothing reads. */
#ifndef LOCHI_ENVIRONMENT_H
#define LOCHI_ENVIRONMENT_H

/* Writes one warning to the log for each variable of the environment that loch_option_walk_unknown finds: once in a
 * process, the first time that the log hears warnings. */
void lochi_option_warn_unknown(void);

#endif
