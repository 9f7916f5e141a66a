/* SPDX-License-Identifier: MIT */
/* Addresses for blocks that have none: a freed place is taken again by the next block of its size, others follow one
 * another. Segments: the ranges that are there at the end, and stretches around blocks that no range holds. */
#include "torch_layout.h"
#include <stdlib.h>
#include <string.h>

#define PLACE_START ((uint64_t)1 << 46) /* addresses that are made up; each device has its own 2^44 */
#define PLACE_DEVICE_SHIFT 44
#define PLACE_ALIGNMENT 512u
#define GAP_MAX ((uint64_t)1 << 20) /* blocks nearer than that share a segment */

typedef struct layout_hole {
    uint64_t address;
    uint32_t next; /* place of the next hole of this size; LOCH_RECORDING_NONE behind the last */
} layout_hole;

typedef struct layout_maker {
    const loch_recording *recording;
    torch_layout *layout;
    lochi_array ranges;  /* of layout_segment: every range, by device and address */
    lochi_array covered; /* of layout_segment: what ranges cover */
    lochi_array extra;   /* of layout_segment: blocks that are not covered */
    lochi_array largest; /* of uint64_t: the most bytes that each block has in its life */
    lochi_array now;     /* of layout_block: each block as it is at the moment; bytes UINT64_MAX: not live */
    lochi_array holes;   /* of layout_hole */
    lochi_table sizes;   /* device and size -> first hole */
    lochi_array tops;    /* of uint64_t: first address that is not taken, of each device */
    bool is_good;
} layout_maker;

static int segment_compare(const void *a, const void *b)
{
    const layout_segment *one = a, *other = b;
    if (one->device != other->device) return one->device < other->device ? -1 : 1;
    if (one->start != other->start) return one->start < other->start ? -1 : 1;
    return (one->end > other->end) - (one->end < other->end);
}

static int block_compare(const void *a, const void *b)
{
    const layout_block *one = a, *other = b;
    if (one->device != other->device) return one->device < other->device ? -1 : 1;
    if (one->address != other->address) return one->address < other->address ? -1 : 1;
    return (one->block > other->block) - (one->block < other->block);
}

static void segments_sort(lochi_array *segments)
{
    if (segments->count) qsort(segments->data, segments->count, sizeof(layout_segment), segment_compare);
}

/* Joins sorted segments of a device that overlap or are at most `gap` bytes apart. */
static void segments_join(lochi_array *segments, uint64_t gap)
{
    layout_segment *all = segments->data;
    size_t count = 0;
    for (size_t i = 0; i < segments->count; i++) {
        layout_segment *last = count ? &all[count - 1] : NULL;
        const bool is_near =
            last && last->device == all[i].device && (all[i].start <= last->end || all[i].start - last->end < gap);
        if (!is_near)
            all[count++] = all[i];
        else if (all[i].end > last->end)
            last->end = all[i].end;
    }
    segments->count = count;
}

/* Says whether a sorted segment holds [start, end). */
static bool segments_hold(const lochi_array *segments, uint32_t device, uint64_t start, uint64_t end)
{
    const layout_segment *all = segments->data;
    size_t low = 0, high = segments->count; /* finds the first one behind `start` */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all[middle].device > device || (all[middle].device == device && all[middle].start > start))
            high = middle;
        else
            low = middle + 1;
    }
    return low && all[low - 1].device == device && all[low - 1].end >= end;
}

static void maker_append(layout_maker *maker, lochi_array *segments, uint32_t device, uint64_t start, uint64_t end)
{
    const layout_segment segment = {start, end, device};
    if (start < end && !lochi_array_append(segments, &segment, 1, sizeof segment)) maker->is_good = false;
}

/* --- places --- */

