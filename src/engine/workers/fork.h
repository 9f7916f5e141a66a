/* SPDX-License-Identifier: MIT */
/* Workers in the child of a fork (fork.c). */
#ifndef LOCHI_WORKERS_FORK_H
#define LOCHI_WORKERS_FORK_H

#include "engine/workers/state.h"

/* The outcome of a task that was queued before a fork. */
extern const loch_error lochi_task_left_behind;

/* Registers the workers with the fork handlers, until lochi_fork_leave. */
void lochi_workers_enter_forks(loch_workers *workers);

/* Tells whether a task was running in a thread that does not exist in this process. The lock of its workers is held. */
bool lochi_task_is_lost(const loch_task *task);

/* Fails with E_FORKED: the threads do not exist in the child. */
loch_status lochi_workers_refuse_forked(const loch_workers *workers);

#endif
