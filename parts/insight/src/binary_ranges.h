/* SPDX-License-Identifier: MIT */
/* Ranges that are taken while a file is read. Memory may go in other pieces than it was taken in: a piece of several
 * ranges ends all of them, and what stays of a range is taken anew at that moment. Memory that several ranges map is
 * counted once, from the first of them to the last. */
#ifndef LOCH_INSIGHT_BINARY_RANGES_H
#define LOCH_INSIGHT_BINARY_RANGES_H

#include "recording.h"

typedef struct binary_ranges {
    loch_recording *recording;
    lochi_array live;     /* of uint32_t: indices of ranges, in order of device and address */
    lochi_table memories; /* number of memory in the file -> number in the recording */
    lochi_array mappings; /* of uint32_t: ranges that map each memory now */
} binary_ranges;

/* Add a range, and end ranges, with their events. `numbers` are device, address, bytes, kind of memory and number of
 * memory as the file has them; `event` has the time, the thread, and the index of the device as its stream. Bytes that
 * were not taken are counted as unknown. Return false if there is no memory. */
bool lochi_insight_binary_ranges_take(binary_ranges *ranges, const loch_recording_event *event,
                                      const uint64_t *numbers);
bool lochi_insight_binary_ranges_give(binary_ranges *ranges, const loch_recording_event *event,
                                      const uint64_t *numbers);

void lochi_insight_binary_ranges_free(binary_ranges *ranges);

#endif
