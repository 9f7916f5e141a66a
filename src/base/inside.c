/* SPDX-License-Identifier: MIT */
/* Waiting for threads to leave an object: slot by slot, then the threads that share one. */
#include "base/inside.h"
#include <sched.h>

void lochi_inside_wait(const void *object)
{
    lochi_fence_heavy();
    const uint32_t own = lochi_thread_slot();
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++)
        while (slot != own && lochi_inside_is_marked(slot, object))
            sched_yield();
    lochi_inside_wait_shared(object, own == LOCHI_SLOT_SHARED);
}
