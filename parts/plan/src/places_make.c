/* SPDX-License-Identifier: MIT */
/* Making the places of a plan out of a recording: lives of blocks, one problem for each stream, memory of the pool.
 *
 * The period goes around, and a problem of the planner does not. So it is cut where the fewest bytes are live. Blocks
 * that are live at the cut are stacked from offset 0 at fixed offsets, once before and once after the cut; the planner
 * places all others around them. */
#include "places.h"
#include "memory.h"
#include "kit/fail.h"
#include <loch/plan.h>
#include <stdlib.h>
#include <string.h>

#define MAKE_PAIRS_MAX 50000000 /* comparisons for the room above blocks; beyond that blocks have none */

typedef struct make_state {
    const plan_source *source;
    plan_places *places;
    uint64_t *lives;  /* life of a slot in positions; 0 for a slot without a place */
    uint64_t *sizes;  /* planned bytes */
    uint64_t *orders; /* of frees */
    uint64_t *offsets;
    int64_t *changes;          /* of live bytes at each position */
    loch_plan_buffer *buffers; /* of one stream */
    uint32_t *slots;           /* of the buffers */
    uint32_t *sorted;
    size_t count; /* of the buffers */
} make_state;

static uint64_t make_align(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

static uint64_t make_alignment(const make_state *make, uint32_t slot)
{
    const uint64_t own = make->places->keys[slot].alignment;
    return own > make->source->alignment ? own : make->source->alignment;
}

/* --- lives --- */

/* Joins what another period says about a slot: the longer life, the larger size. */
static void make_join(make_state *make, uint32_t slot, const plan_entry *entry, size_t index)
{
    const plan_key *key = &make->places->keys[slot];
    if (entry->key.alignment != key->alignment || entry->key.stream != key->stream) return;
    if (entry->freed == PLAN_NEVER) return;
    const uint64_t life = entry->freed - index;
    if (entry->is_shared || life > make->source->period) {
        make->lives[slot] = 0;
    } else if (make->lives[slot]) {
        if (life > make->lives[slot]) make->lives[slot] = life;
        if (entry->key.bytes > make->sizes[slot]) make->sizes[slot] = entry->key.bytes;
    }
}

/* Tells whether another period has almost the same keys, so that its entries belong to those of the plan. */
static bool make_is_alike(const plan_source *source, size_t other)
{
    const plan_entry *entries = source->log->entries;
    size_t equal = 0;
    if (other == PLAN_NONE) return false;
    for (size_t i = 0; i < source->period; i++)
        equal += plan_key_equal(&entries[source->begin + i].key, &entries[other + i].key);
    return equal >= source->period - source->period / 16;
}

static void make_read(make_state *make)
{
    const plan_source *source = make->source;
    const plan_entry *entries = source->log->entries;
    const bool has_before = make_is_alike(source, source->before), has_after = make_is_alike(source, source->after);
    for (uint32_t i = 0; i < source->period; i++) {
        const plan_entry *entry = &entries[source->begin + i];
        const uint64_t life = entry->freed - (source->begin + i);
        make->places->keys[i] = entry->key;
        make->orders[i] = entry->free_order;
        make->sizes[i] = entry->key.bytes;
        make->lives[i] =
            entry->freed == PLAN_NEVER || life > source->period || entry->is_shared || !entry->key.stream ? 0 : life;
        if (has_before) make_join(make, i, &entries[source->before + i], source->before + i);
        if (has_after) make_join(make, i, &entries[source->after + i], source->after + i);
    }
}

/* --- one stream --- */

/* Returns the position at which the fewest bytes of a stream are live. */
static uint32_t make_cut(make_state *make, const loch_stream *stream)
{
    const uint32_t count = make->places->count;
    int64_t live = 0, least = INT64_MAX;
    uint32_t cut = 0;
    memset(make->changes, 0, (count + 1) * sizeof *make->changes);
    for (uint32_t i = 0; i < count; i++) {
        if (!make->lives[i] || make->places->keys[i].stream != stream) continue;
        const uint64_t end = i + make->lives[i];
        make->changes[i] += (int64_t)make->sizes[i];
        if (end > count) make->changes[0] += (int64_t)make->sizes[i]; /* live at the start of the period */
        make->changes[end > count ? end - count : end] -= (int64_t)make->sizes[i];
    }
    /* A cut at i separates the blocks of earlier positions from those of position i on. */
    for (uint32_t i = 0; i < count; i++) {
        int64_t begins = 0;
        if (make->lives[i] && make->places->keys[i].stream == stream) begins = (int64_t)make->sizes[i];
        live += make->changes[i];
        if (live - begins < least) {
            least = live - begins;
            cut = i;
        }
    }
    return cut;
}

static void make_add(make_state *make, uint32_t slot, uint64_t first, uint64_t last, uint64_t fixed)
{
    make->slots[make->count] = slot;
    make->buffers[make->count++] =
        (loch_plan_buffer){.bytes = make->sizes[slot],
                           .alignment = make_alignment(make, slot),
                           .first = first,
                           .last = last,
                           .offset = fixed == PLAN_NEVER ? 0 : fixed,
                           .place = fixed == PLAN_NEVER ? LOCH_PLAN_ANYWHERE : LOCH_PLAN_FIXED};
}

/* Lists the buffers of a stream. */
static void make_list(make_state *make, const loch_stream *stream)
{
    const uint32_t count = make->places->count, cut = make_cut(make, stream);
    uint64_t stacked = 0;
    make->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!make->lives[i] || make->places->keys[i].stream != stream) continue;
        const uint64_t first = (i + (uint64_t)count - cut) % count, last = first + make->lives[i];
        if (last <= count) {
            make_add(make, i, first, last, PLAN_NEVER);
            continue;
        }
        stacked = make_align(stacked, make_alignment(make, i));
        make_add(make, i, first, count, stacked);
        make_add(make, i, 0, last - count, stacked);
        stacked += make->sizes[i];
    }
}

