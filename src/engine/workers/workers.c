/* SPDX-License-Identifier: MIT */
/* Workers: open, queue tasks, close. state.h describes how the parts work together. */
#include "engine/workers/workers.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "engine/workers/fork.h"
#include "engine/workers/queue.h"
#include "engine/workers/run.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#define WORKERS_THREADS_MAX 4096 /* a larger number is a mistake of the caller */

/* --- open and close --- */

static loch_status workers_read_options(const loch_workers_options *given, loch_workers_options *out)
{
    *out = (loch_workers_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("loch_workers_options", given, out, sizeof *out));
    if (!out->name) out->name = "loch";
    if (!out->threads) out->threads = 1;
    if (out->threads > WORKERS_THREADS_MAX)
        return LOCH_FAIL(INVALID, "%zu threads are too many: at most %d are allowed", out->threads,
                         WORKERS_THREADS_MAX);
    if (!out->cpus != !out->cpus_count) return LOCH_FAIL(INVALID, "cpus and cpus_count must be given together");
    for (size_t i = 0; i < out->cpus_count; i++)
        if (out->cpus[i] >= CPU_SETSIZE) return LOCH_FAIL(INVALID, "there is no CPU %u", out->cpus[i]);
    return LOCH_OK;
}

static loch_status workers_bind(const lochi_worker *self, unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    const int error = pthread_setaffinity_np(self->thread, sizeof set, &set);
    return error ? LOCH_FAIL(INVALID, "the system refuses to run workers on CPU %u: error %d", cpu, error) : LOCH_OK;
}

/* Names a thread "name-0". The name is cut so that the whole fits the system's limit. */
static void workers_name(const lochi_worker *self)
{
    char name[64];
    const int number = snprintf(NULL, 0, "-%zu", self->index);
    snprintf(name, sizeof name, "%.*s-%zu", LOCHI_WORKERS_NAME_MAX - 1 - number, self->workers->name, self->index);
    pthread_setname_np(self->thread, name); /* a failure is ignored: the thread works without a name */
}

static loch_status workers_start(loch_workers *workers, const loch_workers_options *options)
{
    lochi_worker *self = &workers->list[workers->threads];
    self->workers = workers;
    self->index = workers->threads;
    sigset_t all, before; /* threads of workers block all signals: the program's own threads handle them */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&self->thread, NULL, lochi_workers_thread, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return LOCH_FAIL(LIMIT, "the system refused to create thread %zu of %zu: error %d", self->index + 1,
                         options->threads, error);
    workers->threads++; /* must be joined */
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
    if (workers->is_cancelling) count = lochi_queue_cancel_all(workers, &chain);
    pthread_cond_broadcast(&workers->work);
    lochi_lock_drop(&workers->lock);
    lochi_queue_free_chain(chain);
    for (size_t i = 0; i < workers->threads; i++)
        pthread_join(workers->list[i].thread, NULL);
    lochi_lock_take(&workers->lock); /* other threads may still be leaving a wait */
    const loch_error failure = lochi_queue_take_failure(workers, NULL);
    lochi_lock_drop(&workers->lock);
    lochi_workers_release(workers);
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
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the workers is NULL");
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
    lochi_workers_enter_forks(workers);
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
    if ((unsigned)how > LOCH_WORKERS_CANCEL)
        return LOCH_FAIL(INVALID, "%d is not a loch_workers_closing value", (int)how);
    if (!workers) return LOCH_OK;
    if (lochi_workers_find_self(workers))
        return LOCH_FAIL(INVALID, "a task of the workers \"%s\" cannot close them", workers->name);
    const loch_error failure = workers_end(workers, how, cancelled);
    if (failure.status != LOCH_OK) lochi_error_restore(&failure);
    return failure.status;
}

/* --- queueing --- */

/* Queues a task. Returns false if the workers accept no more tasks. */
static bool workers_accept(loch_workers *workers, loch_task *task)
{
    const lochi_worker *self = lochi_workers_find_self(workers);
    lochi_lock_take(&workers->lock);
    const bool is_open = self ? !workers->is_cancelling : !workers->is_ending;
    task->age = self ? self->running->age : workers->age;
    if (is_open) lochi_queue_push(workers, task);
    lochi_lock_drop(&workers->lock);
    return is_open;
}

static loch_status workers_queue(loch_workers *workers, loch_device *device, loch_task_function *function, void *user,
                                 loch_task **out)
{
    if (out) *out = NULL;
    if (workers->is_forked) return lochi_workers_refuse_forked(workers);
    loch_task *task = lochi_zalloc(sizeof *task);
    if (!task) return LOCH_FAIL(HOST_MEMORY, "no host memory for a task");
    task->workers = workers;
    task->function = function;
    task->user = user;
    task->device = device;
    task->is_held = out;
    if (out) lochi_workers_retain(workers);
    if (workers_accept(workers, task)) {
        if (out) *out = task;
        return LOCH_OK;
    }
    const loch_status status =
        LOCH_FAIL(CANCELLED, "the workers \"%s\" are closing and accept no more tasks", workers->name);
    if (out) lochi_workers_release(workers);
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
    const size_t count = lochi_queue_cancel_all(workers, &chain);
    lochi_lock_drop(&workers->lock);
    lochi_queue_free_chain(chain);
    return count;
}

size_t loch_workers_get_threads(const loch_workers *workers)
{
    return workers ? workers->threads : 0;
}

size_t loch_workers_get_current(const loch_workers *workers)
{
    return workers && lochi_workers_self && lochi_workers_self->workers == workers ? lochi_workers_self->index
                                                                                   : SIZE_MAX;
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
    return lochi_workers_self ? lochi_workers_self->note : NULL;
}

void lochi_workers_set_note(const void *note)
{
    if (lochi_workers_self) lochi_workers_self->note = note;
}

size_t lochi_workers_close(loch_workers *workers)
{
    if (!workers) return 0;
    loch_task *chain;
    lochi_lock_take(&workers->lock);
    workers->is_ending = workers->is_cancelling = true;
    const size_t count = lochi_queue_cancel_all(workers, &chain);
    pthread_cond_broadcast(&workers->work);
    lochi_lock_drop(&workers->lock);
    lochi_queue_free_chain(chain);
    return count;
}
