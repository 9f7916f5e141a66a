/* SPDX-License-Identifier: MIT */
/* Call stacks, each kept once. */
#ifndef LOCHI_LIVE_STACKS_H
#define LOCHI_LIVE_STACKS_H

#include "memory/live/state.h"

/* Returns the kept stack with these frames, and keeps them on first use. NULL without memory. */
const lochi_live_stack *lochi_live_keep_stack(const uintptr_t *frames, size_t count);

#endif
