/* SPDX-License-Identifier: MIT */
/* The queue of tasks, and how tasks end (queue.c). All under the lock of the workers, but for lochi_queue_free_chain. */
#ifndef LOCHI_WORKERS_QUEUE_H
#define LOCHI_WORKERS_QUEUE_H

#include "engine/workers/state.h"

/* Queues a task, and wakes a thread for it. */
void lochi_queue_push(loch_workers *workers, loch_task *task);

/* Takes a task out of the queue. Also in the child of a fork. */
void lochi_queue_unlink(loch_workers *workers, loch_task *task);

/* Notes the failure of a task that nobody will ask: it is for loch_workers_wait. */
void lochi_queue_note(loch_workers *workers, const loch_task *task);

/* Ends a task that has run, or is out of the queue for good. Returns whether it is the caller's to free, without the lock. */
bool lochi_queue_end_task(loch_workers *workers, loch_task *task);

/* Cancels a task that is queued. Returns whether it is the caller's to free, without the lock. */
bool lochi_queue_cancel_task(loch_workers *workers, loch_task *task);

/* Cancels all that is queued, and chains what is to be freed by `next`. Returns how many there were. */
size_t lochi_queue_cancel_all(loch_workers *workers, loch_task **chain);

/* Frees tasks that are chained by `next`. */
void lochi_queue_free_chain(loch_task *chain);

/* Returns what went wrong since the last time somebody asked. */
loch_error lochi_queue_take_failure(loch_workers *workers, size_t *failed);

#endif
