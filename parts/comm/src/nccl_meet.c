/* SPDX-License-Identifier: MIT */
/* How the ranks of a communicator of NCCL find each other. All ranks need one id, which is the address of a listener of
 * NCCL with a secret. It comes from the caller; or over MPI, if the job has it; or every rank makes the same id from an
 * address that all know, NCCL_COMM_ID, and rank 0 listens there. The address may also be MASTER_ADDR with the port
 * behind MASTER_PORT: the launcher of PyTorch listens on that port itself. NCCL reads the address from the environment
 * alone, so the variable is set while NCCL makes the communicator. */
#include "nccl_meet.h"
#include "mpi.h"
#include "kit/fail.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define MEET_ADDRESS "NCCL_COMM_ID"

static pthread_mutex_t meet_lock = PTHREAD_MUTEX_INITIALIZER; /* held while the variable is set */

/* Writes the address of the job's first process as NCCL reads it. E_INVALID: there is none. */
static loch_status meet_read_master(const loch_comm *comm, char *out, size_t bytes)
{
    const char *host = secure_getenv("MASTER_ADDR"), *text = secure_getenv("MASTER_PORT");
    if (!host || !*host || !text || !*text)
        return LOCH_FAIL(INVALID,
                         "%d ranks of NCCL need a way to find each other: start them by mpirun, or set MASTER_ADDR and "
                         "MASTER_PORT, or %s, or give an id",
                         comm->ranks, MEET_ADDRESS);
    char *end;
    const long port = strtol(text, &end, 10);
    if (*end || port < 1 || port > 65534)
        return LOCH_FAIL(INVALID, "the variable MASTER_PORT is \"%.20s\", and it must be a port from 1 to 65534", text);
    const bool is_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(out, bytes, is_v6 ? "[%s]:%ld" : "%s:%ld", host, port + 1);
    return LOCH_OK;
}

/* Ranks of the seats of this process, from those of the process. */
static loch_status meet_number(loch_comm *comm, unsigned seat)
{
    const long ranks = (long)comm->ranks * (long)comm->seats;
    if (ranks > INT_MAX) return LOCH_FAIL(OVERFLOW, "%d processes of %u seats are too many", comm->ranks, comm->seats);
    comm->process_rank = comm->rank;
    comm->rank = comm->rank * (int)comm->seats + (int)seat;
    comm->ranks = (int)ranks;
    return LOCH_OK;
}

/* Gets the id over MPI. Rank 0 makes it. */
static loch_status meet_by_mpi(loch_comm *comm, nccl_id *id)
{
    const comm_nccl *nccl = comm->below;
    int rank = 0, ranks = 0;
    LOCH_RETURN(lochi_comm_mpi_share_id(NULL, 0, 0, &rank, &ranks));
    if (comm->ranks && (comm->ranks != ranks || comm->rank != rank))
        return LOCH_FAIL(UNSUPPORTED, "this is rank %d of %d for MPI, and not rank %d of %d: give an id", rank, ranks,
                         comm->rank, comm->ranks);
    comm->rank = rank;
    comm->ranks = ranks;
    if (rank == 0) {
        const int result = nccl->api->ncclGetUniqueId(id);
        if (result != COMM_NCCL_SUCCESS) memset(id, 0, sizeof *id); /* the others must not wait */
    }
    LOCH_RETURN(lochi_comm_mpi_share_id(id, sizeof *id, 0, &rank, &ranks));
    const nccl_id none = {{0}};
    if (memcmp(id, &none, sizeof none) == 0) return LOCH_FAIL(DRIVER, "ncclGetUniqueId failed on rank 0");
    return LOCH_OK;
}

