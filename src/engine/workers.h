/* SPDX-License-Identifier: MIT */
/* What engines know of workers beyond the public header. */
#ifndef LOCHI_WORKERS_H
#define LOCHI_WORKERS_H

#include <loch/workers.h>

/* How many tasks were ever queued; 0 for NULL. If the number is the same before and after a wait, nothing was queued meanwhile. */
uint64_t lochi_workers_get_queued(loch_workers *workers);

/* Begins an end with LOCH_WORKERS_CANCEL, without waiting: nothing is taken any more, from anybody. loch_workers_destroy with the same
 * is still owed. Returns how many tasks did not run; 0 for NULL. */
size_t lochi_workers_close(loch_workers *workers);

/* What a worker's thread is at, for whoever gives it tasks: a pointer that is the caller's. NULL, and nothing is noted, in a thread
 * that is no worker's. */
const void *lochi_workers_get_note(void);
void lochi_workers_set_note(const void *note);

#endif
