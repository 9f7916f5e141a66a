/* SPDX-License-Identifier: MIT */
/* Threads that run tasks.
 *
 * One lock guards the queue and every task's state; functions of users run without it. A task has two holders: the workers, until
 * it has ended, and whoever has its loch_task, until that is given back; the second one to let go frees it. Whoever waits sleeps
 * on a condition of its own, so that an end wakes nobody else. A loch_task holds the workers' bookkeeping, not their threads, and
 * may be waited for when they have gone.
 *
 * A worker that waits for a task which has not begun takes it out of the queue and runs it itself. It never runs any other on top
 * of what it is doing: that one might wait for the task below, which cannot go on before it. So a worker's stack is as deep
 * as the program's own chain of tasks that wait for each other, as it would be with plain calls; and whoever waits for a task
 * that another worker runs waits for what really has to come first.
 *
 * A worker that has to sleep for a task first looks whether that can end: whether from the task a worker can be reached that does
 * not sleep, by way of who runs it, or, while it is queued with other workers, of any of those, and of what they sleep for. One lock
 * of the process guards what workers sleep for, so the last one that closes a circle finds it, whichever workers it goes through. */
#include "base/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/lock.h"
#include "base/sized.h"
#include "device/current.h"
#include "engine/workers.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define WORKERS_THREADS_MAX 4096 /* more are a mistake, and not worth finding out the slow way */
#define WORKERS_NAME_MAX 16      /* what the system keeps of a thread's name, with its final zero */

/* One thread. */
typedef struct worker {
    loch_workers *workers;
    size_t index;
    pthread_t thread;
    loch_task *running; /* what it runs now, on top of others that wait for it; NULL between tasks */
    loch_task
        *awaited;  /* that this one sleeps for; NULL while it does not; under workers_waits_lock, like the next two */
    uint64_t walk; /* the last search that has found it */
    struct worker *walk_next; /* found by the same search, and not looked at yet */
    const void *note;         /* lochi_workers_set_note; its own thread's */
} worker;

struct loch_task {
    loch_workers *workers;
    loch_task_function *function;
    void *user;
    loch_device *device;           /* current in the thread while it runs; NULL: none */
    struct loch_task *prev, *next; /* in the queue */
    uint64_t age; /* loch_workers.age when it was queued from outside, or the age of the task that did it */
    enum { TASK_QUEUED, TASK_RUNNING, TASK_ENDED } state;
    bool is_held;            /* by a loch_task that is to be given back */
    bool is_cancelled;       /* it ended without having run */
    worker *runner;          /* whoever runs it */
    struct loch_task *below; /* that its runner was running before */
    pthread_cond_t *waiter;  /* of whoever waits for it */
    loch_error outcome;      /* the runner's until it has ended, then constant */
};

/* Somebody in loch_workers_wait; on their stack. */
typedef struct workers_waiter {
    struct workers_waiter *next;
    uint64_t age;   /* tasks of a lower age are waited for */
    size_t pending; /* how many of them have not ended */
    pthread_cond_t ended;
} workers_waiter;

struct loch_workers {
    char name[WORKERS_NAME_MAX];
    loch_device *device; /* of tasks, unless they are bare; NULL: none */
    atomic_size_t
        references;  /* the owner's, one for each loch_task, one for each who waits: relaxed up, acquire-release down */
    lochi_lock lock; /* LOCHI_RANK_WORKERS: what follows, and all tasks; nothing is called under it */
    pthread_cond_t work;     /* something is queued, or the threads are to end */
    loch_task *first, *last; /* the queue */
    size_t pending;          /* tasks that are queued or run */
    uint64_t age;            /* rises with every wait */
    uint64_t queued;         /* tasks so far */
    workers_waiter *waiters;
    loch_error failure; /* the first of `failed` */
    size_t failed;      /* tasks without a loch_task, since the last wait */
    bool is_ending;     /* nothing is taken from outside */
    bool is_cancelling; /* nor from inside */
    bool is_forked;     /* the threads are the parent's */
    lochi_fork_item in_forks;
    size_t threads; /* that run */
    worker list[];
};

