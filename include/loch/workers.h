/* SPDX-License-Identifier: MIT */
/** @file workers.h
 *  Threads that run tasks: queued, waited for, cancelled. What a task returns comes back to who waits for it, with the sentence of
 *  its error record; a task that fails holds up nobody.
 */
#ifndef LOCH_WORKERS_H
#define LOCH_WORKERS_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Some threads and their queue, first come first served. Safe in any thread. */
typedef struct loch_workers loch_workers;

/** One task, for who wants to wait for it or to cancel it. Safe in any thread. */
typedef struct loch_task loch_task;

/** What a task does. It may queue further tasks and wait for them. The threads of workers cannot be cancelled (pthread_cancel). */
typedef loch_status loch_task_function(void *user);

/** How workers are made; zero means default, NULL all defaults. */
typedef struct loch_workers_options {
    size_t size;      /**< sizeof(loch_workers_options) */
    const char *name; /**< threads are named after it, "name-0"; copied; NULL: "loch" */
    size_t threads;   /**< how many, 4096 at most; 0: one */
    const unsigned
        *cpus;         /**< CPUs that they run on: thread i on cpus[i % cpus_count]; NULL: where the caller's may run */
    size_t cpus_count; /**< entries of `cpus` */
} loch_workers_options;

/** Makes workers; their threads run when it returns. E_INVALID for a CPU that the process may not run on, E_LIMIT when the system
 *  gives no more threads.
 *  @param out  the caller's, ended by loch_workers_close; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_workers_open(const loch_workers_options *options, loch_workers **out);

/** What becomes of tasks that are queued when workers end. */
typedef enum loch_workers_closing {
    LOCH_WORKERS_DRAIN, /**< they run, and what they queue, too */
    LOCH_WORKERS_CANCEL /**< they do not; those that run already run to their end */
} loch_workers_closing;

/** Ends the threads and joins them. Who waits for a task that is cancelled by that gets E_CANCELLED. E_INVALID from one of its
 *  own threads. Otherwise the workers are gone, and the result is as for loch_workers_wait. NULL does nothing.
 *  @param cancelled  how many tasks did not run; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_workers_close(loch_workers *workers, loch_workers_closing how,
                                                      size_t *cancelled);

/** Queues a task. E_CANCELLED when the workers are ending and take nothing more; E_FORKED in the child of a fork.
 *  @param out  to wait for it by, given back by loch_task_wait or loch_task_release; NULL: nobody does */
LOCH_API LOCH_MUST_USE loch_status loch_workers_run(loch_workers *workers, loch_task_function *function, void *user,
                                                    loch_task **out);

/** Queues a task and waits for it; returns what it returned. */
LOCH_API LOCH_MUST_USE loch_status loch_workers_run_wait(loch_workers *workers, loch_task_function *function,
                                                         void *user);

/** Waits until all tasks that were queued before have ended, and those that they queued. Returns the first failure since the last
 *  such call among the tasks that nobody waits for by a loch_task (there was none, or it was released), with its sentence.
 *  E_INVALID from inside a task of these workers; E_FORKED in the child of a fork.
 *  @param failed  how many of them failed; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_workers_wait(loch_workers *workers, size_t *failed);

/** Takes all tasks out of the queue that do not run yet; they count as ended, with E_CANCELLED, and not as failed.
 *  @return how many */
LOCH_API size_t loch_workers_cancel(loch_workers *workers);

/** How many threads; none in the child of a fork. */
LOCH_API size_t loch_workers_get_threads(const loch_workers *workers);

/** Which of the workers' threads this is; SIZE_MAX when it is none. */
LOCH_API size_t loch_workers_get_current(const loch_workers *workers);

/** Waits until a task has ended, and gives it back; returns what it returned, or E_CANCELLED; E_FORKED in the child of a
 *  fork for one that had not ended. The workers may have ended. A task of
 *  the same workers that waits for one which has not begun runs it itself, there and then, so tasks may wait for tasks with any
 *  number of threads. E_INVALID, and it stays the caller's, when it would be for ever: the task waits for the caller's, or is queued
 *  with other workers that all wait, by tasks that they wait for, for the caller's. What workers wait for in other ways
 *  (loch_workers_wait, loch_workers_close, locks) is not seen. */
LOCH_API LOCH_MUST_USE loch_status loch_task_wait(loch_task *task);

/** LOCH_OK when it has ended, however; E_BUSY when not, and leaves the error record alone then. E_FORKED as for loch_task_wait. */
LOCH_API LOCH_MUST_USE loch_status loch_task_query(loch_task *task);

/** Takes a task out of the queue. E_BUSY when it runs or has ended; it is still to be waited for or released. */
LOCH_API LOCH_MUST_USE loch_status loch_task_cancel(loch_task *task);

/** Gives a task back without waiting; it runs all the same. NULL does nothing. */
LOCH_API void loch_task_release(loch_task *task);

LOCH_END_DECLS

#endif
