/* SPDX-License-Identifier: MIT */
/** @file comm.h
 *  Communicators: collectives on tensors between processes, on one machine and on several. A library of its own,
 *  libloch_comm, on the public interface of Loch.
 *
 *      loch_comm *comm;                                  every process of the job
 *      LOCH_CHECK(loch_comm_create(NULL, &comm));
 *      LOCH_CHECK(loch_comm_all_reduce(comm, sum, part, LOCH_COMM_SUM, NULL));
 *      loch_comm_destroy(comm);
 *
 *  Loch has no transport of its own. On the CPU the work is done by Open MPI or MPICH, on CUDA devices by NCCL. Each is
 *  found at run time; a program needs neither to be built.
 *
 *  - A rank is the number of a process in a communicator, from 0. All ranks make the same calls in the same order, with
 *    the same types and sizes. Calls on one communicator come from one thread at a time.
 *  - Over MPI, ranks compare their calls first (loch_comm_check). If they differ, every rank gets E_INVALID with a
 *    sentence that names two of them, nothing has moved, and the communicator goes on working. A rank that refuses the
 *    arguments of its call takes part, and returns its own failure. NCCL does not compare.
 *  - Tensors are contiguous in row-major order; others give E_INVALID: copy them first (loch_tensor_clone). Every type
 *    can be moved. Reductions exist for the types that the engine below has; others give E_UNSUPPORTED.
 *  - Memory that a call uses is not freed or reused before its work has ended. Tensors are read and written in place.
 *  - On CUDA the work is queued on `stream`, in its order, and may be captured into a graph. With a NULL stream it runs
 *    on the default stream, and the call waits. On the CPU the call first waits for the work on `stream`, and its own
 *    work has ended when it returns.
 *  - In place means that `to` and `from` are at the same address, or overlap as the call documents. Any other overlap
 *    gives E_INVALID. A call is in place on all ranks or on none.
 *  - Over NCCL, if a rank ends or does not answer within the timeout, the communicator fails: E_NOT_FOUND or E_BUSY,
 *    with a sentence that names the rank where it is known. From then on every call returns that failure at once, and
 *    only loch_comm_destroy is of use. MPI promises nothing of the kind: a call may wait for a dead rank for ever, or
 *    return E_DRIVER, after which the communicator has failed. It is the launcher that ends the whole job.
 *  - A forked child has no communicators: what it inherited gives E_FORKED, and can only be destroyed.
 */
#ifndef LOCH_COMM_H
#define LOCH_COMM_H

#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** A communicator: this process among the processes of a job. */
typedef struct loch_comm loch_comm;

/** @name The place of a process in its job */
/** @{ */

/** What told the place of a process. */
typedef enum loch_comm_source {
    LOCH_COMM_FROM_NOTHING, /**< no variable is set: one process */
    LOCH_COMM_FROM_TORCH,   /**< RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, as torchrun sets them */
    LOCH_COMM_FROM_OPENMPI, /**< OMPI_COMM_WORLD_RANK and its like: mpirun of Open MPI */
    LOCH_COMM_FROM_PMI,     /**< PMI_RANK, PMI_SIZE, MPI_LOCALRANKID: mpirun of MPICH and its relatives */
    LOCH_COMM_FROM_SLURM    /**< SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID: srun */
} loch_comm_source;

/** The place of a process in its job, as its launcher tells it. */
typedef struct loch_comm_place {
    size_t size;             /**< set by the caller to sizeof(loch_comm_place) */
    loch_comm_source source; /**< variables that told it */
    int rank;                /**< rank of this process, from 0 */
    int ranks;               /**< number of processes */
    int local_rank;          /**< rank among the processes of this machine: the number of its GPU; -1 if not told */
    int local_ranks;         /**< number of processes on this machine; 0 if not told */
} loch_comm_place;

/** Reads the place of this process from the variables of its launcher, without calling MPI. The variables of torchrun
 *  come first, then those of Open MPI, PMI and Slurm. Set `out->size` before the call. E_INVALID: a variable is not a
 *  number, or the rank is not below the number of ranks; the sentence names the variable. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_get_place(loch_comm_place *out);

/** @} */
/** @name Create and destroy */
/** @{ */

