/* SPDX-License-Identifier: MIT */
/* The table of ranges: three treaps and a mutex. A lookup takes O(log n) steps; locating a range takes one step for
 * each piece that it spans. Each thread caches the last few pieces that it located, with the version of the table at
 * that time. While the table does not change, copies in these pieces need neither the lock nor a search. */
#include "device/ranges.h"
#include "base/fail.h"
#include "base/room.h"
#include "kit/text.h"
#include <stdio.h>
#include <string.h>

lochi_lock lochi_ranges_mutex = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_RANGES);
static lochi_tree ranges_memory, ranges_reservations, ranges_registrations; /* under lochi_ranges_mutex */

/* Raised under lochi_ranges_mutex whenever a piece is added or removed. Release and acquire: a thread that sees the
 * version of a cached piece sees the table in which the piece was found. */
static _Atomic uint64_t ranges_version = 1;

_Static_assert(sizeof(lochi_place) <= sizeof(((lochi_room *)NULL)->places[0].words), "a room holds places");

static void ranges_change(void)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    atomic_fetch_add_explicit(&ranges_version, 1, memory_order_release);
}

void lochi_ranges_lock(void)
{
    lochi_lock_take(&lochi_ranges_mutex);
}

void lochi_ranges_unlock(void)
{
    lochi_lock_drop(&lochi_ranges_mutex);
}

static lochi_range *ranges_of_node(lochi_tree_node *node)
{
    return node ? LOCHI_CONTAINER(node, lochi_range, node) : NULL;
}

static lochi_range *ranges_find(const lochi_tree *tree, uintptr_t address)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    lochi_range *range = ranges_of_node(lochi_tree_at_or_below(tree, address));
    return range && address - lochi_range_start(range) < range->bytes ? range : NULL;
}

static lochi_range *ranges_first(const lochi_tree *tree, uintptr_t start, uintptr_t end)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    lochi_range *range = ranges_find(tree, start);
    if (range) return range;
    range = ranges_of_node(lochi_tree_at_or_above(tree, start));
    return range && lochi_range_start(range) < end ? range : NULL;
}

static lochi_tree *ranges_tree(lochi_range_type type)
{
    if (type == LOCHI_RANGE_RESERVATION) return &ranges_reservations;
    return type == LOCHI_RANGE_REGISTRATION ? &ranges_registrations : &ranges_memory;
}

lochi_range *lochi_ranges_find_memory(uintptr_t address)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    return ranges_find(&ranges_memory, address);
}

lochi_range *lochi_ranges_find_reservation(uintptr_t address)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    return ranges_find(&ranges_reservations, address);
}

lochi_range *lochi_ranges_find_registration(uintptr_t address)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    return ranges_find(&ranges_registrations, address);
}

lochi_range *lochi_ranges_first_memory(uintptr_t start, uintptr_t end)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    return ranges_first(&ranges_memory, start, end);
}

bool lochi_ranges_insert(lochi_range *range)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    lochi_tree *tree = ranges_tree(range->type);
    if (ranges_first(tree, lochi_range_start(range), lochi_range_end(range))) return false;
    lochi_tree_insert(tree, &range->node);
    ranges_change();
    return true;
}

void lochi_ranges_remove(lochi_range *range)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    lochi_tree_remove(ranges_tree(range->type), &range->node);
    ranges_change();
}

static void ranges_let(lochi_range *range, const lochi_tenant *tenant)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    lochi_range *mapping;
    range->tenant = tenant;
    if (range->type != LOCHI_RANGE_RESERVATION) return;
    for (uintptr_t at = lochi_range_start(range), end = lochi_range_end(range);
         (mapping = ranges_first(&ranges_memory, at, end)); at = lochi_range_end(mapping))
        mapping->tenant = tenant;
}

void lochi_ranges_let(const void *address, const lochi_tenant *tenant)
{
    lochi_ranges_lock();
    lochi_range *range = lochi_ranges_find_memory((uintptr_t)address);
    if (!range || range->type != LOCHI_RANGE_RAW) range = lochi_ranges_find_reservation((uintptr_t)address);
    if (range) ranges_let(range, tenant);
    ranges_change();
    lochi_ranges_unlock();
}

/* --- listing --- */