static _Thread_local const loch_plan_buffer *make_sorted_buffers;

static int make_compare_first(const void *a, const void *b)
{
    const uint64_t x = make_sorted_buffers[*(const uint32_t *)a].first,
                   y = make_sorted_buffers[*(const uint32_t *)b].first;
    return (x > y) - (x < y);
}

/* Computes the room of each block: the bytes up to the lowest place above that is in use in its life. */
static void make_rooms(make_state *make, const uint64_t *offsets, uint64_t height)
{
    uint64_t *rooms = make->places->rooms, pairs = 0;
    uint32_t *active = make->sorted + make->count;
    size_t active_count = 0;
    for (size_t i = 0; i < make->count; i++) {
        rooms[make->slots[i]] = height - offsets[i];
        make->sorted[i] = (uint32_t)i;
    }
    make_sorted_buffers = make->buffers;
    qsort(make->sorted, make->count, sizeof *make->sorted, make_compare_first);
    for (size_t n = 0; n < make->count; n++) {
        const uint32_t i = make->sorted[n];
        for (size_t k = 0; k < active_count;) {
            const uint32_t other = active[k];
            if (make->buffers[other].last <= make->buffers[i].first) {
                active[k] = active[--active_count];
                continue;
            }
            uint64_t *lower = offsets[i] < offsets[other] ? &rooms[make->slots[i]] : &rooms[make->slots[other]];
            const uint64_t distance =
                offsets[i] < offsets[other] ? offsets[other] - offsets[i] : offsets[i] - offsets[other];
            if (distance < *lower) *lower = distance;
            k++;
        }
        pairs += active_count;
        active[active_count++] = i;
        if (pairs <= MAKE_PAIRS_MAX) continue;
        for (size_t k = 0; k < make->count; k++)
            rooms[make->slots[k]] = make->sizes[make->slots[k]];
        return;
    }
}

/* Plans the blocks of a stream and takes their memory. */
static loch_status make_stream(make_state *make, loch_stream *stream)
{
    plan_places *places = make->places;
    make_list(make, stream);
    if (!make->count) return LOCH_OK;
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = make->buffers, .count = make->count};
    const loch_plan_options options = {.size = sizeof options, .time_limit_ns = make->source->time_limit_ns};
    loch_plan *plan = NULL;
    loch_status status = loch_plan_create(&problem, &options, &plan);
    if (status == LOCH_OK) status = loch_plan_check(plan, &problem);
    loch_plan_info info = {.size = sizeof info};
    if (status == LOCH_OK) status = loch_plan_get_info(plan, &info);
    uint64_t alignment = 0;
    for (size_t i = 0; i < make->count; i++)
        if (make->buffers[i].alignment > alignment) alignment = make->buffers[i].alignment;
    plan_region *region = &places->regions[places->regions_count];
    if (status == LOCH_OK)
        status = lochi_plan_region_create(make->source->pool, info.height, alignment, stream, region);
    if (status == LOCH_OK) {
        const uint64_t *offsets = loch_plan_get_offsets(plan);
        make_rooms(make, offsets, info.height);
        for (size_t i = 0; i < make->count; i++)
            make->offsets[make->slots[i]] = (uint64_t)(uintptr_t)region->base + offsets[i];
        region->lower_bound = info.lower_bound;
        places->regions_count++;
    }
    loch_plan_destroy(plan);
    return status;
}