static _Thread_local worker *workers_self; /* of a thread that workers made; NULL elsewhere */

/* Guards what workers sleep for. Taken by a worker that is about to sleep for a task, before the locks of workers. */
static lochi_lock workers_waits_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_WORKER_WAITS);
static uint64_t workers_last_walk; /* under it */

static const loch_error workers_cancelled = {
    .status = LOCH_E_CANCELLED, .driver = "", .sentence = "the task was cancelled before it ran"};

static const loch_error workers_left_behind = {
    .status = LOCH_E_FORKED,
    .driver = "",
    .sentence = "the task was queued before a fork: the threads that run it are not in the child"};

static loch_workers *workers_retain(loch_workers *workers)
{
    atomic_fetch_add_explicit(&workers->references, 1, memory_order_relaxed);
    return workers;
}

static void workers_release(loch_workers *workers)
{
    if (atomic_fetch_sub_explicit(&workers->references, 1, memory_order_acq_rel) != 1) return;
    lochi_fork_leave(&workers->in_forks);
    pthread_cond_destroy(&workers->work);
    lochi_lock_fini(&workers->lock);
    lochi_free(workers);
}

/* The calling thread's record if it runs a task of these workers. */
static worker *workers_find_self(const loch_workers *workers)
{
    worker *self = workers_self;
    return self && self->workers == workers && self->running ? self : NULL;
}

/* --- the queue and the ends of tasks; under the lock --- */

static void workers_push(loch_workers *workers, loch_task *task)
{
    task->prev = workers->last;
    *(workers->last ? &workers->last->next : &workers->first) = task;
    workers->last = task;
    workers->pending++;
    workers->queued++;
    for (workers_waiter *it = workers->waiters; it; it = it->next)
        it->pending += task->age < it->age;
    pthread_cond_signal(&workers->work);
}

static void workers_unlink(loch_workers *workers, loch_task *task)
{
    *(task->prev ? &task->prev->next : &workers->first) = task->next;
    *(task->next ? &task->next->prev : &workers->last) = task->prev;
    task->prev = task->next = NULL;
}

/* Of a task that nobody will ask: its failure is for loch_workers_wait. */
static void workers_note(loch_workers *workers, const loch_task *task)
{
    if (task->is_cancelled || task->outcome.status == LOCH_OK) return;
    if (!workers->failed++) workers->failure = task->outcome;
}

/* A task has run, or is out of the queue for good. Returns whether it is the caller's to free, without the lock. */
static bool workers_end_task(loch_workers *workers, loch_task *task)
{
    task->state = TASK_ENDED;
    if (!task->is_held) workers_note(workers, task);
    if (task->waiter) pthread_cond_signal(task->waiter);
    for (workers_waiter *it = workers->waiters; it; it = it->next)
        if (task->age < it->age && !--it->pending) pthread_cond_signal(&it->ended);
    if (!--workers->pending && workers->is_ending) pthread_cond_broadcast(&workers->work);
    return !task->is_held;
}

static bool workers_cancel_task(loch_workers *workers, loch_task *task)
{
    workers_unlink(workers, task);
    task->is_cancelled = true;
    task->outcome = workers_cancelled;
    return workers_end_task(workers, task);
}

/* Cancels all that is queued, and chains what is to be freed by `next`. */
static size_t workers_cancel_all(loch_workers *workers, loch_task **chain)
{
    size_t count = 0;
    for (*chain = NULL; workers->first; count++) {
        loch_task *task = workers->first;
        if (!workers_cancel_task(workers, task)) continue;
        task->next = *chain;
        *chain = task;
    }
    return count;
}

static void workers_free_chain(loch_task *chain)
{
    while (chain) {
        loch_task *next = chain->next;
        lochi_free(chain);
        chain = next;
    }
}

