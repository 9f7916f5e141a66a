/* SPDX-License-Identifier: MIT */
/* The watch over the other ranks: one thread for each communicator of several ranks.
 *
 * A process on this machine is watched by a descriptor of it, which tells its end at once. Of processes elsewhere NCCL
 * reports that a connection broke. A rank that ends in order closes its connections too: so the communicator fails at
 * once, which stops new calls, and the work that is under way gets a moment to end by itself before it is given up. */
#include "nccl_watch.h"
#include "kit/fail.h"
#include "kit/now.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WATCH_TICK_MS 100
#define WATCH_GRACE_MS 250
#define WATCH_NAMING_MS 50 /* how long after a broken connection a process may be seen to end */

struct comm_watch {
    pthread_t thread;
    bool is_running;
    int wake; /* eventfd: the thread ends */
    comm_identity *identities;
    struct pollfd *descriptors; /* the first is `wake`; then one for each watched process */
    int *ranks;                 /* rank of each descriptor */
    size_t count;               /* of descriptors */
};

/* --- identities --- */

void lochi_comm_identity_read(comm_identity *out)
{
    memset(out, 0, sizeof *out);
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        const ssize_t length = read(file, out->machine, sizeof out->machine - 1);
        out->machine[length > 0 ? (size_t)length : 0] = '\0';
        close(file);
    }
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) == 0) out->namespace_ = space.st_ino;
    out->process = getpid();
    gethostname(out->host, sizeof out->host - 1);
}

/* --- finding a lost rank --- */

static void watch_tell(const comm_watch *watch, size_t index)
{
    const comm_identity *lost = &watch->identities[watch->ranks[index]];
    loch_error_set(LOCH_E_NOT_FOUND, "nccl", 0, "rank %d (process %lld on %.60s) has ended: the communicator is lost",
                   watch->ranks[index], (long long)lost->process, lost->host);
}

/* Waits until a process ends, at most `milliseconds`. Does not look at `wake`. */
static bool watch_look(const comm_watch *watch, int milliseconds)
{
    if (watch->count <= 1) return false;
    struct pollfd *own = malloc((watch->count - 1) * sizeof *own); /* another thread may look too */
    if (!own) return false;
    for (size_t i = 0; i + 1 < watch->count; i++)
        own[i] = (struct pollfd){.fd = watch->descriptors[i + 1].fd, .events = POLLIN};
    bool is_found = false;
    if (poll(own, watch->count - 1, milliseconds) > 0)
        for (size_t i = 0; i + 1 < watch->count && !is_found; i++)
            if (own[i].revents) {
                watch_tell(watch, i + 1);
                is_found = true;
            }
    free(own);
    return is_found;
}

bool lochi_comm_watch_find_lost(loch_comm *comm)
{
    const comm_nccl *nccl = comm->below;
    return nccl->watch && watch_look(nccl->watch, WATCH_NAMING_MS);
}

/* --- the thread --- */

static void watch_abort(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    pthread_mutex_lock(&nccl->lock);
    lochi_comm_native_abort(comm);
    pthread_mutex_unlock(&nccl->lock);
}

/* Waits for the end of the watch. Returns whether it came. */
static bool watch_is_over(const comm_watch *watch, int milliseconds)
{
    struct pollfd wake = {.fd = watch->wake, .events = POLLIN};
    return poll(&wake, 1, milliseconds) > 0;
}

/* A rank is lost: the error record says which. Returns when the work was given up or the watch is over. */
static void watch_lose(loch_comm *comm, const comm_watch *watch)
{
    lochi_comm_failure_set(comm, loch_error_get()->status);
    if (!watch_is_over(watch, WATCH_GRACE_MS)) watch_abort(comm);
}

/* Asks NCCL whether something failed. The lock is left alone if a call has it: that call asks too. */
static bool watch_ask(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    int result = COMM_NCCL_SUCCESS;
    if (pthread_mutex_trylock(&nccl->lock) != 0) return false;
    if (nccl->native) nccl->api->ncclCommGetAsyncError(nccl->native, &result);
    pthread_mutex_unlock(&nccl->lock);
    if (result == COMM_NCCL_SUCCESS || result == COMM_NCCL_IN_PROGRESS) return false;
    if (!lochi_comm_watch_find_lost(comm)) lochi_comm_nccl_fail(nccl->api, result, "ncclCommGetAsyncError");
    return true;
}

