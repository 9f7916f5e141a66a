/* SPDX-License-Identifier: MIT */
/* Keeps the ranges that are taken in order of their addresses. In files without addresses their numbers stand for
 * addresses until the end of reading, and ranges go as they were taken. */
#include "binary_ranges.h"
#include <string.h>

static loch_recording_range *ranges_at(const binary_ranges *ranges, size_t place)
{
    return (loch_recording_range *)ranges->recording->ranges.data + ((const uint32_t *)ranges->live.data)[place];
}

/* Returns the place of the first live range that does not start before an address of a device. */
static size_t ranges_find(const binary_ranges *ranges, uint16_t device, uint64_t address)
{
    size_t low = 0, high = ranges->live.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const loch_recording_range *range = ranges_at(ranges, middle);
        if (range->device < device || (range->device == device && range->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds a range that is taken now. */
static bool ranges_add(binary_ranges *ranges, const loch_recording_event *event, const loch_recording_range *range)
{
    loch_recording_event taken = *event;
    loch_recording_range added = *range;
    added.take_event = (uint32_t)ranges->recording->events.count;
    added.give_event = LOCH_RECORDING_NONE;
    taken.kind = LOCH_RECORDED_TAKE;
    taken.value = added.memory && ((uint32_t *)ranges->mappings.data)[added.memory]++ ? 0 : range->bytes;
    taken.subject = lochi_insight_recording_add_range(ranges->recording, &added);
    if (taken.subject == LOCH_RECORDING_NONE ||
        lochi_insight_recording_add_event(ranges->recording, &taken) == LOCH_RECORDING_NONE ||
        !lochi_array_reserve(&ranges->live, ranges->live.count + 1, sizeof(uint32_t)))
        return false;
    const size_t place = ranges_find(ranges, added.device, added.address);
    uint32_t *live = ranges->live.data;
    memmove(live + place + 1, live + place, (ranges->live.count - place) * sizeof *live);
    live[place] = taken.subject;
    ranges->live.count++;
    return true;
}

/* Ends the range at a place. */
static bool ranges_end(binary_ranges *ranges, const loch_recording_event *event, size_t place)
{
    loch_recording_event given = *event;
    uint32_t *live = ranges->live.data;
    given.kind = LOCH_RECORDED_GIVE;
    given.subject = live[place];
    const uint32_t memory = ranges_at(ranges, place)->memory;
    given.value = memory && --((uint32_t *)ranges->mappings.data)[memory] ? 0 : ranges_at(ranges, place)->bytes;
    memmove(live + place, live + place + 1, (--ranges->live.count - place) * sizeof *live);
    const uint32_t at = lochi_insight_recording_add_event(ranges->recording, &given);
    ((loch_recording_range *)ranges->recording->ranges.data)[given.subject].give_event = at;
    return at != LOCH_RECORDING_NONE;
}

/* Returns the number in the recording of a memory; 0 for memory of its own. UINT32_MAX: there is no memory. */
static uint32_t ranges_memory(binary_ranges *ranges, uint64_t number)
{
    if (!number) return 0;
    const uint32_t found = lochi_table_find(&ranges->memories, number);
    if (found != UINT32_MAX) return found;
    const uint32_t made = ranges->mappings.count ? (uint32_t)ranges->mappings.count : 1; /* 0 is not used */
    if (!lochi_array_reserve(&ranges->mappings, (size_t)made + 1, sizeof(uint32_t)) ||
        !lochi_table_set(&ranges->memories, number, made))
        return UINT32_MAX;
    ranges->mappings.count = (size_t)made + 1;
    return made;
}

bool lochi_insight_binary_ranges_take(binary_ranges *ranges, const loch_recording_event *event, const uint64_t *numbers)
{
    const uint32_t memory = ranges_memory(ranges, numbers[4]);
    if (memory == UINT32_MAX) return false;
    return ranges_add(ranges, event,
                      &(loch_recording_range){.address = numbers[1],
                                              .bytes = numbers[2],
                                              .device = event->stream,
                                              .kind = (uint16_t)numbers[3],
                                              .memory = memory});
}

/* Returns the end of a range; the highest address if it would be beyond. */
static uint64_t ranges_stop(uint64_t address, uint64_t bytes)
{
    return bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes;
}

/* Ends a range, and takes what lies outside [start, end) anew. */
static bool ranges_cut(binary_ranges *ranges, const loch_recording_event *event, size_t place, uint64_t start,
                       uint64_t end)
{
    const loch_recording_range range = *ranges_at(ranges, place);
    const uint64_t stop = ranges_stop(range.address, range.bytes);
    loch_recording_range before = range, after = range;
    before.bytes = start - range.address;
    after.address = end;
    after.bytes = stop - end;
    before.memory = after.memory = 0; /* mappings go as they were taken */
    return ranges_end(ranges, event, place) && (range.address >= start || ranges_add(ranges, event, &before)) &&
           (stop <= end || ranges_add(ranges, event, &after));
}

bool lochi_insight_binary_ranges_give(binary_ranges *ranges, const loch_recording_event *event, const uint64_t *numbers)
{
    const uint64_t start = numbers[1], end = ranges_stop(start, numbers[2]);
    const uint16_t device = event->stream;
    size_t place = ranges_find(ranges, device, start), ended = 0;
    for (size_t i = place; i < ranges->live.count; i++) { /* a range that goes as it was taken */
        const loch_recording_range *range = ranges_at(ranges, i);
        if (range->device != device || range->address != start) break;
        if (range->bytes == numbers[2]) return ranges_end(ranges, event, i);
    }
    if (ranges->recording->info.has_addresses && place && ranges_at(ranges, place - 1)->device == device &&
        ranges_stop(ranges_at(ranges, place - 1)->address, ranges_at(ranges, place - 1)->bytes) > start)
        place--;
    while (ranges->recording->info.has_addresses && place < ranges->live.count) {
        const loch_recording_range *range = ranges_at(ranges, place);
        if (range->device != device || range->address >= end) break;
        const bool keeps_start = range->address < start;
        if (!ranges_cut(ranges, event, place, start, end)) return false;
        place += keeps_start; /* what stays before the piece */
        ended++;
    }
    if (!ended) ranges->recording->info.unknown++;
    return true;
}

void lochi_insight_binary_ranges_free(binary_ranges *ranges)
{
    lochi_array_free(&ranges->live);
    lochi_table_free(&ranges->memories);
    lochi_array_free(&ranges->mappings);
}