/* --- slots --- */

static _Thread_local const make_state *make_sorted_state;

static int make_compare_order(const void *a, const void *b)
{
    const uint64_t x = make_sorted_state->orders[*(const uint32_t *)a],
                   y = make_sorted_state->orders[*(const uint32_t *)b];
    return (x > y) - (x < y);
}

static int make_compare_address(const void *a, const void *b)
{
    const uint64_t x = make_sorted_state->offsets[*(const uint32_t *)a],
                   y = make_sorted_state->offsets[*(const uint32_t *)b];
    return (x > y) - (x < y);
}

static void make_slot(make_state *make, uint32_t index)
{
    plan_places *places = make->places;
    plan_slot *slot = &places->slots[index];
    const plan_key *key = &places->keys[index];
    const uint32_t kind = make->lives[index] ? lochi_plan_places_kind(places, key) : PLAN_KINDS;
    if (kind == PLAN_KINDS) make->lives[index] = 0;
    *slot = (plan_slot){.bytes = PLAN_NEVER, .due = index};
    if (!make->lives[index]) return;
    *slot = (plan_slot){.bytes = key->bytes,
                        .kind = (uint8_t)kind,
                        .address = (char *)(uintptr_t)make->offsets[index], /* NOLINT(performance-no-int-to-ptr) */
                        .due = (uint32_t)((index + make->lives[index]) % places->count)};
    places->lows[index] = (uintptr_t)slot->address;
    places->highs[index] = (uintptr_t)slot->address + make->sizes[index];
}

/* Links the slots in the order of their frees, lists their addresses, and the slots by due position. */
static void make_index(make_state *make)
{
    plan_places *places = make->places;
    uint32_t *sorted = make->sorted, count = 0;
    for (uint32_t i = 0; i < places->count; i++) {
        make_slot(make, i);
        if (make->lives[i]) sorted[count++] = i;
    }
    places->planned = count;
    make_sorted_state = make;
    qsort(sorted, count, sizeof *sorted, make_compare_order);
    for (uint32_t i = 0; i < count; i++)
        places->slots[sorted[i]].next_free = sorted[(i + 1) % count];
    places->free_next = sorted[0];
    qsort(sorted, count, sizeof *sorted, make_compare_address);
    memcpy(places->sorted, sorted, count * sizeof *sorted);
    for (size_t k = 0; k < places->regions_count; k++) {
        plan_region *region = &places->regions[k];
        const uintptr_t end = (uintptr_t)region->base + region->bytes;
        while (region->sorted_begin < count && make->offsets[sorted[region->sorted_begin]] < (uintptr_t)region->base)
            region->sorted_begin++;
        region->sorted_end = region->sorted_begin;
        while (region->sorted_end < count && make->offsets[sorted[region->sorted_end]] < end)
            region->sorted_end++;
    }
    for (uint32_t i = 0; i < count; i++)
        places->due_begins[places->slots[sorted[i]].due + 1]++;
    for (uint32_t i = 0; i < places->count; i++)
        places->due_begins[i + 1] += places->due_begins[i];
    for (uint32_t i = 0; i < count; i++) { /* filled from the end; the begins are right after that */
        const uint32_t due = places->slots[sorted[i]].due;
        places->due_slots[--places->due_begins[due + 1]] = sorted[i];
    }
    for (uint32_t i = 0; i < places->count; i++)
        places->due_begins[i] = places->due_begins[i + 1];
    places->due_begins[places->count] = count;
}

/* --- all of it --- */

