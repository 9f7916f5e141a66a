/* SPDX-License-Identifier: MIT */
/* Waits for tasks.
 *
 * A worker that waits for a task which has not begun takes the task out of the queue and runs it itself. It never runs
 * any other task on top of its own: the other task might wait for the task below it on the stack, which cannot continue
 * before the other task ends. So the stack of a worker is only as deep as the program's own chain of tasks that wait
 * for each other, as with plain calls. And a thread that waits for a task on another worker waits only for work that
 * really must come first.
 *
 * Before a worker sleeps for a task, it checks whether the task can end. The check starts at the task and follows the
 * worker that runs it, or, if it is queued, any of the workers that could run it, and the tasks that those workers
 * sleep for. The task can end if the search reaches a worker that does not sleep. One lock of the process guards what
 * workers sleep for. So the last worker that would close a cycle finds the cycle, also across several sets of
 * workers. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "engine/workers/fork.h"
#include "engine/workers/queue.h"
#include "engine/workers/run.h"

/* Guards what workers sleep for. A worker takes it before it sleeps for a task, and before the locks of workers. */
static lochi_lock wait_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_WORKER_WAITS);
static uint64_t wait_last_walk; /* guarded by wait_lock */

/* Sleeps until the tasks that exist now, and the tasks that they queue, have ended. */
static void wait_for_all(loch_workers *workers, lochi_workers_waiter *self)
{
    lochi_lock_assert_held(&workers->lock);
    LOCHI_NOT_CANCELLED;
    if (!workers->pending) return;
    *self = (lochi_workers_waiter){.next = workers->waiters, .age = ++workers->age, .pending = workers->pending};
    pthread_cond_init(&self->ended, NULL);
    workers->waiters = self;
    while (self->pending)
        lochi_lock_wait(&workers->lock, &self->ended);
    lochi_workers_waiter **link = &workers->waiters;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    pthread_cond_destroy(&self->ended);
}

loch_status loch_workers_wait(loch_workers *workers, size_t *failed)
{
    if (failed) *failed = 0;
    if (!workers) return LOCH_FAIL(INVALID, "the workers are NULL");
    if (workers->is_forked) return lochi_workers_refuse_forked(workers);
    if (lochi_workers_find_self(workers))
        return LOCH_FAIL(INVALID, "a task of the workers \"%s\" cannot wait for all tasks: it would wait for itself",
                         workers->name);
    lochi_workers_waiter self;
    lochi_workers_retain(workers); /* the workers may be closed meanwhile */
    lochi_lock_take(&workers->lock);
    wait_for_all(workers, &self);
    const loch_error failure = lochi_queue_take_failure(workers, failed);
    lochi_lock_drop(&workers->lock);
    lochi_workers_release(workers);
    if (failure.status != LOCH_OK) lochi_error_restore(&failure);
    return failure.status;
}

/* Adds a worker to the list of found workers that the search must visit. */
static void wait_add(lochi_worker *found, uint64_t walk, lochi_worker **list)
{
    lochi_lock_assert_held(&wait_lock);
    if (found->walk == walk) return;
    found->walk = walk;
    found->walk_next = *list;
    *list = found;
}

/* Adds the workers that can make progress on a task. Returns whether the task has ended. A task that a worker sleeps
 * for stays alive while the lock of waits is held. */
static bool wait_find_runners(loch_task *task, uint64_t walk, lochi_worker **list)
{
    lochi_lock_assert_held(&wait_lock);
    loch_workers *workers = task->workers;
    lochi_lock_take(&workers->lock);
    const bool is_ended = task->state == LOCHI_TASK_ENDED;
    if (task->state == LOCHI_TASK_RUNNING) wait_add(task->runner, walk, list);
    for (size_t i = 0; task->state == LOCHI_TASK_QUEUED && i < workers->threads; i++)
        wait_add(&workers->list[i], walk, list);
    lochi_lock_drop(&workers->lock);
    return is_ended;
}

/* Tells whether a task can end while this worker sleeps for it. */
static bool wait_can_end(lochi_worker *self, loch_task *task)
{
    lochi_lock_assert_held(&wait_lock);
    const uint64_t walk = self->walk = ++wait_last_walk; /* marks this worker as visited: it would sleep */
    lochi_worker *list = NULL;
    bool can_end = wait_find_runners(task, walk, &list);
    while (!can_end && list) {
        const lochi_worker *at = list;
        list = at->walk_next;
        can_end = !at->awaited || wait_find_runners(at->awaited, walk, &list);
    }
    return can_end;
}

