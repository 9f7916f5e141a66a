/* SPDX-License-Identifier: MIT */
/* Spin locks of groups, tags and the shared slot. Held for a few instructions only. */
#ifndef LOCHI_LEDGER_SPIN_H
#define LOCHI_LEDGER_SPIN_H

#include "kit/hint.h"
#include <stdatomic.h>

/* Takes a spin lock that another thread holds: waits for it. */
void lochi_ledger_spin(atomic_flag *is_locked);

/* Takes a spin lock. */
static inline void lochi_ledger_lock(atomic_flag *is_locked)
{
    if (LOCHI_UNLIKELY(atomic_flag_test_and_set_explicit(is_locked, memory_order_acquire)))
        lochi_ledger_spin(is_locked);
}

/* Drops a spin lock. */
static inline void lochi_ledger_unlock(atomic_flag *is_locked)
{
    atomic_flag_clear_explicit(is_locked, memory_order_release);
}

#endif
