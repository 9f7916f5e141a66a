/* SPDX-License-Identifier: MIT */
/* Fuzz target: files of the recorder. The input stands behind a good header, so that the records are reached: byte 0
 * has the flags, and the rest is cut into chunks of the shortest length, each behind a good mark. What was read must
 * hold together, and must come back when it is written and read again. */
#include "fuzz.h"
#include "format.h"
#include <stdio.h>

#define RECORDING_CHUNK 4096
#define RECORDING_CHUNKS 4

static loch_recording *recording_read(const void *data, size_t bytes)
{
    loch_recording *recording;
    const insight_source source = {.path = "file", .data = data, .bytes = bytes};
    const loch_recording_options options = {.size = sizeof options};
    if (insight_recording_create("file", LOCH_RECORDING_BINARY, &recording) != LOCH_OK) return NULL;
    if (insight_read_binary(&source, &options, recording) == LOCH_OK && insight_recording_finish(recording) == LOCH_OK)
        return recording;
    FUZZ_EXPECT(*loch_error_get()->sentence);
    loch_recording_destroy(recording);
    return NULL;
}

/* Checks what every reader of a recording relies on. */
static void recording_expect(const loch_recording *recording)
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
        FUZZ_EXPECT(events[blocks[i].alloc_event].subject == i && blocks[i].alignment < 64);
        FUZZ_EXPECT(blocks[i].free_event == LOCH_RECORDING_NONE || events[blocks[i].free_event].subject == i);
    }
}

static void recording_write(insight_writer *write, const loch_recording *recording, char **data, size_t *bytes)
{
    const loch_recording_options options = {.size = sizeof options};
    insight_sink sink = {.file = open_memstream(data, bytes), .path = "memory"};
    FUZZ_EXPECT(sink.file && write(recording, &options, &sink) == LOCH_OK);
    fclose(sink.file);
}

static void recording_try(const uint8_t *file, size_t bytes)
{
    char *data = NULL;
    size_t length;
    loch_recording *recording = recording_read(file, bytes);
    if (!recording) return;
    recording_expect(recording);
    recording_write(insight_write_text, recording, &data, &length);
    free(data);
    recording_write(insight_write_binary, recording, &data, &length);
    loch_recording *again = recording_read(data, length);
    FUZZ_EXPECT(again && again->info.events == recording->info.events && again->info.blocks == recording->info.blocks &&
                again->info.peak_requested == recording->info.peak_requested);
    loch_recording_destroy(again);
    free(data);
    loch_recording_destroy(recording);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t file[4096 + RECORDING_CHUNKS * RECORDING_CHUNK];
    fuzz_input input = {data, bytes};
    fuzz_begin();
    recording_try(data, bytes); /* as it is */
    memset(file, 0, sizeof file);
    memcpy(file, "lochrec1\1\0\0\0\0\x10", 14);
    file[68] = fuzz_byte(&input);
    size_t at = 4096;
    while (input.bytes && at < sizeof file) { /* how the thread and the kind of a chunk are, and how long it is */
        const uint8_t kind = fuzz_byte(&input);
        const size_t room = RECORDING_CHUNK - 64, most = input.bytes < room ? input.bytes : room;
        const size_t length = kind & 0x80 ? most : most / 2;
        memcpy(file + at, "LCHK", 4);
        file[at + 4] = (uint8_t)(1 + (kind & 1));
        file[at + 8] = (uint8_t)(at >> 12);
        file[at + 24] = kind >> 1 & 3;
        memcpy(file + at + 64, input.data, length);
        input.data += length;
        input.bytes -= length;
        at += RECORDING_CHUNK;
    }
    recording_try(file, at);
    recording_try(file, at > 4200 ? at - 100 : at); /* a file that was cut */
    return 0;
}
