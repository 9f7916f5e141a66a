/* SPDX-License-Identifier: MIT */
/* Creation and destruction of communicators: reads the options, finds the place of the process, and chooses the engine
 * below. */
#include "mpi.h"
#include "nccl.h"
#include "place.h"
#include "self.h"
#include "state.h"
#include "kit/fail.h"
#include <stdlib.h>

#define COMM_TIMEOUT_NS ((uint64_t)30 * 1000 * 1000 * 1000)

const char *lochi_comm_nccl_driver = "cuda";

/* --- options --- */

static loch_status comm_check_options(const loch_comm_options *options)
{
    if ((unsigned)options->kind > LOCH_COMM_SELF)
        return LOCH_FAIL(INVALID, "there is no kind %d of communicators", (int)options->kind);
    if ((unsigned)options->registration > LOCH_COMM_REGISTER_NOTHING)
        return LOCH_FAIL(INVALID, "there is no registration %d", (int)options->registration);
    if ((unsigned)options->check > LOCH_COMM_CHECK_OFF)
        return LOCH_FAIL(INVALID, "there is no check %d of calls", (int)options->check);
    if (options->ranks < 0 || options->rank < 0 || (options->ranks ? options->rank >= options->ranks : options->rank))
        return LOCH_FAIL(INVALID, "rank %d of %d ranks is not valid", options->rank, options->ranks);
    if (options->id ? options->id_bytes != LOCH_COMM_ID_BYTES : options->id_bytes)
        return LOCH_FAIL(INVALID, "the id of a communicator has %zu bytes, and must have %d", options->id_bytes,
                         LOCH_COMM_ID_BYTES);
    if (options->id && !options->ranks)
        return LOCH_FAIL(INVALID, "a communicator with an id needs the rank and the number of ranks in its options");
    if (options->engine && options->seat.number >= loch_engine_count(options->engine))
        return LOCH_FAIL(INVALID, "the engine has no seat %u", options->seat.number);
    if (options->engine && options->device && options->device != loch_engine_get_device(options->engine, options->seat))
        return LOCH_FAIL(INVALID, "the device of a communicator is not that of its seat: leave it out");
    return LOCH_OK;
}

static loch_status comm_take_device(loch_comm *comm, const loch_comm_options *options)
{
    loch_device *device = options->device;
    if (!device && options->engine) device = loch_engine_get_device(options->engine, options->seat);
    if (!device) return loch_device_open("cpu", &comm->device);
    comm->device = loch_device_retain(device);
    return LOCH_OK;
}

static bool comm_is_on_cuda(const loch_comm *comm)
{
    loch_device_properties properties = {.size = sizeof properties};
    return loch_device_get_properties(comm->device, &properties) == LOCH_OK &&
           strcmp(properties.driver, lochi_comm_nccl_driver) == 0;
}

/* --- choice of the engine --- */

static loch_comm_kind comm_choose(const loch_comm *comm)
{
    if (comm_is_on_cuda(comm)) return LOCH_COMM_NCCL;
    if (comm->ranks > 1 || lochi_comm_mpi_is_launched() || lochi_comm_mpi_is_running()) return LOCH_COMM_MPI;
    return LOCH_COMM_SELF;
}

/* Finds rank and ranks of the process in the options or in the variables of its launcher. MPI may still know better. */
static loch_status comm_find_place(loch_comm *comm, const loch_comm_options *options, loch_comm_place *place)
{
    LOCH_RETURN(lochi_comm_place_read(place));
    if (options->ranks) {
        comm->rank = options->rank;
        comm->ranks = options->ranks;
    } else if (place->source != LOCH_COMM_FROM_NOTHING) {
        comm->rank = place->rank;
        comm->ranks = place->ranks;
    }
    return LOCH_OK;
}

static loch_status comm_create_self(loch_comm *comm)
{
    if (comm->ranks > 1 || comm->seats > 1)
        return LOCH_FAIL(UNSUPPORTED,
                         "a communicator without MPI and NCCL has one rank, and there are %d ranks of %u "
                         "seats",
                         comm->ranks, comm->seats);
    comm->rank = 0;
    comm->ranks = 1;
    return lochi_comm_self_create(comm);
}

