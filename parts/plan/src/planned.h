/* SPDX-License-Identifier: MIT */
/* Planned pools: the struct and what its files share.
 *
 * Blocks that the plan does not serve come from `side`, a tracking wrapper around the pool: it knows which blocks
 * came through this allocator. Memory of plans is taken from the pool itself.
 *
 * Threads: the thread that the plan serves (the owner) uses places and the log without the lock. All others use places
 * with the lock held: they read members that are atomic, and leave freed slots in a list for the owner. The owner takes
 * the lock to change which plans there are, to take that list, and for uses on other streams. With
 * LOCH_PLANNED_ALL_THREADS every thread takes the lock and is the owner while it holds it. The lock is never held while
 * the pool serves a block of the program. */
#ifndef LOCH_PLAN_PLANNED_H
#define LOCH_PLAN_PLANNED_H

#include "places.h"
#include <loch/planned.h>
#include <pthread.h>
#include <stdatomic.h>

#define PLANNED_PATIENCE 64 /* deviations after which a plan is judged */

typedef atomic_uint_least64_t planned_figure; /* relaxed: figures order nothing */

/* Figures of the blocks with one tag. */
typedef struct planned_tag {
    planned_figure allocs, frees, requested, peak_requested, peak_blocks, largest;
} planned_tag;

struct loch_planned {
    /* what every call uses */
    plan_places *quick;     /* `places` for the shortest way: one thread, nothing is recorded; NULL otherwise */
    plan_places *places;    /* newest plan; older ones that have live blocks follow in its list */
    atomic_uintptr_t owner; /* &lochi_planned_mark of the thread */
    loch_stream *default_stream;
    bool is_shared; /* LOCH_PLANNED_ALL_THREADS */
    bool is_recording;
    planned_figure requested;                               /* of plans; written by the owner */
    planned_figure old_allocs;                              /* of plans that are gone; with the lock held */
    planned_figure remote_bytes;                            /* of plans, by other threads; written with the lock held */
    planned_figure side_allocs, side_frees, side_requested; /* of the pool */
    planned_figure requested_mark, live_mark; /* `requested` and places->live up to which no peak is raised */
    planned_figure peak_requested, peak_blocks, largest;
    planned_figure side_allocated, peak_allocated, failures;
    /* the owner's */
    bool is_marked; /* the program marks steps */
    plan_log log;
    size_t look_at;      /* allocations in the log at which the period is looked for */
    size_t steps_wanted; /* to record */
    uint32_t patience;   /* deviations after which the plan is judged */
    uint32_t judged;     /* deviations since it was judged */
    uint64_t judged_at;  /* allocations when it was judged */
    uint64_t trimmed;    /* deviations when memory of the pool was given back */
    unsigned fresh;      /* steps of a new plan after which memory of the pool is given back too */
    planned_figure left, deviations, plans;
    _Atomic(planned_tag *) tags; /* of all tags, from the first block that has one; NULL before */
    _Atomic loch_status status;
    loch_planned_options options;
    uint64_t alignment;
    loch_allocator *allocator, *pool, *side;
    pthread_mutex_t lock;
};

/* Stands for the calling thread by its address. */
extern _Thread_local char lochi_planned_mark __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline uint64_t planned_get(const planned_figure *figure)
{
    return atomic_load_explicit(figure, memory_order_relaxed);
}

static inline void planned_set(planned_figure *figure, uint64_t value)
{
    atomic_store_explicit(figure, value, memory_order_relaxed);
}

/* Tells whether the calling thread is the owner; takes the lock if all threads can be. */
static inline bool planned_enter(loch_planned *planned)
{
    if (!planned->is_shared)
        return atomic_load_explicit(&planned->owner, memory_order_relaxed) == (uintptr_t)&lochi_planned_mark;
    pthread_mutex_lock(&planned->lock);
    return true;
}

/* Ends what planned_enter began, if that returned true. */
static inline void planned_leave(loch_planned *planned)
{
    if (planned->is_shared) pthread_mutex_unlock(&planned->lock);
}

/* Takes the lock in the owner, which has it already if all threads can be the owner. */
static inline void planned_guard(loch_planned *planned)
{
    if (!planned->is_shared) pthread_mutex_lock(&planned->lock);
}

/* Drops the lock of planned_guard. */
static inline void planned_unguard(loch_planned *planned)
{
    if (!planned->is_shared) pthread_mutex_unlock(&planned->lock);
}

/* Sums the allocations and the live blocks of all plans; the lock is held, or the caller is the owner. */
void lochi_planned_sum_plans(const loch_planned *planned, uint64_t *allocs, uint64_t *live);

/* Sums the blocks of plans and of the pool. */
uint64_t lochi_planned_sum_blocks(const loch_planned *planned);

/* Sums the bytes of live blocks of plans. */
uint64_t lochi_planned_sum_requested(const loch_planned *planned);

/* Chooses the shortest way. Called by the owner after a change of what it depends on. */
void lochi_planned_choose(loch_planned *planned);

/* Makes the next allocation of the plan look at the peaks. */
static inline void planned_reset_marks(loch_planned *planned)
{
    planned_set(&planned->requested_mark, 0);
    planned_set(&planned->live_mark, 0);
}

/* Begins a recording. */
void lochi_planned_start_recording(loch_planned *planned);

/* Ends a recording without a plan. */
void lochi_planned_stop_recording(loch_planned *planned);

/* Adds an allocation to the recording; makes a plan if the program marks no steps and its period was found. */
void lochi_planned_log_alloc(loch_planned *planned, const plan_key *key, const void *address);

/* Notes a deviation, and begins a new recording when there are too many of them. */
void lochi_planned_deviate(loch_planned *planned);

/* Makes a plan of the marked steps. */
void lochi_planned_make_marked(loch_planned *planned);

/* Gives the newest plan back if it has no live block. Returns whether that was so. */
bool lochi_planned_drop(loch_planned *planned);

/* Gives old plans back that have no live block. */
void lochi_planned_reap(loch_planned *planned);

/* Finds the live slot at an address. LOCH_OK with a NULL `*in`: the address is not in the memory of a plan. */
loch_status lochi_planned_find_slot(const loch_planned *planned, const void *address, plan_places **in, uint32_t *out);

/* Functions of the allocator. */
loch_status lochi_planned_alloc(void *self, const loch_request *request, void **out);
loch_status lochi_planned_free(void *self, void *address, size_t bytes, loch_stream *stream);
loch_status lochi_planned_record_use(void *self, void *address, loch_stream *stream);
loch_status lochi_planned_find(void *self, const void *address, loch_block *out);
loch_status lochi_planned_walk(void *self, loch_block_visitor *visitor, void *user);
loch_status lochi_planned_get_stats(void *self, loch_tag tag, loch_stats *out);
void lochi_planned_new_segment(void *self);
loch_status lochi_planned_trim(void *self, size_t keep_bytes, size_t *released);
loch_attributes lochi_planned_get_attributes(void *self);

#endif
