/* SPDX-License-Identifier: MIT */
/** @file engine.h
 *  An engine: the devices of a program, opened together. Each has a memory pool, worker threads and a cache of
 *  streams.
 *
 *  A device of an engine is named by its seat: a number from 0 in the order of the table that the engine was opened
 *  with. A seat has a type of its own, so that it cannot be confused with the number of a device in its driver. One
 *  device may have several seats. Objects that the engine returns are valid until loch_engine_close; tensors and
 *  buffers stay valid after it.
 */
#ifndef LOCH_ENGINE_H
#define LOCH_ENGINE_H

#include <loch/check.h>
#include <loch/library.h>
#include <loch/moving.h>
#include <loch/pool.h>
#include <loch/stream_pool.h>
#include <loch/timeline.h>
#include <loch/workers.h>

LOCH_BEGIN_DECLS

/** An engine. Any thread. */
typedef struct loch_engine loch_engine;

/** A seat: the place of a device in an engine. */
typedef struct loch_seat {
    unsigned number; /**< number of the seat, from 0 */
} loch_seat;

/** Makes a seat from a number: LOCH_SEAT(0). */
#ifdef __cplusplus
#define LOCH_SEAT(number_) (loch_seat{static_cast<unsigned>(number_)})
#else
#define LOCH_SEAT(number_) ((loch_seat){(unsigned)(number_)})
#endif

/** @name Open and close */
/** @{ */

/** One seat of an engine. Zero means default. Of limit_bytes, limit_fraction and spare_bytes at most one is set. */
typedef struct loch_engine_device {
    size_t size; /**< sizeof(loch_engine_device) */
    /** Name of the device: "cuda:0"; several seats may name one device, each with its own memory. */
    const char *name;
    size_t limit_bytes;    /**< limit of the seat's memory in bytes */
    double limit_fraction; /**< limit as a fraction of the memory that is free when the engine opens: 0.9 */
    size_t spare_bytes;    /**< limit as all free memory except this many bytes; E_LIMIT if less is free */
    /** Options of the pool, without its limit; for direct memory only its kind; NULL for defaults. */
    const loch_pool_options *pool;
    size_t workers;       /**< number of worker threads; 0 for one */
    const unsigned *cpus; /**< CPUs of the threads, as in loch_workers_options; NULL for all */
    size_t cpus_count;    /**< number of entries in `cpus` */
} loch_engine_device;

/** Where the memory of an engine comes from. */
typedef enum loch_engine_memory {
    /** One pool for each seat (default); the option `direct_memory` (LOCH_DIRECT_MEMORY=1) selects direct memory. */
    LOCH_ENGINE_POOLS,
    /** One driver call for each block, with the same limits: for memory checkers; nothing moves or freezes. */
    LOCH_ENGINE_DIRECT
} loch_engine_memory;

/** Options of loch_engine_open. Zero means default. */
typedef struct loch_engine_options {
    size_t size;                       /**< sizeof(loch_engine_options) */
    const char *name;                  /**< name of threads and pools, for people; copied; NULL for "engine" */
    const loch_engine_device *devices; /**< table with one entry for each seat */
    size_t devices_count;              /**< number of entries in `devices`, at least 1 */
    loch_engine_memory memory;         /**< where the memory comes from */
    /** Number of cached streams for each seat (loch_stream_pool_options); 0 for the default. */
    size_t kept_streams;
    /** Options of the engine's timeline; NULL: nothing is recorded until its level is set. */
    const loch_timeline_options *timeline;
} loch_engine_options;

/** Opens an engine: all of it or nothing. Seats that can access each other's memory are connected. The limits of all
 *  seats are computed before memory is taken. Several seats of one device share the free memory by their fractions,
 *  whose sum is at most 1. Seats with spare_bytes share what the limits of the other seats leave, minus the largest
 *  spare_bytes, in equal parts. E_INVALID: an option is not valid. E_LIMIT: the free memory is not enough. Any status
 *  of loch_device_open. The sentence names the seat.
 *  @param out  owned by the caller; close it with loch_engine_close. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_open(const loch_engine_options *options, loch_engine **out);

/** What loch_engine_close found. */
typedef struct loch_engine_leaks {
    size_t size; /**< set by the caller to sizeof(loch_engine_leaks) */
    /** Number of live blocks in the engine's allocators; they stay valid until they are freed. */
    size_t blocks;
    size_t bytes;           /**< bytes in live blocks of the engine's allocators */
    size_t tasks_cancelled; /**< number of tasks that did not run */
} loch_engine_leaks;

/** Closes an engine. The workers are closed and joined first, as `how` says; then the pools and devices are released.
 *  With LOCH_WORKERS_DRAIN all tasks run, including tasks that they queue on any seat; with LOCH_WORKERS_CANCEL no
 *  more tasks are accepted. Waits for memory whose free waits for work (loch_buffer_collect). NULL does nothing.
 *
 *  E_BUSY, nothing changed: contexts of the engine are open, a thread other than its workers holds the lock of a
 *  seat, another thread is closing it, or the caller is one of its workers. Otherwise the engine is freed, and the
 *  result is the first failure, by seat, of a task without a waiter, or else of an allocator that could not list its
 *  blocks.
 *  @param visitor  receives each live block until it returns other than LOCH_OK, which is not a failure; may be NULL
 *  @param leaks    may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_engine_close(loch_engine *engine, loch_workers_closing how,
                                                     loch_block_visitor *visitor, void *user, loch_engine_leaks *leaks);
LOCH_DEFINE_CLEAR(engine, (void)!loch_engine_close(object, LOCH_WORKERS_DRAIN, NULL, NULL, NULL))

/** @} */
/** @name Parts of an engine */
/** @{ */

