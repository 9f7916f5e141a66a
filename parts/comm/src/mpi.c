/* SPDX-License-Identifier: MIT */
/* The engine on MPI: a communicator of MPI of its own, so that messages of the program and of Loch do not mix. Work is
 * done by the calling thread, after it has waited for the stream. */
#include "mpi.h"
#include "mpi_agree.h"
#include "kit/fail.h"
#include <stdio.h>
#include <stdlib.h>

#define MPI_TRY(mpi_, name, ...)                                                                                       \
    LOCH_RETURN(lochi_comm_mpi_status((mpi_)->library, (mpi_)->library->name(__VA_ARGS__), #name))

static loch_status mpi_accept(loch_comm *comm, const loch_tensor *tensor, const char *what)
{
    loch_device *device = loch_tensor_get_device(tensor);
    if (!loch_tensor_is_on_host(tensor))
        return LOCH_FAIL(INVALID, "the tensor '%s' of a collective is on %.80s, and MPI moves memory of the host", what,
                         loch_device_get_name(device));
    if (device == comm->device || !loch_device_can(device, LOCH_CAN_ASYNC)) return LOCH_OK;
    return loch_stream_sync(loch_stream_get_default(device)); /* pinned memory: its device may still write it */
}

static loch_status mpi_can_reduce(const loch_comm *comm, loch_dtype dtype, loch_comm_op op)
{
    const comm_mpi *mpi = comm->below;
    if (!mpi->library->ops[op])
        return LOCH_FAIL(UNSUPPORTED, "%s has no average: divide a sum by the number of ranks", mpi->library->name);
    if (!mpi->library->types[dtype])
        return LOCH_FAIL(UNSUPPORTED, "%s does not reduce %s: convert it to f32 first", mpi->library->name,
                         loch_dtype_name(dtype));
    return LOCH_OK;
}

/* Work on the host cannot be captured, and has to wait for what is queued. */
static loch_status mpi_prepare(loch_comm *comm, loch_stream *stream)
{
    (void)comm;
    if (!loch_device_can(loch_stream_get_device(stream), LOCH_CAN_ASYNC)) return LOCH_OK;
    loch_capture_info capture = {.size = sizeof capture};
    LOCH_RETURN(loch_stream_query_capture(stream, &capture));
    if (capture.active) return LOCH_FAIL(UNSUPPORTED, "a call of MPI cannot be captured into a graph");
    return loch_stream_sync(stream);
}

loch_status lochi_comm_mpi_break(loch_comm *comm, loch_status status)
{
    comm_mpi *mpi = comm->below;
    mpi->is_broken = true;
    return lochi_comm_failure_set(comm, status);
}

static loch_status mpi_begin_group(loch_comm *comm)
{
    (void)comm; /* sends and receives find out that there is a group */
    return LOCH_OK;
}

static loch_status mpi_end_group(loch_comm *comm, loch_status status)
{
    const loch_status exchanged = lochi_comm_mpi_run_messages(comm, status == LOCH_OK);
    return status == LOCH_OK ? exchanged : status;
}

static loch_status mpi_agree(loch_comm *comm, const comm_call *call, bool is_run)
{
    comm_mpi *mpi = comm->below;
    const bool is_message = call->verb == COMM_SEND || call->verb == COMM_RECEIVE;
    const bool is_told = mpi->is_checked && (!is_message || (call->peer >= 0 && call->peer < comm->ranks));
    if (is_message && comm->is_grouped)
        return is_run || is_told ? lochi_comm_mpi_add_message(mpi, call, is_run) : LOCH_OK;
    if (!is_told || (is_message && call->peer == comm->rank)) return LOCH_OK;
    return is_message ? lochi_comm_mpi_agree_message(comm, call, is_run) : lochi_comm_mpi_agree(comm, call, is_run);
}

/* The comparison waits for all ranks, as a barrier does. */
static loch_status mpi_barrier(loch_comm *comm)
{
    const comm_mpi *mpi = comm->below;
    if (mpi->is_checked) return lochi_comm_mpi_agree(comm, NULL, true);
    const loch_status status = lochi_comm_mpi_status(mpi->library, mpi->library->MPI_Barrier(mpi->comm), "MPI_Barrier");
    return status == LOCH_OK ? LOCH_OK : lochi_comm_mpi_break(comm, status);
}

static loch_status mpi_sync(loch_comm *comm, loch_stream *stream)
{
    (void)comm;
    return loch_stream_sync(stream);
}

static loch_status mpi_window(loch_comm *comm, loch_buffer *buffer)
{
    (void)comm, (void)buffer;
    return LOCH_FAIL(UNSUPPORTED, "a communicator of MPI has no windows");
}

static void mpi_describe(const loch_comm *comm, loch_comm_info *out)
{
    (void)comm, (void)out;
}

static void mpi_destroy(loch_comm *comm)
{
    comm_mpi *mpi = comm->below;
    if (!mpi) return;
    int is_ended = 0;
    if (mpi->has_comm) mpi->library->MPI_Finalized(&is_ended);
    if (mpi->has_comm && !is_ended && !atomic_load_explicit(&comm->is_failed, memory_order_acquire))
        mpi->library->MPI_Comm_free(&mpi->comm);
    if (mpi->is_begun && !mpi->is_broken) lochi_comm_mpi_end();
    free(mpi->requests);
    free(mpi->messages);
    free(mpi->words);
    free(mpi);
    comm->below = NULL;
}

static const comm_engine mpi_engine = {.accept = mpi_accept,
                                       .can_reduce = mpi_can_reduce,
                                       .prepare = mpi_prepare,
                                       .agree = mpi_agree,
                                       .run = lochi_comm_mpi_run,
                                       .begin_group = mpi_begin_group,
                                       .end_group = mpi_end_group,
                                       .barrier = mpi_barrier,
                                       .sync = mpi_sync,
                                       .add_window = mpi_window,
                                       .remove_window = mpi_window,
                                       .describe = mpi_describe,
                                       .destroy = mpi_destroy};

/* Finds the ranks on this machine. */
static loch_status mpi_read_local(loch_comm *comm, const comm_mpi *mpi)
{
    mpi_handle local = 0;
    MPI_TRY(mpi, MPI_Comm_split_type, mpi->comm, mpi->library->type_shared, 0, mpi->library->info_null, &local);
    MPI_TRY(mpi, MPI_Comm_rank, local, &comm->local_rank);
    MPI_TRY(mpi, MPI_Comm_size, local, &comm->local_ranks);
    MPI_TRY(mpi, MPI_Comm_free, &local);
    return LOCH_OK;
}

/* Duplicates MPI_COMM_WORLD, with errors returned. */
static loch_status mpi_duplicate(const comm_mpi_library *library, mpi_handle *out)
{
    *out = 0;
    LOCH_RETURN(lochi_comm_mpi_status(library, library->MPI_Comm_dup(library->world, out), "MPI_Comm_dup"));
    return lochi_comm_mpi_status(library, library->MPI_Comm_set_errhandler(*out, library->errors_return),
                                 "MPI_Comm_set_errhandler");
}

loch_status lochi_comm_mpi_create(loch_comm *comm)
{
    if (comm->seats > 1)
        return LOCH_FAIL(UNSUPPORTED, "MPI has one rank for each process, and the engine has %u seats", comm->seats);
    comm_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return LOCH_FAIL(HOST_MEMORY, "no host memory for a communicator");
    comm->engine = &mpi_engine;
    comm->below = mpi;
    LOCH_RETURN(lochi_comm_mpi_load(&mpi->library));
    LOCH_RETURN(lochi_comm_mpi_begin(mpi->library));
    mpi->is_begun = true;
    LOCH_RETURN(mpi_duplicate(mpi->library, &mpi->comm));
    mpi->has_comm = true;
    int rank, ranks;
    MPI_TRY(mpi, MPI_Comm_rank, mpi->comm, &rank);
    MPI_TRY(mpi, MPI_Comm_size, mpi->comm, &ranks);
    if (comm->ranks && (ranks != comm->ranks || rank != comm->rank))
        return LOCH_FAIL(UNSUPPORTED,
                         "this is rank %d of %d for MPI, and not rank %d of %d: start the job by mpirun or srun", rank,
                         ranks, comm->rank, comm->ranks);
    comm->rank = comm->process_rank = rank;
    comm->ranks = ranks;
    comm->name = mpi->library->name;
    memcpy(comm->version, mpi->library->version, sizeof comm->version);
    LOCH_RETURN(mpi_read_local(comm, mpi));
    return lochi_comm_mpi_agree_begin(comm);
}

loch_status lochi_comm_mpi_share_id(void *id, size_t bytes, int root, int *rank, int *ranks)
{
    const comm_mpi_library *library;
    mpi_handle comm;
    LOCH_RETURN(lochi_comm_mpi_load(&library));
    LOCH_RETURN(lochi_comm_mpi_begin(library));
    loch_status status = mpi_duplicate(library, &comm);
    if (status == LOCH_OK) {
        status = lochi_comm_mpi_status(library, library->MPI_Comm_rank(comm, rank), "MPI_Comm_rank");
        if (status == LOCH_OK)
            status = lochi_comm_mpi_status(library, library->MPI_Comm_size(comm, ranks), "MPI_Comm_size");
        if (status == LOCH_OK && bytes)
            status = lochi_comm_mpi_status(library, library->MPI_Bcast(id, (int)bytes, library->byte, root, comm),
                                           "MPI_Bcast");
        library->MPI_Comm_free(&comm);
    }
    lochi_comm_mpi_end();
    return status;
}
