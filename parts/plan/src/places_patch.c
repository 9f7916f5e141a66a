/* SPDX-License-Identifier: MIT */
/* Patches: guests in units of a region that are free, wherever they are. The units are mapped once more, in a row, at
 * addresses of their own. So a large block finds room although a small one lies in its place.
 *
 * The memory is used in the order of the region's stream, at both addresses. A mapping may go only after the stream has
 * passed the free of the block. Until then it is retired: it keeps addresses, but no memory of its own. */
#include "places.h"
#include "memory.h"
#include <loch/virtual.h>
#include <stdlib.h>

/* A unit that a patch can have. */
typedef struct patch_choice {
    uint32_t unit, next; /* `next`: positions until the plan uses it */
} patch_choice;

static int patch_compare_next(const void *a, const void *b)
{
    const patch_choice *x = a, *y = b;
    if (x->next != y->next) return x->next < y->next ? 1 : -1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

static int patch_compare_unit(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Computes the units that addresses overlap. Returns false for none. */
static bool patch_span(const plan_region *region, uintptr_t low, uintptr_t high, uint32_t *first, uint32_t *last)
{
    const uintptr_t start = plan_region_unit(region, 0), end = plan_region_unit(region, region->units);
    if (low < (uintptr_t)region->base || low >= end || high <= start || low >= high) return false;
    *first = low > start ? (uint32_t)((low - start) / region->unit) : 0;
    *last = (uint32_t)((high - 1 - start) / region->unit);
    if (*last >= region->units) *last = region->units - 1;
    return true;
}

/* Writes to region->marks when the plan uses each unit next: 0 for units that are taken, else positions plus 1. */
static void patch_look(plan_places *places, plan_region *region)
{
    uint32_t *marks = region->marks, first, last;
    for (uint32_t i = 0; i < region->units; i++)
        marks[i] = region->lent[i] ? 0 : PLAN_NONE;
    for (uint32_t i = 0; i < plan_places_total(places); i++) {
        const bool is_taken = PLAN_LOAD(places->slots[i].state) != PLAN_FREE;
        const bool is_guest = i >= places->count;
        if (is_guest && !is_taken) continue;
        const uintptr_t low = is_taken ? (uintptr_t)places->slots[i].address : places->lows[i];
        const uintptr_t high = is_taken ? plan_places_end(places, i) : places->highs[i];
        if (!patch_span(region, low, high, &first, &last)) continue;
        uint32_t next = 0;
        if (!is_taken) next = (i >= places->position ? i - places->position : i + places->count - places->position) + 1;
        for (uint32_t unit = first; unit <= last; unit++)
            if (next < marks[unit]) marks[unit] = next;
    }
}

/* Lists the free units, with those that the plan uses last first. Returns their number. */
static uint32_t patch_list(plan_places *places, plan_region *region, patch_choice *choices)
{
    uint32_t count = 0;
    patch_look(places, region);
    for (uint32_t i = 0; i < region->units; i++)
        if (region->marks[i]) choices[count++] = (patch_choice){i, region->marks[i]};
    qsort(choices, count, sizeof *choices, patch_compare_next);
    return count;
}

/* Chooses the units of a patch. Returns false without memory. */
static bool patch_choose(plan_places *places, plan_patch *patch)
{
    plan_region *region = patch->region;
    patch_choice *choices = lochi_plan_alloc(region->units_max, sizeof *choices);
    if (!choices) return false;
    uint32_t count = patch_list(places, region, choices);
    if (count < patch->count && lochi_plan_region_grow(places->pool, region, patch->count - count))
        count = patch_list(places, region, choices);
    const bool is_enough = count >= patch->count;
    for (uint32_t i = 0; i < patch->count && is_enough; i++)
        patch->units[i] = choices[i].unit;
    lochi_plan_free(choices);
    qsort(patch->units, patch->count, sizeof *patch->units, patch_compare_unit);
    return is_enough;
}

/* Removes the mappings of a patch up to `end`, and its addresses. */
static void patch_unmap(const plan_patch *patch, const char *end)
{
    for (char *at = patch->window; at < end;) {
        loch_virtual_info info = {.size = sizeof info};
        if (loch_virtual_find(at, &info) != LOCH_OK || loch_virtual_unmap(at) != LOCH_OK) return;
        at += info.bytes;
    }
    (void)!loch_virtual_unreserve(patch->window);
}

/* Maps the units in a row. */
static bool patch_map(plan_places *places, plan_patch *patch)
{
    const plan_region *region = patch->region;
    loch_device *device = loch_allocator_get_device(places->pool);
    void *window = NULL;
    if (loch_virtual_reserve(device, patch->count * region->unit, 0, &window) != LOCH_OK) return false;
    char *to = patch->window = window;
    for (uint32_t i = 0; i < patch->count; i++) {
        uintptr_t from = plan_region_unit(region, patch->units[i]);
        for (const char *end = to + region->unit; to < end;) {
            loch_virtual_info info = {.size = sizeof info};
            const void *start = (const void *)from; /* NOLINT(performance-no-int-to-ptr) */
            if (loch_virtual_find(start, &info) != LOCH_OK || info.start != start || info.bytes > (size_t)(end - to) ||
                loch_virtual_map(to, info.handle, NULL, 0) != LOCH_OK) {
                patch_unmap(patch, to);
                return false;
            }
            to += info.bytes;
            from += info.bytes;
        }
    }
    return true;
}

static void patch_free(plan_patch *patch)
{
    if (!patch) return;
    lochi_plan_free(patch->units);
    lochi_plan_free(patch);
}

plan_patch *lochi_plan_patch_create(plan_places *places, plan_region *region, uint64_t bytes)
{
    const uint64_t count = (bytes + region->unit - 1) / region->unit;
    if (count > region->units_max) return NULL;
    plan_patch *patch = lochi_plan_alloc(1, sizeof *patch);
    if (!patch) return NULL;
    *patch = (plan_patch){
        .region = region, .units = lochi_plan_alloc(count, sizeof *patch->units), .count = (uint32_t)count};
    if (!patch->units || !patch_choose(places, patch) || !patch_map(places, patch)) {
        patch_free(patch);
        return NULL;
    }
    for (uint32_t i = 0; i < patch->count; i++)
        region->lent[patch->units[i]] |= PLAN_UNIT_LENT;
    return patch;
}

void lochi_plan_patch_block(plan_places *places, const plan_patch *patch, uint32_t change)
{
    const plan_region *region = patch->region;
    uint32_t *sums = region->marks, unit = 0, first, last; /* units of the patch before each unit */
    for (uint32_t i = 0; i <= region->units; i++) {
        sums[i] = unit;
        if (unit < patch->count && patch->units[unit] == i) unit++;
    }
    for (uint32_t i = 0; i < places->count; i++)
        if (patch_span(region, places->lows[i], places->highs[i], &first, &last) && sums[last + 1] != sums[first])
            places->slots[i].obstacles += change;
}

void lochi_plan_patch_retire(plan_places *places, plan_patch *patch)
{
    plan_region *region = patch->region;
    lochi_plan_patch_block(places, patch, UINT32_MAX);
    for (uint32_t i = 0; i < patch->count; i++)
        region->lent[patch->units[i]] &= (uint8_t)~PLAN_UNIT_LENT;
    patch->wait = (plan_wait){.stream = loch_stream_retain(region->stream)};
    patch->next = places->retired;
    places->retired = patch;
}

/* Waits for the stream of a patch. A stream that is captured cannot be waited for. */
static bool patch_wait(const plan_patch *patch)
{
    loch_capture_info capture = {.size = sizeof capture};
    const loch_status status = loch_stream_query_capture(patch->wait.stream, &capture);
    if (status == LOCH_OK && capture.active) return false;
    if (status == LOCH_OK && loch_stream_sync(patch->wait.stream) == LOCH_OK) return true;
    return loch_device_sync(loch_stream_get_device(patch->wait.stream)) == LOCH_OK;
}

void lochi_plan_patch_settle(plan_places *places, bool is_last)
{
    for (plan_patch **link = &places->retired; *link;) {
        plan_patch *patch = *link;
        const bool has_passed = is_last ? patch_wait(patch) : lochi_plan_wait_has_passed(&patch->wait);
        if (!has_passed && !is_last) {
            link = &patch->next;
            continue;
        }
        *link = patch->next;
        if (has_passed)
            patch_unmap(patch, patch->window +
                                   patch->count *
                                       patch->region->unit); /* otherwise the addresses are lost, and nothing else */
        loch_event_destroy(patch->wait.event);
        loch_stream_release(patch->wait.stream);
        patch_free(patch);
    }
}
