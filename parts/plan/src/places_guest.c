/* SPDX-License-Identifier: MIT */
/* Guests: blocks without a place of their own in memory of a plan that is free, or in memory behind it. */
#include "places.h"

#define GUEST_PART                                                                                                     \
    64               /* a region that cannot grow has no guests below this part of it: such a guest would cost more than
                         its size if it were in the way of a larger block */
#define GUEST_GAPS 4 /* gaps that are looked at closely, the smallest ones */

void lochi_plan_places_block(plan_places *places, uint32_t index, uintptr_t low, uintptr_t high, uint32_t change)
{
    for (uint32_t i = 0; i < places->count; i++)
        if (places->lows[i] < high && low < places->highs[i] && i != index) places->slots[i].obstacles += change;
}

uint32_t lochi_plan_places_next_use(const plan_places *places, uintptr_t low, uintptr_t high)
{
    uint32_t next = PLAN_NONE;
    const uint32_t position = places->position, count = places->count;
    for (uint32_t i = 0; i < count; i++) {
        if (places->lows[i] >= high || low >= places->highs[i]) continue;
        const uint32_t distance = i >= position ? i - position : i + count - position;
        if (distance < next) next = distance;
    }
    return next;
}

bool lochi_plan_places_is_lent(const plan_places *places, uintptr_t low, uintptr_t high)
{
    for (size_t k = 0; k < places->regions_count; k++) {
        const plan_region *region = &places->regions[k];
        if (!region->unit || low < (uintptr_t)region->base || low >= (uintptr_t)region->base + region->grown) continue;
        const uintptr_t start = plan_region_unit(region, 0);
        if (high <= start) return false;
        for (uint32_t i = low > start ? (uint32_t)((low - start) / region->unit) : 0;
             i < region->units && plan_region_unit(region, i) < high; i++)
            if (region->lent[i] & PLAN_UNIT_LENT) return true;
        return false;
    }
    return false;
}

/* --- gaps --- */

typedef struct guest_gap {
    uintptr_t address;
    uint64_t room;
} guest_gap;

/* A search for the smallest gaps between what is taken. */
typedef struct guest_search {
    const plan_region *region;
    uintptr_t cursor; /* end of the taken memory so far */
    uint64_t bytes, alignment;
    guest_gap gaps[GUEST_GAPS]; /* in the memory of the plan, by room */
    uint32_t count;
    guest_gap behind; /* the smallest one behind that; address 0 if there is none */
} guest_search;

static void search_add(guest_search *search, uintptr_t address, uint64_t room)
{
    if (address >= (uintptr_t)search->region->base + search->region->bytes) {
        if (!search->behind.address || room < search->behind.room) search->behind = (guest_gap){address, room};
        return;
    }
    uint32_t at = search->count < GUEST_GAPS ? search->count++ : GUEST_GAPS;
    for (; at && search->gaps[at - 1].room > room; at--)
        if (at < GUEST_GAPS) search->gaps[at] = search->gaps[at - 1];
    if (at < GUEST_GAPS) search->gaps[at] = (guest_gap){address, room};
}

/* Goes on over taken memory from `low` to `high`. */
static void search_pass(guest_search *search, uintptr_t low, uintptr_t high)
{
    const uintptr_t start = (search->cursor + search->alignment - 1) / search->alignment * search->alignment;
    if (low > start && low - start >= search->bytes) search_add(search, start, low - search->cursor);
    if (high > search->cursor) search->cursor = high;
}

/* Goes on to the memory behind that of the plan: a gap ends there. */
static void search_turn(guest_search *search)
{
    const uintptr_t end = (uintptr_t)search->region->base + search->region->bytes;
    if (search->cursor < end) search_pass(search, end, end);
}

/* Goes on over taken memory, and over lent units before it. */
static void search_go(guest_search *search, uintptr_t low, uintptr_t high)
{
    const plan_region *region = search->region;
    const uintptr_t start = plan_region_unit(region, 0);
    if (region->unit && low > start) {
        for (uint32_t i = search->cursor > start ? (uint32_t)((search->cursor - start) / region->unit) : 0;
             i < region->units && plan_region_unit(region, i) < low; i++)
            if (region->lent[i] & PLAN_UNIT_LENT) {
                if (plan_region_unit(region, i) > (uintptr_t)region->base + region->bytes) search_turn(search);
                search_pass(search, plan_region_unit(region, i), plan_region_unit(region, i + 1));
            }
    }
    if (low > (uintptr_t)region->base + region->bytes) search_turn(search);
    search_pass(search, low, high);
}

/* Lists the taken guests by address. Returns their number. */
static uint32_t guests_sort(const plan_places *places, uint32_t guests[PLAN_GUESTS])
{
    uint32_t count = 0;
    for (uint32_t i = places->count; i < plan_places_total(places); i++) {
        if (PLAN_LOAD(places->slots[i].state) == PLAN_FREE || places->patches[i - places->count]) continue;
        uint32_t at = count++;
        for (; at && places->slots[guests[at - 1]].address > places->slots[i].address; at--)
            guests[at] = guests[at - 1];
        guests[at] = i;
    }
    return count;
}

