/* SPDX-License-Identifier: MIT */
/** @file plan.h
 *  Plans: offsets for buffers whose sizes and lifetimes are known in advance. Buffers that are live at the same time do
 *  not overlap, and the memory that all of them need, the height of the plan, is small or proven to be smallest. A
 *  library of its own, libloch_plan, on the public interface of Loch.
 *
 *      const loch_plan_buffer buffers[] = {{.bytes = 4096, .first = 0, .last = 3},
 *                                          {.bytes = 512, .first = 2, .last = 9}};
 *      const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = 2};
 *      loch_plan *plan;
 *      LOCH_CHECK(loch_plan_create(&problem, NULL, &plan));
 *      use(loch_plan_get_offsets(plan));
 *      loch_plan_destroy(plan);
 *
 *  A plan does not change after it was made. Every thread may read it.
 */
#ifndef LOCH_PLAN_H
#define LOCH_PLAN_H

#include <loch/loch.h>

LOCH_BEGIN_DECLS

/** @name Problems */
/** @{ */

/** A part of the life of a buffer in which only some of its bytes are in use, or none. */
typedef struct loch_plan_gap {
    uint64_t first;        /**< start of the gap; not before the buffer's own */
    uint64_t last;         /**< end of the gap, exclusive; not after the buffer's own */
    uint64_t window_begin; /**< first byte that is in use during the gap */
    uint64_t window_end;   /**< end of the bytes in use, exclusive; equal to window_begin if no byte is in use */
} loch_plan_gap;

/** Where a buffer may lie. */
typedef enum loch_plan_place {
    LOCH_PLAN_ANYWHERE, /**< at any offset that its alignment allows */
    LOCH_PLAN_FIXED     /**< at the offset that is given */
} loch_plan_place;

/** One buffer. Times are numbers in any unit; a buffer lives from `first` to `last`, exclusive. */
typedef struct loch_plan_buffer {
    uint64_t bytes;            /**< size; at least 1 */
    uint64_t alignment;        /**< its offset is a multiple of this; 0 means 1 */
    uint64_t first;            /**< first time at which it is in use */
    uint64_t last;             /**< first time at which it is not in use any more; greater than `first` */
    uint64_t offset;           /**< its offset, if `place` is LOCH_PLAN_FIXED; else 0 */
    const loch_plan_gap *gaps; /**< gaps in order of time that do not overlap; borrowed; NULL if there are none */
    uint32_t gaps_count;       /**< number of gaps */
    loch_plan_place place;     /**< whether `offset` is given */
} loch_plan_buffer;

/** Buffers to place. A problem of a program is borrowed during the call that gets it. */
typedef struct loch_plan_problem {
    size_t size;                     /**< sizeof(loch_plan_problem) */
    const loch_plan_buffer *buffers; /**< buffers */
    size_t count;                    /**< number of buffers; 0 is allowed */
    const char *const *names;        /**< names of the buffers, for files; NULL if they have none */
} loch_plan_problem;

/** Reads a problem from a table of comma-separated values in the format of MiniMalloc: a line with the names of the
 *  columns `id`, `lower`, `upper`, `size`, and where present `alignment`, `offset` and `gaps`; then one line for each
 *  buffer. `begin` and `start` stand for `lower`, and `end` for `upper` with the end included. A gap is
 *  `FIRST-LAST`, or `FIRST-LAST@BEGIN:END` with the bytes that stay in use. The column `hint` is ignored. "-" is
 *  standard input. E_IO: the file cannot be read. E_INVALID: the contents are wrong; the sentence names the file and
 *  the line. E_HOST_MEMORY.
 *  @param out  owned by the caller; destroy it with loch_plan_problem_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_plan_problem_load(const char *path, loch_plan_problem **out);

/** Destroys a problem of loch_plan_problem_load. NULL does nothing. */
LOCH_API void loch_plan_problem_destroy(loch_plan_problem *problem);
LOCH_DEFINE_CLEAR(plan_problem, loch_plan_problem_destroy(object))

/** @} */
/** @name Plans */
/** @{ */

/** Offsets for the buffers of a problem. */
typedef struct loch_plan loch_plan;

/** Ways to make a plan. */
typedef enum loch_plan_method {
    LOCH_PLAN_AUTO,  /**< fast first, then exact as long as there is time and something to gain */
    LOCH_PLAN_FAST,  /**< near-linear methods only; for many buffers */
    LOCH_PLAN_GREEDY /**< one pass by decreasing size at the lowest offset, the method of TFLite; for comparisons */
} loch_plan_method;

