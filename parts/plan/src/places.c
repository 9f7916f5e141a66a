/* SPDX-License-Identifier: MIT */
/* Serving blocks from the places of a plan: the slow way, when the program does not repeat itself exactly. */
#include "places.h"
#include "memory.h"

#define PLACES_WINDOW 64 /* positions ahead in which the sequence is looked for */
#define PLACES_BACK 8    /* positions back in which an allocation may have been passed */

/* --- late slots --- */

/* Adds `change` to the obstacles of all other slots that a taken slot overlaps. */
static void places_block(plan_places *places, uint32_t index, uint32_t change)
{
    lochi_plan_places_block(places, index, (uintptr_t)places->slots[index].address, plan_places_end(places, index),
                            change);
}

/* Makes the slots late that are due at a position and taken. */
static void places_arrive(plan_places *places, uint32_t position)
{
    if (!places->slots[position].obstacles) return;
    for (uint32_t i = places->due_begins[position]; i < places->due_begins[position + 1]; i++) {
        const uint32_t index = places->due_slots[i];
        plan_slot *slot = &places->slots[index];
        if (PLAN_LOAD(slot->state) == PLAN_FREE || PLAN_LOAD(slot->flags) & PLAN_LATE) continue;
        __atomic_fetch_or(&slot->flags, (uint8_t)PLAN_LATE, __ATOMIC_RELAXED);
        places->slots[position].obstacles--;
        places_block(places, index, 1);
    }
}

void lochi_plan_places_move(plan_places *places, uint32_t position)
{
    while (places->position != position) {
        places_arrive(places, places->position);
        plan_places_pass(places, places->position);
        PLAN_STORE(places->passed, places->passed + 1);
    }
}

void lochi_plan_places_free_flagged(plan_places *places, uint32_t index)
{
    plan_slot *slot = &places->slots[index];
    plan_patch *patch = index < places->count ? NULL : places->patches[index - places->count];
    if (PLAN_LOAD(slot->state) != PLAN_LIVE) PLAN_STORE(places->freed, places->freed - 1);
    if (patch) {
        places->patches[index - places->count] = NULL;
        slot->address = NULL; /* the addresses may serve others */
        lochi_plan_patch_retire(places, patch);
        places->slots[slot->due].obstacles++; /* plan_slot_drop takes it off again */
    } else if (slot->flags & PLAN_LATE) {
        places_block(places, index, UINT32_MAX);
        places->slots[slot->due].obstacles++; /* plan_slot_drop takes it off again */
    }
    plan_slot_drop(places, slot);
    PLAN_STORE(slot->flags, (uint8_t)0);
}

/* --- finding the sequence again --- */

static uint32_t places_after(const plan_places *places, uint32_t position, uint32_t steps)
{
    return (uint32_t)(((uint64_t)position + steps) % places->count);
}

static bool places_expect(const plan_places *places, uint32_t position, const plan_key *key)
{
    return plan_key_equal(&places->keys[position], key);
}

/* Looks for the missed key followed by `key`, in the next `window` positions. Returns the position of `key`. */
static uint32_t places_seek_pair(const plan_places *places, const plan_key *key, uint32_t window)
{
    for (uint32_t i = 0; i < window; i++) {
        const uint32_t first = places_after(places, places->position, i), second = places_after(places, first, 1);
        if (places_expect(places, first, &places->missed) && places_expect(places, second, key)) return second;
    }
    return PLAN_NONE;
}

/* Tells whether an allocation is the expected one with another size. */
static bool places_is_other_size(const plan_places *places, const plan_key *key)
{
    const plan_key *expected = &places->keys[places->position];
    return expected->alignment == key->alignment && expected->stream == key->stream &&
           key->bytes <= places->rooms[places->position] && key->bytes >= expected->bytes / 2 &&
           key->bytes <= expected->bytes + expected->bytes / 2;
}

/* Returns the position of an allocation; PLAN_NONE if it has none. */
static uint32_t places_locate(plan_places *places, const plan_key *key)
{
    const uint32_t here = places->position, next = places_after(places, here, 1);
    if (places_expect(places, here, key)) return here; /* what was missed before was new */
    if (places->misses == PLAN_OTHER_SIZE && places_expect(places, places_after(places, here, places->count - 1), key))
        return PLAN_NONE;                              /* that block was new, and has its place */
    if (places_expect(places, next, key)) return next; /* one is missing, or was served by the pool */
    if (!places->misses && places_is_other_size(places, key)) return here;
    if (!places->misses || places->misses == PLAN_OTHER_SIZE) return PLAN_NONE;
    uint32_t window = places->count < PLACES_WINDOW ? places->count : PLACES_WINDOW;
    if (places->misses >= 8 && !(places->misses & (places->misses - 1))) window = places->count;
    return places_seek_pair(places, key, window);
}

