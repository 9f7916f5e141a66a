/* SPDX-License-Identifier: MIT */
/** @file planned.h
 *  Planned pools: an allocator in front of a pool for programs that repeat themselves. It records the allocations of a
 *  few steps, computes a plan for them (plan.h), takes one block of the pool for each stream, and serves the
 *  allocations of later steps from that block by their place in the sequence, without searching.
 *
 *      loch_planned *planned;
 *      LOCH_CHECK(loch_planned_create(pool, NULL, NULL, &planned));
 *      loch_allocator *allocator = loch_planned_get_allocator(planned);
 *      for (;;) {
 *          LOCH_CHECK(loch_planned_step(planned));
 *          run_one_step(allocator);
 *      }
 *      loch_planned_destroy(planned);
 *
 *  Steps are marked by loch_planned_step. A program that never calls it is recorded too: the period is found in the
 *  sequence of sizes, alignments and streams.
 *
 *  - An allocation that differs from the plan is served by its place in the plan if it fits there, by other memory of
 *    the plan that is free, also in pieces that are mapped together, by memory behind the plan, or by the pool. Such
 *    memory has other addresses in every step, and its mapping needs calls of the driver. The sequence is found again
 *    after allocations that are missing, new or in another order. A plan that fits badly for several steps is recorded
 *    and computed again.
 *  - A place of the plan is handed out only if no live block overlaps it. Memory of the plan is used on one stream. A
 *    block that was freed on another stream, or with uses on further streams, keeps its place until these have passed.
 *  - Blocks that live longer than the plan's period, and blocks that were used on several streams while they were
 *    recorded, are served by the pool.
 *  - Threads: with LOCH_PLANNED_ONE_THREAD, the thread that called loch_planned_step last (before the first call the
 *    thread that created the planned pool) is served by the plan, without a lock; all others by the pool. They may
 *    free any block. A change of that thread has to be ordered by the program.
 *  - Graphs: a block of the plan has the same address in every step, and is handed out without a driver call, also on a
 *    stream that is being captured. Blocks that deviate then are in the memory of the plan or of the pool. A graph that
 *    was captured in a step uses the places of that step: launch it in stream order while no block of the plan is live
 *    on that stream that the graph does not know, and not after loch_planned_record or loch_planned_destroy. With
 *    LOCH_PLANNED_FIXED the plan is not computed again by itself.
 *  - Memory that goes from one block of the plan to the next is not wiped, also if the pool wipes what is freed
 *    (LOCH_POOL_WIPE_FREED).
 *  - A planned pool holds a reference on each stream of its plan, and the streams' memory until it ends or the plan
 *    changes.
 */
#ifndef LOCH_PLANNED_H
#define LOCH_PLANNED_H

#include <loch/loch.h>

LOCH_BEGIN_DECLS

/** A planned pool. */
typedef struct loch_planned loch_planned;

/** Which threads are served by the plan. */
typedef enum loch_planned_threads {
    LOCH_PLANNED_ONE_THREAD, /**< the thread that marks the steps; no lock */
    LOCH_PLANNED_ALL_THREADS /**< all threads, one at a time, as one sequence; every call takes a lock */
} loch_planned_threads;

/** When a plan is computed again. */
typedef enum loch_planned_renewal {
    LOCH_PLANNED_MENDED, /**< when many allocations of several steps did not fit */
    LOCH_PLANNED_FIXED   /**< by loch_planned_record only; also kept when memory is short */
} loch_planned_renewal;

/** Options of loch_planned_create. Zero means default. */
typedef struct loch_planned_options {
    size_t size;                  /**< sizeof(loch_planned_options) */
    size_t record_steps;          /**< marked steps to record before a plan is made; 0: 4; at least 2 */
    size_t record_max;            /**< most allocations to record; 0: 1048576 */
    uint64_t time_limit_ns;       /**< time for computing a plan, in the call that marks the step; 0: 100 ms */
    loch_planned_threads threads; /**< which threads are served by the plan */
    loch_planned_renewal renewal; /**< when a plan is computed again */
} loch_planned_options;

