/* SPDX-License-Identifier: MIT */
/* Watches on contents. */
#include "tensor/watch.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/pool.h"
#include "tensor/buffer.h"

static _Atomic uint64_t watch_changes; /* raised behind the watch's own number, so who sees it sees that */

void lochi_watch_release(lochi_watch *watch)
{
    if (watch && atomic_fetch_sub_explicit(&watch->references, 1, memory_order_acq_rel) == 1) lochi_free(watch);
}

/* Two threads may come at a time: the first one's stays. Release and acquire: who finds it sees it made. */
loch_status lochi_buffer_watch(loch_buffer *buffer, lochi_watch **out)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_acquire);
    if (!watch) {
        lochi_watch *made = lochi_zalloc(sizeof *made);
        *out = NULL;
        if (!made) return LOCH_FAIL(HOST_MEMORY, "no host memory to watch a buffer");
        atomic_init(&made->references, 1); /* the buffer's */
        if (atomic_compare_exchange_strong_explicit(&whole->watch, &watch, made, memory_order_acq_rel,
                                                    memory_order_acquire))
            watch = made;
        else
            lochi_free(made);
    }
    atomic_fetch_add_explicit(&watch->references, 1, memory_order_relaxed); /* the buffer has one */
    *out = watch;
    return LOCH_OK;
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