typedef struct ranges_listing {
    const loch_device *device;
    loch_range *out;
    size_t capacity, count;
} ranges_listing;

static void ranges_note(ranges_listing *listing, const lochi_range *range, uintptr_t start, size_t bytes)
{
    if (listing->count < listing->capacity)
        listing->out[listing->count] = (loch_range){range->device, range->kind, (void *)start, bytes, range->handle};
    listing->count++;
}

void lochi_ranges_describe(const void *address, char *text, size_t bytes)
{
    const uintptr_t at = (uintptr_t)address;
    *text = '\0';
    lochi_ranges_lock();
    const lochi_range *memory = lochi_ranges_find_memory(at), *reservation = lochi_ranges_find_reservation(at);
    const lochi_tenant *tenant = reservation ? reservation->tenant : memory ? memory->tenant : NULL;
    if (tenant)
        tenant->describe(tenant, at, text, bytes);
    else if (memory)
        snprintf(text, bytes, "memory of %s: %s at %p without a pool", memory->device->name, LOCHI_SIZE(memory->bytes),
                 (void *)lochi_range_start(memory));
    lochi_ranges_unlock();
}

size_t lochi_ranges_list(const loch_device *device, loch_range *out, size_t capacity)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    ranges_listing listing = {device, out, capacity, 0};
    const lochi_range *range;
    for (uintptr_t at = 0; (range = ranges_of_node(lochi_tree_at_or_above(&ranges_memory, at)));
         at = lochi_range_start(range) + 1)
        if (!range->is_hidden && (!device || range->device == device))
            ranges_note(&listing, range, lochi_range_start(range), range->bytes);
    return listing.count;
}

/* --- locating --- */

/* Finds the piece of memory that holds `address`: a raw block or a mapping. */
static bool ranges_piece_at(uintptr_t address, lochi_place *out)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    const lochi_range *range = lochi_ranges_find_memory(address);
    if (!range) return false;
    *out = (lochi_place){.device = range->device,
                         .kind = range->kind,
                         .start = lochi_range_start(range),
                         .bytes = range->bytes,
                         .is_apart = range->type == LOCHI_RANGE_RAW,
                         .tenant = range->tenant};
    return true;
}

/* Returns whether every byte from `place` up to `end` is memory of one device and one tenant, in one block or in
 * adjacent mappings. `place` holds the first byte. */
static bool ranges_cover(lochi_place place, uintptr_t end)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    const loch_device *device = place.device;
    const lochi_tenant *tenant = place.tenant;
    while (place.start + place.bytes < end)
        if (place.is_apart || !ranges_piece_at(place.start + place.bytes, &place) || place.is_apart ||
            place.device != device || place.tenant != tenant)
            return false;
    return true;
}

#define RANGES_DRIVERS 8 /* drivers that are asked once; of more, every device is asked */

typedef struct ranges_question {
    const void *address;
    loch_address_info answer;
    const loch_driver *denied[RANGES_DRIVERS]; /* drivers that have no device with this memory */
    size_t denied_count;
} ranges_question;

static bool ranges_has_denied(const ranges_question *question, const loch_driver *driver)
{
    for (size_t i = 0; i < question->denied_count; i++)
        if (question->denied[i] == driver) return true;
    return false;
}

static bool ranges_ask_driver(loch_device *device, void *user)
{
    ranges_question *question = user;
    if (!lochi_device_knows_addresses(device) || lochi_device_is_forked(device)) return false;
    if (ranges_has_denied(question, device->driver)) return false;
    loch_status status;
    LOCHI_CALL(status, device, address_query, (device->self, question->address, &question->answer));
    if (status == LOCH_E_FOREIGN && question->denied_count < RANGES_DRIVERS)
        question->denied[question->denied_count++] = device->driver;
    if (status != LOCH_OK) return false;
    question->answer.device = device;
    return true;
}

/* Returns whether the thread has promised that the range is plain host memory. */
static bool ranges_is_promised(uintptr_t start, size_t bytes)
{
    const lochi_room *room = lochi_room_own;
    for (const lochi_host_scope *scope = room ? room->host_scopes : NULL; scope; scope = scope->outer)
        if (start >= scope->start && bytes <= scope->bytes && start - scope->start <= scope->bytes - bytes) return true;
    return false;
}

