/* SPDX-License-Identifier: MIT */
/* What every recording keeps, whatever file it came from. */
#ifndef LOCH_FUZZ_RECORDING_MODEL_H
#define LOCH_FUZZ_RECORDING_MODEL_H

#include "fuzz.h"
#include "format.h"

/* Reads a recording from memory. Returns NULL after a failure, which must have a sentence. */
static inline loch_recording *recording_model_read(lochi_insight_reader *read, loch_recording_format format,
                                                   const void *data, size_t bytes)
{
    loch_recording *recording;
    const insight_source source = {.path = "file", .data = data, .bytes = bytes};
    const loch_recording_options options = {.size = sizeof options};
    if (lochi_insight_recording_create("file", format, &recording) != LOCH_OK) return NULL;
    if (read(&source, &options, recording) == LOCH_OK && lochi_insight_recording_finish(recording) == LOCH_OK)
        return recording;
    FUZZ_EXPECT(*loch_error_get()->sentence);
    loch_recording_destroy(recording);
    return NULL;
}

/* Checks indices, order of time, and the lives of blocks and ranges. */
static inline void recording_model_check(const loch_recording *recording)
{
    const loch_recording_event *events = loch_recording_get_events(recording);
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    const loch_recording_range *ranges = loch_recording_get_ranges(recording);
    const loch_recording_info *info = &recording->info;
    for (size_t i = 0; i < info->events; i++) {
        const loch_recording_event *event = &events[i];
        FUZZ_EXPECT(!i || event->time_ns >= events[i - 1].time_ns);
        FUZZ_EXPECT(event->thread < info->threads);
        FUZZ_EXPECT(event->stack == LOCH_RECORDING_NONE || event->stack < info->stacks);
        if (event->kind <= LOCH_RECORDED_MOVE)
            FUZZ_EXPECT(event->subject < info->blocks && blocks[event->subject].alloc_event <= i &&
                        blocks[event->subject].free_event >= i);
        else if (event->kind <= LOCH_RECORDED_GIVE)
            FUZZ_EXPECT(event->subject < info->ranges && event->stream < info->devices &&
                        ranges[event->subject].take_event <= i && ranges[event->subject].give_event >= i);
        else if (event->kind == LOCH_RECORDED_CALL)
            FUZZ_EXPECT(event->subject < info->calls && event->stream < info->devices);
        else
            FUZZ_EXPECT(event->kind <= LOCH_RECORDED_FAIL && event->subject < info->allocators);
    }
    for (size_t i = 0; i < info->blocks; i++) {
        FUZZ_EXPECT(blocks[i].allocator < info->allocators && blocks[i].tag < info->tags);
        FUZZ_EXPECT(lochi_insight_recording_get_device(recording, blocks[i].allocator) < info->devices);
        FUZZ_EXPECT(events[blocks[i].alloc_event].subject == i && blocks[i].alignment < 64);
        FUZZ_EXPECT(blocks[i].free_event == LOCH_RECORDING_NONE || events[blocks[i].free_event].subject == i);
    }
}

/* Writes a recording into memory. The caller frees the result. */
static inline char *recording_model_write(lochi_insight_writer *write, const loch_recording *recording, size_t *bytes)
{
    char *data = NULL;
    const loch_recording_options options = {.size = sizeof options};
    insight_sink sink = {.file = open_memstream(&data, bytes), .path = "memory"};
    FUZZ_EXPECT(sink.file && write(recording, &options, &sink) == LOCH_OK);
    fclose(sink.file);
    return data;
}

#endif
