/* SPDX-License-Identifier: MIT */
/* A fence whose cost falls on the rare side. The frequent side writes, crosses the light fence and reads; the rare side
 * writes, crosses the heavy fence and reads: at least one of the two sees the other's write, as if both fences were full.
 * The heavy one is the membarrier system call, which makes every running thread of the process cross a full fence; where
 * the kernel lacks it both sides use full fences. */
#ifndef LOCHI_FENCE_H
#define LOCHI_FENCE_H

#include "base/sanitize.h"
#include <stdatomic.h>
#include <stdbool.h>

extern atomic_bool lochi_fence_is_symmetric; /* true until membarrier is known to work */

/* Once, before an object that relies on the fences is shared. */
void lochi_fence_prepare(void);

#if LOCHI_TSAN
/* ThreadSanitizer does not follow fences. A read-modify-write of one shared word orders the two sides just as well. */
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

/* The light fence without a look at the system; whether that is enough is asked once, after lochi_fence_prepare. */
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

/* In the child of a fork: registers the process anew. */
void lochi_fence_forked(void);

#endif