/** The engine below a communicator. */
typedef enum loch_comm_kind {
    /** NCCL for a CUDA device. Otherwise MPI, if a launcher of MPI started the process, if MPI is initialised, or if
     *  there are several ranks; else LOCH_COMM_SELF. */
    LOCH_COMM_AUTO,
    LOCH_COMM_MPI,  /**< Open MPI or MPICH, for memory of the host */
    LOCH_COMM_NCCL, /**< NCCL, for memory of one CUDA device */
    LOCH_COMM_SELF  /**< one rank and no library: every call copies on the device */
} loch_comm_kind;

/** Bytes of an id of a communicator. */
#define LOCH_COMM_ID_BYTES 128

/** Whether memory is registered with NCCL, so that NCCL moves it without copies in between. */
typedef enum loch_comm_registration {
    LOCH_COMM_REGISTER_SEGMENTS, /**< every range of a pool's memory, once, when a call first uses it; the default */
    LOCH_COMM_REGISTER_NOTHING   /**< only windows (loch_comm_add_window) */
} loch_comm_registration;

/** Whether ranks compare their calls before data moves. MPI only. */
typedef enum loch_comm_check {
    LOCH_COMM_CHECK_AUTO, /**< LOCH_COMM_CHECK=on or off in the environment; else on, up to 64 ranks */
    LOCH_COMM_CHECK_ON,   /**< calls that differ give E_INVALID on every rank, and move nothing */
    /** Calls are trusted: sizes that differ are undefined, except that a receive fails before it writes. */
    LOCH_COMM_CHECK_OFF
} loch_comm_check;

/** Options of loch_comm_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_comm_options {
    size_t size;         /**< sizeof(loch_comm_options) */
    loch_comm_kind kind; /**< engine below */
    loch_device *device; /**< device of the tensors; NULL for "cpu", or for the device of `seat` */
    /** Rank of this process, if `ranks` is not 0; otherwise it comes from MPI or from the launcher's variables. */
    int rank;
    int ranks; /**< number of processes; 0: from MPI or from the launcher's variables (loch_comm_get_place) */
    /** Id that rank 0 made by loch_comm_read_id and the program gave to all ranks; NULL: the ranks find each other by
     *  MPI, or else at NCCL_COMM_ID, or else at MASTER_ADDR and the port behind MASTER_PORT. NCCL only. */
    const void *id;
    size_t id_bytes; /**< LOCH_COMM_ID_BYTES, if `id` is not NULL */
    /** How long to wait for other ranks, in nanoseconds; 0 for 30 seconds. MPI waits without a limit. */
    uint64_t timeout_ns;
    loch_comm_registration registration; /**< whether memory is registered */
    /** Engine whose seat this communicator is for; NULL for none. Every process has an engine with as many seats. */
    loch_engine *engine;
    loch_seat seat; /**< seat of `engine`: its rank is the process's rank times the number of seats, plus its number */
    loch_comm_check check; /**< whether calls are compared; if one rank says off, none compares */
} loch_comm_options;

/** Creates a communicator. Every rank calls this, and the call waits for all of them. A program that started MPI keeps
 *  it: the communicator is a duplicate of MPI_COMM_WORLD. Otherwise MPI is started here, and ends when the process
 *  exits after its last communicator was destroyed. Create the communicators of several seats of one process at the
 *  same time: in loch_engine_for_each. E_INVALID: an option is not valid. E_UNSUPPORTED: the engine below is not
 *  installed, or too old, or cannot have so many ranks here. E_BUSY: not all ranks came within the timeout. E_DRIVER:
 *  the engine below failed.
 *  @param out  owned by the caller; destroy it with loch_comm_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_create(const loch_comm_options *options, loch_comm **out);

/** Destroys a communicator. Every rank calls this after its last call. Waits for the work of this rank, at most for the
 *  timeout; if the communicator has failed, its work is given up at once. NULL does nothing. */
LOCH_API void loch_comm_destroy(loch_comm *comm);
LOCH_DEFINE_CLEAR(comm, loch_comm_destroy(object))