/* Gives the work up if the communicator is being destroyed and its time is over. */
static bool watch_is_late(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    const uint64_t deadline_ns = atomic_load_explicit(&nccl->leave_deadline_ns, memory_order_acquire);
    if (!deadline_ns || lochi_now_ns() < deadline_ns) return false;
    loch_error_set(LOCH_E_BUSY, "nccl", 0, "the work of a communicator has not ended within %.3g s: it was given up",
                   (double)comm->timeout_ns * 1e-9);
    return true;
}

static void *watch_run(void *user)
{
    loch_comm *comm = user;
    const comm_watch *watch = ((const comm_nccl *)comm->below)->watch;
    for (;;) {
        const int found = poll(watch->descriptors, watch->count, WATCH_TICK_MS);
        if (found < 0 && errno != EINTR) return NULL;
        if (found > 0 && watch->descriptors[0].revents) return NULL;
        bool is_lost = false;
        for (size_t i = 1; found > 0 && i < watch->count && !is_lost; i++)
            if (watch->descriptors[i].revents) {
                watch_tell(watch, i);
                is_lost = true;
            }
        if (is_lost || watch_ask(comm) || watch_is_late(comm)) {
            watch_lose(comm, watch);
            return NULL;
        }
        if (atomic_load_explicit(&comm->is_failed, memory_order_acquire)) return NULL; /* a call was first */
    }
}

/* --- creation --- */

/* Opens descriptors of the processes that this one can see. A process that cannot be watched is left to NCCL. */
static void watch_open(loch_comm *comm, comm_watch *watch, const comm_identity *own)
{
    watch->descriptors[0] = (struct pollfd){.fd = watch->wake, .events = POLLIN};
    watch->count = 1;
    for (int rank = 0; rank < comm->ranks; rank++) {
        const comm_identity *other = &watch->identities[rank];
        if (strcmp(other->machine, own->machine) != 0 || other->namespace_ != own->namespace_ ||
            other->process == own->process)
            continue;
        const int descriptor = (int)syscall(SYS_pidfd_open, (pid_t)other->process, 0);
        if (descriptor < 0 && errno != ESRCH) continue;
        watch->ranks[watch->count] = rank;
        /* A process that has ended already cannot be opened: a descriptor that is readable stands for it. */
        watch->descriptors[watch->count++] = (struct pollfd){
            .fd = descriptor >= 0 ? descriptor : open("/dev/null", O_RDONLY | O_CLOEXEC), .events = POLLIN};
    }
}

static loch_status watch_start(loch_comm *comm, comm_watch *watch, const comm_identity *identities)
{
    const size_t count = (size_t)comm->ranks;
    watch->identities = malloc(count * sizeof *watch->identities);
    watch->descriptors = calloc(count + 1, sizeof *watch->descriptors);
    watch->ranks = calloc(count + 1, sizeof *watch->ranks);
    if (!watch->identities || !watch->descriptors || !watch->ranks)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the watch over %d ranks", comm->ranks);
    memcpy(watch->identities, identities, count * sizeof *identities);
    watch->wake = eventfd(0, EFD_CLOEXEC);
    if (watch->wake < 0) return LOCH_FAIL(LIMIT, "no file descriptor for the watch over other ranks");
    watch_open(comm, watch, &identities[comm->rank]);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals of the program are not for this thread */
    const int code = pthread_create(&watch->thread, NULL, watch_run, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) return LOCH_FAIL(HOST_MEMORY, "the system refuses a thread for the watch over other ranks");
    watch->is_running = true;
    return LOCH_OK;
}

loch_status lochi_comm_watch_create(loch_comm *comm, const comm_identity *identities)
{
    comm_nccl *nccl = comm->below;
    nccl->watch = calloc(1, sizeof *nccl->watch);
    if (!nccl->watch) return LOCH_FAIL(HOST_MEMORY, "no host memory for the watch over %d ranks", comm->ranks);
    nccl->watch->wake = -1;
    return watch_start(comm, nccl->watch, identities);
}

void lochi_comm_watch_destroy(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    comm_watch *watch = nccl->watch;
    if (!watch) return;
    if (watch->is_running) {
        const uint64_t one = 1;
        const ssize_t written = write(watch->wake, &one, sizeof one);
        (void)written; /* an eventfd takes it */
        pthread_join(watch->thread, NULL);
    }
    for (size_t i = 1; i < watch->count; i++)
        if (watch->descriptors[i].fd >= 0) close(watch->descriptors[i].fd);
    if (watch->wake >= 0) close(watch->wake);
    free(watch->identities);
    free(watch->descriptors);
    free(watch->ranks);
    free(watch);
    nccl->watch = NULL;
}
