/* SPDX-License-Identifier: MIT */
/* Two streams share a pool. A block that a second stream reads is freed while both streams still run. The next use of
 * its memory is ordered after both on the device, and the host never waits. The simulator's checker would report a
 * missing order. */
#include <loch/loch.h>
#include <loch/sim.h>
#include <stdio.h>

#define BYTES ((size_t)8 << 20)
#define STEPS 100

static loch_status launch(loch_stream *stream, const char *name, void *written, void *read)
{
    const loch_sim_range to = {written, BYTES}, from = {read, BYTES};
    const loch_sim_kernel kernel = {.size = sizeof kernel,
                                    .name = name,
                                    .duration_ns = 50000,
                                    .writes = &to,
                                    .writes_count = written != NULL,
                                    .reads = &from,
                                    .reads_count = read != NULL};
    return loch_sim_launch(stream, &kernel);
}

/* Runs one step: computes on one stream, sends on the other. Both blocks are freed before any work has run. */
static void step(loch_allocator *pool, loch_stream *compute, loch_stream *send, loch_event *computed)
{
    void *result, *buffer;
    const loch_request on_compute = {.size = sizeof on_compute, .bytes = BYTES, .stream = compute};
    const loch_request on_send = {.size = sizeof on_send, .bytes = BYTES, .stream = send};
    LOCH_CHECK(loch_allocator_alloc(pool, &on_compute, &result));
    LOCH_CHECK(launch(compute, "compute", result, NULL));
    LOCH_CHECK(loch_event_record(computed, compute));
    LOCH_CHECK(loch_stream_wait(send, computed));
    LOCH_CHECK(loch_allocator_alloc(pool, &on_send, &buffer));
    LOCH_CHECK(launch(send, "send", buffer, result));
    LOCH_CHECK(loch_allocator_record_use(pool, result, send)); /* without this the memory would be reused too early */
    LOCH_CHECK(loch_free(pool, result));
    LOCH_CHECK(loch_free(pool, buffer));
}

int main(void)
{
    loch_device *device;
    loch_stream *compute, *send;
    loch_event *computed;
    loch_allocator *pool;
    loch_pool_info info = {.size = sizeof info};
    loch_sim_stats sim = {
        .size = sizeof sim,
    };
    LOCH_CHECK(loch_device_open("sim:1GiB", &device));
    LOCH_CHECK(loch_stream_create(device, NULL, &compute));
    LOCH_CHECK(loch_stream_create(device, NULL, &send));
    LOCH_CHECK(loch_event_create(device, LOCH_EVENT_PLAIN, &computed));
    LOCH_CHECK(loch_pool_create(device, "shared", NULL, &pool));
    for (int i = 0; i < STEPS; i++)
        step(pool, compute, send, computed);
    LOCH_CHECK(loch_pool_get_info(pool, &info));
    LOCH_CHECK(loch_device_sync(device));
    LOCH_CHECK(loch_sim_get_stats(device, &sim));
    printf(
        "%d steps of two blocks of %zu MiB held %zu MiB: %llu waits on the device, %llu on the host, %zu violations\n",
        STEPS, BYTES >> 20, info.peak_reserved_bytes >> 20, (unsigned long long)info.waits_on_device,
        (unsigned long long)info.waits_on_host, sim.violations);
    loch_allocator_release(pool);
    loch_event_destroy(computed);
    loch_stream_close(compute);
    loch_stream_close(send);
    loch_device_release(device);
    return !sim.violations && !info.waits_on_host && info.peak_reserved_bytes < STEPS * BYTES ? 0 : 1;
}
