/* SPDX-License-Identifier: MIT */
/* The queue of tasks, and the end of tasks. */
#include "engine/workers/queue.h"
#include "base/heap.h"

static const loch_error queue_cancelled = {
    .status = LOCH_E_CANCELLED, .driver = "", .sentence = "the task was cancelled before it ran"};

void lochi_queue_push(loch_workers *workers, loch_task *task)
{
    lochi_lock_assert_held(&workers->lock);
    task->prev = workers->last;
    *(workers->last ? &workers->last->next : &workers->first) = task;
    workers->last = task;
    workers->pending++;
    workers->queued++;
    for (lochi_workers_waiter *it = workers->waiters; it; it = it->next)
        it->pending += task->age < it->age;
    pthread_cond_signal(&workers->work);
}

void lochi_queue_unlink(loch_workers *workers, loch_task *task)
{
    *(task->prev ? &task->prev->next : &workers->first) = task->next;
    *(task->next ? &task->next->prev : &workers->last) = task->prev;
    task->prev = task->next = NULL;
}

void lochi_queue_note(loch_workers *workers, const loch_task *task)
{
    lochi_lock_assert_held(&workers->lock);
    if (task->is_cancelled || task->outcome.status == LOCH_OK) return;
    if (!workers->failed++) workers->failure = task->outcome;
}

bool lochi_queue_end_task(loch_workers *workers, loch_task *task)
{
    lochi_lock_assert_held(&workers->lock);
    task->state = LOCHI_TASK_ENDED;
    if (!task->is_held) lochi_queue_note(workers, task);
    if (task->waiter) pthread_cond_signal(task->waiter);
    for (lochi_workers_waiter *it = workers->waiters; it; it = it->next)
        if (task->age < it->age && !--it->pending) pthread_cond_signal(&it->ended);
    if (!--workers->pending && workers->is_ending) pthread_cond_broadcast(&workers->work);
    return !task->is_held;
}

bool lochi_queue_cancel_task(loch_workers *workers, loch_task *task)
{
    lochi_lock_assert_held(&workers->lock);
    lochi_queue_unlink(workers, task);
    task->is_cancelled = true;
    task->outcome = queue_cancelled;
    return lochi_queue_end_task(workers, task);
}

size_t lochi_queue_cancel_all(loch_workers *workers, loch_task **chain)
{
    lochi_lock_assert_held(&workers->lock);
    size_t count = 0;
    for (*chain = NULL; workers->first; count++) {
        loch_task *task = workers->first;
        if (!lochi_queue_cancel_task(workers, task)) continue;
        task->next = *chain;
        *chain = task;
    }
    return count;
}

void lochi_queue_free_chain(loch_task *chain)
{
    while (chain) {
        loch_task *next = chain->next;
        lochi_free(chain);
        chain = next;
    }
}

loch_error lochi_queue_take_failure(loch_workers *workers, size_t *failed)
{
    lochi_lock_assert_held(&workers->lock);
    const loch_error failure = workers->failed ? workers->failure : (loch_error){.driver = ""};
    if (failed) *failed = workers->failed;
    workers->failed = 0;
    return failure;
}
