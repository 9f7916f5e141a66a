/* SPDX-License-Identifier: MIT */
/* MPI leaves calls with different sizes undefined, and Open MPI 4.1 writes beyond the smaller tensor. So ranks compare
 * their calls before data moves. A call is two words: what is done, and with how many elements. One all-reduce finds
 * the greatest and, by complements, the least of each word. If they differ, all ranks know it and collect the words of
 * all, to name two that differ. Nothing has moved then, and the communicator goes on working. A rank that has refused
 * the arguments of its call tells that in place of its words, so that no rank waits for it. */
#include "mpi_agree.h"
#include "kit/fail.h"
#include <stdio.h>
#include <stdlib.h>

#define AGREE_ENVIRONMENT "LOCH_COMM_CHECK"
#define AGREE_RANKS_MAX 64 /* the all-reduce takes some microseconds between so many */
#define AGREE_WORDS 2

enum { AGREE_BARRIER = COMM_RECEIVE + 1, AGREE_REFUSED }; /* beside comm_verb */

#define MPI_TRY(name, ...) LOCH_RETURN(lochi_comm_mpi_status(mpi->library, mpi->library->name(__VA_ARGS__), #name))

/* --- the words of a call --- */

static const char *const agree_verbs[] = {
    [COMM_ALL_REDUCE] = "all_reduce",    [COMM_ALL_GATHER] = "all_gather", [COMM_REDUCE_SCATTER] = "reduce_scatter",
    [COMM_BROADCAST] = "broadcast",      [COMM_REDUCE] = "reduce",         [COMM_ALL_TO_ALL] = "all_to_all",
    [COMM_ALL_TO_ALL_V] = "all_to_all_v"};

/* A reduce-scatter in place is another sequence of calls of MPI. */
static bool agree_is_in_place(const loch_comm *comm, const comm_call *call)
{
    const size_t bytes = call->count * call->bytes;
    return call->verb == COMM_REDUCE_SCATTER && bytes &&
           (const char *)call->from + bytes * (size_t)comm->rank == call->to;
}

static void agree_write(const loch_comm *comm, const comm_call *call, bool is_run, uint64_t *words)
{
    words[0] = is_run ? AGREE_BARRIER : AGREE_REFUSED;
    words[1] = 0;
    if (!call || !is_run) return;
    words[0] = (uint64_t)call->verb | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
               (uint64_t)agree_is_in_place(comm, call) << 24 | (uint64_t)(uint32_t)call->peer << 32;
    words[1] = call->count;
}

/* Writes what a rank does, for people. */
static void agree_print(const uint64_t *words, char *text, size_t bytes)
{
    static const char *const ops[] = {"sum", "product", "min", "max", "average"};
    const unsigned verb = words[0] & 0xFF, dtype = words[0] >> 8 & 0xFF, op = words[0] >> 16 & 0xFF;
    const unsigned root = (unsigned)(words[0] >> 32);
    if (verb >= AGREE_BARRIER) {
        snprintf(text, bytes, "%s", verb == AGREE_BARRIER ? "calls loch_comm_barrier" : "has refused its call");
        return;
    }
    int length = snprintf(text, bytes, "calls loch_comm_%s", agree_verbs[verb]);
    if (verb != COMM_ALL_TO_ALL_V)
        length += snprintf(text + length, bytes - (size_t)length, " with %llu elements", (unsigned long long)words[1]);
    length += snprintf(text + length, bytes - (size_t)length, " of %s", loch_dtype_name((loch_dtype)dtype));
    if (verb == COMM_ALL_REDUCE || verb == COMM_REDUCE_SCATTER || verb == COMM_REDUCE)
        length += snprintf(text + length, bytes - (size_t)length, ", %s", ops[op]);
    if (verb == COMM_BROADCAST || verb == COMM_REDUCE)
        length += snprintf(text + length, bytes - (size_t)length, ", root %u", root);
    if (words[0] >> 24 & 1) snprintf(text + length, bytes - (size_t)length, ", in place");
}

