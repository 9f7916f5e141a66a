/* SPDX-License-Identifier: MIT */
/* What the compiler cannot know of the ways through a hot path. */
#ifndef LOCHI_HINT_H
#define LOCHI_HINT_H

#define LOCHI_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define LOCHI_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* A function off the usual way: kept out of line, so that its registers are not saved there. */
#define LOCHI_RARE __attribute__((noinline, cold))

#endif
