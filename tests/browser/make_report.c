/* SPDX-License-Identifier: MIT */
/* Writes the reports that the tests of the browser look at: make_report FOLDER. The recordings have known figures.
 *
 * A program of 40 steps of a millisecond has 16 MiB of weights at the start of range A. Each step takes four blocks of
 * activations of 4 MiB each, at 32 MiB of range A, and frees them; every other step adds a block of 1 MiB to the cache,
 * in range B. At the end all is freed except three blocks of the cache. So the peak is 16 + 16 + 20 = 52 MiB in step
 * 38, of 96 MiB reserved. "after.html" has a second program beside it, which keeps half of the cache. */
#include "recording.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define RANGE_A UINT64_C(0x7f0000000000)
#define RANGE_B UINT64_C(0x7f0010000000)

static void check(bool is_good)
{
    if (is_good) return;
    fprintf(stderr, "make_report: %s\n", loch_error_get()->sentence);
    exit(1);
}

static uint32_t add_name(loch_recording *recording, loch_recording_noun noun, const char *name)
{
    return lochi_insight_recording_add_name(recording, noun, name, strlen(name));
}

static uint32_t add_stack(loch_recording *recording, const char *site)
{
    static const char *const around[] = {"loch_allocator_alloc", "", "forward at model.c:80", "main at main.c:12"};
    uint32_t frames[4];
    for (size_t i = 0; i < 4; i++) {
        const char *frame = i == 1 ? site : around[i];
        frames[i] = lochi_insight_recording_add_text(recording, frame, strlen(frame));
    }
    return lochi_insight_recording_add_stack(recording, frames, 4);
}

static uint32_t add_block(loch_recording *recording, uint64_t time, uint64_t address, uint64_t bytes, uint32_t tag,
                          uint32_t stack)
{
    const loch_recording_event event = {.time_ns = time, .stack = stack};
    const loch_recording_block block = {
        .id = recording->blocks.count + 1, .bytes = bytes, .address = address, .tag = tag};
    return lochi_insight_recording_add_alloc(recording, &block, &event);
}

static void add_free(loch_recording *recording, uint64_t time, uint32_t block)
{
    const loch_recording_event event = {.time_ns = time, .stack = LOCH_RECORDING_NONE};
    check(lochi_insight_recording_add_free(recording, block, &event) != LOCH_RECORDING_NONE);
}

static void add_event(loch_recording *recording, uint64_t time, loch_recording_kind kind, uint32_t subject,
                      uint64_t value)
{
    const loch_recording_event event = {
        .time_ns = time, .kind = (uint16_t)kind, .subject = subject, .value = value, .stack = LOCH_RECORDING_NONE};
    check(lochi_insight_recording_add_event(recording, &event) != LOCH_RECORDING_NONE);
}

static void add_range(loch_recording *recording, uint64_t time, uint64_t address, uint64_t bytes)
{
    const loch_recording_range range = {.address = address,
                                        .bytes = bytes,
                                        .take_event = (uint32_t)recording->events.count,
                                        .give_event = LOCH_RECORDING_NONE};
    const uint32_t index = lochi_insight_recording_add_range(recording, &range);
    add_event(recording, time, LOCH_RECORDED_TAKE, index, bytes);
    add_event(recording, time + 50000, LOCH_RECORDED_CALL, 0, 50000);
}

/* `has_addresses`: as a recording; otherwise as a trace, which has none. */
static loch_recording *make(const char *path, const char *cache_tag, uint64_t cache_bytes, bool has_addresses)
{
    loch_recording *recording;
    check(lochi_insight_recording_create(path, has_addresses ? LOCH_RECORDING_BINARY : LOCH_RECORDING_TEXT,
                                         &recording) == LOCH_OK);
    recording->info.has_addresses = has_addresses;
    recording->info.was_ended = 1;
    const uint32_t weights = add_name(recording, LOCH_RECORDING_TAG, "weights"),
                   activations = add_name(recording, LOCH_RECORDING_TAG, "activations"),
                   cache = add_name(recording, LOCH_RECORDING_TAG, cache_tag);
    const uint32_t load = add_stack(recording, "load_weights at model.c:10"),
                   layer = add_stack(recording, "layer at model.c:42"),
                   grow = add_stack(recording, "grow at cache.c:7");
    uint32_t caches[20], now[4];
    const uint64_t a = has_addresses ? RANGE_A : 0, b = has_addresses ? RANGE_B : 0;
    add_name(recording, LOCH_RECORDING_CALL, "mem_create");
    if (has_addresses) add_range(recording, 100000, RANGE_A, 64 * MIB);
    const uint32_t model = add_block(recording, 500000, a, 16 * MIB, weights, load);
    if (has_addresses) add_range(recording, 600000, RANGE_B, 32 * MIB);
    for (uint64_t step = 0; step < 40; step++) {
        const uint64_t time = (step + 1) * 1000000;
        if (step % 2 == 0) caches[step / 2] = add_block(recording, time, b + step / 2 * MIB, cache_bytes, cache, grow);
        for (uint64_t i = 0; i < 4; i++)
            now[i] = add_block(recording, time + (i + 1) * 100000, a + (32 + 4 * i) * MIB, 4 * MIB, activations, layer);
        for (uint64_t i = 0; i < 4; i++)
            add_free(recording, time + (i + 5) * 100000, now[i]);
        if (step == 20) add_event(recording, time + 950000, LOCH_RECORDED_FAIL, 0, 512 * MIB);
    }
    for (size_t i = 3; i < 20; i++)
        add_free(recording, 41500000, caches[i]);
    add_free(recording, 42000000, model);
    check(lochi_insight_recording_finish(recording) == LOCH_OK);
    return recording;
}

static void save(const char *folder, const char *name, loch_recording *const *recordings, size_t count,
                 const loch_report_options *options)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    check(loch_report_save((const loch_recording *const *)recordings, count, path, options) == LOCH_OK);
}

/* A recording without events, or with the allocation of one block. */
static loch_recording *make_small(bool has_block)
{
    loch_recording *recording;
    check(lochi_insight_recording_create("small.loch", LOCH_RECORDING_BINARY, &recording) == LOCH_OK);
    recording->info.has_addresses = 1;
    if (has_block) add_block(recording, 0, RANGE_A, MIB, 0, LOCH_RECORDING_NONE);
    check(lochi_insight_recording_finish(recording) == LOCH_OK);
    return recording;
}

int main(int count, char **arguments)
{
    if (count != 2) return 2;
    loch_recording *recordings[2] = {make("before.loch", "cache", MIB, true),
                                     make("after.loch", "cache", MIB / 2, true)};
    loch_recording *trace = make("program.trace", "cache", MIB, false);
    loch_recording *hostile = make("hostile.loch", "cache</script><b>", MIB, true);
    const loch_report_options titled = {.size = sizeof titled, .title = "A decoder <before & after>"};
    loch_recording *small[2] = {make_small(false), make_small(true)};
    save(arguments[1], "empty.html", small, 1, NULL);
    save(arguments[1], "block.html", small + 1, 1, NULL);
    save(arguments[1], "one.html", &hostile, 1, &titled);
    save(arguments[1], "two.html", recordings, 2, NULL);
    save(arguments[1], "trace.html", &trace, 1, NULL);
    loch_recording_destroy(recordings[0]);
    loch_recording_destroy(recordings[1]);
    loch_recording_destroy(small[0]);
    loch_recording_destroy(small[1]);
    loch_recording_destroy(trace);
    loch_recording_destroy(hostile);
    return 0;
}