static bool make_prepare(make_state *make)
{
    plan_places *places = make->places;
    const size_t count = make->source->period;
    places->count = places->guests_end = (uint32_t)count;
    places->remote = PLAN_NONE;
    places->pool = make->source->pool;
    places->alignment = make->source->alignment;
    places->slots = lochi_plan_alloc(count + PLAN_GUESTS, sizeof *places->slots);
    places->cycles = lochi_plan_alloc(count + PLAN_GUESTS, sizeof *places->cycles);
    places->odds = lochi_plan_alloc(count + PLAN_GUESTS, sizeof *places->odds);
    places->sorted = lochi_plan_alloc(count, sizeof *places->sorted);
    places->keys = lochi_plan_alloc(count, sizeof *places->keys);
    places->rooms = lochi_plan_alloc(count, sizeof *places->rooms);
    places->lows = lochi_plan_alloc(count, sizeof *places->lows);
    places->highs = lochi_plan_alloc(count, sizeof *places->highs);
    places->due_begins = lochi_plan_alloc(count + 1, sizeof *places->due_begins);
    places->due_slots = lochi_plan_alloc(count, sizeof *places->due_slots);
    make->lives = lochi_plan_alloc(count, sizeof *make->lives);
    make->sizes = lochi_plan_alloc(count, sizeof *make->sizes);
    make->orders = lochi_plan_alloc(count, sizeof *make->orders);
    make->offsets = lochi_plan_alloc(count, sizeof *make->offsets);
    make->changes = lochi_plan_alloc(count + 1, sizeof *make->changes);
    make->buffers = lochi_plan_alloc(2 * count, sizeof *make->buffers);
    make->slots = lochi_plan_alloc(2 * count, sizeof *make->slots);
    make->sorted = lochi_plan_alloc(4 * count, sizeof *make->sorted);
    return places->slots && places->cycles && places->odds && places->sorted && places->keys && places->rooms &&
           places->lows && places->highs && places->due_begins && places->due_slots && make->lives && make->sizes &&
           make->orders && make->offsets && make->changes && make->buffers && make->slots && make->sorted;
}

static void make_finish(make_state *make)
{
    lochi_plan_free(make->lives);
    lochi_plan_free(make->sizes);
    lochi_plan_free(make->orders);
    lochi_plan_free(make->offsets);
    lochi_plan_free(make->changes);
    lochi_plan_free(make->buffers);
    lochi_plan_free(make->slots);
    lochi_plan_free(make->sorted);
}

loch_status lochi_plan_places_create(const plan_source *source, plan_places **out)
{
    make_state make = {.source = source, .places = lochi_plan_alloc(1, sizeof *make.places)};
    loch_status status = LOCH_OK;
    *out = NULL;
    if (!make.places || !make_prepare(&make)) {
        status = LOCH_FAIL(HOST_MEMORY, "no host memory for a plan of %zu allocations", source->period);
    } else {
        make_read(&make);
        for (size_t i = 0; i < source->log->streams_count && status == LOCH_OK; i++)
            status = make_stream(&make, source->log->streams[i]);
        if (status == LOCH_OK && !make.places->regions_count)
            status = LOCH_FAIL(NOT_FOUND, "none of %zu allocations is freed within its period on its own stream",
                               source->period);
        if (status == LOCH_OK) make_index(&make);
        make.places->passed = make.places->position = source->position;
        make.places->steps = source->steps;
        memcpy(make.places->step_begins, source->step_begins, sizeof source->step_begins);
    }
    make_finish(&make);
    if (status == LOCH_OK)
        *out = make.places;
    else
        lochi_plan_places_destroy(make.places);
    return status;
}

void lochi_plan_places_destroy(plan_places *places)
{
    if (!places) return;
    for (size_t i = 0; i < places->waits_count; i++) { /* the pool waits for these streams */
        const plan_wait *wait = &places->waits[i];
        const char *address = places->slots[wait->slot].address;
        for (size_t k = 0; k < places->regions_count; k++) {
            const plan_region *region = &places->regions[k];
            if ((uintptr_t)address - (uintptr_t)region->base >= region->grown) continue;
            if (loch_allocator_record_use(places->pool, region->base, wait->stream) != LOCH_OK)
                (void)!loch_device_sync(loch_stream_get_device(wait->stream));
        }
        loch_event_destroy(wait->event);
        loch_stream_release(wait->stream);
    }
    lochi_plan_patch_settle(places, true); /* before the memory itself goes */
    for (size_t i = 0; i < places->regions_count; i++)
        lochi_plan_region_destroy(places->pool, &places->regions[i]);
    lochi_plan_free(places->slots);
    lochi_plan_free(places->cycles);
    lochi_plan_free(places->odds);
    lochi_plan_free(places->sorted);
    lochi_plan_free(places->keys);
    lochi_plan_free(places->rooms);
    lochi_plan_free(places->lows);
    lochi_plan_free(places->highs);
    lochi_plan_free(places->due_begins);
    lochi_plan_free(places->due_slots);
    lochi_plan_free(places->waits);
    lochi_plan_free(places);
}
