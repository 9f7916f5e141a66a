/* SPDX-License-Identifier: MIT */
/* Workers in the child of a fork. Their threads do not exist there. */
#include "engine/workers/fork.h"
#include "base/fail.h"
#include "engine/workers/queue.h"
#include <stddef.h>

const loch_error lochi_task_left_behind = {
    .status = LOCH_E_FORKED,
    .driver = "",
    .sentence = "the task was queued before a fork: the threads that run it are not in the child"};

static lochi_fork_part fork_part;
static loch_task *fork_lost; /* tasks without a holder that will never run; used only in the child of a fork */

/* Empties the queue in the child: there is no thread to run it. */
static void fork_lose_queue(loch_workers *workers)
{
    while (workers->first) {
        loch_task *task = workers->first;
        lochi_queue_unlink(workers, task);
        workers->pending--;
        task->state = LOCHI_TASK_ENDED;
        task->waiter = NULL;
        task->outcome = lochi_task_left_behind;
        if (task->is_held) continue;
        task->next = fork_lost;
        fork_lost = task;
    }
}

/* Forgets threads that waited. Their stacks are not used any more in the child. */
static void fork_lose_threads(loch_workers *workers)
{
    for (const lochi_workers_waiter *it = workers->waiters; it; it = it->next)
        atomic_fetch_sub_explicit(&workers->references, 1, memory_order_relaxed);
    workers->waiters = NULL;
    workers->threads = 0;
    workers->is_forked = true;
    pthread_cond_init(&workers->work, NULL);
    if (!lochi_workers_self || lochi_workers_self->workers != workers) return;
    for (loch_task *task = lochi_workers_self->running; task; task = task->below)
        task->waiter = NULL;
}

static void fork_forked(void)
{
    for (lochi_fork_item *item = fork_part.items; item; item = item->next) {
        loch_workers *workers = (loch_workers *)((char *)item - offsetof(loch_workers, in_forks));
        fork_lose_threads(workers);
        fork_lose_queue(workers);
    }
}

static void fork_settle(void)
{
    lochi_queue_free_chain(fork_lost);
    fork_lost = NULL;
}

static lochi_fork_part fork_part = {.child = fork_forked, .settle = fork_settle};

bool lochi_task_is_lost(const loch_task *task)
{
    lochi_lock_assert_held(&task->workers->lock);
    return task->workers->is_forked && task->state == LOCHI_TASK_RUNNING && task->runner != lochi_workers_self;
}

loch_status lochi_workers_refuse_forked(const loch_workers *workers)
{
    return LOCH_FAIL(FORKED,
                     "the workers \"%s\" were opened before a fork: their threads do not exist in the child process",
                     workers->name);
}

void lochi_workers_enter_forks(loch_workers *workers)
{
    lochi_fork_enter(&fork_part, &workers->in_forks);
}