static uint64_t place_round(uint64_t bytes)
{
    const uint64_t most = (uint64_t)1 << (PLACE_DEVICE_SHIFT - 1);
    if (bytes >= most) return most; /* no such block exists; the sum of addresses must not overflow */
    return bytes ? (bytes + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT : PLACE_ALIGNMENT;
}

static uint64_t place_key(uint32_t device, uint64_t rounded)
{
    return rounded << 12 ^ device;
}

static uint64_t place_take(layout_maker *maker, uint32_t device, uint64_t bytes)
{
    const uint64_t rounded = place_round(bytes);
    const uint32_t hole = lochi_table_find(&maker->sizes, place_key(device, rounded));
    if (hole != UINT32_MAX && hole < maker->holes.count) {
        const layout_hole *found = (const layout_hole *)maker->holes.data + hole;
        /* The last hole leaves a number that is no hole. */
        const uint32_t next = found->next == LOCH_RECORDING_NONE ? LOCH_RECORDING_NONE - 2 : found->next;
        if (!lochi_table_set(&maker->sizes, place_key(device, rounded), next)) maker->is_good = false;
        return found->address;
    }
    uint64_t *top = (uint64_t *)maker->tops.data + device;
    const uint64_t address = PLACE_START + ((uint64_t)device << PLACE_DEVICE_SHIFT) + *top;
    *top += rounded;
    maker_append(maker, &maker->extra, device, address, address + rounded);
    return address;
}

static void place_give(layout_maker *maker, uint32_t device, uint64_t address, uint64_t bytes)
{
    const uint64_t key = place_key(device, place_round(bytes));
    const uint32_t first = lochi_table_find(&maker->sizes, key);
    const layout_hole hole = {address, first >= maker->holes.count ? LOCH_RECORDING_NONE : first};
    if (maker->holes.count >= LOCH_RECORDING_NONE - 3 || !lochi_array_append(&maker->holes, &hole, 1, sizeof hole) ||
        !lochi_table_set(&maker->sizes, key, (uint32_t)maker->holes.count - 1))
        maker->is_good = false;
}

/* --- events --- */

/* Makes sure that a segment holds the block as it is now. */
static void maker_cover(layout_maker *maker, const layout_block *block)
{
    const uint64_t end = block->address + block->bytes;
    if (!segments_hold(&maker->covered, block->device, block->address, end))
        maker_append(maker, &maker->extra, block->device, block->address, end);
    else if (!segments_hold(&maker->ranges, block->device, block->address, end))
        ((uint8_t *)maker->layout->expandable.data)[block->device] = 1;
}

static void maker_measure(layout_maker *maker, const loch_recording_event *event)
{
    if (event->kind != LOCH_RECORDED_ALLOC && event->kind != LOCH_RECORDED_RESIZE) return;
    uint64_t *largest = (uint64_t *)maker->largest.data + event->subject;
    if (event->value > *largest) *largest = event->value;
}

static void maker_step(layout_maker *maker, const loch_recording_event *event)
{
    if (event->kind > LOCH_RECORDED_MOVE) return;
    const loch_recording_block *block = (const loch_recording_block *)maker->recording->blocks.data + event->subject;
    layout_block *now = (layout_block *)maker->now.data + event->subject;
    const uint64_t *largest = (const uint64_t *)maker->largest.data + event->subject;
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC:
        *now = (layout_block){.address = block->address,
                              .bytes = event->value,
                              .block = event->subject,
                              .device = lochi_insight_recording_get_device(maker->recording, block->allocator)};
        if (now->device >= maker->tops.count) now->device = 0;
        if (block->address)
            maker_cover(maker, now);
        else
            now->address = place_take(maker, now->device, *largest);
        ((uint64_t *)maker->layout->addresses.data)[event->subject] = now->address;
        break;
    case LOCH_RECORDED_FREE:
        if (!block->address && now->bytes != UINT64_MAX)
            place_give(maker, now->device, ((uint64_t *)maker->layout->addresses.data)[event->subject], *largest);
        now->bytes = UINT64_MAX;
        break;
    case LOCH_RECORDED_RESIZE:
        now->bytes = event->value;
        if (block->address) maker_cover(maker, now);
        break;
    case LOCH_RECORDED_MOVE:
        if (!block->address) break;
        now->address = event->value;
        maker_cover(maker, now);
        break;
    default: break;
    }
}

