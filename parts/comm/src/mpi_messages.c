/* SPDX-License-Identifier: MIT */
/* Messages of MPI, in pieces that an int counts. Those of a group begin when it ends: first all sides tell each other
 * their sizes, then the messages whose sizes agree are under way at the same time. Without that check the receiver
 * probes: it reads the size of a message before it gives MPI the memory, because Open MPI 4.1 copies a long message
 * whole, beyond the end of a shorter tensor. */
#include "mpi_agree.h"
#include "kit/fail.h"
#include <stdlib.h>

#define MPI_TRY(name, ...) LOCH_RETURN(lochi_comm_mpi_status(mpi->library, mpi->library->name(__VA_ARGS__), #name))

/* --- requests --- */

loch_status lochi_comm_mpi_wait(comm_mpi *mpi)
{
    loch_error error = {.status = LOCH_OK};
    for (size_t i = 0; i < mpi->requests_count; i++) {
        const int code = mpi->library->MPI_Wait(&mpi->requests[i], mpi->library->status_ignore);
        if (lochi_comm_mpi_status(mpi->library, code, "MPI_Wait") != LOCH_OK && error.status == LOCH_OK)
            error = *loch_error_get();
    }
    mpi->requests_count = 0;
    return error.status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&error);
}

/* Returns room for one more request; NULL without host memory. */
static mpi_handle *messages_request(comm_mpi *mpi)
{
    if (mpi->requests_count == mpi->requests_capacity) {
        const size_t capacity = mpi->requests_capacity ? 2 * mpi->requests_capacity : 8;
        mpi_handle *requests = realloc(mpi->requests, capacity * sizeof *requests);
        if (!requests) return NULL;
        mpi->requests = requests;
        mpi->requests_capacity = capacity;
    }
    mpi->requests[mpi->requests_count] = 0;
    return &mpi->requests[mpi->requests_count];
}

/* Starts one message that an int counts. */
static loch_status messages_begin(comm_mpi *mpi, comm_verb verb, void *data, size_t bytes, int peer, int tag)
{
    mpi_handle *request = messages_request(mpi);
    if (!request) return LOCH_FAIL(HOST_MEMORY, "no host memory for a message of %zu bytes", bytes);
    if (verb == COMM_SEND)
        MPI_TRY(MPI_Isend, data, (int)bytes, mpi->library->byte, peer, tag, mpi->comm, request);
    else
        MPI_TRY(MPI_Irecv, data, (int)bytes, mpi->library->byte, peer, tag, mpi->comm, request);
    mpi->requests_count++;
    return LOCH_OK;
}

/* Waits for the next message of a rank, and checks its size, unless the sizes were compared. */
static loch_status messages_probe(const comm_mpi *mpi, size_t bytes, int peer, int tag)
{
    if (mpi->is_checked) return LOCH_OK;
    int count = 0;
    mpi_status status = {{0}};
    MPI_TRY(MPI_Probe, peer, tag, mpi->comm, &status);
    MPI_TRY(MPI_Get_count, &status, mpi->library->byte, &count);
    if ((size_t)count == bytes) return LOCH_OK;
    return LOCH_FAIL(INVALID, "a message of rank %d has %d bytes, and the call receives %zu: nothing was received",
                     peer, count, bytes);
}

loch_status lochi_comm_mpi_start(comm_mpi *mpi, comm_verb verb, void *data, size_t bytes, int peer, int tag)
{
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done, piece = left < lochi_comm_mpi_piece ? left : lochi_comm_mpi_piece;
        if (verb == COMM_RECEIVE) LOCH_RETURN(messages_probe(mpi, piece, peer, tag));
        LOCH_RETURN(messages_begin(mpi, verb, (char *)data + done, piece, peer, tag));
        done += piece;
    }
    return LOCH_OK;
}

/* --- one message --- */

loch_status lochi_comm_mpi_send(const comm_mpi *mpi, const comm_call *call)
{
    const size_t bytes = call->count * call->bytes;
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done, piece = left < lochi_comm_mpi_piece ? left : lochi_comm_mpi_piece;
        MPI_TRY(MPI_Send, (const char *)call->from + done, (int)piece, mpi->library->byte, call->peer, MPI_TAG_MESSAGE,
                mpi->comm);
        done += piece;
    }
    return LOCH_OK;
}