/* What went wrong since the last time somebody asked. */
static loch_error workers_take_failure(loch_workers *workers, size_t *failed)
{
    const loch_error failure = workers->failed ? workers->failure : (loch_error){.driver = ""};
    if (failed) *failed = workers->failed;
    workers->failed = 0;
    return failure;
}

/* --- forks --- */

static lochi_fork_part workers_part;
static loch_task *workers_lost; /* tasks that nobody holds and nobody will run; in the child of a fork, alone */

/* The queue is empty in the child: nobody is there to run it. */
static void workers_lose_queue(loch_workers *workers)
{
    while (workers->first) {
        loch_task *task = workers->first;
        workers_unlink(workers, task);
        workers->pending--;
        task->state = TASK_ENDED;
        task->waiter = NULL;
        task->outcome = workers_left_behind;
        if (task->is_held) continue;
        task->next = workers_lost;
        workers_lost = task;
    }
}

/* Threads that waited lie on stacks that are not used any more. */
static void workers_lose_threads(loch_workers *workers)
{
    for (const workers_waiter *it = workers->waiters; it; it = it->next)
        atomic_fetch_sub_explicit(&workers->references, 1, memory_order_relaxed);
    workers->waiters = NULL;
    workers->threads = 0;
    workers->is_forked = true;
    pthread_cond_init(&workers->work, NULL);
    if (!workers_self || workers_self->workers != workers) return;
    for (loch_task *task = workers_self->running; task; task = task->below)
        task->waiter = NULL;
}

static void workers_forked(void)
{
    for (lochi_fork_item *item = workers_part.items; item; item = item->next) {
        loch_workers *workers = (loch_workers *)((char *)item - offsetof(loch_workers, in_forks));
        workers_lose_threads(workers);
        workers_lose_queue(workers);
    }
}

static void workers_settle(void)
{
    workers_free_chain(workers_lost);
    workers_lost = NULL;
}

static lochi_fork_part workers_part = {.child = workers_forked, .settle = workers_settle};

/* Whether a task was running in a thread that is not here. Under the lock. */
static bool task_is_lost(const loch_task *task)
{
    return task->workers->is_forked && task->state == TASK_RUNNING && task->runner != workers_self;
}

static loch_status workers_refuse_forked(const loch_workers *workers)
{
    return LOCH_FAIL(FORKED, "the workers \"%s\" were made before a fork: their threads are not in the child",
                     workers->name);
}

/* --- running --- */

/* Calls a task's function. The thread's record is then the task's, not what an earlier one left. */
static void workers_call(loch_task *task)
{
    lochi_stay stay = {0};
    loch_error_clear();
    loch_status status = task->device ? lochi_stay_begin(&stay, task->device) : LOCH_OK;
    if (status == LOCH_OK) status = task->function(task->user);
    lochi_stay_end(&stay);
    if (status == LOCH_OK) return;
    if (loch_error_get()->status != status)
        loch_error_set(status, NULL, 0, "a task of the workers \"%s\" gave %s, and no sentence", task->workers->name,
                       loch_status_name(status));
    task->outcome = lochi_error_save();
}

/* Runs a task that is out of the queue. Under the lock, which is released meanwhile. */
static void workers_run_task(worker *self, loch_task *task)
{
    loch_workers *workers = self->workers;
    loch_task *below = self->running;
    self->running = task;
    task->below = below;
    task->runner = self;
    task->state = TASK_RUNNING;
    lochi_lock_drop(&workers->lock);
    workers_call(task);
    lochi_lock_take(&workers->lock);
    self->running = below;
    if (!workers_end_task(workers, task)) return;
    lochi_lock_drop(&workers->lock);
    lochi_free(task);
    lochi_lock_take(&workers->lock);
}

