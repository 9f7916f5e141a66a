/* SPDX-License-Identifier: MIT */
/* The failure of a communicator. Any thread may report one, and the first one stays. The child of a fork has no
 * communicators: connections and threads belong to its parent. */
#include "state.h"
#include "kit/fail.h"

unsigned lochi_comm_fork_epoch;

static pthread_once_t failure_once = PTHREAD_ONCE_INIT;

static void failure_forked(void)
{
    lochi_comm_fork_epoch++;
}

static void failure_watch(void)
{
    pthread_atfork(NULL, NULL, failure_forked);
}

void lochi_comm_fork_watch(void)
{
    pthread_once(&failure_once, failure_watch);
}

loch_status lochi_comm_error_restore(const loch_error *error)
{
    return loch_error_set(error->status, error->driver, error->driver_code, "%s", error->sentence);
}

loch_status lochi_comm_failure_set(loch_comm *comm, loch_status status)
{
    pthread_mutex_lock(&comm->failure_lock);
    if (!atomic_load_explicit(&comm->is_failed, memory_order_relaxed)) {
        comm->failure = *loch_error_get();
        comm->failure.status = status;
        atomic_store_explicit(&comm->is_failed, true, memory_order_release);
    }
    pthread_mutex_unlock(&comm->failure_lock);
    return status;
}

loch_status lochi_comm_failure_get(loch_comm *comm)
{
    if (comm->epoch != lochi_comm_fork_epoch)
        return LOCH_FAIL(FORKED, "the communicator was created before a fork: the child can only destroy it");
    if (!atomic_load_explicit(&comm->is_failed, memory_order_acquire)) return LOCH_OK;
    return lochi_comm_error_restore(&comm->failure);
}