static loch_status comm_make(loch_comm *comm, const loch_comm_options *options)
{
    loch_comm_place place;
    comm->timeout_ns = options->timeout_ns ? options->timeout_ns : COMM_TIMEOUT_NS;
    comm->registration = options->registration;
    comm->check = options->check;
    comm->seats = options->engine ? loch_engine_count(options->engine) : 1;
    LOCH_RETURN(comm_take_device(comm, options));
    LOCH_RETURN(comm_find_place(comm, options, &place));
    comm->kind = options->kind == LOCH_COMM_AUTO ? comm_choose(comm) : options->kind;
    if (options->id && comm->kind != LOCH_COMM_NCCL)
        return LOCH_FAIL(INVALID, "an id is for communicators of NCCL, and this one has none below");
    comm->uses = calloc(COMM_USES_FIRST, sizeof *comm->uses);
    if (!comm->uses) return LOCH_FAIL(HOST_MEMORY, "no host memory for a communicator");
    comm->uses_capacity = COMM_USES_FIRST;
    switch (comm->kind) {
    case LOCH_COMM_MPI: return lochi_comm_mpi_create(comm);
    case LOCH_COMM_NCCL:
        if (!comm_is_on_cuda(comm))
            return LOCH_FAIL(UNSUPPORTED, "NCCL works on CUDA devices, and %.80s is not one: name one in the options",
                             loch_device_get_name(comm->device));
        return lochi_comm_nccl_create(comm, options);
    default: return comm_create_self(comm);
    }
}

loch_status loch_comm_create(const loch_comm_options *options, loch_comm **out)
{
    LOCHI_NOT_CANCELLED;
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the communicator is NULL");
    *out = NULL;
    loch_comm_options own = {.size = sizeof own};
    LOCH_RETURN(lochi_sized_read("the options of a communicator", options, &own, sizeof own));
    LOCH_RETURN(comm_check_options(&own));
    loch_comm *comm = calloc(1, sizeof *comm);
    if (!comm) return LOCH_FAIL(HOST_MEMORY, "no host memory for a communicator");
    pthread_mutex_init(&comm->failure_lock, NULL);
    lochi_comm_fork_watch();
    comm->epoch = lochi_comm_fork_epoch;
    const loch_status status = comm_make(comm, &own);
    if (status == LOCH_OK) {
        *out = comm;
        return LOCH_OK;
    }
    const loch_error error = *loch_error_get();
    lochi_comm_failure_set(comm, status); /* what is half-built is given up, and does not wait for other ranks */
    loch_comm_destroy(comm);
    return lochi_comm_error_restore(&error);
}

void loch_comm_destroy(loch_comm *comm)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return;
    const bool is_own = comm->epoch == lochi_comm_fork_epoch;
    if (comm->is_grouped && is_own) {
        const loch_status ended = loch_comm_end_group(comm);
        (void)ended; /* its calls may fail: their results are not waited for */
    }
    if (comm->engine && is_own) comm->engine->destroy(comm); /* what is below belongs to the parent otherwise */
    loch_device_release(comm->device);
    pthread_mutex_destroy(&comm->failure_lock);
    free(comm->uses);
    free(comm);
}

/* --- figures --- */

loch_status loch_comm_get_info(const loch_comm *comm, loch_comm_info *out)
{
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    loch_comm_info info = {.size = sizeof info,
                           .kind = comm->kind,
                           .state = atomic_load_explicit(&comm->is_failed, memory_order_acquire) ? LOCH_COMM_FAILED
                                                                                                 : LOCH_COMM_READY,
                           .rank = comm->rank,
                           .ranks = comm->ranks,
                           .local_rank = comm->local_rank,
                           .local_ranks = comm->local_ranks,
                           .engine = comm->name,
                           .device = comm->device,
                           .check = comm->kind == LOCH_COMM_MPI ? comm->check : LOCH_COMM_CHECK_OFF,
                           .calls = atomic_load_explicit(&comm->calls, memory_order_relaxed)};
    memcpy(info.version, comm->version, sizeof info.version);
    comm->engine->describe(comm, &info);
    return comm_write_result(&info, sizeof info, out, "the figures of a communicator");
}

int loch_comm_get_seat_rank(const loch_comm *comm, loch_seat seat)
{
    if (!comm || seat.number >= comm->seats) return -1;
    return comm->process_rank * (int)comm->seats + (int)seat.number;
}