/* Makes the communicator of NCCL, and waits until all ranks are there. */
static loch_status meet_make(loch_comm *comm, const nccl_id *id)
{
    comm_nccl *nccl = comm->below;
    nccl_config config = {
        .size = sizeof config, .magic = COMM_NCCL_MAGIC, .version = COMM_NCCL_CONFIG_VERSION, .blocking = 0};
    comm_frame frame;
    LOCH_RETURN(lochi_comm_frame_enter(comm, &frame));
    pthread_mutex_lock(&nccl->lock);
    const int result = nccl->api->ncclCommInitRankConfig(&nccl->native, comm->ranks, *id, comm->rank, &config);
    loch_status status = LOCH_OK;
    if (!nccl->native) status = lochi_comm_nccl_fail(nccl->api, result, "ncclCommInitRankConfig");
    pthread_mutex_unlock(&nccl->lock);
    lochi_comm_frame_leave(&frame);
    return status;
}

/* Waits until all ranks are there. */
static loch_status meet_wait(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    LOCH_RETURN(lochi_comm_frame_enter(comm, &frame));
    pthread_mutex_lock(&nccl->lock);
    const loch_status status = lochi_comm_native_finish(comm, COMM_NCCL_IN_PROGRESS, "ncclCommInitRankConfig");
    pthread_mutex_unlock(&nccl->lock);
    lochi_comm_frame_leave(&frame);
    return status;
}

/* Makes the id from an address and the communicator from the id, with the variable set for NCCL.
 * @param address  NULL: the variable is set already */
static loch_status meet_at(loch_comm *comm, const char *address)
{
    const comm_nccl *nccl = comm->below;
    nccl_id id;
    pthread_mutex_lock(&meet_lock);
    if (address) setenv(MEET_ADDRESS, address, 1);
    const int result = nccl->api->ncclGetUniqueId(&id);
    const loch_status status =
        result == COMM_NCCL_SUCCESS ? meet_make(comm, &id) : lochi_comm_nccl_fail(nccl->api, result, "ncclGetUniqueId");
    if (address) unsetenv(MEET_ADDRESS);
    pthread_mutex_unlock(&meet_lock);
    return status;
}

static loch_status meet_by_address(loch_comm *comm)
{
    char address[300];
    const char *known = secure_getenv(MEET_ADDRESS);
    if (known && *known) return meet_at(comm, NULL);
    if (comm->ranks == 1) return meet_at(comm, NULL); /* NCCL finds an address of this machine */
    LOCH_RETURN(meet_read_master(comm, address, sizeof address));
    return meet_at(comm, address);
}

/* Returns whether the job has MPI: a launcher may set its variables where no MPI is installed. */
static bool meet_has_mpi(void)
{
    const comm_mpi_library *library;
    if (lochi_comm_mpi_is_running()) return true;
    return lochi_comm_mpi_is_launched() && lochi_comm_mpi_load(&library) == LOCH_OK;
}

loch_status lochi_comm_meet(loch_comm *comm, const loch_comm_options *options)
{
    nccl_id id;
    const bool has_mpi = !options->id && comm->seats == 1 && meet_has_mpi();
    if (has_mpi) LOCH_RETURN(meet_by_mpi(comm, &id));
    if (options->id) memcpy(&id, options->id, sizeof id);
    if (!comm->ranks) comm->ranks = 1;
    LOCH_RETURN(meet_number(comm, options->engine ? options->seat.number : 0));
    LOCH_RETURN(has_mpi || options->id ? meet_make(comm, &id) : meet_by_address(comm));
    return meet_wait(comm);
}

loch_status loch_comm_read_id(void *id, size_t id_bytes)
{
    const comm_nccl_api *api;
    nccl_id own;
    LOCHI_NOT_CANCELLED;
    if (!id) return LOCH_FAIL(INVALID, "the out pointer for the id of a communicator is NULL");
    if (id_bytes != LOCH_COMM_ID_BYTES)
        return LOCH_FAIL(INVALID, "the id of a communicator has %d bytes, and there is room for %zu",
                         LOCH_COMM_ID_BYTES, id_bytes);
    LOCH_RETURN(lochi_comm_nccl_load(&api));
    const int result = api->ncclGetUniqueId(&own);
    if (result != COMM_NCCL_SUCCESS) return lochi_comm_nccl_fail(api, result, "ncclGetUniqueId");
    memcpy(id, &own, sizeof own);
    return LOCH_OK;
}
