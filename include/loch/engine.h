/* SPDX-License-Identifier: MIT */
/** @file engine.h
 *  An engine: the devices that a program works on, opened together, each with a pool of memory, worker threads and kept streams.
 *
 *  A device of an engine is named by its seat: a number from 0 on in the order of the table that the engine was opened with, of a
 *  type of its own, so that it cannot be mistaken for a driver's number. What the engine hands out stays valid until its shutdown;
 *  tensors and buffers stay valid beyond it.
 */
#ifndef LOCH_ENGINE_H
#define LOCH_ENGINE_H

#include <loch/library.h>
#include <loch/moving.h>
#include <loch/pool.h>
#include <loch/stream_pool.h>
#include <loch/timeline.h>
#include <loch/workers.h>

LOCH_BEGIN_DECLS

/** An engine. Safe in any thread. */
typedef struct loch_engine loch_engine;

/** A device's place in an engine. */
typedef struct loch_seat {
    unsigned number; /**< from 0 on */
} loch_seat;

/** The seat with a number: LOCH_SEAT(0). */
#ifdef __cplusplus
#define LOCH_SEAT(number_) (loch_seat{static_cast<unsigned>(number_)})
#else
#define LOCH_SEAT(number_) ((loch_seat){(unsigned)(number_)})
#endif

/** One device of an engine; zero means default. */
typedef struct loch_engine_device {
    size_t size;                   /**< sizeof(loch_engine_device) */
    const char *name;              /**< "cuda:0"; one device may have several seats, each with memory of its own */
    size_t limit_bytes;            /**< memory that its pool may hold; of this and the next two one at most is given */
    double limit_fraction;         /**< the same, as a part of what is free when the engine opens: 0.9 */
    size_t spare_bytes;            /**< the same: all that is free but so much. E_LIMIT when less is free */
    const loch_pool_options *pool; /**< its limit is ignored; of direct memory all but its kind; NULL: defaults */
    size_t workers;                /**< threads; 0: one */
    const unsigned *cpus;          /**< that the threads run on, as for loch_workers_options; NULL: all */
    size_t cpus_count;             /**< entries of `cpus` */
} loch_engine_device;

/** Where memory comes from. */
typedef enum loch_engine_memory {
    LOCH_ENGINE_POOLS, /**< a pool for each seat; the default. The option `direct_memory` (LOCH_DIRECT_MEMORY=1) chooses the other */
    LOCH_ENGINE_DIRECT /**< one driver call for each block, within the same limits: for memory checkers. Nothing moves or freezes */
} loch_engine_memory;

/** How an engine is opened; zero means default. */
typedef struct loch_engine_options {
    size_t size;                       /**< sizeof(loch_engine_options) */
    const char *name;                  /**< for people: of threads and pools; copied; NULL: "engine" */
    const loch_engine_device *devices; /**< the table; an entry for each seat */
    size_t devices_count;              /**< at least 1 */
    loch_engine_memory memory;         /**< where memory comes from */
    size_t kept_streams;               /**< for each seat, as for loch_stream_pool_options; 0: its default */
    const loch_timeline_options
        *timeline; /**< of the engine's timeline; NULL: nothing is recorded until its level is set */
} loch_engine_options;

/** Opens an engine: all of it or nothing. Seats that can reach each other's memory are connected. The limits of all seats are
 *  computed before memory is taken; several seats of one device share what is free by their fractions, which are 1 together at most,
 *  and all but so much is of what the limits of the others leave. Several that spare leave the largest of their spares, and have equal
 *  parts of the rest. E_INVALID, E_LIMIT, and what loch_device_open says; the sentence names the seat.
 *  @param out  the caller's, ended by loch_engine_close; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_engine_open(const loch_engine_options *options, loch_engine **out);

/** What a shutdown found. */
typedef struct loch_engine_leaks {
    size_t size;            /**< set by the caller to sizeof(loch_engine_leaks) */
    size_t blocks;          /**< that are live in the engine's allocators, and stay valid until they are freed */
    size_t bytes;           /**< in them */
    size_t tasks_cancelled; /**< that did not run */
} loch_engine_leaks;

/** Ends an engine. Its workers end first, as `how` says, and are joined; then its pools and devices are let go. With
 *  LOCH_WORKERS_DRAIN tasks run to the last, on whatever seat they queue others; with LOCH_WORKERS_CANCEL no workers take any more.
 *  E_BUSY, and nothing changes, while contexts of it live, while a thread that is none of its workers holds the lock of a seat, or from
 *  one of its own workers. Otherwise the engine is gone; the result is the first failure, by seat, of a task that nobody waited for.
 *  Memory whose free waits for work (loch_buffer_collect) is waited for. NULL does nothing.
 *  @param visitor  called with each live block until it returns other than LOCH_OK, which is no failure; may be NULL
 *  @param leaks    may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_engine_close(loch_engine *engine, loch_workers_closing how,
                                                     loch_block_visitor *visitor, void *user, loch_engine_leaks *leaks);

/** How many seats. */
LOCH_API unsigned loch_engine_count(const loch_engine *engine);