/** Makes an id for a new communicator of NCCL: LOCH_COMM_ID_BYTES bytes at `id`. One rank calls this, keeps its process
 *  alive, and gives the id to all ranks by a way of its own. E_UNSUPPORTED: NCCL is not installed. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_read_id(void *id, size_t id_bytes);

/** Whether a communicator works. */
typedef enum loch_comm_state {
    LOCH_COMM_READY, /**< calls work */
    LOCH_COMM_FAILED /**< a rank is lost, or the engine below failed: every call returns that failure */
} loch_comm_state;

/** Figures of a communicator. */
typedef struct loch_comm_info {
    size_t size;               /**< set by the caller to sizeof(loch_comm_info) */
    loch_comm_kind kind;       /**< engine below; never LOCH_COMM_AUTO */
    loch_comm_state state;     /**< whether it works */
    int rank;                  /**< rank of this process, or of the seat */
    int ranks;                 /**< number of ranks */
    int local_rank;            /**< rank among the ranks on this machine */
    int local_ranks;           /**< number of ranks on this machine */
    const char *engine;        /**< name of the engine below: "Open MPI", "MPICH", "NCCL", "self"; static string */
    char version[32];          /**< version of the engine below */
    loch_device *device;       /**< device of the tensors; borrowed */
    size_t registered_ranges;  /**< ranges of memory that are registered now */
    size_t registered_bytes;   /**< bytes in them */
    uint64_t registrations;    /**< registrations so far */
    uint64_t deregistrations;  /**< registrations that ended, because their memory was given back */
    size_t windows;            /**< windows that exist now (loch_comm_add_window) */
    uint64_t calls;            /**< collectives, sends and receives so far */
    uint64_t calls_registered; /**< of those: calls whose memory was registered, all of it */
    loch_comm_check check;     /**< whether calls are compared: LOCH_COMM_CHECK_ON or LOCH_COMM_CHECK_OFF */
} loch_comm_info;

/** Reads the figures of a communicator. Set `out->size` before the call. Works after a failure too. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_get_info(const loch_comm *comm, loch_comm_info *out);

/** Returns the rank of a seat of this process: the process's rank times its number of seats, plus the number of the
 *  seat. Without an engine in the options there is one seat, number 0. -1 if there is no such seat. Any thread. */
LOCH_API int loch_comm_get_seat_rank(const loch_comm *comm, loch_seat seat);

/** @} */
/** @name Collectives */
/** @{ */

/** How numbers are reduced. */
typedef enum loch_comm_op {
    LOCH_COMM_SUM,     /**< sum */
    LOCH_COMM_PRODUCT, /**< product */
    LOCH_COMM_MIN,     /**< least number; of bools: whether all are true */
    LOCH_COMM_MAX,     /**< greatest number; of bools: whether any is true */
    LOCH_COMM_AVERAGE  /**< sum divided by the number of ranks; NCCL and LOCH_COMM_SELF only */
} loch_comm_op;

/** Reduces the tensors `from` of all ranks, element by element, into `to` on every rank. Both have one type and number
 *  of elements. In place: `to` and `from` at one address. E_UNSUPPORTED: the engine below does not reduce this type. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_all_reduce(loch_comm *comm, loch_tensor *to, loch_tensor *from,
                                                        loch_comm_op op, loch_stream *stream);

/** Collects the tensors `from` of all ranks in `to` on every rank, one behind the other by rank. `to` has as many
 *  elements as all ranks' `from` together, which are of one size. In place: `from` is this rank's part of `to`. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_all_gather(loch_comm *comm, loch_tensor *to, loch_tensor *from,
                                                        loch_stream *stream);

/** Reduces the tensors `from` of all ranks, and gives each rank its part: rank 0 the first elements, and so on. `from`
 *  has as many elements as all ranks' `to` together, which are of one size. In place: `to` is this rank's part of
 *  `from`; the other parts of `from` are undefined afterwards. E_UNSUPPORTED: as for loch_comm_all_reduce. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_reduce_scatter(loch_comm *comm, loch_tensor *to, loch_tensor *from,
                                                            loch_comm_op op, loch_stream *stream);

/** Copies the tensor of rank `root` to the tensors of all other ranks. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_broadcast(loch_comm *comm, loch_tensor *tensor, int root,
                                                       loch_stream *stream);

/** Reduces the tensors `from` of all ranks into `to` on rank `root`. `to` may be NULL on other ranks, where it is left
 *  alone. In place: `to` and `from` at one address on rank `root`. E_UNSUPPORTED: as for loch_comm_all_reduce. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_reduce(loch_comm *comm, loch_tensor *to, loch_tensor *from,
                                                    loch_comm_op op, int root, loch_stream *stream);

/** Sends part i of `from` to rank i, and receives into part i of `to` what rank i sent to this rank. Both tensors have
 *  one type and number of elements, a multiple of the number of ranks. The two must not overlap. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_all_to_all(loch_comm *comm, loch_tensor *to, loch_tensor *from,
                                                        loch_stream *stream);

/** Sends parts of `from` to all ranks and receives parts of `to` from all ranks, with sizes of their own. Counts and
 *  offsets are in elements, one for each rank; they are read before the call returns. Two ranks agree on the count
 *  between them. A count of 0 is valid. Parts of `to` must not overlap each other, nor `from`. E_OUT_OF_RANGE: a
 *  part reaches beyond its tensor.
 *  @param to_counts     elements that come from each rank
 *  @param to_offsets    where they go in `to`
 *  @param from_counts   elements that go to each rank
 *  @param from_offsets  where they are in `from` */