static void *workers_thread(void *argument)
{
    LOCHI_NOT_CANCELLED; /* for its life: tasks are others' */
    worker *self = argument;
    loch_workers *workers = self->workers;
    workers_self = self;
    lochi_lock_take(&workers->lock);
    for (;;) {
        /* While tasks run, they may queue more: nobody leaves before the last one has ended. */
        while (!workers->first && !workers->is_forked && !(workers->is_ending && !workers->pending))
            lochi_lock_wait(&workers->lock, &workers->work);
        loch_task *task = workers->first;
        if (!task) break;
        workers_unlink(workers, task);
        workers_run_task(self, task);
    }
    lochi_lock_drop(&workers->lock);
    workers_self = NULL;
    return NULL;
}

/* --- making and ending --- */

static loch_status workers_read_options(const loch_workers_options *given, loch_workers_options *out)
{
    *out = (loch_workers_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("loch_workers_options", given, out, sizeof *out));
    if (!out->name) out->name = "loch";
    if (!out->threads) out->threads = 1;
    if (out->threads > WORKERS_THREADS_MAX)
        return LOCH_FAIL(INVALID, "%zu threads are more than %d", out->threads, WORKERS_THREADS_MAX);
    if (!out->cpus != !out->cpus_count) return LOCH_FAIL(INVALID, "CPUs need a list and the number of its entries");
    for (size_t i = 0; i < out->cpus_count; i++)
        if (out->cpus[i] >= CPU_SETSIZE) return LOCH_FAIL(INVALID, "there is no CPU %u", out->cpus[i]);
    return LOCH_OK;
}

static loch_status workers_bind(const worker *self, unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    const int error = pthread_setaffinity_np(self->thread, sizeof set, &set);
    return error ? LOCH_FAIL(INVALID, "workers may not run on CPU %u: error %d of the system", cpu, error) : LOCH_OK;
}

/* "name-0" in as many characters as the system keeps: it is the name that is cut. */
static void workers_name(const worker *self)
{
    char name[64];
    const int number = snprintf(NULL, 0, "-%zu", self->index);
    snprintf(name, sizeof name, "%.*s-%zu", WORKERS_NAME_MAX - 1 - number, self->workers->name, self->index);
    pthread_setname_np(self->thread, name); /* a thread without a name works as well */
}

static loch_status workers_start(loch_workers *workers, const loch_workers_options *options)
{
    worker *self = &workers->list[workers->threads];
    self->workers = workers;
    self->index = workers->threads;
    sigset_t all, before; /* signals of the process are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&self->thread, NULL, workers_thread, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return LOCH_FAIL(LIMIT, "the system gives no thread %zu of %zu: error %d", self->index + 1, options->threads,
                         error);
    workers->threads++; /* to be joined */
    workers_name(self);
    return options->cpus ? workers_bind(self, options->cpus[self->index % options->cpus_count]) : LOCH_OK;
}

/* Ends the threads and gives the owner's reference back. */
static loch_error workers_end(loch_workers *workers, loch_workers_closing how, size_t *cancelled)
{
    LOCHI_NOT_CANCELLED;
    loch_task *chain = NULL;
    size_t count = 0;
    lochi_lock_take(&workers->lock);
    workers->is_ending = true;
    workers->is_cancelling = how == LOCH_WORKERS_CANCEL;
    if (workers->is_cancelling) count = workers_cancel_all(workers, &chain);
    pthread_cond_broadcast(&workers->work);
    lochi_lock_drop(&workers->lock);
    workers_free_chain(chain);
    for (size_t i = 0; i < workers->threads; i++)
        pthread_join(workers->list[i].thread, NULL);
    lochi_lock_take(&workers->lock); /* others may be on their way out of a wait */
    const loch_error failure = workers_take_failure(workers, NULL);
    lochi_lock_drop(&workers->lock);
    workers_release(workers);
    if (cancelled) *cancelled = count;
    return failure;
}

loch_status loch_workers_open(const loch_workers_options *options, loch_workers **out)
{
    return lochi_workers_create(options, NULL, out);
}

