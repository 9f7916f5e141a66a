/* SPDX-License-Identifier: MIT */
/* The heavy fence, and the test whether the kernel supports it. */
#include "base/fence.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Commands of membarrier(2), since Linux 4.14. Not every system's headers define them. */
#define FENCE_EXPEDITED (1 << 3)
#define FENCE_REGISTER_EXPEDITED (1 << 4)

atomic_bool lochi_fence_is_symmetric = true;

static pthread_once_t fence_once = PTHREAD_ONCE_INIT;

static long fence_membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

static void fence_probe(void)
{
    const bool works = fence_membarrier(FENCE_REGISTER_EXPEDITED) == 0 && fence_membarrier(FENCE_EXPEDITED) == 0;
    atomic_store_explicit(&lochi_fence_is_symmetric, !works, memory_order_seq_cst);
}

void lochi_fence_prepare(void)
{
    pthread_once(&fence_once, fence_probe);
}

#if LOCHI_TSAN
atomic_uint lochi_fence_word;

void lochi_fence_heavy(void)
{
    lochi_fence_light();
}
#else
void lochi_fence_heavy(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&lochi_fence_is_symmetric, memory_order_relaxed)) fence_membarrier(FENCE_EXPEDITED);
}
#endif

void lochi_fence_forked(void)
{
    if (!atomic_load_explicit(&lochi_fence_is_symmetric, memory_order_relaxed))
        fence_membarrier(FENCE_REGISTER_EXPEDITED);
}
