/* SPDX-License-Identifier: MIT */
/* Running tasks (run.c). */
#ifndef LOCHI_WORKERS_RUN_H
#define LOCHI_WORKERS_RUN_H

#include "engine/workers/state.h"

/* Runs a task that is out of the queue. Under the lock of the workers, which is released meanwhile. */
void lochi_workers_run_task(lochi_worker *self, loch_task *task);

/* Runs tasks until the workers end: the function of a thread, which gets its lochi_worker. */
void *lochi_workers_thread(void *argument);

#endif
