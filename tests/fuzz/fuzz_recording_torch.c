/* SPDX-License-Identifier: MIT */
/* Fuzz target: memory snapshots of PyTorch. What was read must hold together, can be written in every format, and is
 * a snapshot again when it is written as one. */
#include "recording_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static lochi_insight_writer *const writers[] = {lochi_insight_write_chrome, lochi_insight_write_folded,
                                                    lochi_insight_write_metrics};
    fuzz_begin();
    loch_recording *recording = recording_model_read(lochi_insight_read_torch, LOCH_RECORDING_TORCH, data, bytes);
    if (!recording) return 0;
    recording_model_check(recording);
    size_t length = 0;
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
        free(recording_model_write(writers[i], recording, &length));
    char *snapshot = recording_model_write(lochi_insight_write_torch, recording, &length);
    loch_recording *again = recording_model_read(lochi_insight_read_torch, LOCH_RECORDING_TORCH, snapshot, length);
    FUZZ_EXPECT(again);
    recording_model_check(again);
    loch_recording_destroy(again);
    free(snapshot);
    loch_recording_destroy(recording);
    fuzz_end();
    return 0;
}
