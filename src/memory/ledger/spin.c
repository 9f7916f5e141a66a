/* SPDX-License-Identifier: MIT */
/* Spin locks: the slow path. */
#include "memory/ledger/spin.h"
#include "kit/backoff.h"

LOCHI_RARE void lochi_ledger_spin(atomic_flag *is_locked)
{
    for (unsigned turn = 0; atomic_flag_test_and_set_explicit(is_locked, memory_order_acquire);)
        lochi_backoff(&turn); /* the holder may be descheduled */
}
