/* SPDX-License-Identifier: MIT */
/* Waiting for tasks.
 *
 * A worker that waits for a task which has not begun takes it out of the queue and runs it itself. It never runs any
 * other on top of what it is doing: that one might wait for the task below, which cannot go on before it. So a worker's
 * stack is as deep as the program's own chain of tasks that wait for each other, as it would be with plain calls; and
 * whoever waits for a task that another worker runs waits for what really has to come first.
 *
 * A worker that has to sleep for a task first looks whether that can end: whether from the task a worker can be
 * reached that does not sleep, by way of who runs it, or, while it is queued with other workers, of any of those, and
 * of what they sleep for. One lock of the process guards what workers sleep for, so the last one that closes a circle
 * finds it, whichever workers it goes through. */
#include "base/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "engine/workers/fork.h"
#include "engine/workers/queue.h"
#include "engine/workers/run.h"

/* Guards what workers sleep for. Taken by a worker that is about to sleep for a task, before the locks of workers. */
static lochi_lock wait_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_WORKER_WAITS);
static uint64_t wait_last_walk; /* under it */

/* Sleeps until the tasks of now, and what they queue, have ended. */
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
    if (!workers) return LOCH_FAIL(INVALID, "there are no workers to wait for");
    if (workers->is_forked) return lochi_workers_refuse_forked(workers);
    if (lochi_workers_find_self(workers))
        return LOCH_FAIL(INVALID, "a task of the workers \"%s\" cannot wait for all of them, itself among them",
                         workers->name);
    lochi_workers_waiter self;
    lochi_workers_retain(workers); /* they may end meanwhile */
    lochi_lock_take(&workers->lock);
    wait_for_all(workers, &self);
    const loch_error failure = lochi_queue_take_failure(workers, failed);
    lochi_lock_drop(&workers->lock);
    lochi_workers_release(workers);
    if (failure.status != LOCH_OK) lochi_error_restore(&failure);
    return failure.status;
}

/* Adds a worker to those that a search has found and has to look at. */
static void wait_add(lochi_worker *found, uint64_t walk, lochi_worker **list)
{
    lochi_lock_assert_held(&wait_lock);
    if (found->walk == walk) return;
    found->walk = walk;
    found->walk_next = *list;
    *list = found;
}

/* Adds the workers by which a task can go on. Returns whether it has ended. A task that a worker sleeps for stays while
 * the lock of waits is held. */
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
    const uint64_t walk = self->walk = ++wait_last_walk; /* it is found already, and does not help */
    lochi_worker *list = NULL;
    bool can_end = wait_find_runners(task, walk, &list);
    while (!can_end && list) {
        const lochi_worker *at = list;
        list = at->walk_next;
        can_end = !at->awaited || wait_find_runners(at->awaited, walk, &list);
    }
    return can_end;
}

/* Notes what a worker sleeps for, or NULL. Returns whether it may. */
static bool wait_await(lochi_worker *self, loch_task *task)
{
    lochi_lock_take(&wait_lock);
    const bool may_sleep = !task || wait_can_end(self, task);
    self->awaited = may_sleep ? task : NULL;
    lochi_lock_drop(&wait_lock);
    return may_sleep;
}

/* Sleeps until a task has ended that does not run here. */
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

/* Runs a task here, for a worker that waits for it, whose own record stays. */
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
    if (!task) return LOCH_FAIL(INVALID, "there is no task to wait for");
    loch_workers *workers = task->workers;
    lochi_worker *self = lochi_workers_self && lochi_workers_self->running ? lochi_workers_self : NULL;
    lochi_lock_take(&workers->lock);
    const bool is_lost = lochi_task_is_lost(task);
    if (is_lost) task->outcome = lochi_task_left_behind;
    if (self && self->workers == workers && task->state == LOCHI_TASK_QUEUED) wait_run_here(task, self);
    if (self && !is_lost && task->state != LOCHI_TASK_ENDED) {
        lochi_lock_drop(&workers->lock);
        if (!wait_await(self, task))
            return LOCH_FAIL(INVALID, "the task waits for the one that would wait for it: neither would ever end");
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
    if (!task) return LOCH_FAIL(INVALID, "there is no task to ask");
    lochi_lock_take(&task->workers->lock);
    const bool is_ended = task->state == LOCHI_TASK_ENDED, is_lost = lochi_task_is_lost(task);
    lochi_lock_drop(&task->workers->lock);
    if (is_lost) return lochi_workers_refuse_forked(task->workers);
    return is_ended ? LOCH_OK : LOCH_E_BUSY;
}

loch_status loch_task_cancel(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "there is no task to cancel");
    lochi_lock_take(&task->workers->lock);
    const bool is_queued = task->state == LOCHI_TASK_QUEUED;
    if (is_queued) (void)lochi_queue_cancel_task(task->workers, task); /* it is held, by the caller */
    lochi_lock_drop(&task->workers->lock);
    return is_queued ? LOCH_OK : LOCH_FAIL(BUSY, "the task runs, or has ended");
}

void loch_task_release(loch_task *task)
{
    if (!task) return;
    loch_workers *workers = task->workers;
    lochi_lock_take(&workers->lock);
    const bool is_ended = task->state == LOCHI_TASK_ENDED, is_over = is_ended || lochi_task_is_lost(task);
    task->is_held = false;
    if (is_ended) lochi_queue_note(workers, task); /* nobody has asked, and nobody will */
    lochi_lock_drop(&workers->lock);
    if (is_over) lochi_free(task);
    lochi_workers_release(workers);
}
