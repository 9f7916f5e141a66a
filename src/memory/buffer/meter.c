/* SPDX-License-Identifier: MIT */
/* Meters. All figures are relaxed atomics: they order nothing. The reference count uses the same memory orders as that
 * of buffers. */
#include "memory/buffer/meter.h"
#include "base/fail.h"
#include "base/heap.h"
#include <stdatomic.h>

struct lochi_meter {
    atomic_size_t references; /* one for the creator and one for each buffer */
    atomic_size_t count, used, peak;
};

loch_status lochi_meter_create(lochi_meter **out)
{
    *out = lochi_zalloc(sizeof **out);
    if (!*out) return LOCH_FAIL(HOST_MEMORY, "no host memory for a meter of buffers");
    atomic_init(&(*out)->references, 1);
    return LOCH_OK;
}

void lochi_meter_release(lochi_meter *meter)
{
    if (meter && atomic_fetch_sub_explicit(&meter->references, 1, memory_order_acq_rel) == 1) lochi_free(meter);
}

static void meter_add(lochi_meter *meter, size_t bytes)
{
    const size_t used = atomic_fetch_add_explicit(&meter->used, bytes, memory_order_relaxed) + bytes;
    size_t peak = atomic_load_explicit(&meter->peak, memory_order_relaxed);
    while (peak < used && !atomic_compare_exchange_weak_explicit(&meter->peak, &peak, used, memory_order_relaxed,
                                                                 memory_order_relaxed)) {}
}

lochi_meter *lochi_meter_enter(lochi_meter *meter, size_t bytes)
{
    atomic_fetch_add_explicit(&meter->references, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&meter->count, 1, memory_order_relaxed);
    meter_add(meter, bytes);
    return meter;
}

void lochi_meter_change(lochi_meter *meter, size_t from_bytes, size_t to_bytes)
{
    if (to_bytes >= from_bytes)
        meter_add(meter, to_bytes - from_bytes);
    else
        atomic_fetch_sub_explicit(&meter->used, from_bytes - to_bytes, memory_order_relaxed);
}

void lochi_meter_leave(lochi_meter *meter, size_t bytes)
{
    atomic_fetch_sub_explicit(&meter->used, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&meter->count, 1, memory_order_relaxed);
    lochi_meter_release(meter);
}

lochi_meter_reading lochi_meter_read(const lochi_meter *meter)
{
    return (lochi_meter_reading){.count = atomic_load_explicit(&meter->count, memory_order_relaxed),
                                 .used_bytes = atomic_load_explicit(&meter->used, memory_order_relaxed),
                                 .peak_bytes = atomic_load_explicit(&meter->peak, memory_order_relaxed)};
}
