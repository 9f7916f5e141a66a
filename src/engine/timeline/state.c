/* SPDX-License-Identifier: MIT */
/* The slow path of the tracks' spin lock. */
#include "engine/timeline/state.h"
#include "kit/backoff.h"

void lochi_timeline_spin(atomic_flag *is_locked)
{
    for (unsigned turn = 0; atomic_flag_test_and_set_explicit(is_locked, memory_order_acquire);)
        lochi_backoff(&turn);
}
