/* SPDX-License-Identifier: MIT */
/* Calls of MPI. MPI counts by int. A call with more than lochi_comm_mpi_piece elements or bytes in one part is done in
 * pieces: reductions and broadcasts one after the other, an all-gather as broadcasts, a reduce-scatter as reductions,
 * and an all-to-all as messages. All ranks have the same sizes (mpi_agree.c), so all choose the same way. An all-to-all
 * with counts of its own is always done by messages: ranks do not know each other's counts. */
#include "mpi.h"
#include "kit/fail.h"
#include <stdlib.h>

size_t lochi_comm_mpi_piece = (size_t)1 << 30;

#define MPI_TRY(name, ...) LOCH_RETURN(lochi_comm_mpi_status(mpi->library, mpi->library->name(__VA_ARGS__), #name))

static size_t calls_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- reductions --- */

static loch_status calls_all_reduce(const comm_mpi *mpi, const comm_call *call)
{
    for (size_t done = 0; done < call->count;) {
        const size_t piece = calls_least(call->count - done, lochi_comm_mpi_piece);
        char *to = (char *)call->to + done * call->bytes;
        const char *from = (const char *)call->from + done * call->bytes;
        MPI_TRY(MPI_Allreduce, to == from ? mpi->library->in_place : (const void *)from, to, (int)piece,
                mpi->library->types[call->dtype], mpi->library->ops[call->op], mpi->comm);
        done += piece;
    }
    return LOCH_OK;
}

/* Reduces one piece at its root, where `to` and `from` may be one. MPICH before 4.1.2 crashes in place at a root that
 * is not rank 0: there the root's own numbers are copied first. */
static loch_status calls_reduce_at_root(const comm_mpi *mpi, const comm_call *call, const void *from, void *to,
                                        size_t count, int root)
{
    const void *own = to == from ? mpi->library->in_place : from;
    void *copy = NULL;
    if (to == from && root != 0 && mpi->library->has_root_bug) {
        copy = malloc(count * call->bytes);
        if (!copy) return LOCH_FAIL(HOST_MEMORY, "no host memory for a reduction of %zu elements", count);
        own = memcpy(copy, from, count * call->bytes);
    }
    const loch_status status =
        lochi_comm_mpi_status(mpi->library,
                              mpi->library->MPI_Reduce(own, to, (int)count, mpi->library->types[call->dtype],
                                                       mpi->library->ops[call->op], root, mpi->comm),
                              "MPI_Reduce");
    free(copy);
    return status;
}

/* Reduces `count` elements to one rank. */
static loch_status calls_reduce_to(const comm_mpi *mpi, const comm_call *call, const char *from, char *to, int root,
                                   bool is_root)
{
    for (size_t done = 0; done < call->count;) {
        const size_t piece = calls_least(call->count - done, lochi_comm_mpi_piece);
        const char *own = from + done * call->bytes;
        if (is_root)
            LOCH_RETURN(calls_reduce_at_root(mpi, call, own, to + done * call->bytes, piece, root));
        else
            MPI_TRY(MPI_Reduce, own, NULL, (int)piece, mpi->library->types[call->dtype], mpi->library->ops[call->op],
                    root, mpi->comm);
        done += piece;
    }
    return LOCH_OK;
}

/* MPI has no reduce-scatter into the rank's own part of the input: every part is reduced to its rank. */
static loch_status calls_reduce_parts(const loch_comm *comm, const comm_mpi *mpi, const comm_call *call)
{
    for (int rank = 0; rank < comm->ranks; rank++) {
        const char *part = (const char *)call->from + (size_t)rank * call->count * call->bytes;
        LOCH_RETURN(calls_reduce_to(mpi, call, part, call->to, rank, rank == comm->rank));
    }
    return LOCH_OK;
}

/* Whether `to` is this rank's part of `from` is a matter of each rank, and the way of doing it one of all ranks. Every
 * rank that calls in place does so on all ranks, as loch/comm.h demands the same calls. */
static loch_status calls_reduce_scatter(const loch_comm *comm, const comm_mpi *mpi, const comm_call *call)
{
    const char *own = (const char *)call->from + (size_t)comm->rank * call->count * call->bytes;
    if (call->to == own || call->count > lochi_comm_mpi_piece) return calls_reduce_parts(comm, mpi, call);
    MPI_TRY(MPI_Reduce_scatter_block, call->from, call->to, (int)call->count, mpi->library->types[call->dtype],
            mpi->library->ops[call->op], mpi->comm);
    return LOCH_OK;
}

/* --- movement: in bytes --- */

static loch_status calls_broadcast(const comm_mpi *mpi, void *data, size_t bytes, int root)
{
    for (size_t done = 0; done < bytes;) {
        const size_t piece = calls_least(bytes - done, lochi_comm_mpi_piece);
        MPI_TRY(MPI_Bcast, (char *)data + done, (int)piece, mpi->library->byte, root, mpi->comm);
        done += piece;
    }
    return LOCH_OK;
}