loch_status lochi_workers_create(const loch_workers_options *options, loch_device *device, loch_workers **out)
{
    if (out) *out = NULL;
    if (!out) return LOCH_FAIL(INVALID, "workers need a place");
    loch_workers_options read;
    loch_status status;
    LOCH_TRY_RETURN(workers_read_options(options, &read));
    loch_workers *workers = lochi_zalloc(sizeof *workers + read.threads * sizeof workers->list[0]);
    if (!workers) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu workers", read.threads);
    snprintf(workers->name, sizeof workers->name, "%s", read.name);
    workers->device = device;
    atomic_init(&workers->references, 1);
    lochi_lock_init(&workers->lock, LOCHI_RANK_WORKERS);
    pthread_cond_init(&workers->work, NULL);
    lochi_fork_enter(&workers_part, &workers->in_forks);
    while (workers->threads < read.threads)
        LOCH_TRY(workers_start(workers, &read), fail);
    *out = workers;
    return LOCH_OK;
fail:
    workers_end(workers, LOCH_WORKERS_CANCEL, NULL);
    return status;
}

loch_status loch_workers_close(loch_workers *workers, loch_workers_closing how, size_t *cancelled)
{
    if (cancelled) *cancelled = 0;
    if ((unsigned)how > LOCH_WORKERS_CANCEL) return LOCH_FAIL(INVALID, "workers do not end in a way %d", (int)how);
    if (!workers) return LOCH_OK;
    if (workers_find_self(workers))
        return LOCH_FAIL(INVALID, "a task of the workers \"%s\" cannot end them", workers->name);
    const loch_error failure = workers_end(workers, how, cancelled);
    if (failure.status != LOCH_OK) lochi_error_restore(&failure);
    return failure.status;
}

/* --- queueing --- */

/* Queues a task unless the workers take no more. */
static bool workers_accept(loch_workers *workers, loch_task *task)
{
    const worker *self = workers_find_self(workers);
    lochi_lock_take(&workers->lock);
    const bool is_open = self ? !workers->is_cancelling : !workers->is_ending;
    task->age = self ? self->running->age : workers->age;
    if (is_open) workers_push(workers, task);
    lochi_lock_drop(&workers->lock);
    return is_open;
}

static loch_status workers_queue(loch_workers *workers, loch_device *device, loch_task_function *function, void *user,
                                 loch_task **out)
{
    if (out) *out = NULL;
    if (workers->is_forked) return workers_refuse_forked(workers);
    loch_task *task = lochi_zalloc(sizeof *task);
    if (!task) return LOCH_FAIL(HOST_MEMORY, "no host memory for a task");
    task->workers = workers;
    task->function = function;
    task->user = user;
    task->device = device;
    task->is_held = out;
    if (out) workers_retain(workers);
    if (workers_accept(workers, task)) {
        if (out) *out = task;
        return LOCH_OK;
    }
    const loch_status status =
        LOCH_FAIL(CANCELLED, "the workers \"%s\" are ending, and take no more tasks", workers->name);
    if (out) workers_release(workers);
    lochi_free(task);
    return status;
}

loch_status loch_workers_run(loch_workers *workers, loch_task_function *function, void *user, loch_task **out)
{
    if (out) *out = NULL;
    if (!workers || !function) return LOCH_FAIL(INVALID, "a task needs workers and a function");
    return workers_queue(workers, workers->device, function, user, out);
}

loch_status lochi_workers_run_bare(loch_workers *workers, loch_task_function *function, void *user, loch_task **out)
{
    return workers_queue(workers, NULL, function, user, out);
}

loch_status loch_workers_run_wait(loch_workers *workers, loch_task_function *function, void *user)
{
    loch_task *task;
    LOCH_TRY_RETURN(loch_workers_run(workers, function, user, &task));
    return loch_task_wait(task);
}

size_t loch_workers_cancel(loch_workers *workers)
{
    if (!workers) return 0;
    loch_task *chain;
    lochi_lock_take(&workers->lock);
    const size_t count = workers_cancel_all(workers, &chain);
    lochi_lock_drop(&workers->lock);
    workers_free_chain(chain);
    return count;
}

