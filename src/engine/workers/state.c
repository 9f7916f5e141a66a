/* SPDX-License-Identifier: MIT */
/* The reference count of workers, and the record of the calling thread. */
#include "engine/workers/state.h"
#include "base/heap.h"

_Thread_local lochi_worker *lochi_workers_self;

loch_workers *lochi_workers_retain(loch_workers *workers)
{
    atomic_fetch_add_explicit(&workers->references, 1, memory_order_relaxed);
    return workers;
}

void lochi_workers_release(loch_workers *workers)
{
    if (atomic_fetch_sub_explicit(&workers->references, 1, memory_order_acq_rel) != 1) return;
    lochi_fork_leave(&workers->in_forks);
    pthread_cond_destroy(&workers->work);
    lochi_lock_fini(&workers->lock);
    lochi_free(workers);
}

lochi_worker *lochi_workers_find_self(const loch_workers *workers)
{
    lochi_worker *self = lochi_workers_self;
    return self && self->workers == workers && self->running ? self : NULL;
}