static loch_status calls_all_gather(const loch_comm *comm, const comm_mpi *mpi, const comm_call *call)
{
    const size_t bytes = call->count * call->bytes;
    char *own = (char *)call->to + (size_t)comm->rank * bytes;
    if (bytes <= lochi_comm_mpi_piece) {
        MPI_TRY(MPI_Allgather, own == call->from ? mpi->library->in_place : call->from, (int)bytes, mpi->library->byte,
                call->to, (int)bytes, mpi->library->byte, mpi->comm);
        return LOCH_OK;
    }
    if (own != call->from) memcpy(own, call->from, bytes);
    for (int rank = 0; rank < comm->ranks; rank++)
        LOCH_RETURN(calls_broadcast(mpi, (char *)call->to + (size_t)rank * bytes, bytes, rank));
    return LOCH_OK;
}

/* --- all-to-all --- */

/* The part of a rank in one of the two tensors. */
typedef struct calls_part {
    size_t offset, bytes; /* both in bytes */
} calls_part;

static calls_part calls_part_of(const comm_call *call, const size_t *counts, const size_t *offsets, int rank)
{
    if (call->verb == COMM_ALL_TO_ALL)
        return (calls_part){(size_t)rank * call->count * call->bytes, call->count * call->bytes};
    return (calls_part){offsets[rank] * call->bytes, counts[rank] * call->bytes};
}

/* Starts the messages of all parts in one direction. */
static loch_status calls_start_parts(const loch_comm *comm, comm_mpi *mpi, const comm_call *call, comm_verb verb)
{
    const bool is_send = verb == COMM_SEND;
    char *base = is_send ? (char *)call->from : call->to;
    for (int i = 0; i < comm->ranks; i++) {
        const int rank = (comm->rank + i) % comm->ranks;
        const calls_part part = calls_part_of(call, is_send ? call->from_counts : call->to_counts,
                                              is_send ? call->from_offsets : call->to_offsets, rank);
        LOCH_RETURN(lochi_comm_mpi_start(mpi, verb, base + part.offset, part.bytes, rank, MPI_TAG_ALL_TO_ALL));
    }
    return LOCH_OK;
}

/* Exchanges all parts by messages, all under way at the same time. Receives that probe come last: they wait. */
static loch_status calls_exchange(const loch_comm *comm, comm_mpi *mpi, const comm_call *call)
{
    LOCH_RETURN(calls_start_parts(comm, mpi, call, mpi->is_checked ? COMM_RECEIVE : COMM_SEND));
    LOCH_RETURN(calls_start_parts(comm, mpi, call, mpi->is_checked ? COMM_SEND : COMM_RECEIVE));
    return lochi_comm_mpi_wait(mpi);
}

static loch_status calls_all_to_all(const loch_comm *comm, comm_mpi *mpi, const comm_call *call)
{
    const size_t bytes = call->count * call->bytes;
    if (bytes > lochi_comm_mpi_piece) return calls_exchange(comm, mpi, call);
    MPI_TRY(MPI_Alltoall, call->from, (int)bytes, mpi->library->byte, call->to, (int)bytes, mpi->library->byte,
            mpi->comm);
    return LOCH_OK;
}

/* --- the door --- */

static loch_status calls_do(const loch_comm *comm, comm_mpi *mpi, const comm_call *call)
{
    switch (call->verb) {
    case COMM_ALL_REDUCE: return calls_all_reduce(mpi, call);
    case COMM_ALL_GATHER: return calls_all_gather(comm, mpi, call);
    case COMM_REDUCE_SCATTER: return calls_reduce_scatter(comm, mpi, call);
    case COMM_BROADCAST: return calls_broadcast(mpi, call->to, call->count * call->bytes, call->peer);
    case COMM_REDUCE: return calls_reduce_to(mpi, call, call->from, call->to, call->peer, call->peer == comm->rank);
    case COMM_ALL_TO_ALL: return calls_all_to_all(comm, mpi, call);
    case COMM_ALL_TO_ALL_V: return calls_exchange(comm, mpi, call);
    case COMM_SEND: return comm->is_grouped ? LOCH_OK : lochi_comm_mpi_send(mpi, call); /* a group's begin at its end */
    case COMM_RECEIVE: return comm->is_grouped ? LOCH_OK : lochi_comm_mpi_receive(mpi, call);
    }
    return LOCH_FAIL(INVALID, "there is no collective %d", (int)call->verb);
}

loch_status lochi_comm_mpi_run(loch_comm *comm, const comm_call *call)
{
    const loch_status status = calls_do(comm, comm->below, call);
    return status == LOCH_OK ? LOCH_OK : lochi_comm_mpi_break(comm, status);
}