/* --- collectives --- */

/* Collects the words of all ranks, and names rank 0 and the first that differs from it. */
static loch_status agree_tell(const loch_comm *comm, const comm_mpi *mpi, const uint64_t *own)
{
    char first[160], other[160];
    const int bytes = (int)(AGREE_WORDS * sizeof *own);
    MPI_TRY(MPI_Allgather, own, bytes, mpi->library->byte, mpi->words, bytes, mpi->library->byte, mpi->comm);
    int rank = 1;
    while (rank < comm->ranks - 1 && memcmp(mpi->words, mpi->words + (size_t)rank * AGREE_WORDS, (size_t)bytes) == 0)
        rank++;
    agree_print(mpi->words, first, sizeof first);
    agree_print(mpi->words + (size_t)rank * AGREE_WORDS, other, sizeof other);
    return LOCH_FAIL(INVALID, "rank 0 %s, and rank %d %s: nothing was moved", first, rank, other);
}

/* Compares the counts of an all-to-all between each two ranks. The highest rank that expects another count than one is
 * sent tells all the others. */
static loch_status agree_counts(const loch_comm *comm, const comm_mpi *mpi, const comm_call *call)
{
    uint64_t finder = 0, pair[3] = {0}; /* sender, sent, expected */
    const int bytes = (int)sizeof *call->from_counts;
    _Static_assert(sizeof *call->from_counts == sizeof *mpi->words, "counts are sent as words");
    MPI_TRY(MPI_Alltoall, call->from_counts, bytes, mpi->library->byte, mpi->words, bytes, mpi->library->byte,
            mpi->comm);
    for (int rank = 0; rank < comm->ranks && !finder; rank++) {
        if (mpi->words[rank] == call->to_counts[rank]) continue;
        finder = (uint64_t)comm->rank + 1;
        pair[0] = (uint64_t)rank;
        pair[1] = mpi->words[rank];
        pair[2] = call->to_counts[rank];
    }
    MPI_TRY(MPI_Allreduce, mpi->library->in_place, &finder, 1, mpi->library->types[LOCH_U64],
            mpi->library->ops[LOCH_COMM_MAX], mpi->comm);
    if (!finder) return LOCH_OK;
    MPI_TRY(MPI_Bcast, pair, (int)sizeof pair, mpi->library->byte, (int)finder - 1, mpi->comm);
    return LOCH_FAIL(INVALID, "rank %llu sends %llu elements to rank %llu, which expects %llu: nothing was moved",
                     (unsigned long long)pair[0], (unsigned long long)pair[1], (unsigned long long)finder - 1,
                     (unsigned long long)pair[2]);
}

static loch_status agree_all(const loch_comm *comm, const comm_mpi *mpi, const comm_call *call, bool is_run)
{
    uint64_t own[AGREE_WORDS], most[2 * AGREE_WORDS];
    agree_write(comm, call, is_run, own);
    for (size_t i = 0; i < AGREE_WORDS; i++) {
        most[i] = own[i];
        most[AGREE_WORDS + i] = ~own[i];
    }
    MPI_TRY(MPI_Allreduce, mpi->library->in_place, most, 2 * AGREE_WORDS, mpi->library->types[LOCH_U64],
            mpi->library->ops[LOCH_COMM_MAX], mpi->comm);
    for (size_t i = 0; i < AGREE_WORDS; i++)
        if (most[i] != ~most[AGREE_WORDS + i]) return agree_tell(comm, mpi, own);
    return is_run && call && call->verb == COMM_ALL_TO_ALL_V ? agree_counts(comm, mpi, call) : LOCH_OK;
}

/* A failure of MPI makes the communicator fail; calls that differ do not. */
static loch_status agree_end(loch_comm *comm, loch_status status)
{
    return status == LOCH_E_DRIVER ? lochi_comm_mpi_break(comm, status) : status;
}

