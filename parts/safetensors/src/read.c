/* SPDX-License-Identifier: MIT */
/* Reads a run of a file. A long run is cut into pieces that several threads take in turn: most of the time goes into
 * new pages of the target and into copies out of the system's cache, which processors can share. */
#include "read.h"
#include "common.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* Size of a piece. Starting a thread takes some ten microseconds, reading a piece into new pages a hundred times as
 * long. */
#define READ_PIECE ((size_t)2 << 20)

/* A run that is being read. */
typedef struct read_run {
    const safetensors_file *file;
    uint64_t offset;
    char *to;
    size_t bytes;
    atomic_size_t next; /* the first byte that no thread has taken */
    /* The first failure to come. Written by the thread that sets the flag; read after all threads have been joined. */
    atomic_bool is_failed;
    safetensors_read_failure failure;
} read_run;

bool lochi_safetensors_read_range(const safetensors_file *file, uint64_t offset, void *to, size_t bytes,
                                  safetensors_read_failure *out)
{
    for (char *at = to; bytes;) {
        const ssize_t count = pread(file->number, at, bytes, (off_t)offset);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            *out = (safetensors_read_failure){
                .status = count ? LOCH_E_IO : LOCH_E_CORRUPT, .error = errno, .place = offset, .file = file};
            return false;
        }
        at += count;
        offset += (uint64_t)count;
        bytes -= (size_t)count;
    }
    return true;
}

loch_status lochi_safetensors_read_tell(const safetensors_read_failure *failure)
{
    const char *path = safetensors_tail(failure->file->path);
    if (failure->status == LOCH_E_IO) return LOCH_FAIL(IO, "%s cannot be read: %s", path, strerror(failure->error));
    return LOCH_FAIL(CORRUPT, "%s became shorter while it was open: it ends at byte %llu", path,
                     (unsigned long long)failure->place);
}

/* Reads bytes [first, end) of the run. Returns false after a failure. */
static bool read_piece(read_run *run, size_t first, size_t end)
{
    safetensors_read_failure failure;
    if (lochi_safetensors_read_range(run->file, run->offset + first, run->to + first, end - first, &failure))
        return true;
    if (!atomic_exchange(&run->is_failed, true)) run->failure = failure;
    return false;
}

/* Takes pieces until there are no more. */
static void *read_pieces(void *user)
{
    read_run *run = user;
    for (;;) {
        const size_t first = atomic_fetch_add_explicit(&run->next, READ_PIECE, memory_order_relaxed);
        if (first >= run->bytes) return NULL;
        const size_t left = run->bytes - first;
        if (!read_piece(run, first, first + (left < READ_PIECE ? left : READ_PIECE))) return NULL;
    }
}

/* Returns how many processors the thread may run on. */
static size_t read_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (size_t)CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than the set has room for */
    return online > 0 ? (size_t)online : 1;
}

size_t lochi_safetensors_read_helpers(size_t parts)
{
    if (parts < 2) return 0;
    const size_t processors = read_processors();
    if (parts > SAFETENSORS_READ_THREADS_MAX) parts = SAFETENSORS_READ_THREADS_MAX;
    return (parts < processors ? parts : processors) - 1;
}

size_t lochi_safetensors_read_start(void *(*run)(void *), void *user, size_t count, pthread_t *out)
{
    sigset_t all, before;
    size_t started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* handlers of the program run in its own threads */
    while (started < count && pthread_create(&out[started], NULL, run, user) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

loch_status lochi_safetensors_file_read(const safetensors_file *file, uint64_t offset, void *to, size_t bytes)
{
    pthread_t threads[SAFETENSORS_READ_THREADS_MAX];
    read_run run = {.file = file, .offset = offset, .to = to, .bytes = bytes};
    /* where a thread cannot be started, the others do its work */
    const size_t helpers = lochi_safetensors_read_helpers(bytes / READ_PIECE);
    size_t started = lochi_safetensors_read_start(read_pieces, &run, helpers, threads);
    read_pieces(&run);
    while (started)
        pthread_join(threads[--started], NULL);
    return atomic_load(&run.is_failed) ? lochi_safetensors_read_tell(&run.failure) : LOCH_OK;
}
