/* SPDX-License-Identifier: MIT */
/* Fuzz target: files of the recorder. The input stands behind a good header, so that the records are reached: byte 0
 * has the flags, and the rest is cut into chunks of the shortest length, each behind a good mark. What was read must
 * hold together, and must come back when it is written and read again. */
#include "recording_model.h"

#define RECORDING_CHUNK 4096
#define RECORDING_CHUNKS 4

static void recording_try(const void *file, size_t bytes)
{
    size_t length;
    loch_recording *recording = recording_model_read(lochi_insight_read_binary, LOCH_RECORDING_BINARY, file, bytes);
    if (!recording) return;
    recording_model_check(recording);
    free(recording_model_write(lochi_insight_write_text, recording, &length));
    char *data = recording_model_write(lochi_insight_write_binary, recording, &length);
    loch_recording *again = recording_model_read(lochi_insight_read_binary, LOCH_RECORDING_BINARY, data, length);
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