loch_status lochi_comm_mpi_agree(loch_comm *comm, const comm_call *call, bool is_run)
{
    return agree_end(comm, agree_all(comm, comm->below, call, is_run));
}

/* --- messages --- */

loch_status lochi_comm_mpi_agree_compare(const loch_comm *comm, comm_verb verb, int peer, uint64_t own, uint64_t other)
{
    if (own == other && own != MPI_AGREE_REFUSED) return LOCH_OK;
    const int from = verb == COMM_SEND ? comm->rank : peer, to = verb == COMM_SEND ? peer : comm->rank;
    if (own == MPI_AGREE_REFUSED || other == MPI_AGREE_REFUSED)
        return LOCH_FAIL(INVALID, "rank %d has refused its call: no message went from rank %d to rank %d",
                         own == MPI_AGREE_REFUSED ? comm->rank : peer, from, to);
    return LOCH_FAIL(INVALID, "rank %d sends %llu bytes to rank %d, which receives %llu: nothing was moved", from,
                     (unsigned long long)(verb == COMM_SEND ? own : other), to,
                     (unsigned long long)(verb == COMM_SEND ? other : own));
}

static loch_status agree_exchange(const comm_mpi *mpi, const comm_call *call, uint64_t *own, uint64_t *other)
{
    MPI_TRY(MPI_Sendrecv, own, (int)sizeof *own, mpi->library->byte, call->peer, MPI_AGREE_TAG(call->verb), other,
            (int)sizeof *other, mpi->library->byte, call->peer, MPI_AGREE_TAG_BACK(call->verb), mpi->comm,
            mpi->library->status_ignore);
    return LOCH_OK;
}

loch_status lochi_comm_mpi_agree_message(loch_comm *comm, const comm_call *call, bool is_run)
{
    uint64_t own = is_run ? call->count * call->bytes : MPI_AGREE_REFUSED, other = 0;
    const loch_status status = agree_exchange(comm->below, call, &own, &other);
    if (status != LOCH_OK) return lochi_comm_mpi_break(comm, status);
    return lochi_comm_mpi_agree_compare(comm, call->verb, call->peer, own, other);
}

/* --- the option --- */

static loch_status agree_read(const loch_comm *comm, bool *out)
{
    const char *text = secure_getenv(AGREE_ENVIRONMENT);
    *out = comm->check == LOCH_COMM_CHECK_AUTO ? comm->ranks <= AGREE_RANKS_MAX : comm->check == LOCH_COMM_CHECK_ON;
    if (comm->check != LOCH_COMM_CHECK_AUTO || !text || !*text) return LOCH_OK;
    *out = strcmp(text, "on") == 0;
    if (*out || strcmp(text, "off") == 0) return LOCH_OK;
    return LOCH_FAIL(INVALID, "%s is \"%.40s\", and must be \"on\" or \"off\"", AGREE_ENVIRONMENT, text);
}

loch_status lochi_comm_mpi_agree_begin(loch_comm *comm)
{
    comm_mpi *mpi = comm->below;
    bool is_checked = false;
    mpi->words = calloc((size_t)comm->ranks * AGREE_WORDS, sizeof *mpi->words);
    if (!mpi->words) return LOCH_FAIL(HOST_MEMORY, "no host memory for a communicator");
    LOCH_RETURN(agree_read(comm, &is_checked));
    uint8_t all = is_checked;
    MPI_TRY(MPI_Allreduce, mpi->library->in_place, &all, 1, mpi->library->types[LOCH_U8],
            mpi->library->ops[LOCH_COMM_MIN], mpi->comm);
    comm->check = all ? LOCH_COMM_CHECK_ON : LOCH_COMM_CHECK_OFF;
    mpi->is_checked = all && comm->ranks > 1;
    return LOCH_OK;
}