/** State of the work on a plan. */
typedef struct loch_plan_progress {
    size_t size;          /**< sizeof(loch_plan_progress) in the library */
    uint64_t height;      /**< height of the best plan so far; UINT64_MAX before the first one */
    uint64_t lower_bound; /**< height that no plan can go below */
    uint64_t nodes;       /**< about how many partial plans the exact search has looked at */
    uint64_t elapsed_ns;  /**< time since the start */
    size_t parts;         /**< number of parts that do not share a time */
    size_t parts_done;    /**< parts whose best plan is known */
} loch_plan_progress;

/** Receives the state of the work every few milliseconds, from one thread at a time, which may be a thread of the
 *  planner. LOCH_E_CANCELLED ends the search as the time limit does: the best plan so far is the result. Any other
 *  failure ends the work and becomes its result. */
typedef loch_status loch_plan_report(const loch_plan_progress *progress, void *user);

/** Time limit if none is given: 10 seconds. */
#define LOCH_PLAN_TIME_DEFAULT_NS UINT64_C(10000000000)

/** Options of loch_plan_create. Zero means default. */
typedef struct loch_plan_options {
    size_t size;              /**< sizeof(loch_plan_options) */
    uint64_t capacity;        /**< bytes that the plan must fit into: the first plan that fits is taken; 0: the
                                   smallest height is searched */
    uint64_t time_limit_ns;   /**< time for the search, by the wall clock; 0: LOCH_PLAN_TIME_DEFAULT_NS; UINT64_MAX: no
                                   limit. It is looked at after every fast round and every few nodes */
    size_t threads;           /**< threads of the search over parts that do not share a time; 0 means 1. A plan that
                                   is found within the time limit does not depend on it */
    loch_plan_method method;  /**< way to make the plan */
    loch_plan_report *report; /**< called now and then; may be NULL */
    void *user;               /**< passed to `report`; borrowed */
} loch_plan_options;

/** Makes a plan. E_LIMIT: no plan fits the capacity, which is proven. E_BUSY: the search ended without a plan that fits
 *  the capacity, and without a proof that there is none. E_INVALID: a buffer is wrong, or two buffers at fixed offsets
 *  overlap. E_OVERFLOW: the buffers need 2^62 bytes or more. E_HOST_MEMORY, or what `report` returned. Any thread;
 *  several plans can be made at a time.
 *  @param out  owned by the caller; destroy it with loch_plan_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_plan_create(const loch_plan_problem *problem, const loch_plan_options *options,
                                                    loch_plan **out);

/** Destroys a plan. NULL does nothing. */
LOCH_API void loch_plan_destroy(loch_plan *plan);
LOCH_DEFINE_CLEAR(plan, loch_plan_destroy(object))

/** Figures of a plan. */
typedef struct loch_plan_info {
    size_t size;          /**< set by the caller to sizeof(loch_plan_info) */
    size_t count;         /**< number of buffers */
    uint64_t height;      /**< bytes that the plan needs */
    uint64_t lower_bound; /**< bytes that every plan needs, as far as proven */
    uint64_t fingerprint; /**< number that stands for the problem */
    uint64_t nodes;       /**< about how many partial plans the exact search looked at; 0 for a loaded plan */
    uint32_t is_best;     /**< 1: no plan has a smaller height, which is proven */
    uint32_t reserved;    /**< 0 */
} loch_plan_info;

/** Reads the figures of a plan. E_INVALID: `out->size` is not set. */
LOCH_API LOCH_MUST_USE loch_status loch_plan_get_info(const loch_plan *plan, loch_plan_info *out);

/** Returns the offsets of a plan, in the order of the buffers of its problem; borrowed. */
LOCH_API const uint64_t *loch_plan_get_offsets(const loch_plan *plan);

/** Checks a plan against a problem without regard to how it was made: it belongs to the problem, offsets are aligned
 *  and where they are fixed, no two buffers overlap, the height is right and not below the bound of the live bytes.
 *  E_NOT_FOUND: the plan is of another problem. E_CORRUPT: the plan is wrong; the sentence names the buffers.
 *  E_INVALID, E_OVERFLOW: the problem is wrong. E_HOST_MEMORY. Takes O(n log n). */
LOCH_API LOCH_MUST_USE loch_status loch_plan_check(const loch_plan *plan, const loch_plan_problem *problem);

/** Writes a plan to a file of text. "-" is standard output. E_IO. */
LOCH_API LOCH_MUST_USE loch_status loch_plan_save(const loch_plan *plan, const char *path);

/** Reads a plan from a file of loch_plan_save. Call loch_plan_check before using it. "-" is standard input. E_IO.
 *  E_CORRUPT: the contents are wrong. E_UNSUPPORTED: a later version wrote the file. E_HOST_MEMORY.
 *  @param out  owned by the caller; destroy it with loch_plan_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_plan_load(const char *path, loch_plan **out);

/** @} */

LOCH_END_DECLS

#endif
