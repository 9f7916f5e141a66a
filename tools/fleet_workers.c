/* SPDX-License-Identifier: MIT */
#include "fleet_workers.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Shared by all workers. */
typedef struct workers_state {
    atomic_size_t next, done;
    atomic_bool has_stopped;
    atomic_ullong peak_bytes; /* of the workers that have ended */
} workers_state;

void *fleet_shared_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void fleet_shared_free(void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes ? bytes : 1);
}

static void workers_loop(workers_state *state, size_t count, fleet_piece *work, void *user, tool_progress *progress)
{
    size_t piece;
    while (!atomic_load(&state->has_stopped) && (piece = atomic_fetch_add(&state->next, 1)) < count) {
        if (!work(piece, user)) atomic_store(&state->has_stopped, true);
        const size_t done = atomic_fetch_add(&state->done, 1) + 1;
        if (progress) tool_progress_show(progress, done);
    }
}

static void workers_note_memory(workers_state *state)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) atomic_fetch_add(&state->peak_bytes, 1024 * (uint64_t)usage.ru_maxrss);
}

/* Starts a process that works until no piece is left. Returns its id, or -1. */
static pid_t workers_start(workers_state *state, size_t count, fleet_piece *work, void *user)
{
    const pid_t parent = getpid(), child = fork();
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* its results would be lost */
    if (getppid() == parent) {
        workers_loop(state, count, work, user, NULL);
        workers_note_memory(state);
    }
    _exit(0); /* what the parent has not printed yet stays with the parent */
}

/* Waits for a process. Returns whether it has ended by itself. */
static bool workers_wait(pid_t child)
{
    int code = 0;
    while (waitpid(child, &code, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(code) && WEXITSTATUS(code) == 0;
}

loch_status fleet_workers_run(size_t workers, size_t count, const char *label, fleet_piece *work, void *user,
                              fleet_effort *out)
{
    pid_t children[FLEET_WORKERS_MAX];
    size_t started = 0;
    bool is_complete = true;
    *out = (fleet_effort){.elapsed_ns = 0};
    workers_state *state = fleet_shared_alloc(sizeof *state);
    if (!state) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no memory for the workers of a fleet");
    const uint64_t start_ns = loch_host_now_ns();
    /* Fewer processes than asked for do the same work. */
    while (started + 1 < workers && started + 1 < count && started < FLEET_WORKERS_MAX) {
        children[started] = workers_start(state, count, work, user);
        if (children[started] < 0) break;
        started++;
    }
    tool_progress progress = {.label = label, .total = count};
    workers_loop(state, count, work, user, tool_progress_is_wanted() ? &progress : NULL);
    for (size_t i = 0; i < started; i++)
        if (!workers_wait(children[i])) is_complete = false;
    tool_progress_end(&progress);
    workers_note_memory(state);
    out->elapsed_ns = loch_host_now_ns() - start_ns;
    out->peak_bytes = atomic_load(&state->peak_bytes);
    fleet_shared_free(state, sizeof *state);
    if (is_complete) return LOCH_OK;
    return loch_error_set(LOCH_E_CANCELLED, NULL, 0, "a process of the fleet was ended before its work was done");
}