/** Returns the number of seats. NULL returns 0. */
LOCH_API unsigned loch_engine_count(const loch_engine *engine);

/** Returns the device of a seat. Borrowed. NULL if there is no such seat. */
LOCH_API loch_device *loch_engine_get_device(const loch_engine *engine, loch_seat seat);

/** Returns the allocator of a seat: its pool, or its direct memory. Borrowed. NULL if there is no such seat. */
LOCH_API loch_allocator *loch_engine_get_allocator(const loch_engine *engine, loch_seat seat);

/** Returns the workers of a seat. Borrowed. NULL if there is no such seat. While a task runs, the seat's device is
 *  current in its thread, as inside a guard of a context (context.h). If the device cannot be made current, the task
 *  fails without running. */
LOCH_API loch_workers *loch_engine_get_workers(const loch_engine *engine, loch_seat seat);

/** Returns the stream pool of a seat. Borrowed. NULL if there is no such seat. */
LOCH_API loch_stream_pool *loch_engine_get_streams(const loch_engine *engine, loch_seat seat);

/** Returns the timeline of an engine. Borrowed. NULL returns NULL. */
LOCH_API loch_timeline *loch_engine_get_timeline(const loch_engine *engine);

/** Returns the NCCL communicators of all seats in `out`, created on first use. The rank of a seat is its number.
 *  Borrowed. E_UNSUPPORTED: a device is not a CUDA device or has two seats, or NCCL is not installed. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_require_nccl(loch_engine *engine, loch_nccl **out);

/** Figures of a seat. */
typedef struct loch_engine_info {
    size_t size;           /**< set by the caller to sizeof(loch_engine_info) */
    int device_index;      /**< number of the device within its driver */
    size_t total_bytes;    /**< memory of the device in bytes */
    size_t free_bytes;     /**< free memory of the device in bytes, for any process */
    size_t limit_bytes;    /**< limit of the seat in bytes; 0 for none */
    size_t used_bytes;     /**< bytes in live blocks of the seat */
    size_t peak_bytes;     /**< most bytes in live blocks so far */
    size_t reserved_bytes; /**< bytes held from the device */
    size_t workers;        /**< number of worker threads */
} loch_engine_info;

/** Reads the figures of a seat. Set `out->size` before the call. E_NOT_FOUND: there is no such seat. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_get_info(loch_engine *engine, loch_seat seat, loch_engine_info *out);

/** Prints for people what each seat holds by tag, with limit, peak, reserved bytes and fragmentation. `text`, `bytes`
 *  and `length` work as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_print(loch_engine *engine, char *text, size_t bytes, size_t *length);

/** Returns non-zero if work on the seat `from` may read and write memory of the seat `to`. */
LOCH_API int loch_engine_can_reach(const loch_engine *engine, loch_seat from, loch_seat to);

/** @} */
/** @name Work on all seats */
/** @{ */

/** The work for one seat. Runs on a worker of the seat, with the seat's device current in the thread, as inside a
 *  guard of a context. */
typedef loch_status loch_engine_function(loch_engine *engine, loch_seat seat, void *user);

/** Runs a function for every seat at the same time, each on a worker of the seat, and waits for all. Returns the
 *  first failure, by seat, with its sentence. A seat whose workers are closing or cancelled their queue counts as
 *  failed. The functions of one call may wait for each other. Of calls from several threads, as many run at a time as
 *  the seat with the fewest workers has threads, in the same order on all seats. Workers of the engine may call it,
 *  also from inside such a function; while they wait, they run functions of other calls, so they should hold no lock
 *  that those functions take. E_FORKED: in the child of a fork.
 *  @param failed  number of seats that failed; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_engine_for_each(loch_engine *engine, loch_engine_function *function, void *user,
                                                        size_t *failed);

/** Freezes all memory of a tag (0: all live memory) in the pools of all seats and in all their children
 *  (loch_pool_freeze), on a stream of each seat, and waits on the host. Direct memory cannot be frozen: LOCH_OK. The
 *  first failure ends the call; memory that is frozen by then stays frozen.
 *  @param bytes  bytes frozen by this call; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_engine_freeze(loch_engine *engine, loch_tag tag, size_t *bytes);

/** @} */
/** @name Locks on seats
 *  One thread at a time holds the lock of a seat; the same thread may lock again. Lock several seats in rising order
 *  of seats. */
/** @{ */

/** Locks a seat, waiting for it if needed, and makes the seat's device current in the calling thread, as a guard of a
 *  context does. E_NOT_FOUND: there is no such seat. E_HOST_MEMORY, E_DRIVER: the lock is not held. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_lock(loch_engine *engine, loch_seat seat);

/** Undoes one loch_engine_lock of a seat. Locks of different seats may be undone in any order: the device of the last
 *  begun lock that is still held stays current; after the last unlock, what was current before the first lock is
 *  current again. E_WRONG_THREAD: the calling thread does not hold the lock. */
LOCH_API LOCH_MUST_USE loch_status loch_engine_unlock(loch_engine *engine, loch_seat seat);

/** @} */

LOCH_END_DECLS

/* the rest of libloch_engine */
#include <loch/context.h>
#include <loch/profile.h>
#include <loch/scratch.h>

#endif
