/* SPDX-License-Identifier: MIT */
/* The clock of the records. On the host it is the processor's cycle counter, if that runs at one rate on all
 * processors; its rate is measured against CLOCK_MONOTONIC_RAW.
 *
 * Times must order the lives of two blocks at one address: a free is timed before the block is given back, and the
 * next allocation after it was taken. A later store becomes visible after the counter was read, because stores
 * become visible after all earlier instructions have finished. So a free needs no fence. A processor may read the
 * counter before an earlier load has its value. So an allocation waits for its loads first. */
#ifndef LOCHI_RECORDER_CLOCK_H
#define LOCHI_RECORDER_CLOCK_H

#include "kit/hint.h"
#include "memory/recorder/state.h"

/* Reads a clock that is not the cycle counter. */
uint64_t lochi_recorder_now_slow(void);

/* Chooses the clock of a recording: that of `device`, or the host's for NULL. Writes the first moment to the header.
 * With the cycle counter that takes a millisecond. */
void lochi_recorder_clock_open(loch_device *device);

/* Writes a later moment to the header, for the rate of the counter. */
void lochi_recorder_clock_mark(void);

/* Reads the clock after all earlier loads. */
static inline uint64_t recorder_now_after(void)
{
    if (LOCHI_UNLIKELY(lochi_recorder_all.source != RECORDER_COUNTER)) return lochi_recorder_now_slow();
#if defined __x86_64__
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
#elif defined __aarch64__
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
    return ticks;
#else
    return lochi_recorder_now_slow();
#endif
}

/* Reads the clock before all later stores. */
static inline uint64_t recorder_now_before(void)
{
#if defined __x86_64__
    if (LOCHI_LIKELY(lochi_recorder_all.source == RECORDER_COUNTER)) return __builtin_ia32_rdtsc();
    return lochi_recorder_now_slow();
#else
    return recorder_now_after(); /* other processors may let stores pass a read of the counter */
#endif
}

#endif
