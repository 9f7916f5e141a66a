/* SPDX-License-Identifier: MIT */
/* Finds a missing wait without a GPU: two simulated kernels use the same memory on two streams. Without order between
 * them the checker reports it; with an event it is content. */
#include <loch/loch.h>
#include <loch/driver.h>
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

/* Queues a writer on one stream and a reader on the other; returns how many violations the device has then. */
static size_t run(loch_device *device, loch_stream *writer, loch_stream *reader, void *block, bool with_event)
{
    const loch_sim_range range = {block, 4096};
    const loch_sim_kernel write = {.size = sizeof write, .name = "write", .writes = &range, .writes_count = 1};
    const loch_sim_kernel read = {.size = sizeof read, .name = "read", .reads = &range, .reads_count = 1};
    loch_event *event = NULL;
    loch_status status = loch_event_create(device, LOCH_EVENT_PLAIN, &event);
    if (status == LOCH_OK) status = loch_sim_launch(writer, &write);
    if (status == LOCH_OK) status = loch_event_record(event, writer);
    if (status == LOCH_OK && with_event) status = loch_stream_wait(reader, event);
    if (status == LOCH_OK) status = loch_sim_launch(reader, &read);
    if (status == LOCH_OK) status = loch_device_sync(device);
    loch_event_destroy(event);

    size_t count = 0;
    if (status == LOCH_OK) status = loch_sim_walk_violations(device, show_violation, &count);
    if (status == LOCH_OK) status = loch_sim_clear_violations(device);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);
    return count;
}

int main(void)
{
    loch_device *device = NULL;
    loch_stream *writer = NULL, *reader = NULL;
    void *block = NULL;
    size_t without = 0, with = 1;
    loch_status status = loch_device_open("sim:1GiB", &device);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &writer);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &reader);
    if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block);
    if (status == LOCH_OK) {
        puts("without an event:");
        without = run(device, writer, reader, block, false);
        puts("with an event:");
        with = run(device, writer, reader, block, true);
        printf("  found: %s\n", with ? "something" : "nothing");
    }
    if (loch_raw_free(block) != LOCH_OK) status = LOCH_E_DRIVER;
    loch_stream_close(writer);
    loch_stream_close(reader);
    loch_device_release(device);
    return status == LOCH_OK && without == 1 && with == 0 ? 0 : 1;
}
