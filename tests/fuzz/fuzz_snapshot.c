/* SPDX-License-Identifier: MIT */
/* Fuzz target: snapshots as JSON. What loads has sums that are right and can be looked at to its last name. */
#include "fuzz.h"
#include "format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const insight_source source = {.path = "fuzz", .data = data, .bytes = bytes};
    const loch_recording_options options = {.size = sizeof options, .format = LOCH_RECORDING_SNAPSHOT};
    loch_recording *recording;
    loch_recording_info info = {.size = sizeof info};
    fuzz_begin();
    loch_error_clear();
    CHECK_OK(lochi_insight_recording_create(source.path, LOCH_RECORDING_SNAPSHOT, &recording));
    const loch_status status = lochi_insight_read_snapshot(&source, &options, recording);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TEST_SET(INVALID));
    } else {
        CHECK_OK(lochi_insight_recording_finish(recording));
        CHECK_OK(loch_recording_get_info(recording, &info));
        const loch_recording_block *blocks = loch_recording_get_blocks(recording);
        for (uint64_t i = 0; i < info.blocks; i++) {
            FUZZ_EXPECT(blocks[i].tag < info.tags && blocks[i].allocator < info.allocators);
            FUZZ_EXPECT(blocks[i].stream < info.streams);
        }
        const loch_recording_range *ranges = loch_recording_get_ranges(recording);
        for (uint64_t i = 0; i < info.ranges; i++)
            FUZZ_EXPECT(ranges[i].device < info.devices);
        for (uint64_t i = 0; i < info.allocators; i++)
            FUZZ_EXPECT(loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, i));
    }
    loch_recording_destroy(recording);
    fuzz_end();
    return 0;
}
