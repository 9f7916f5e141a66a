/* SPDX-License-Identifier: MIT */
/* A library in the place of NCCL, for what a real one cannot be made to do: ranks that do not come, connections that
 * break at a chosen moment, memory that runs out. Processes exchange a few kilobytes over a mapped file
 * (STAND_IN_FILE). A call waits for all ranks as the real ones do: it is in progress until ncclCommGetAsyncError finds
 * that all have arrived. Memory is that of a simulated device, which the host can read. */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STAND_IN __attribute__((visibility("default")))

enum { RANKS = 8, CALLS = 1 << 20, SLOT = 8192 };
enum { SUCCESS = 0, INVALID = 4, IN_PROGRESS = 7, NEVER = INT_MAX };

/* What processes share. */
typedef struct board {
    atomic_int arrived[CALLS];
    char slots[2][RANKS][SLOT]; /* what ranks bring to even and to odd calls */
} board;

typedef struct comm {
    board *shared;
    int rank, ranks, calls;
    bool is_waiting; /* a call is in progress */
    void *to;
    size_t bytes; /* what the call takes from each rank */
    enum { TAKE_ALL, TAKE_FIRST, TAKE_NOTHING } take;
} comm;

typedef struct id {
    char bytes[128];
} id;

typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

static atomic_int live_comms, live_registrations, aborted, forced_result;

STAND_IN int ncclGetVersion(int *version);
STAND_IN const char *ncclGetErrorString(int result);
STAND_IN int ncclGetUniqueId(id *out);
STAND_IN int ncclCommInitAll(void **out, int count, const int *devices);
STAND_IN int ncclCommInitRankConfig(void **out, int ranks, id given, int rank, config *how);
STAND_IN int ncclCommFinalize(void *c);
STAND_IN int ncclCommDestroy(void *c);
STAND_IN int ncclCommAbort(void *c);
STAND_IN int ncclCommGetAsyncError(void *c, int *result);
STAND_IN int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *c, void *stream);
STAND_IN int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, void *c, void *stream);
STAND_IN int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *c, void *stream);
STAND_IN int ncclAllGather(const void *from, void *to, size_t count, int type, void *c, void *stream);
STAND_IN int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *c, void *stream);
STAND_IN int ncclSend(const void *from, size_t count, int type, int peer, void *c, void *stream);
STAND_IN int ncclRecv(void *to, size_t count, int type, int peer, void *c, void *stream);
STAND_IN int ncclGroupStart(void);
STAND_IN int ncclGroupEnd(void);
STAND_IN int ncclCommRegister(void *c, void *address, size_t bytes, void **out);
STAND_IN int ncclCommDeregister(void *c, void *handle);
STAND_IN void stand_in_force(int result);
STAND_IN void stand_in_count(int *comms, int *registrations, int *aborts);

int ncclGetVersion(int *version)
{
    *version = 22809;
    return SUCCESS;
}

const char *ncclGetErrorString(int result)
{
    return result == 6 ? "remote error" : "another error";
}

int ncclGetUniqueId(id *out)
{
    memset(out, 1, sizeof *out);
    return SUCCESS;
}

int ncclCommInitAll(void **out, int count, const int *devices)
{
    (void)out, (void)count, (void)devices;
    return INVALID;
}

static board *board_open(void)
{
    const char *path = getenv("STAND_IN_FILE");
    if (!path) return NULL;
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(board)) != 0) return NULL;
    void *memory = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Begins a call: this rank has arrived. */
static int begin(comm *c, const void *from, void *to, size_t bytes, int take)
{
    if (c->is_waiting || bytes > SLOT || c->calls == CALLS) return INVALID;
    c->to = to;
    c->bytes = bytes;
    c->take = take;
    if (from) memcpy(c->shared->slots[c->calls % 2][c->rank], from, bytes);
    c->is_waiting = true;
    atomic_fetch_add(&c->shared->arrived[c->calls], 1);
    return IN_PROGRESS;
}

/* Ends a call if all ranks have arrived. */
static void look(comm *c)
{
    if (!c->is_waiting || atomic_load(&c->shared->arrived[c->calls]) < c->ranks) return;
    for (int rank = 0; rank < c->ranks && c->to && c->take != TAKE_NOTHING; rank++)
        if (c->take == TAKE_ALL || rank == 0)
            memcpy((char *)c->to + (size_t)rank * c->bytes, c->shared->slots[c->calls % 2][rank], c->bytes);
    c->calls++;
    c->is_waiting = false;
}

int ncclCommInitRankConfig(void **out, int ranks, id given, int rank, config *how)
{
    (void)given;
    if (how->blocking || how->magic != 0xcafebeefu || ranks > RANKS) return INVALID;
    board *shared = board_open();
    comm *c = shared ? calloc(1, sizeof *c) : NULL;
    if (!c) return INVALID;
    c->shared = shared;
    c->rank = rank;
    c->ranks = ranks;
    *out = c;
    atomic_fetch_add(&live_comms, 1);
    return begin(c, NULL, NULL, 0, TAKE_NOTHING);
}

int ncclCommFinalize(void *c)
{
    (void)c;
    return SUCCESS;
}

int ncclCommDestroy(void *c)
{
    munmap(((comm *)c)->shared, sizeof(board));
    free(c);
    atomic_fetch_sub(&live_comms, 1);
    return SUCCESS;
}

int ncclCommAbort(void *c)
{
    atomic_fetch_add(&aborted, 1);
    return ncclCommDestroy(c);
}

int ncclCommGetAsyncError(void *c, int *result)
{
    comm *own = c;
    look(own);
    *result = atomic_load(&forced_result) ? atomic_load(&forced_result) : own->is_waiting ? IN_PROGRESS : SUCCESS;
    return SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *c, void *stream)
{
    (void)type, (void)op, (void)stream; /* the first rank's numbers: of these calls only the course is looked at */
    return begin(c, from, to, count, TAKE_FIRST);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, void *c, void *stream)
{
    (void)root;
    return ncclAllReduce(from, to, count, type, op, c, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *c, void *stream)
{
    return ncclAllReduce(from, to, count, type, op, c, stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, void *c, void *stream)
{
    (void)type, (void)stream;
    return begin(c, from, to, count, TAKE_ALL);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *c, void *stream)
{
    (void)root;
    return ncclAllReduce(from, to, count, type, 0, c, stream);
}

int ncclSend(const void *from, size_t count, int type, int peer, void *c, void *stream)
{
    (void)from, (void)count, (void)type, (void)peer, (void)c, (void)stream;
    return SUCCESS;
}

int ncclRecv(void *to, size_t count, int type, int peer, void *c, void *stream)
{
    (void)to, (void)count, (void)type, (void)peer, (void)c, (void)stream;
    return SUCCESS;
}

int ncclGroupStart(void)
{
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    return SUCCESS;
}

int ncclCommRegister(void *c, void *address, size_t bytes, void **out)
{
    (void)c, (void)bytes;
    *out = address;
    atomic_fetch_add(&live_registrations, 1);
    return SUCCESS;
}

int ncclCommDeregister(void *c, void *handle)
{
    (void)c, (void)handle;
    atomic_fetch_sub(&live_registrations, 1);
    return SUCCESS;
}

/* From now on every question for errors has this answer; 0 for the truth. */
void stand_in_force(int result)
{
    atomic_store(&forced_result, result);
}

void stand_in_count(int *comms, int *registrations, int *aborts)
{
    *comms = atomic_load(&live_comms);
    *registrations = atomic_load(&live_registrations);
    *aborts = atomic_load(&aborted);
}
