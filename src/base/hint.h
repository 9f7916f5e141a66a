/* SPDX-License-Identifier: MIT */
/* Hints for the compiler about fast and slow paths. */
#ifndef LOCHI_HINT_H
#define LOCHI_HINT_H

#define LOCHI_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define LOCHI_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Keeps a slow-path function out of line, so that the fast path does not save its registers. */
#define LOCHI_RARE __attribute__((noinline, cold))

#endif