void lochi_ranges_begin_host(lochi_host_scope *scope, const void *address, size_t bytes)
{
    lochi_room *room = bytes ? lochi_room_get() : NULL; /* without one, drivers are asked */
    *scope = (lochi_host_scope){.bytes = 0};
    if (!room) return;
    *scope = (lochi_host_scope){room->host_scopes, (uintptr_t)address, bytes};
    room->host_scopes = scope;
}

void lochi_ranges_end_host(const lochi_host_scope *scope)
{
    if (scope->bytes) lochi_room_own->host_scopes = scope->outer;
}

/* Locates memory that is not in the table: memory of another library or of the host. */
static loch_status ranges_locate_foreign(const void *address, size_t bytes, lochi_place *out)
{
    ranges_question question = {.address = address};
    *out = (lochi_place){.kind = LOCH_MEMORY_HOST, .start = (uintptr_t)address};
    if (ranges_is_promised((uintptr_t)address, bytes)) return LOCH_OK;
    if (!lochi_device_any(ranges_ask_driver, &question)) return LOCH_OK;
    const loch_address_info *answer = &question.answer;
    *out = (lochi_place){
        .device = answer->device, .kind = answer->kind, .start = (uintptr_t)answer->base, .bytes = answer->bytes};
    if (answer->bytes && (uintptr_t)address + bytes > (uintptr_t)answer->base + answer->bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes at %p reach beyond the %zu bytes at %p", bytes, address,
                         answer->bytes, answer->base);
    return LOCH_OK;
}

/* Locates memory that is in the table. E_EXISTS if no part of the range is. */
static loch_status ranges_locate_known(const void *address, size_t bytes, lochi_place *out)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    const uintptr_t start = (uintptr_t)address, end = start + bytes;
    const lochi_range *registration = lochi_ranges_find_registration(start);
    bool is_inside;
    if (ranges_piece_at(start, out)) {
        is_inside = ranges_cover(*out, end);
    } else if (registration) {
        *out = (lochi_place){.device = registration->device,
                             .kind = registration->kind,
                             .start = lochi_range_start(registration),
                             .bytes = registration->bytes};
        is_inside = end <= lochi_range_end(registration);
    } else if (lochi_ranges_find_reservation(start)) {
        return LOCH_FAIL(NOT_FOUND, "nothing is mapped at %p, only addresses are reserved there", address);
    } else if (ranges_first(&ranges_memory, start, end) || ranges_first(&ranges_reservations, start, end)) {
        return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes at %p begin before the memory that they overlap", bytes, address);
    } else {
        return LOCH_E_EXISTS;
    }
    if (is_inside) return LOCH_OK;
    return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes at %p reach beyond the memory there: %zu bytes at %p", bytes, address,
                     out->bytes, (void *)out->start);
}

/* Returns whether the thread has cached the piece that holds the whole range. */
static bool ranges_recall(uintptr_t start, size_t bytes, lochi_place *out)
{
    const uint64_t version = atomic_load_explicit(&ranges_version, memory_order_acquire);
    const lochi_room *room = lochi_room_own;
    for (unsigned i = 0; room && i < LOCHI_ROOM_PLACES; i++) {
        const lochi_place *place = (const lochi_place *)(const void *)room->places[i].words;
        if (room->places[i].version != version || start < place->start) continue;
        if (bytes > place->bytes || start - place->start > place->bytes - bytes) continue;
        *out = *place;
        return true;
    }
    return false;
}

loch_status lochi_ranges_locate(const void *address, size_t bytes, lochi_place *out)
{
    if (ranges_recall((uintptr_t)address, bytes, out)) return LOCH_OK;
    lochi_ranges_lock();
    const loch_status status = ranges_locate_known(address, bytes, out);
    const uint64_t version = atomic_load_explicit(&ranges_version, memory_order_relaxed);
    lochi_ranges_unlock();
    if (status == LOCH_E_EXISTS) return ranges_locate_foreign(address, bytes, out);
    lochi_room *room = status == LOCH_OK ? lochi_room_get() : NULL;
    if (room) {
        const unsigned at = room->next_place++ % LOCHI_ROOM_PLACES;
        room->places[at].version = version;
        memcpy(room->places[at].words, out, sizeof *out);
    }
    return status;
}