/* Tells whether a block of another size than planned overlaps no taken slot. */
static bool places_is_clear(const plan_places *places, uint32_t index, uint64_t bytes)
{
    const uintptr_t low = (uintptr_t)places->slots[index].address, high = low + bytes;
    for (uint32_t i = 0; i < plan_places_total(places); i++) {
        const plan_slot *slot = &places->slots[i];
        if (PLAN_LOAD(slot->state) != PLAN_FREE && low < plan_places_end(places, i) && (uintptr_t)slot->address < high)
            return false;
    }
    return !lochi_plan_places_is_lent(places, low, high);
}

uint32_t lochi_plan_places_kind(plan_places *places, const plan_key *key)
{
    uint32_t kind = 0;
    while (kind < places->kinds_count &&
           (places->kinds[kind].alignment != key->alignment || places->kinds[kind].stream != key->stream))
        kind++;
    if (kind == places->kinds_count && kind < PLAN_KINDS)
        places->kinds[places->kinds_count++] = (plan_kind){key->alignment, key->stream};
    return kind;
}

/* --- serving --- */

/* Hands out the slot of a position that was reached. NULL if it cannot; `*deviates` as for lochi_plan_places_serve. */
static void *places_take(plan_places *places, uint32_t position, const plan_key *key, loch_tag tag, bool *deviates)
{
    plan_slot *slot = &places->slots[position];
    if (slot->bytes == PLAN_NEVER) { /* left to the pool */
        *deviates = !places_expect(places, position, key);
        return NULL;
    }
    const uint64_t planned = places->highs[position] - places->lows[position];
    if (PLAN_LOAD(slot->state) != PLAN_FREE) return NULL;
    if (key->bytes <= planned ? slot->obstacles != 0 : !places_is_clear(places, position, key->bytes)) return NULL;
    *deviates = false;
    PLAN_STORE(places->passed, places->passed - 1);
    if (tag || key->bytes != slot->bytes) {
        PLAN_STORE(places->odds[position].bytes, key->bytes);
        PLAN_STORE(places->odds[position].tag, (uint32_t)tag);
        PLAN_STORE(slot->flags, (uint8_t)PLAN_ODD);
    }
    return plan_slot_take(places, slot, position);
}

/* Hands out the slot of a position that was passed and not served in this cycle: the order has changed, or a new
 * allocation was taken for a later one. NULL if there is none. */
static void *places_take_passed(plan_places *places, const plan_key *key, loch_tag tag)
{
    for (uint32_t back = 1; back <= PLACES_BACK && back <= places->position; back++) {
        const uint32_t index = places->position - back;
        plan_slot *slot = &places->slots[index];
        if (!places_expect(places, index, key) || slot->bytes == PLAN_NEVER) continue;
        if (PLAN_LOAD(places->cycles[index]) == places->cycle || PLAN_LOAD(slot->state) != PLAN_FREE) continue;
        if (!places_is_clear(places, index, key->bytes)) continue;
        PLAN_STORE(places->odds[index].bytes, key->bytes);
        PLAN_STORE(places->odds[index].tag, (uint32_t)tag);
        PLAN_STORE(slot->flags, (uint8_t)PLAN_ODD);
        (void)plan_slot_take(places, slot, index);
        PLAN_STORE(places->passed, places->passed - 1);
        if (places_after(places, slot->due, places->count - index) > back) return slot->address;
        if (slot->due == index) return slot->address; /* lives for the whole period */
        __atomic_fetch_or(&slot->flags, (uint8_t)PLAN_LATE, __ATOMIC_RELAXED);
        places->slots[slot->due].obstacles--;
        places_block(places, index, 1);
        return slot->address;
    }
    return NULL;
}

void *lochi_plan_places_serve(plan_places *places, const plan_key *key, loch_tag tag, bool *deviates)
{
    const uint32_t position = places_locate(places, key);
    void *address = NULL;
    uint32_t life = PLAN_NONE;
    *deviates = true;
    if (position == PLAN_NONE) {
        address = places_take_passed(places, key, tag);
        if (!address) {
            places->missed = *key;
            places->misses = (places->misses & ~PLAN_OTHER_SIZE) + 1;
        }
    } else {
        lochi_plan_places_move(places, position);
        places_arrive(places, position);
        plan_places_pass(places, position);
        PLAN_STORE(places->passed, places->passed + 1); /* unless it is served */
        places->misses = places_expect(places, position, key) ? 0 : PLAN_OTHER_SIZE;
        address = places_take(places, position, key, tag, deviates);
        life = (places->slots[position].due + places->count - 1 - position) % places->count + 1;
    }
    return address || !*deviates ? address : lochi_plan_places_invite(places, key, tag, life);
}

/* --- addresses --- */

uint32_t lochi_plan_places_find(const plan_places *places, const void *address)
{
    size_t low = 0, high = places->planned;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uintptr_t)places->slots[places->sorted[middle]].address < (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    uint32_t found = PLAN_NONE;
    for (uint32_t i = places->count; i < plan_places_total(places); i++) {
        if (places->slots[i].address != address) continue;
        found = i;
        if (PLAN_LOAD(places->slots[i].state) == PLAN_LIVE) return i;
    }
    for (; low < places->planned && places->slots[places->sorted[low]].address == address; low++) {
        found = places->sorted[low];
        if (PLAN_LOAD(places->slots[found].state) == PLAN_LIVE) break;
    }
    return found;
}

