/* SPDX-License-Identifier: MIT */
/* The report of live blocks at the end of the process. */
#ifndef LOCHI_LIVE_REPORT_H
#define LOCHI_LIVE_REPORT_H

#include <stdbool.h>

#define LOCHI_LIVE_EXIT_CODE 23

/* Has the live blocks printed on standard error when the process ends, if there are any. `changes_code`: the process
 * then ends with LOCHI_LIVE_EXIT_CODE. */
void lochi_live_report_at_exit(bool changes_code);

#endif