/* Collects the segments and blocks that are there at the end. */
static void maker_end(layout_maker *maker)
{
    const loch_recording *recording = maker->recording;
    torch_layout *layout = maker->layout;
    segments_sort(&maker->extra);
    segments_join(&maker->extra, GAP_MAX);
    for (size_t i = 0; i < maker->extra.count; i++) {
        const layout_segment *extra = (const layout_segment *)maker->extra.data + i;
        maker_append(maker, &layout->segments, extra->device, extra->start, extra->end);
    }
    for (size_t i = 0; i < recording->ranges.count; i++) {
        const loch_recording_range *range = (const loch_recording_range *)recording->ranges.data + i;
        if (range->give_event == LOCH_RECORDING_NONE && range->address)
            maker_append(maker, &layout->segments, range->device, range->address, range->address + range->bytes);
    }
    segments_sort(&layout->segments);
    for (size_t i = 0; i < maker->now.count; i++) {
        const layout_block *now = (const layout_block *)maker->now.data + i;
        if (now->bytes && now->bytes != UINT64_MAX && !lochi_array_append(&layout->live, now, 1, sizeof *now))
            maker->is_good = false;
    }
    if (layout->live.count) qsort(layout->live.data, layout->live.count, sizeof(layout_block), block_compare);
}

/* Joins the segments of devices whose blocks reach over several ranges. */
static void layout_join(torch_layout *layout)
{
    layout_segment *all = layout->segments.data;
    size_t count = 0;
    for (size_t i = 0; i < layout->segments.count; i++) {
        layout_segment *last = count ? &all[count - 1] : NULL;
        const bool joins = last && last->device == all[i].device && all[i].start <= last->end &&
                           ((const uint8_t *)layout->expandable.data)[all[i].device];
        if (!joins)
            all[count++] = all[i];
        else if (all[i].end > last->end)
            last->end = all[i].end;
    }
    layout->segments.count = count;
}

bool lochi_insight_torch_layout_create(const loch_recording *recording, torch_layout *layout)
{
    layout_maker maker = {.recording = recording, .layout = layout, .is_good = true};
    *layout = (torch_layout){.addresses = {.data = NULL}};
    const size_t blocks = recording->blocks.count, devices = recording->info.devices;
    maker.is_good = lochi_array_reserve(&layout->addresses, blocks, sizeof(uint64_t)) &&
                    lochi_array_reserve(&layout->expandable, devices, 1) &&
                    lochi_array_reserve(&maker.now, blocks, sizeof(layout_block)) &&
                    lochi_array_reserve(&maker.largest, blocks, sizeof(uint64_t)) &&
                    lochi_array_reserve(&maker.tops, devices, sizeof(uint64_t));
    for (size_t i = 0; maker.is_good && i < recording->ranges.count; i++) {
        const loch_recording_range *range = (const loch_recording_range *)recording->ranges.data + i;
        if (range->address && range->device < devices) {
            maker_append(&maker, &maker.ranges, range->device, range->address, range->address + range->bytes);
            maker_append(&maker, &maker.covered, range->device, range->address, range->address + range->bytes);
        }
    }
    if (maker.is_good) {
        layout->addresses.count = maker.now.count = blocks;
        maker.tops.count = devices;
        for (size_t i = 0; i < blocks; i++)
            ((layout_block *)maker.now.data)[i].bytes = UINT64_MAX;
        segments_sort(&maker.ranges);
        segments_sort(&maker.covered);
        segments_join(&maker.covered, 0);
        for (size_t i = 0; i < recording->events.count; i++)
            maker_measure(&maker, (const loch_recording_event *)recording->events.data + i);
        for (size_t i = 0; maker.is_good && i < recording->events.count; i++)
            maker_step(&maker, (const loch_recording_event *)recording->events.data + i);
    }
    if (maker.is_good) {
        maker_end(&maker);
        layout_join(layout);
    }
    lochi_array_free(&maker.ranges);
    lochi_array_free(&maker.covered);
    lochi_array_free(&maker.extra);
    lochi_array_free(&maker.largest);
    lochi_array_free(&maker.now);
    lochi_array_free(&maker.holes);
    lochi_table_free(&maker.sizes);
    lochi_array_free(&maker.tops);
    return maker.is_good;
}

void lochi_insight_torch_layout_free(torch_layout *layout)
{
    lochi_array_free(&layout->addresses);
    lochi_array_free(&layout->segments);
    lochi_array_free(&layout->live);
    lochi_array_free(&layout->expandable);
}
