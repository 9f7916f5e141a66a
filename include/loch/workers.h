/* SPDX-License-Identifier: MIT */
/** @file workers.h
 *  Workers: threads that run tasks from a queue. Tasks can be waited for and cancelled. The status of a task, with
 *  the sentence of its error record, is returned to the thread that waits for it. A failed task does not stop other
 *  tasks.
 */
#ifndef LOCH_WORKERS_H
#define LOCH_WORKERS_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** A group of threads with one queue, first in first out. Any thread. */
typedef struct loch_workers loch_workers;

/** One task, to wait for it or to cancel it. Any thread. */
typedef struct loch_task loch_task;

/** The work of a task. It may queue further tasks and wait for them. Threads of workers cannot be cancelled by
 *  pthread_cancel. */
typedef loch_status loch_task_function(void *user);

/** @name Open and close */
/** @{ */

/** Options of loch_workers_open. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_workers_options {
    size_t size;      /**< sizeof(loch_workers_options) */
    const char *name; /**< name of the threads: "name-0", "name-1"; copied; NULL for "loch" */
    size_t threads;   /**< number of threads, at most 4096; 0 for one */
    /** CPUs that the threads run on: thread i on cpus[i % cpus_count]; NULL: the CPUs of the calling thread. */
    const unsigned *cpus;
    size_t cpus_count; /**< number of entries in `cpus` */
} loch_workers_options;

/** Starts workers. The threads are running when the call returns. E_INVALID: the process may not run on one of the
 *  CPUs. E_LIMIT: the system allows no more threads.
 *  @param out  owned by the caller; close it with loch_workers_close. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_workers_open(const loch_workers_options *options, loch_workers **out);

/** What happens to queued tasks when workers are closed. */
typedef enum loch_workers_closing {
    LOCH_WORKERS_DRAIN, /**< queued tasks run, and so do the tasks that they queue */
    LOCH_WORKERS_CANCEL /**< queued tasks are cancelled; running tasks run to their end */
} loch_workers_closing;

/** Ends the threads of workers and joins them. A thread that waits for a cancelled task receives E_CANCELLED.
 *  E_INVALID, nothing changed: called from one of the workers' own threads. Otherwise the workers are freed, and the
 *  result is that of loch_workers_wait: the first failure of a task without a waiter. NULL does nothing.
 *  @param cancelled  number of tasks that did not run; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_workers_close(loch_workers *workers, loch_workers_closing how,
                                                      size_t *cancelled);
LOCH_DEFINE_CLEAR(workers, (void)!loch_workers_close(object, LOCH_WORKERS_DRAIN, NULL))

/** @} */
/** @name Tasks */
/** @{ */

/** Queues a task. E_CANCELLED: the workers are closing. E_FORKED: in the child of a fork. Any thread.
 *  @param out  the task, owned by the caller; give it back with loch_task_wait or loch_task_release. NULL: the task
 *              cannot be waited for. */
LOCH_API LOCH_MUST_USE loch_status loch_workers_run(loch_workers *workers, loch_task_function *function, void *user,
                                                    loch_task **out);

/** Queues a task, waits for it, and returns its status. */
LOCH_API LOCH_MUST_USE loch_status loch_workers_run_wait(loch_workers *workers, loch_task_function *function,
                                                         void *user);

/** Waits until all tasks queued before this call, and all tasks that they queued, have ended. Returns the first
 *  failure, with its sentence, since the last such call, of the tasks without a waiter (no loch_task was requested,
 *  or it was released). E_INVALID: called from a task of these workers. E_FORKED: in the child of a fork.
 *  @param failed  number of failed tasks without a waiter; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_workers_wait(loch_workers *workers, size_t *failed);

/** Cancels all queued tasks that do not run yet. They end with E_CANCELLED and do not count as failed.
 *  @return the number of cancelled tasks */
LOCH_API size_t loch_workers_cancel(loch_workers *workers);

/** Waits until a task has ended, frees the task object, and returns the status of the task; E_CANCELLED if it was
 *  cancelled. The workers may have been closed. If a task waits for another task of the same workers that has not
 *  started, the waiting thread runs that task itself; so tasks may wait for tasks with any number of threads.
 *
 *  E_INVALID: the wait would never end, because the task waits for the calling task, or is queued with other workers
 *  whose threads all wait for the calling task. The task still belongs to the caller then. Waits through
 *  loch_workers_wait, loch_workers_close and locks are not detected. E_FORKED: in the child of a fork, and the task
 *  had not ended. */
LOCH_API LOCH_MUST_USE loch_status loch_task_wait(loch_task *task);

/** Tells whether a task has ended in any way: LOCH_OK if so, E_BUSY if not; E_BUSY does not change the error record.
 *  E_FORKED: in the child of a fork, and the task had not ended. */
LOCH_API LOCH_MUST_USE loch_status loch_task_query(loch_task *task);

/** Cancels a queued task. E_BUSY: it runs or has ended. The task object must still be waited for or released. */
LOCH_API LOCH_MUST_USE loch_status loch_task_cancel(loch_task *task);

/** Frees a task object without waiting. The task still runs. NULL does nothing. */
LOCH_API void loch_task_release(loch_task *task);
LOCH_DEFINE_CLEAR(task, loch_task_release(object))

/** @} */
/** @name Threads */
/** @{ */

/** Returns the number of threads; 0 in the child of a fork and for NULL. */
LOCH_API size_t loch_workers_get_threads(const loch_workers *workers);

/** Returns the index of the calling thread among the threads of the workers; SIZE_MAX if it is not one of them. */
LOCH_API size_t loch_workers_get_current(const loch_workers *workers);

/** @} */

LOCH_END_DECLS

#endif
