/* SPDX-License-Identifier: MIT */
/* A pair of fences that puts the cost on the rare side. The frequent side writes, crosses the light fence and reads.
 * The rare side writes, crosses the heavy fence and reads. At least one of the two sides sees the other's write, as if
 * both fences were full.
 *
 * The heavy fence is the membarrier system call, which makes every running thread of the process cross a full fence.
 * If the kernel does not have it, both sides use full fences. */
#ifndef LOCHI_FENCE_H
#define LOCHI_FENCE_H

#include "base/sanitize.h"
#include <stdatomic.h>
#include <stdbool.h>

extern atomic_bool lochi_fence_is_symmetric; /* true until membarrier is known to work */

/* Tests whether membarrier works. Call it before an object that relies on the fences is shared. Later calls do
 * nothing. */
void lochi_fence_prepare(void);

#if LOCHI_TSAN
/* ThreadSanitizer does not model fences. A read-modify-write of one shared word orders the two sides too. */
extern atomic_uint lochi_fence_word;

static inline void lochi_fence_light(void)
{
    atomic_fetch_add_explicit(&lochi_fence_word, 1, memory_order_seq_cst);
}
#else
static inline void lochi_fence_light(void)
{
    if (__builtin_expect(atomic_load_explicit(&lochi_fence_is_symmetric, memory_order_relaxed), 0))
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
}
#endif

/* Returns whether lochi_fence_lightest, the light fence without a test for membarrier, is enough. Ask once, after
 * lochi_fence_prepare. */
static inline bool lochi_fence_has_lightest(void)
{
#if LOCHI_TSAN
    return true;
#else
    return !atomic_load_explicit(&lochi_fence_is_symmetric, memory_order_relaxed);
#endif
}

static inline void lochi_fence_lightest(void)
{
#if LOCHI_TSAN
    lochi_fence_light();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

void lochi_fence_heavy(void);

/* Registers the process with membarrier again. Called in the child of a fork. */
void lochi_fence_forked(void);

#endif
