/* SPDX-License-Identifier: MIT */
/* Finds a missing wait without a GPU: two simulated kernels use the same memory on two streams. Without order between
 * them the checker reports it. With an event between them it reports nothing. */
#include <loch/loch.h>
#include <loch/raw.h>
#include <loch/sim.h>
#include <stdbool.h>
#include <stdio.h>

static loch_status show_violation(const loch_sim_violation *violation, void *count)
{
    printf("  found: %s\n", violation->text);
    ++*(size_t *)count;
    return LOCH_OK;
}

/* Queues a writer on one stream and a reader on the other. Returns the number of violations of the device. */
static size_t run(loch_device *device, loch_stream *writer, loch_stream *reader, void *block, bool with_event)
{
    const loch_sim_range range = {block, 4096};
    const loch_sim_kernel write = {.size = sizeof write, .name = "write", .writes = &range, .writes_count = 1};
    const loch_sim_kernel read = {.size = sizeof read, .name = "read", .reads = &range, .reads_count = 1};
    loch_event *event;
    size_t count = 0;
    LOCH_CHECK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    LOCH_CHECK(loch_sim_launch(writer, &write));
    LOCH_CHECK(loch_event_record(event, writer));
    if (with_event) LOCH_CHECK(loch_stream_wait(reader, event));
    LOCH_CHECK(loch_sim_launch(reader, &read));
    LOCH_CHECK(loch_device_sync(device));
    loch_event_destroy(event);
    LOCH_CHECK(loch_sim_walk_violations(device, show_violation, &count));
    LOCH_CHECK(loch_sim_clear_violations(device));
    return count;
}

int main(void)
{
    loch_device *device;
    loch_stream *writer, *reader;
    void *block;
    LOCH_CHECK(loch_device_open("sim:1GiB", &device));
    LOCH_CHECK(loch_stream_create(device, NULL, &writer));
    LOCH_CHECK(loch_stream_create(device, NULL, &reader));
    LOCH_CHECK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    puts("without an event:");
    const size_t without = run(device, writer, reader, block, false);
    puts("with an event:");
    const size_t with = run(device, writer, reader, block, true);
    printf("  found: %s\n", with ? "something" : "nothing");
    LOCH_CHECK(loch_raw_free(block));
    loch_stream_close(writer);
    loch_stream_close(reader);
    loch_device_release(device);
    return without == 1 && with == 0 ? 0 : 1;
}
