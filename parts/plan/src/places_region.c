/* SPDX-License-Identifier: MIT */
/* The memory of a region: a block of the pool that can grow behind the places of the plan, in units of whole handles.
 * */
#include "places.h"
#include "memory.h"
#include <loch/virtual.h>
#include <string.h>

#define REGION_UNITS 4096    /* the plan has at least so many units, if it has as many granules */
#define REGION_UNITS_MIN 32  /* a plan with fewer granules does not grow: a unit would be much beside it */
#define REGION_UNITS_LATER 2 /* it may grow to so many times its size */
#define REGION_PART 64       /* units that are added in one call */
#define REGION_GRANULE_MIN ((uint64_t)64 << 10) /* a pool has no smaller handles */

/* Marks the units that do not consist of whole handles: the pool may use memory that it had. */
static void region_look(plan_region *region, uint32_t from)
{
    for (uint32_t i = from; i < region->units; i++) {
        uintptr_t at = plan_region_unit(region, i);
        const uintptr_t end = at + region->unit;
        while (at < end) {
            loch_virtual_info info = {.size = sizeof info};
            const void *start = (const void *)at; /* NOLINT(performance-no-int-to-ptr) */
            if (loch_virtual_find(start, &info) != LOCH_OK || info.start != start) break;
            at += info.bytes;
        }
        if (at != end) region->lent[i] |= PLAN_UNIT_ODD;
    }
}

bool lochi_plan_region_grow(loch_allocator *pool, plan_region *region, uint32_t units)
{
    const uint32_t before = region->units, end = before + units;
    if (units > region->units_max - before) return false;
    while (region->units < end) { /* in parts: the handles of a growth are about as large as a 64th of it */
        const uint32_t more = end - region->units < REGION_PART ? end - region->units : REGION_PART;
        const uint64_t bytes = region->grown + more * region->unit;
        if (loch_pool_resize_growable(pool, region->base, bytes) != LOCH_OK) break;
        memset(region->lent + region->units, 0, more);
        region->units += more;
        region->grown = bytes;
    }
    region_look(region, before);
    return region->units == end;
}

/* Takes a block that can grow. Returns false if it cannot be had; then another block may serve. */
static bool region_take_growable(loch_allocator *pool, loch_request *request, uint64_t granule, plan_region *out)
{
    const uint64_t granules = (request->bytes + granule - 1) / granule;
    if (granules < REGION_UNITS_MIN || granules / REGION_UNITS * granule > UINT32_MAX) return false;
    uint64_t per_unit = 1; /* a power of two, as the pool's handles have */
    while (2 * per_unit <= granules / REGION_UNITS)
        per_unit *= 2;
    const uint32_t units = (uint32_t)(granules / per_unit);
    const uint64_t bytes = request->bytes;
    out->unit = per_unit * granule;
    out->first = (granules - units * per_unit) * granule;
    out->units_max = REGION_UNITS_LATER * units;
    out->lent = lochi_plan_alloc(out->units_max, sizeof *out->lent);
    out->marks = lochi_plan_alloc(out->units_max + 1, sizeof *out->marks);
    request->bytes = out->first;
    void *base = NULL;
    if (out->lent && out->marks &&
        loch_pool_alloc_growable(pool, out->first + out->units_max * out->unit, request, &base) == LOCH_OK) {
        out->base = base;
        out->grown = out->first;
        if (lochi_plan_region_grow(pool, out, units)) return true;
        (void)!loch_free(pool, base);
    }
    request->bytes = bytes;
    lochi_plan_free(out->lent);
    lochi_plan_free(out->marks);
    *out = (plan_region){.base = NULL};
    return false;
}

loch_status lochi_plan_region_create(loch_allocator *pool, uint64_t bytes, uint64_t alignment, loch_stream *stream,
                                     plan_region *out)
{
    loch_device *device = loch_allocator_get_device(pool);
    loch_device_properties properties = {.size = sizeof properties};
    loch_request request = {
        .size = sizeof request, .bytes = bytes, .alignment = alignment, .stream = stream, .flags = LOCH_ALLOC_NO_RETRY};
    *out = (plan_region){.base = NULL};
    loch_status status = loch_device_get_properties(device, &properties);
    if (status != LOCH_OK) return status;
    uint64_t granule = properties.granule_bytes;
    if (granule && granule < REGION_GRANULE_MIN) granule = REGION_GRANULE_MIN;
    if (!granule || !region_take_growable(pool, &request, granule, out)) {
        void *base = NULL;
        status = loch_allocator_alloc(pool, &request, &base);
        if (status != LOCH_OK) return status;
        out->base = base;
        out->grown = bytes;
    }
    out->has_alias = out->unit && loch_device_can(device, LOCH_CAN_ALIAS);
    out->bytes = bytes;
    out->stream = loch_stream_retain(stream);
    return LOCH_OK;
}

void lochi_plan_region_destroy(loch_allocator *pool, plan_region *region)
{
    (void)!loch_free(pool, region->base);
    loch_stream_release(region->stream);
    lochi_plan_free(region->lent);
    lochi_plan_free(region->marks);
}

/* Returns the end of the memory of a region that something uses. */
static uintptr_t region_end(const plan_places *places, const plan_region *region)
{
    const uintptr_t base = (uintptr_t)region->base;
    uintptr_t end = base + region->bytes;
    for (uint32_t i = places->count; i < plan_places_total(places); i++) {
        const uintptr_t low = (uintptr_t)places->slots[i].address;
        if (PLAN_LOAD(places->slots[i].state) == PLAN_FREE || low - base >= region->grown) continue;
        if (plan_places_end(places, i) > end) end = plan_places_end(places, i);
    }
    for (uint32_t i = 0; i < region->units; i++)
        if (region->lent[i] & PLAN_UNIT_LENT && plan_region_unit(region, i + 1) > end)
            end = plan_region_unit(region, i + 1);
    return end;
}

void lochi_plan_places_shrink(plan_places *places)
{
    for (size_t k = 0; k < places->regions_count; k++) {
        plan_region *region = &places->regions[k];
        if (!region->unit) continue;
        const uint64_t needed = region_end(places, region) - plan_region_unit(region, 0);
        const uint32_t units = (uint32_t)((needed + region->unit - 1) / region->unit);
        const uint64_t bytes = region->first + units * region->unit;
        if (units >= region->units || loch_pool_resize_growable(places->pool, region->base, bytes) != LOCH_OK) continue;
        region->units = units;
        region->grown = bytes;
    }
}