/* Records the task that a worker sleeps for, or NULL. Returns whether the worker may sleep. */
static bool wait_await(lochi_worker *self, loch_task *task)
{
    lochi_lock_take(&wait_lock);
    const bool may_sleep = !task || wait_can_end(self, task);
    self->awaited = may_sleep ? task : NULL;
    lochi_lock_drop(&wait_lock);
    return may_sleep;
}

/* Sleeps until a task that does not run in this thread has ended. */
static void wait_for_task(loch_task *task)
{
    lochi_lock_assert_held(&task->workers->lock);
    LOCHI_NOT_CANCELLED;
    pthread_cond_t ended;
    pthread_cond_init(&ended, NULL);
    task->waiter = &ended;
    while (task->state != LOCHI_TASK_ENDED)
        lochi_lock_wait(&task->workers->lock, &ended);
    task->waiter = NULL;
    pthread_cond_destroy(&ended);
}

/* Runs a task in the worker that waits for it. Keeps the worker's own error record. */
static void wait_run_here(loch_task *task, lochi_worker *self)
{
    lochi_lock_assert_held(&self->workers->lock);
    const loch_error saved = lochi_error_save();
    lochi_queue_unlink(self->workers, task);
    lochi_workers_run_task(self, task);
    lochi_error_restore(&saved);
}

loch_status loch_task_wait(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "the task is NULL");
    loch_workers *workers = task->workers;
    lochi_worker *self = lochi_workers_self && lochi_workers_self->running ? lochi_workers_self : NULL;
    lochi_lock_take(&workers->lock);
    const bool is_lost = lochi_task_is_lost(task);
    if (is_lost) task->outcome = lochi_task_left_behind;
    if (self && self->workers == workers && task->state == LOCHI_TASK_QUEUED) wait_run_here(task, self);
    if (self && !is_lost && task->state != LOCHI_TASK_ENDED) {
        lochi_lock_drop(&workers->lock);
        if (!wait_await(self, task))
            return LOCH_FAIL(
                INVALID, "deadlock: the task waits, directly or through others, for the task that now waits for it");
        lochi_lock_take(&workers->lock);
        wait_for_task(task);
        lochi_lock_drop(&workers->lock);
        (void)wait_await(self, NULL);
    } else {
        if (!is_lost && task->state != LOCHI_TASK_ENDED) wait_for_task(task);
        lochi_lock_drop(&workers->lock);
    }
    const loch_status status = task->outcome.status;
    if (status != LOCH_OK) lochi_error_restore(&task->outcome);
    lochi_free(task);
    lochi_workers_release(workers);
    return status;
}

loch_status loch_task_query(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "the task is NULL");
    lochi_lock_take(&task->workers->lock);
    const bool is_ended = task->state == LOCHI_TASK_ENDED, is_lost = lochi_task_is_lost(task);
    lochi_lock_drop(&task->workers->lock);
    if (is_lost) return lochi_workers_refuse_forked(task->workers);
    return is_ended ? LOCH_OK : LOCH_E_BUSY;
}

loch_status loch_task_cancel(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "the task is NULL");
    lochi_lock_take(&task->workers->lock);
    const bool is_queued = task->state == LOCHI_TASK_QUEUED;
    if (is_queued) (void)lochi_queue_cancel_task(task->workers, task); /* never freed here: the caller holds the task */
    lochi_lock_drop(&task->workers->lock);
    return is_queued ? LOCH_OK : LOCH_FAIL(BUSY, "the task is running or has ended: it cannot be cancelled");
}

void loch_task_release(loch_task *task)
{
    if (!task) return;
    loch_workers *workers = task->workers;
    lochi_lock_take(&workers->lock);
    const bool is_ended = task->state == LOCHI_TASK_ENDED, is_over = is_ended || lochi_task_is_lost(task);
    task->is_held = false;
    if (is_ended) lochi_queue_note(workers, task); /* its result was not asked for, and will not be */
    lochi_lock_drop(&workers->lock);
    if (is_over) lochi_free(task);
    lochi_workers_release(workers);
}