/** A seat's parts. Borrowed; NULL for a seat that is not there. The seat's device is current in the thread while a task of its workers
 *  runs, as in a guard of a context; a task whose thread cannot have it fails without having run. */
LOCH_API loch_device *loch_engine_get_device(const loch_engine *engine, loch_seat seat);
LOCH_API loch_allocator *loch_engine_get_allocator(const loch_engine *engine, loch_seat seat);
LOCH_API loch_workers *loch_engine_get_workers(const loch_engine *engine, loch_seat seat);
LOCH_API loch_stream_pool *loch_engine_get_streams(const loch_engine *engine, loch_seat seat);

/** The engine's timeline. Borrowed. */
LOCH_API loch_timeline *loch_engine_get_timeline(const loch_engine *engine);

/** The NCCL communicators of all seats, rank by seat, made on first use. Borrowed. E_UNSUPPORTED. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_require_nccl(loch_engine *engine, loch_nccl **out);

/** A seat now. */
typedef struct loch_engine_info {
    size_t size;           /**< set by the caller to sizeof(loch_engine_info) */
    int device_index;      /**< its real number among its driver's devices; loch_device_get_properties has the rest */
    size_t total_bytes;    /**< the device's memory */
    size_t free_bytes;     /**< what is free of it, for anybody */
    size_t limit_bytes;    /**< the seat's; 0: none */
    size_t used_bytes;     /**< in blocks of the seat */
    size_t peak_bytes;     /**< the most so far */
    size_t reserved_bytes; /**< held from the device */
    size_t workers;        /**< threads */
} loch_engine_info;

/** Reads it. E_NOT_FOUND for a seat that is not there. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_get_info(loch_engine *engine, loch_seat seat, loch_engine_info *out);

/** Non-zero if work of `from` may read and write memory of `to`. */
LOCH_API int loch_engine_can_reach(const loch_engine *engine, loch_seat from, loch_seat to);

/** What is done for a seat, by one of its workers. The seat's device is current in the thread, as in a guard of a context. */
typedef loch_status loch_engine_function(loch_engine *engine, loch_seat seat, void *user);

/** Runs a function for every seat at the same time, each by a worker of the seat, and waits for all. Returns the first error, by seat,
 *  with its sentence; a seat whose workers take nothing more, or were told to cancel, has failed, too. Functions of one call may wait
 *  for each other; of calls of several threads as many run at a time as the seat with the fewest workers has threads, in one order on
 *  all seats. It may be called by workers of the engine, also by its functions: they run what others call it for meanwhile, so they
 *  should hold no lock that such functions take. E_FORKED in the child of a fork. @param failed  for how many seats it failed; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_engine_for_each(loch_engine *engine, loch_engine_function *function, void *user,
                                                        size_t *failed);

/** Freezes all memory of a tag (0: all live memory) in the pools of all seats and in their children, whatever the depth
 *  (loch_pool_freeze), on a stream of each seat; waits. Direct
 *  memory has nothing to freeze: LOCH_OK. The first failure ends it; what is frozen by then stays so.
 *  @param bytes  frozen now; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_engine_freeze(loch_engine *engine, loch_tag tag, size_t *bytes);

/** Prints for people what each seat holds, by tag, with limit, peak, reserved bytes and fragmentation (loch_stats_print). */
LOCH_API LOCH_MUST_USE loch_status loch_engine_print(loch_engine *engine, char *text, size_t bytes, size_t *length);

/** @name Locks on seats: held by one thread at a time, and by that as often as it likes. Who takes several takes them by rising seat. */
/** @{ */

/** Waits for the lock of a seat, and makes the seat's device current in the calling thread, as a guard of a context does. E_NOT_FOUND;
 *  E_HOST_MEMORY, E_DRIVER: the lock is not held. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_lock(loch_engine *engine, loch_seat seat);

/** Undoes one, in any order with locks of other seats: the device of the last one begun that is held stays current, and when none is
 *  held, what was current before the first is again. E_WRONG_THREAD when the calling thread does not hold it. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_unlock(loch_engine *engine, loch_seat seat);

/** @} */

LOCH_END_DECLS

#endif