LOCH_API LOCH_MUST_USE loch_status loch_comm_all_to_all_v(loch_comm *comm, loch_tensor *to, const size_t *to_counts,
                                                          const size_t *to_offsets, loch_tensor *from,
                                                          const size_t *from_counts, const size_t *from_offsets,
                                                          loch_stream *stream);

/** Sends a tensor to rank `peer`, which calls loch_comm_receive. May wait until it does. Messages between two ranks
 *  arrive in order. To send and to receive at the same time, use a group. E_INVALID: `peer` is this rank, outside of a
 *  group. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_send(loch_comm *comm, loch_tensor *tensor, int peer, loch_stream *stream);

/** Receives a tensor that rank `peer` sends. Both tensors have the same number of bytes. E_INVALID: `peer` is this
 *  rank, outside of a group. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_receive(loch_comm *comm, loch_tensor *tensor, int peer,
                                                     loch_stream *stream);

/** Waits on the host until all ranks have called this. On CUDA it also waits for the work that this communicator has
 *  queued on the default stream. E_INVALID: inside a group. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_barrier(loch_comm *comm);

/** @} */
/** @name Groups, order and failure */
/** @{ */

/** Begins a group. Calls of the group are started together by loch_comm_end_group: sends and receives of a group do not
 *  wait for each other. No tensor of the group may be used before the group has ended. Groups do not nest. All calls of
 *  a group name one stream. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_begin_group(loch_comm *comm);

/** Ends a group: starts its calls, and on the CPU or with a NULL stream waits for them. The first failure of a call in
 *  the group is returned again, and nothing of the group runs that was not started before. E_INVALID: there is no
 *  group. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_end_group(loch_comm *comm);

/** Waits on the host until the work on `stream` has ended (NULL: the default stream), or until a rank is lost. Prefer
 *  it to loch_stream_sync behind a collective: it tells if the results are valid. E_NOT_FOUND: a rank has ended; the
 *  work was given up. E_BUSY: the work has not ended within the timeout; it was given up. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_sync(loch_comm *comm, loch_stream *stream);

/** Returns the failure of a communicator, or LOCH_OK while it works. Does not wait. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_query(loch_comm *comm);

/** @} */
/** @name Windows */
/** @{ */

/** Makes a window of a buffer: memory that the engine below may reach on all ranks at once (symmetric memory of NCCL
 *  2.27 and later). Every rank calls this, with a buffer of the same size. The buffer begins at a multiple of 4096
 *  bytes, and comes from a pool of the communicator's device. It is held until the window ends. E_UNSUPPORTED: there
 *  are no windows here. E_EXISTS: the buffer has a window. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_add_window(loch_comm *comm, loch_buffer *buffer);

/** Ends the window of a buffer. Every rank calls this. E_NOT_FOUND: the buffer has no window. loch_comm_destroy ends
 *  the windows that are left. */
LOCH_API LOCH_MUST_USE loch_status loch_comm_remove_window(loch_comm *comm, loch_buffer *buffer);

/** @} */

LOCH_END_DECLS

#endif