size_t loch_workers_get_threads(const loch_workers *workers)
{
    return workers ? workers->threads : 0;
}

size_t loch_workers_get_current(const loch_workers *workers)
{
    return workers && workers_self && workers_self->workers == workers ? workers_self->index : SIZE_MAX;
}

uint64_t lochi_workers_get_queued(loch_workers *workers)
{
    if (!workers) return 0;
    lochi_lock_take(&workers->lock);
    const uint64_t queued = workers->queued;
    lochi_lock_drop(&workers->lock);
    return queued;
}

const void *lochi_workers_get_note(void)
{
    return workers_self ? workers_self->note : NULL;
}

void lochi_workers_set_note(const void *note)
{
    if (workers_self) workers_self->note = note;
}

size_t lochi_workers_close(loch_workers *workers)
{
    if (!workers) return 0;
    loch_task *chain;
    lochi_lock_take(&workers->lock);
    workers->is_ending = workers->is_cancelling = true;
    const size_t count = workers_cancel_all(workers, &chain);
    pthread_cond_broadcast(&workers->work);
    lochi_lock_drop(&workers->lock);
    workers_free_chain(chain);
    return count;
}

/* --- waiting --- */

/* Sleeps until the tasks of now, and what they queue, have ended. Under the lock. */
static void workers_sleep(loch_workers *workers, workers_waiter *self)
{
    LOCHI_NOT_CANCELLED;
    if (!workers->pending) return;
    *self = (workers_waiter){.next = workers->waiters, .age = ++workers->age, .pending = workers->pending};
    pthread_cond_init(&self->ended, NULL);
    workers->waiters = self;
    while (self->pending)
        lochi_lock_wait(&workers->lock, &self->ended);
    workers_waiter **link = &workers->waiters;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    pthread_cond_destroy(&self->ended);
}

loch_status loch_workers_wait(loch_workers *workers, size_t *failed)
{
    if (failed) *failed = 0;
    if (!workers) return LOCH_FAIL(INVALID, "there are no workers to wait for");
    if (workers->is_forked) return workers_refuse_forked(workers);
    if (workers_find_self(workers))
        return LOCH_FAIL(INVALID, "a task of the workers \"%s\" cannot wait for all of them, itself among them",
                         workers->name);
    workers_waiter self;
    workers_retain(workers); /* they may end meanwhile */
    lochi_lock_take(&workers->lock);
    workers_sleep(workers, &self);
    const loch_error failure = workers_take_failure(workers, failed);
    lochi_lock_drop(&workers->lock);
    workers_release(workers);
    if (failure.status != LOCH_OK) lochi_error_restore(&failure);
    return failure.status;
}

/* Adds a worker to those that a search has found and has to look at. Under workers_waits_lock. */
static void workers_find(worker *found, uint64_t walk, worker **list)
{
    if (found->walk == walk) return;
    found->walk = walk;
    found->walk_next = *list;
    *list = found;
}

/* Adds the workers by which a task can go on. Returns whether it has ended. Under workers_waits_lock, so a task that a worker
 * sleeps for stays. */
static bool workers_find_runners(loch_task *task, uint64_t walk, worker **list)
{
    loch_workers *workers = task->workers;
    lochi_lock_take(&workers->lock);
    const bool is_ended = task->state == TASK_ENDED;
    if (task->state == TASK_RUNNING) workers_find(task->runner, walk, list);
    for (size_t i = 0; task->state == TASK_QUEUED && i < workers->threads; i++)
        workers_find(&workers->list[i], walk, list);
    lochi_lock_drop(&workers->lock);
    return is_ended;
}

/* Whether a task can end while this worker sleeps for it. Under workers_waits_lock. */
static bool workers_can_end(worker *self, loch_task *task)
{
    const uint64_t walk = self->walk = ++workers_last_walk; /* it is found already, and does not help */
    worker *list = NULL;
    bool can_end = workers_find_runners(task, walk, &list);
    while (!can_end && list) {
        const worker *at = list;
        list = at->walk_next;
        can_end = !at->awaited || workers_find_runners(at->awaited, walk, &list);
    }
    return can_end;
}