/** Creates a planned pool in front of `pool`, which may be a wrapper around a pool. E_INVALID: an option is not valid,
 *  or `pool` is not a pool. E_HOST_MEMORY. Any thread.
 *  @param name  name of the allocator; copied; NULL for "planned"
 *  @param out   owned by the caller; destroy it with loch_planned_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_planned_create(loch_allocator *pool, const char *name,
                                                       const loch_planned_options *options, loch_planned **out);

/** Ends the caller's use of a planned pool. Live blocks stay valid and are freed through its allocator. NULL does
 *  nothing. */
LOCH_API void loch_planned_destroy(loch_planned *planned);
LOCH_DEFINE_CLEAR(planned, loch_planned_destroy(object))

/** Returns the allocator of a planned pool. Borrowed; retain it to use it beyond loch_planned_destroy. It follows all
 *  rules of allocators (allocator.h). In its statistics, failures count attempts, and reserved bytes are those of the
 *  pool. NULL returns NULL. */
LOCH_API loch_allocator *loch_planned_get_allocator(const loch_planned *planned);

/** Marks the start of a step. Makes a plan if enough steps were recorded: it waits on the host for the streams of the
 *  recording, and gives unused memory of the pool back to the device. After a step with deviations, unused memory of
 *  the pool goes back too, if it is much. A plan that cannot be made or has no memory is not a failure: the pool serves
 *  the program, and loch_planned_get_info says why. The calling thread is served by the plan from now on. E_INVALID:
 *  `planned` is NULL. */
LOCH_API LOCH_MUST_USE loch_status loch_planned_step(loch_planned *planned);

/** Records the following steps anew. The present plan serves until a new one is made. E_INVALID: `planned` is NULL. Any
 *  thread that the plan may serve. */
LOCH_API LOCH_MUST_USE loch_status loch_planned_record(loch_planned *planned);

/** Allocates a block from the plan, or like loch_allocator_alloc if the plan does not serve it. Takes a shorter way
 *  than the allocator: sessions, the recorder and lists of live blocks do not see blocks of the plan.
 *  @param out  owned by the caller; free it with loch_planned_free or through the allocator. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_planned_alloc(loch_planned *planned, const loch_request *request, void **out);

/** Frees a block of a planned pool, ordered on the stream of its allocation. Short way for blocks of
 *  loch_planned_alloc; otherwise like loch_free. NULL succeeds. */
LOCH_API LOCH_MUST_USE loch_status loch_planned_free(loch_planned *planned, void *address);

/** Figures of a planned pool. */
typedef struct loch_planned_info {
    size_t size;          /**< set by the caller to sizeof(loch_planned_info) */
    size_t period;        /**< allocations in the plan's period; 0: there is no plan */
    size_t planned;       /**< allocations of the period that have a place; the pool serves the others */
    uint64_t height;      /**< bytes of the plan's blocks, over all streams */
    uint64_t lower_bound; /**< bytes that every plan needs, as far as proven */
    uint64_t served;      /**< allocations that the plan has served */
    uint64_t left;        /**< allocations without a place that the pool has served as planned */
    uint64_t deviations;  /**< allocations that differed from the plan, or whose place was taken */
    uint64_t plans;       /**< plans that were made */
    uint64_t blocks;      /**< live blocks of all plans */
    uint64_t waiting;     /**< freed blocks that keep their place for other streams */
    size_t recorded;      /**< allocations in the present recording; 0 if none runs */
    loch_status status;   /**< why the last plan was not made; LOCH_OK if it was */
} loch_planned_info;

/** Reads the figures of a planned pool. E_INVALID: `out->size` is not set. Exact in the thread that the plan serves;
 *  other threads may see figures of different moments. */
LOCH_API LOCH_MUST_USE loch_status loch_planned_get_info(loch_planned *planned, loch_planned_info *out);

LOCH_END_DECLS

#endif
