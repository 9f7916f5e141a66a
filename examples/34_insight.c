/* SPDX-License-Identifier: MIT */
/* Records what a program does with its memory, reads the recording, and prints where the memory was at the peak: blocks
 * with their tags and the functions that asked for them, and the ranges that the pool had from the driver.
 *
 *   34_insight [DEVICE]     cpu, cuda:0, sim:1GiB (default: sim:1GiB) */
#include <loch/insight.h>
#include <loch/recorder.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void work(loch_allocator *pool)
{
    loch_tag weights, cache;
    void *blocks[2];
    LOCH_CHECK(loch_tag_create("weights", &weights));
    LOCH_CHECK(loch_tag_create("cache", &cache));
    LOCH_CHECK(loch_allocator_alloc(
        pool, &(loch_request){.size = sizeof(loch_request), .bytes = 48 * MIB, .tag = weights}, &blocks[0]));
    LOCH_CHECK(loch_allocator_alloc(
        pool, &(loch_request){.size = sizeof(loch_request), .bytes = 16 * MIB, .tag = cache}, &blocks[1]));
    LOCH_CHECK(loch_free(pool, blocks[1]));
    LOCH_CHECK(loch_free(pool, blocks[0]));
}

/* Prints the blocks that are live at the event of the peak. */
static void print_peak(const loch_recording *recording, const loch_recording_info *info)
{
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    const loch_recording_event *events = loch_recording_get_events(recording);
    const loch_recording_range *ranges = loch_recording_get_ranges(recording);
    uint64_t taken = 0;
    for (uint64_t i = 0; i < info->blocks; i++) {
        size_t frames;
        if (blocks[i].alloc_event > info->peak_event || blocks[i].free_event <= info->peak_event) continue;
        const char *const *stack = loch_recording_get_stack(recording, events[blocks[i].alloc_event].stack, &frames);
        printf("  %3llu MiB of %s%s%s\n", (unsigned long long)(blocks[i].bytes / MIB),
               loch_recording_get_name(recording, LOCH_RECORDING_TAG, blocks[i].tag), frames ? ", in " : "",
               frames ? stack[0] : "");
    }
    for (uint64_t i = 0; i < info->ranges; i++)
        taken += ranges[i].bytes;
    printf("%llu ranges of the driver, %llu MiB\n", (unsigned long long)info->ranges,
           (unsigned long long)(taken / MIB));
}

int main(int count, char **arguments)
{
    char path[] = "/tmp/loch-example.XXXXXX";
    loch_device *device;
    loch_allocator *pool;
    loch_recording *recording;
    loch_recording_info info = {.size = sizeof info};
    const int file = mkstemp(path); /* a name that no other program uses */
    if (file < 0) return 1;
    close(file);

    LOCH_CHECK(loch_recorder_start(
        &(loch_recorder_options){.size = sizeof(loch_recorder_options), .path = path, .stack_depth = 8}));
    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "sim:1GiB", &device));
    LOCH_CHECK(loch_pool_create(device, "pool", NULL, &pool));
    work(pool);
    loch_allocator_release(pool);
    loch_device_release(device);
    LOCH_CHECK(loch_recorder_stop());

    LOCH_CHECK(loch_recording_load(path, NULL, &recording));
    LOCH_CHECK(loch_recording_get_info(recording, &info));
    printf("%llu events, at most %llu MiB:\n", (unsigned long long)info.events,
           (unsigned long long)(info.peak_requested / MIB));
    print_peak(recording, &info);
    loch_recording_destroy(recording);
    remove(path);
    return info.peak_requested == 64 * MIB ? 0 : 1;
}
