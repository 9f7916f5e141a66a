/* SPDX-License-Identifier: MIT */
/* Runs tasks: the work of a worker thread. */
#include "engine/workers/run.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/current.h"
#include "engine/workers/queue.h"

/* Calls a task's function. Clears the thread's error record first, so that the record belongs to this task. */
static void run_call(loch_task *task)
{
    lochi_stay stay = {0};
    loch_error_clear();
    loch_status status = task->device ? lochi_stay_begin(&stay, task->device) : LOCH_OK;
    if (status == LOCH_OK) status = task->function(task->user);
    lochi_stay_end(&stay);
    if (status == LOCH_OK) return;
    if (loch_error_get()->status != status)
        loch_error_set(status, NULL, 0, "a task of the workers \"%s\" returned %s without a sentence",
                       task->workers->name, loch_status_name(status));
    task->outcome = lochi_error_save();
}

void lochi_workers_run_task(lochi_worker *self, loch_task *task)
{
    lochi_lock_assert_held(&self->workers->lock);
    loch_workers *workers = self->workers;
    loch_task *below = self->running;
    self->running = task;
    task->below = below;
    task->runner = self;
    task->state = LOCHI_TASK_RUNNING;
    lochi_lock_drop(&workers->lock);
    run_call(task);
    lochi_lock_take(&workers->lock);
    self->running = below;
    if (!lochi_queue_end_task(workers, task)) return;
    lochi_lock_drop(&workers->lock);
    lochi_free(task);
    lochi_lock_take(&workers->lock);
}

void *lochi_workers_thread(void *argument)
{
    LOCHI_NOT_CANCELLED; /* for the life of the thread: tasks are code of the program */
    lochi_worker *self = argument;
    loch_workers *workers = self->workers;
    lochi_workers_self = self;
    lochi_lock_take(&workers->lock);
    for (;;) {
        /* Running tasks may queue more tasks, so no thread ends before the last task has ended. */
        while (!workers->first && !workers->is_forked && !(workers->is_ending && !workers->pending))
            lochi_lock_wait(&workers->lock, &workers->work);
        loch_task *task = workers->first;
        if (!task) break;
        lochi_queue_unlink(workers, task);
        lochi_workers_run_task(self, task);
    }
    lochi_lock_drop(&workers->lock);
    lochi_workers_self = NULL;
    return NULL;
}
