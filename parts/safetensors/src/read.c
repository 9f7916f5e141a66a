/* SPDX-License-Identifier: MIT */
/* Reads a run of a file. A long run is cut into pieces that several threads take in turn: most of the time goes into
 * new pages of the target and into copies out of the system's cache, which processors can share. */
#include "common.h"
#include "file.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* Size of a piece. Starting a thread takes some ten microseconds, reading a piece into new pages a hundred times as
 * long. */
#define READ_PIECE ((size_t)2 << 20)
#define READ_THREADS_MAX 8

/* A run that is being read. */
typedef struct read_run {
    const safetensors_file *file;
    uint64_t offset;
    char *to;
    size_t bytes;
    atomic_size_t next; /* the first byte that no thread has taken */
    /* The first failure to come: its status, and where it was. Written by the thread that sets the status; read after
     * all threads have been joined. */
    atomic_int status;
    int error;
    uint64_t place;
} read_run;

static void read_note(read_run *run, loch_status status, int error, uint64_t place)
{
    int none = LOCH_OK;
    if (!atomic_compare_exchange_strong(&run->status, &none, (int)status)) return;
    run->error = error;
    run->place = place;
}

/* Reads bytes [first, end) of the run. Returns false after a failure. */
static bool read_piece(read_run *run, size_t first, size_t end)
{
    while (first < end) {
        const uint64_t place = run->offset + first;
        const ssize_t count = pread(run->file->number, run->to + first, end - first, (off_t)place);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            read_note(run, count ? LOCH_E_IO : LOCH_E_CORRUPT, errno, place);
            return false;
        }
        first += (size_t)count;
    }
    return true;
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

/* Returns how many threads help the caller: none with less than two pieces. */
static size_t read_helpers(size_t bytes)
{
    size_t threads = bytes / READ_PIECE;
    if (threads < 2) return 0;
    const size_t processors = read_processors();
    if (threads > READ_THREADS_MAX) threads = READ_THREADS_MAX;
    return (threads < processors ? threads : processors) - 1;
}

/* Reads with helpers. Where a thread cannot be started, the others do its work. */
static void read_shared(read_run *run, size_t helpers)
{
    pthread_t threads[READ_THREADS_MAX];
    sigset_t all, before;
    size_t started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* handlers of the program run in its own threads */
    while (started < helpers && pthread_create(&threads[started], NULL, read_pieces, run) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    read_pieces(run);
    while (started)
        pthread_join(threads[--started], NULL);
}

loch_status lochi_safetensors_file_read(const safetensors_file *file, uint64_t offset, void *to, size_t bytes)
{
    read_run run = {.file = file, .offset = offset, .to = to, .bytes = bytes};
    read_shared(&run, read_helpers(bytes));
    switch (atomic_load(&run.status)) {
    case LOCH_OK: return LOCH_OK;
    case LOCH_E_IO:
        return SAFETENSORS_FAIL(IO, "%s cannot be read: %s", safetensors_tail(file->path), strerror(run.error));
    default:
        return SAFETENSORS_FAIL(CORRUPT, "%s became shorter while it was open: it ends at byte %llu",
                                safetensors_tail(file->path), (unsigned long long)run.place);
    }
}
