/* SPDX-License-Identifier: MIT */
/* The queue of tasks, and the end of tasks (queue.c). The lock of the workers is held in all calls except
 * lochi_queue_free_chain. */
#ifndef LOCHI_WORKERS_QUEUE_H
#define LOCHI_WORKERS_QUEUE_H

#include "engine/workers/state.h"

/* Queues a task and wakes a thread for it. */
void lochi_queue_push(loch_workers *workers, loch_task *task);

/* Takes a task out of the queue. Works in the child of a fork too. */
void lochi_queue_unlink(loch_workers *workers, loch_task *task);

/* Records the failure of a task whose result will not be asked for. loch_workers_wait returns it. */
void lochi_queue_note(loch_workers *workers, const loch_task *task);

/* Ends a task that has run, or that was taken out of the queue for good. Returns whether the caller must free it, after
 * dropping the lock. */
bool lochi_queue_end_task(loch_workers *workers, loch_task *task);

/* Cancels a queued task. Returns whether the caller must free it, after dropping the lock. */
bool lochi_queue_cancel_task(loch_workers *workers, loch_task *task);

/* Cancels all queued tasks. Chains those that must be freed through `next`. Returns the number of cancelled tasks. */
size_t lochi_queue_cancel_all(loch_workers *workers, loch_task **chain);

/* Frees tasks that are chained through `next`. */
void lochi_queue_free_chain(loch_task *chain);

/* Returns the failures since the last call of this function, and resets them. */
loch_error lochi_queue_take_failure(loch_workers *workers, size_t *failed);

#endif