loch_status lochi_comm_mpi_receive(const comm_mpi *mpi, const comm_call *call)
{
    const size_t bytes = call->count * call->bytes;
    for (size_t done = 0; done < bytes;) {
        const size_t left = bytes - done, piece = left < lochi_comm_mpi_piece ? left : lochi_comm_mpi_piece;
        LOCH_RETURN(messages_probe(mpi, piece, call->peer, MPI_TAG_MESSAGE));
        MPI_TRY(MPI_Recv, (char *)call->to + done, (int)piece, mpi->library->byte, call->peer, MPI_TAG_MESSAGE,
                mpi->comm, mpi->library->status_ignore);
        done += piece;
    }
    return LOCH_OK;
}

/* --- messages of a group --- */

loch_status lochi_comm_mpi_add_message(comm_mpi *mpi, const comm_call *call, bool is_run)
{
    if (mpi->messages_count == mpi->messages_capacity) {
        const size_t capacity = mpi->messages_capacity ? 2 * mpi->messages_capacity : 8;
        comm_mpi_message *messages = realloc(mpi->messages, capacity * sizeof *messages);
        if (!messages) return LOCH_FAIL(HOST_MEMORY, "no host memory for the messages of a group");
        mpi->messages = messages;
        mpi->messages_capacity = capacity;
    }
    mpi->messages[mpi->messages_count++] = (comm_mpi_message){
        .verb = call->verb,
        .data = call->verb == COMM_SEND ? (void *)call->from : call->to,
        .peer = call->peer,
        .own = is_run ? call->count * call->bytes : MPI_AGREE_REFUSED,
    };
    return LOCH_OK;
}

/* Tells the other sides the sizes of all messages, and learns theirs. */
static loch_status messages_tell(comm_mpi *mpi)
{
    for (size_t i = 0; i < mpi->messages_count; i++) {
        comm_mpi_message *message = &mpi->messages[i];
        LOCH_RETURN(messages_begin(mpi, COMM_RECEIVE, &message->other, sizeof message->other, message->peer,
                                   MPI_AGREE_TAG_BACK(message->verb)));
        LOCH_RETURN(messages_begin(mpi, COMM_SEND, &message->own, sizeof message->own, message->peer,
                                   MPI_AGREE_TAG(message->verb)));
    }
    return lochi_comm_mpi_wait(mpi);
}

/* Starts all messages in one direction that take place. */
static loch_status messages_start(comm_mpi *mpi, comm_verb verb)
{
    for (size_t i = 0; i < mpi->messages_count; i++) {
        const comm_mpi_message *message = &mpi->messages[i];
        if (message->verb != verb || message->own == MPI_AGREE_REFUSED) continue;
        LOCH_RETURN(
            lochi_comm_mpi_start(mpi, verb, message->data, (size_t)message->own, message->peer, MPI_TAG_MESSAGE));
    }
    return LOCH_OK;
}

/* Exchanges the messages of a group. Those that differ are left out on both sides: `differing` has the first. */
static loch_status messages_exchange(const loch_comm *comm, comm_mpi *mpi, loch_error *differing)
{
    if (mpi->is_checked) LOCH_RETURN(messages_tell(mpi));
    for (size_t i = 0; i < mpi->messages_count && mpi->is_checked; i++) {
        comm_mpi_message *message = &mpi->messages[i];
        if (lochi_comm_mpi_agree_compare(comm, message->verb, message->peer, message->own, message->other) == LOCH_OK)
            continue;
        message->own = MPI_AGREE_REFUSED;
        if (differing->status == LOCH_OK) *differing = *loch_error_get();
    }
    /* A probe waits: whatever it may wait for has to be under way. */
    LOCH_RETURN(messages_start(mpi, mpi->is_checked ? COMM_RECEIVE : COMM_SEND));
    LOCH_RETURN(messages_start(mpi, mpi->is_checked ? COMM_SEND : COMM_RECEIVE));
    return lochi_comm_mpi_wait(mpi);
}

loch_status lochi_comm_mpi_run_messages(loch_comm *comm, bool is_run)
{
    comm_mpi *mpi = comm->below;
    loch_error differing = {.status = LOCH_OK};
    for (size_t i = 0; i < mpi->messages_count && !is_run; i++)
        mpi->messages[i].own = MPI_AGREE_REFUSED;
    loch_status status = LOCH_OK;
    if (!atomic_load_explicit(&comm->is_failed, memory_order_acquire))
        status = messages_exchange(comm, mpi, &differing);
    mpi->messages_count = 0;
    if (status != LOCH_OK) return lochi_comm_mpi_break(comm, status);
    return differing.status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&differing);
}
