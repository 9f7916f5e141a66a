/* SPDX-License-Identifier: MIT */
/* Hints for the compiler and the processor: fast and slow paths, and spinning. */
#ifndef LOCHI_HINT_H
#define LOCHI_HINT_H

#define LOCHI_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define LOCHI_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Keeps a slow-path function out of line, so that the fast path does not save its registers. */
#define LOCHI_RARE __attribute__((noinline, cold))

/* Tells the processor that the thread waits for a memory line to change. */
static inline void lochi_hint_pause(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

#endif