/* Notes what a worker sleeps for, or NULL. Returns whether it may. */
static bool workers_await(worker *self, loch_task *task)
{
    lochi_lock_take(&workers_waits_lock);
    const bool may_sleep = !task || workers_can_end(self, task);
    self->awaited = may_sleep ? task : NULL;
    lochi_lock_drop(&workers_waits_lock);
    return may_sleep;
}

/* Sleeps until a task has ended that does not run here. Under the lock. */
static void task_sleep(loch_task *task)
{
    LOCHI_NOT_CANCELLED;
    pthread_cond_t ended;
    pthread_cond_init(&ended, NULL);
    task->waiter = &ended;
    while (task->state != TASK_ENDED)
        lochi_lock_wait(&task->workers->lock, &ended);
    task->waiter = NULL;
    pthread_cond_destroy(&ended);
}

/* Runs a task here, for a worker that waits for it, whose own record stays. Under the lock. */
static void task_run_here(loch_task *task, worker *self)
{
    const loch_error saved = lochi_error_save();
    workers_unlink(self->workers, task);
    workers_run_task(self, task);
    lochi_error_restore(&saved);
}

loch_status loch_task_wait(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "there is no task to wait for");
    loch_workers *workers = task->workers;
    worker *self = workers_self && workers_self->running ? workers_self : NULL;
    lochi_lock_take(&workers->lock);
    const bool is_lost = task_is_lost(task);
    if (is_lost) task->outcome = workers_left_behind;
    if (self && self->workers == workers && task->state == TASK_QUEUED) task_run_here(task, self);
    if (self && !is_lost && task->state != TASK_ENDED) {
        lochi_lock_drop(&workers->lock);
        if (!workers_await(self, task))
            return LOCH_FAIL(INVALID, "the task waits for the one that would wait for it: neither would ever end");
        lochi_lock_take(&workers->lock);
        task_sleep(task);
        lochi_lock_drop(&workers->lock);
        (void)workers_await(self, NULL);
    } else {
        if (!is_lost && task->state != TASK_ENDED) task_sleep(task);
        lochi_lock_drop(&workers->lock);
    }
    const loch_status status = task->outcome.status;
    if (status != LOCH_OK) lochi_error_restore(&task->outcome);
    lochi_free(task);
    workers_release(workers);
    return status;
}

loch_status loch_task_query(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "there is no task to ask");
    lochi_lock_take(&task->workers->lock);
    const bool is_ended = task->state == TASK_ENDED, is_lost = task_is_lost(task);
    lochi_lock_drop(&task->workers->lock);
    if (is_lost) return workers_refuse_forked(task->workers);
    return is_ended ? LOCH_OK : LOCH_E_BUSY;
}

loch_status loch_task_cancel(loch_task *task)
{
    if (!task) return LOCH_FAIL(INVALID, "there is no task to cancel");
    lochi_lock_take(&task->workers->lock);
    const bool is_queued = task->state == TASK_QUEUED;
    if (is_queued) (void)workers_cancel_task(task->workers, task); /* it is held, by the caller */
    lochi_lock_drop(&task->workers->lock);
    return is_queued ? LOCH_OK : LOCH_FAIL(BUSY, "the task runs, or has ended");
}

void loch_task_release(loch_task *task)
{
    if (!task) return;
    loch_workers *workers = task->workers;
    lochi_lock_take(&workers->lock);
    const bool is_ended = task->state == TASK_ENDED, is_over = is_ended || task_is_lost(task);
    task->is_held = false;
    if (is_ended) workers_note(workers, task); /* nobody has asked, and nobody will */
    lochi_lock_drop(&workers->lock);
    if (is_over) lochi_free(task);
    workers_release(workers);
}