/* Finds the smallest gaps of a region for a block. */
static void search_run(guest_search *search, const plan_places *places)
{
    const plan_region *region = search->region;
    const uintptr_t base = (uintptr_t)region->base, end = base + region->grown;
    uint32_t guests[PLAN_GUESTS], guest = 0;
    const uint32_t guests_count = guests_sort(places, guests);
    search->cursor = base;
    for (uint32_t i = region->sorted_begin; i <= region->sorted_end; i++) {
        const bool is_last = i == region->sorted_end;
        const uint32_t index = is_last ? 0 : places->sorted[i];
        const uintptr_t low = is_last ? end : (uintptr_t)places->slots[index].address;
        if (!is_last && PLAN_LOAD(places->slots[index].state) == PLAN_FREE) continue;
        for (; guest < guests_count && (uintptr_t)places->slots[guests[guest]].address < low; guest++)
            if ((uintptr_t)places->slots[guests[guest]].address >= base)
                search_go(search, (uintptr_t)places->slots[guests[guest]].address,
                          plan_places_end(places, guests[guest]));
        search_go(search, low, is_last ? end : plan_places_end(places, index));
    }
}

/* Finds a gap that the plan does not use for `life` positions. Returns 0 if there is none. */
static uintptr_t guest_find(const plan_places *places, const guest_search *search, uint32_t life)
{
    for (uint32_t i = 0; i < search->count; i++) {
        const uintptr_t address = search->gaps[i].address;
        const uint32_t next = lochi_plan_places_next_use(places, address, address + search->bytes);
        if (next == PLAN_NONE || (life != PLAN_NONE && next >= life)) return address;
    }
    return 0;
}

/* Tells whether the stream of a region is captured. A graph keeps addresses: those of the plan stay, others do not. */
static bool guest_is_captured(const plan_region *region)
{
    loch_capture_info capture = {.size = sizeof capture};
    return loch_stream_query_capture(region->stream, &capture) != LOCH_OK || capture.active;
}

/* Grows a region for a small guest. Returns 0 without memory. */
static uintptr_t guest_grow(plan_places *places, plan_region *region, guest_search *search)
{
    if (!lochi_plan_region_grow(places->pool, region, 1)) return 0;
    *search = (guest_search){.region = region, .bytes = search->bytes, .alignment = search->alignment};
    search_run(search, places);
    return search->behind.address;
}

/* --- inviting --- */

/* Makes a slot a guest at an address. */
static void *guest_take(plan_places *places, uint32_t index, uint32_t kind, uintptr_t address, const plan_key *key,
                        loch_tag tag)
{
    plan_slot *slot = &places->slots[index];
    *slot = (plan_slot){.bytes = PLAN_NEVER,
                        .address = (char *)address, /* NOLINT(performance-no-int-to-ptr) */
                        .due = index,
                        .kind = (uint8_t)kind,
                        .flags = PLAN_ODD | PLAN_LATE};
    PLAN_STORE(places->odds[index].bytes, key->bytes);
    PLAN_STORE(places->odds[index].tag, (uint32_t)tag);
    PLAN_STORE(places->passed, places->passed - 1);
    (void)plan_slot_take(places, slot, index);
    slot->obstacles--; /* late: not due */
    PLAN_STORE(places->cycles[index], ++places->guests_serial);
    if (index >= places->guests_end) PLAN_STORE(places->guests_end, index + 1);
    return slot->address;
}

/* Finds memory for a guest in a region. Returns 0 if there is none; a patch in `*patch`. */
static uintptr_t guest_place(plan_places *places, plan_region *region, const plan_key *key, uint32_t life,
                             plan_patch **patch)
{
    guest_search search = {.region = region,
                           .bytes = key->bytes,
                           .alignment = key->alignment > places->alignment ? key->alignment : places->alignment};
    if (!region->unit && key->bytes < region->bytes / GUEST_PART) return 0;
    search_run(&search, places);
    if (!region->unit) return search.count ? search.gaps[0].address : 0;
    uintptr_t address = guest_find(places, &search, life);
    if (address || search.alignment > region->unit || guest_is_captured(region)) return address;
    if (search.behind.address) return search.behind.address;
    if (key->bytes < region->unit) return guest_grow(places, region, &search);
    *patch = region->has_alias ? lochi_plan_patch_create(places, region, key->bytes) : NULL;
    return *patch ? (uintptr_t)(*patch)->window : 0;
}

void *lochi_plan_places_invite(plan_places *places, const plan_key *key, loch_tag tag, uint32_t life)
{
    uint32_t index = places->count;
    plan_region *region = places->regions, *end = region + places->regions_count;
    while (region < end && region->stream != key->stream)
        region++;
    while (index < places->count + PLAN_GUESTS && PLAN_LOAD(places->slots[index].state) != PLAN_FREE)
        index++;
    if (region == end || index == places->count + PLAN_GUESTS) return NULL;
    const uint32_t kind = lochi_plan_places_kind(places, key);
    plan_patch *patch = NULL;
    const uintptr_t address = kind == PLAN_KINDS ? 0 : guest_place(places, region, key, life, &patch);
    if (!address) return NULL;
    void *memory = guest_take(places, index, kind, address, key, tag);
    places->patches[index - places->count] = patch;
    if (patch)
        lochi_plan_patch_block(places, patch, 1);
    else
        lochi_plan_places_block(places, index, address, plan_places_end(places, index), 1);
    return memory;
}
