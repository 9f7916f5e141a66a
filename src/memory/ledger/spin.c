/* SPDX-License-Identifier: MIT */
/* Spin locks: the slow path. */
#include "memory/ledger/spin.h"
#include <sched.h>

LOCHI_RARE void lochi_ledger_spin(atomic_flag *is_locked)
{
    for (unsigned spins = 1; atomic_flag_test_and_set_explicit(is_locked, memory_order_acquire); spins++)
        if (spins % 64 == 0) sched_yield(); /* the holder may be descheduled */
}
