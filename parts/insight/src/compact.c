/* SPDX-License-Identifier: MIT */
/* Removes events and blocks from a recording that is being read. */
#include "recording.h"
#include "kit/fail.h"
#include <string.h>

static bool compact_names_block(const loch_recording_event *event)
{
    return event->kind <= LOCH_RECORDED_MOVE;
}

bool lochi_insight_recording_compact(loch_recording *recording)
{
    loch_recording_event *events = recording->events.data;
    loch_recording_block *blocks = recording->blocks.data;
    loch_recording_range *ranges = recording->ranges.data;
    lochi_array moved = {.data = NULL}; /* of uint32_t: new index of each block */
    if (!lochi_array_reserve(&moved, recording->blocks.count + 1, sizeof(uint32_t))) return false;
    uint32_t *places = moved.data;
    size_t count = 0;
    for (size_t i = 0; i < recording->blocks.count; i++) {
        places[i] = blocks[i].reserved[0] == INSIGHT_DROPPED_BLOCK ? LOCH_RECORDING_NONE : (uint32_t)count;
        if (places[i] == LOCH_RECORDING_NONE) continue;
        blocks[count] = blocks[i];
        if (recording->info.has_addresses) blocks[count].id = count;
        count++;
    }
    recording->blocks.count = count;
    count = 0;
    for (size_t i = 0; i < recording->events.count; i++) {
        loch_recording_event event = events[i];
        if (event.kind == INSIGHT_DROPPED_EVENT) continue;
        if (compact_names_block(&event)) {
            event.subject = places[event.subject];
            if (event.subject == LOCH_RECORDING_NONE) continue;
        }
        if (event.kind == LOCH_RECORDED_ALLOC) blocks[event.subject].alloc_event = (uint32_t)count;
        if (event.kind == LOCH_RECORDED_FREE) blocks[event.subject].free_event = (uint32_t)count;
        if (event.kind == LOCH_RECORDED_TAKE) ranges[event.subject].take_event = (uint32_t)count;
        if (event.kind == LOCH_RECORDED_GIVE) ranges[event.subject].give_event = (uint32_t)count;
        events[count++] = event;
    }
    recording->events.count = count;
    lochi_array_free(&moved);
    return true;
}

loch_status lochi_insight_recording_keep_allocator(loch_recording *recording, const char *name)
{
    const size_t count = recording->names[LOCH_RECORDING_ALLOCATOR].count;
    loch_recording_event *events = recording->events.data;
    loch_recording_block *blocks = recording->blocks.data;
    bool is_found = false;
    for (size_t i = 0; i < count; i++)
        is_found = is_found || !strcmp(loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, i), name);
    if (!is_found) return LOCH_FAIL(NOT_FOUND, "%s: no allocator has the name \"%s\"", recording->info.path, name);
    for (size_t i = 0; i < recording->blocks.count; i++)
        if (strcmp(loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, blocks[i].allocator), name) != 0)
            blocks[i].reserved[0] = INSIGHT_DROPPED_BLOCK;
    for (size_t i = 0; i < recording->events.count; i++) {
        const loch_recording_event *event = &events[i];
        if (event->kind >= LOCH_RECORDED_SLEEP && event->kind <= LOCH_RECORDED_FAIL &&
            strcmp(loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, event->subject), name) != 0)
            events[i].kind = INSIGHT_DROPPED_EVENT;
    }
    if (lochi_insight_recording_compact(recording)) return LOCH_OK;
    return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory for the recording", recording->info.path);
}
