/* SPDX-License-Identifier: MIT */
/* Watches on contents. */
#include "memory/buffer/watch.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/pool.h"

/* incremented after the watch's own number: a thread that sees this change sees that one too */
static _Atomic uint64_t watch_changes;

loch_status lochi_watch_create(lochi_watch **out)
{
    *out = lochi_zalloc(sizeof **out);
    if (!*out) return LOCH_FAIL(HOST_MEMORY, "no host memory for the watch of a buffer");
    atomic_init(&(*out)->references, 1);
    return LOCH_OK;
}

void lochi_watch_release(lochi_watch *watch)
{
    if (watch && atomic_fetch_sub_explicit(&watch->references, 1, memory_order_acq_rel) == 1) lochi_free(watch);
}

void lochi_watch_change(lochi_watch *watch)
{
    atomic_fetch_add_explicit(&watch->changes, 1, memory_order_release);
    atomic_fetch_add_explicit(&watch_changes, 1, memory_order_release);
}

uint64_t lochi_watch_count_changes(void)
{
    return atomic_load_explicit(&watch_changes, memory_order_acquire) + lochi_pool_count_all_drops();
}
