/* SPDX-License-Identifier: MIT */
/* Histograms of sizes and durations of an allocator's calls, while measuring is on. They hold relaxed counters. They
 * are created when measuring is first turned on, and stay until the allocator is destroyed, so that a running call
 * may still write to them. */
#include "memory/latency.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/pool.h"
#include <loch/host.h>

typedef struct latency_histogram {
    _Atomic uint64_t buckets[64];
} latency_histogram;

typedef struct allocator_latency {
    latency_histogram bytes, alloc_ns, free_ns;
} allocator_latency;

static void latency_note(latency_histogram *histogram, uint64_t value)
{
    const int bucket = value > 1 ? 64 - __builtin_clzll(value - 1) : 0;
    atomic_fetch_add_explicit(&histogram->buckets[bucket < 64 ? bucket : 63], 1, memory_order_relaxed);
}

void lochi_latency_note_alloc(allocator_latency *latency, size_t bytes, uint64_t start_ns)
{
    latency_note(&latency->bytes, bytes);
    latency_note(&latency->alloc_ns, loch_host_now_ns() - start_ns);
}

void lochi_latency_note_free(allocator_latency *latency, uint64_t start_ns)
{
    latency_note(&latency->free_ns, loch_host_now_ns() - start_ns);
}

static void latency_clear(latency_histogram *histogram)
{
    for (int i = 0; i < 64; i++)
        atomic_store_explicit(&histogram->buckets[i], 0, memory_order_relaxed);
}

static void latency_read(latency_histogram *histogram, loch_histogram *out)
{
    out->count = 0;
    for (int i = 0; i < 64; i++) {
        out->buckets[i] = atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        out->count += out->buckets[i];
    }
}

loch_status loch_allocator_measure(loch_allocator *allocator, loch_measure measure)
{
    if (!allocator) return LOCH_FAIL(INVALID, "there is no allocator to measure");
    lochi_lock_take(&allocator->lock);
    if (measure == LOCH_MEASURE_ON && !allocator->latency_kept)
        allocator->latency_kept = lochi_zalloc(sizeof *allocator->latency_kept);
    allocator_latency *latency = allocator->latency_kept;
    if (latency) {
        latency_clear(&latency->bytes);
        latency_clear(&latency->alloc_ns);
        latency_clear(&latency->free_ns);
    }
    const bool was_on = atomic_load_explicit(&allocator->latency, memory_order_relaxed) != NULL;
    const bool is_on = measure == LOCH_MEASURE_ON && latency;
    if (allocator->pool && is_on && !was_on) lochi_pool_shut(allocator->pool); /* the fast paths do not measure */
    if (allocator->pool && !is_on && was_on) lochi_pool_go(allocator->pool);
    /* Release: a thread that loads the pointer sees the cleared histograms. */
    atomic_store_explicit(&allocator->latency, measure == LOCH_MEASURE_ON ? latency : NULL, memory_order_release);
    lochi_lock_drop(&allocator->lock);
    if (measure == LOCH_MEASURE_ON && !latency) return LOCH_FAIL(HOST_MEMORY, "no host memory for histograms");
    return LOCH_OK;
}

loch_status loch_allocator_get_measurements(loch_allocator *allocator, loch_measurements *out)
{
    if (!allocator || !out || out->size < sizeof *out)
        return LOCH_FAIL(INVALID, "measurements need an allocator and a struct whose size is set");
    lochi_lock_take(&allocator->lock);
    allocator_latency *latency = allocator->latency_kept;
    lochi_lock_drop(&allocator->lock);
    if (!latency) return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" was never measured", allocator->name);
    latency_read(&latency->bytes, &out->bytes);
    latency_read(&latency->alloc_ns, &out->alloc_ns);
    latency_read(&latency->free_ns, &out->free_ns);
    return LOCH_OK;
}
