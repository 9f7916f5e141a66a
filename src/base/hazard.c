/* SPDX-License-Identifier: MIT */
/* Waiting until no other thread has marked an object: slot by slot, then all threads of the shared slot together. */
#include "base/hazard.h"
#include "kit/backoff.h"

static void hazard_wait(const void *object, bool is_marked)
{
    lochi_fence_heavy();
    const uint32_t own = lochi_thread_slot();
    const uint32_t top = atomic_load_explicit(&lochi_thread_slots_top, memory_order_relaxed);
    for (uint32_t slot = 0; slot < top && slot < LOCHI_SLOT_SHARED; slot++)
        for (unsigned turn = 0; slot != own && lochi_hazard_is_marked(slot, object);)
            lochi_backoff(&turn);
    lochi_hazard_wait_shared(object, is_marked && own == LOCHI_SLOT_SHARED);
}

void lochi_hazard_wait(const void *object)
{
    hazard_wait(object, true);
}

void lochi_hazard_wait_unmarked(const void *object)
{
    hazard_wait(object, false);
}