bool lochi_plan_places_has(const plan_places *places, const void *address)
{
    for (size_t i = 0; i < places->regions_count; i++)
        if ((uintptr_t)address - (uintptr_t)places->regions[i].base < places->regions[i].grown) return true;
    for (uint32_t i = places->count; i < plan_places_total(places); i++) /* patches have addresses of their own */
        if (PLAN_LOAD(places->slots[i].state) != PLAN_FREE &&
            (uintptr_t)address - (uintptr_t)places->slots[i].address < plan_slot_bytes(places, i))
            return true;
    return false;
}

bool lochi_plan_places_is_inside(const plan_places *places, const void *address)
{
    for (uint32_t i = 0; i < plan_places_total(places); i++) {
        const plan_slot *slot = &places->slots[i];
        const uintptr_t offset = (uintptr_t)address - (uintptr_t)slot->address;
        if (PLAN_LOAD(slot->state) == PLAN_LIVE && offset && offset < plan_slot_bytes(places, i)) return true;
    }
    return false;
}

/* --- other streams --- */

bool lochi_plan_places_share(plan_places *places, uint32_t slot, loch_stream *stream)
{
    for (size_t i = 0; i < places->waits_count; i++)
        if (places->waits[i].slot == slot && places->waits[i].stream == stream) return true;
    if (!lochi_plan_grow((void **)&places->waits, &places->waits_capacity, places->waits_count + 1,
                         sizeof *places->waits))
        return false;
    places->waits[places->waits_count] = (plan_wait){.slot = slot, .stream = loch_stream_retain(stream)};
    PLAN_STORE(places->waits_count, places->waits_count + 1);
    __atomic_fetch_or(&places->slots[slot].flags, (uint8_t)PLAN_SHARED, __ATOMIC_RELAXED);
    return true;
}

bool lochi_plan_wait_has_passed(plan_wait *wait)
{
    loch_capture_info capture = {.size = sizeof capture};
    if (!wait->event) {
        const loch_status status = loch_stream_query_capture(wait->stream, &capture);
        if (status == LOCH_E_INVALID) /* the stream was closed: its work is that of the device */
            return loch_device_sync(loch_stream_get_device(wait->stream)) == LOCH_OK;
        if (status != LOCH_OK || capture.active) return false;
        loch_event *event = NULL;
        if (loch_event_create(loch_stream_get_device(wait->stream), LOCH_EVENT_PLAIN, &event) != LOCH_OK) return false;
        if (loch_event_record(event, wait->stream) == LOCH_OK)
            wait->event = event;
        else
            loch_event_destroy(event);
        if (!wait->event) return false;
    }
    return loch_event_query(wait->event) == LOCH_OK;
}

static void places_remove_wait(plan_places *places, size_t index)
{
    loch_event_destroy(places->waits[index].event);
    loch_stream_release(places->waits[index].stream);
    places->waits[index] = places->waits[places->waits_count - 1];
    PLAN_STORE(places->waits_count, places->waits_count - 1);
}

/* Removes the uses of a freed block that have passed, and frees the block with the last of them. */
static void places_poll(plan_places *places, uint32_t index)
{
    bool is_waiting = false;
    for (size_t i = places->waits_count; i-- > 0;) {
        if (places->waits[i].slot != index) continue;
        if (lochi_plan_wait_has_passed(&places->waits[i]))
            places_remove_wait(places, i);
        else
            is_waiting = true;
    }
    if (is_waiting) return;
    lochi_plan_places_free_flagged(places, index);
}

void lochi_plan_places_free_shared(plan_places *places, uint32_t slot)
{
    if (PLAN_LOAD(places->slots[slot].state) == PLAN_LIVE) PLAN_STORE(places->freed, places->freed + 1);
    PLAN_STORE(places->slots[slot].state, (uint8_t)PLAN_WAITING);
    for (size_t i = 0; i < places->waits_count; i++)
        if (places->waits[i].slot == slot) places->waits[i].is_freed = true;
    places_poll(places, slot);
}

void lochi_plan_places_settle(plan_places *places)
{
    while (places->remote != PLAN_NONE) {
        const uint32_t index = places->remote;
        plan_slot *slot = &places->slots[index];
        PLAN_STORE(places->remote, places->odds[index].remote_next);
        if (slot->flags & PLAN_SHARED)
            lochi_plan_places_free_shared(places, index);
        else
            lochi_plan_places_free_flagged(places, index);
    }
    for (size_t i = places->waits_count; i-- > 0;) {
        if (i >= places->waits_count || !places->waits[i].is_freed) continue;
        places_poll(places, places->waits[i].slot);
    }
    lochi_plan_patch_settle(places, false);
}
