/* SPDX-License-Identifier: MIT */
/* Running tasks (run.c). */
#ifndef LOCHI_WORKERS_RUN_H
#define LOCHI_WORKERS_RUN_H

#include "engine/workers/state.h"

/* Runs a task that was taken out of the queue. The lock of the workers is held, and released meanwhile. */
void lochi_workers_run_task(lochi_worker *self, loch_task *task);

/* Runs tasks until the workers end. This is the thread function; its argument is the lochi_worker. */
void *lochi_workers_thread(void *argument);

#endif
