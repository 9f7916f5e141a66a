/* SPDX-License-Identifier: MIT */
/* Planned pools: live blocks and figures. */
#include "planned.h"
#include "kit/fail.h"
#include <stddef.h>
#include <string.h>

static void planned_describe(const plan_places *places, uint32_t index, loch_block *out)
{
    const plan_slot *slot = &places->slots[index];
    const size_t size = out->size;
    const uint64_t bytes = plan_slot_bytes(places, index), cycle = PLAN_LOAD(places->cycles[index]);
    /* Ids of guests are counted apart. */
    const uint64_t id = index < places->count ? cycle * places->count + index : (UINT64_C(1) << 43) + cycle;
    *out = (loch_block){.size = size,
                        .address = slot->address,
                        .requested_bytes = bytes,
                        .allocated_bytes = bytes,
                        .id = places->first_id + id,
                        .stream_id = loch_stream_get_id(places->kinds[slot->kind].stream)};
    if (PLAN_LOAD(slot->flags) & PLAN_ODD) out->tag = (loch_tag)PLAN_LOAD(places->odds[index].tag);
}

loch_status lochi_planned_find(void *self, const void *address, loch_block *out)
{
    loch_planned *planned = self;
    plan_places *places;
    uint32_t slot = PLAN_NONE;
    pthread_mutex_lock(&planned->lock);
    const loch_status status = lochi_planned_find_slot(planned, address, &places, &slot);
    if (status == LOCH_OK && places) planned_describe(places, slot, out);
    pthread_mutex_unlock(&planned->lock);
    return status == LOCH_OK && !places ? loch_allocator_find(planned->side, address, out) : status;
}

loch_status lochi_planned_walk(void *self, loch_block_visitor *visitor, void *user)
{
    loch_planned *planned = self;
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&planned->lock);
    for (plan_places *places = planned->places; places && status == LOCH_OK; places = places->next)
        for (uint32_t i = 0; i < plan_places_total(places) && status == LOCH_OK; i++) {
            loch_block block = {.size = sizeof block};
            if (PLAN_LOAD(places->slots[i].state) != PLAN_LIVE) continue;
            planned_describe(places, i, &block);
            status = visitor(&block, user);
        }
    pthread_mutex_unlock(&planned->lock);
    return status == LOCH_OK ? loch_allocator_walk(planned->side, visitor, user) : status;
}

void lochi_planned_sum_plans(const loch_planned *planned, uint64_t *allocs, uint64_t *live)
{
    *allocs = planned_get(&planned->old_allocs);
    *live = 0;
    for (const plan_places *places = planned->places; places; places = places->next) {
        *allocs += plan_places_served(places);
        *live += PLAN_LOAD(places->live) - PLAN_LOAD(places->freed);
    }
}

uint64_t lochi_planned_sum_blocks(const loch_planned *planned)
{
    uint64_t allocs, live;
    lochi_planned_sum_plans(planned, &allocs, &live);
    return live + planned_get(&planned->side_allocs) - planned_get(&planned->side_frees);
}

uint64_t lochi_planned_sum_requested(const loch_planned *planned)
{
    return planned_get(&planned->requested) - planned_get(&planned->remote_bytes);
}

static loch_status planned_get_tag_stats(const loch_planned *planned, loch_tag tag, loch_stats *out)
{
    const planned_tag *tags = atomic_load_explicit(&planned->tags, memory_order_acquire);
    *out = (loch_stats){.size = out->size};
    if (!tags) return LOCH_OK;
    const planned_tag *of = &tags[tag];
    out->allocs = planned_get(&of->allocs);
    out->frees = planned_get(&of->frees);
    out->blocks = out->allocs - out->frees;
    out->peak_blocks = planned_get(&of->peak_blocks);
    out->requested_bytes = out->allocated_bytes = planned_get(&of->requested);
    out->peak_requested_bytes = out->peak_allocated_bytes = planned_get(&of->peak_requested);
    out->largest_bytes = planned_get(&of->largest);
    return LOCH_OK;
}

loch_status lochi_planned_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    loch_planned *planned = self;
    if (tag) return planned_get_tag_stats(planned, tag, out);
    loch_pool_info info = {.size = sizeof info};
    const loch_status status = loch_pool_get_info(planned->pool, &info);
    if (status != LOCH_OK) return status;
    uint64_t allocs, live;
    pthread_mutex_lock(&planned->lock);
    lochi_planned_sum_plans(planned, &allocs, &live);
    pthread_mutex_unlock(&planned->lock);
    const uint64_t requested = lochi_planned_sum_requested(planned);
    const uint64_t side_allocs = planned_get(&planned->side_allocs), side_frees = planned_get(&planned->side_frees);
    *out = (loch_stats){.size = out->size,
                        .allocs = allocs + side_allocs,
                        .frees = allocs - live + side_frees,
                        .failures = planned_get(&planned->failures),
                        .blocks = live + side_allocs - side_frees,
                        .peak_blocks = planned_get(&planned->peak_blocks),
                        .requested_bytes = requested + planned_get(&planned->side_requested),
                        .peak_requested_bytes = planned_get(&planned->peak_requested),
                        .allocated_bytes = requested + planned_get(&planned->side_allocated),
                        .peak_allocated_bytes = planned_get(&planned->peak_allocated),
                        .largest_bytes = planned_get(&planned->largest),
                        .limit_bytes = info.limit_bytes,
                        .reserved_bytes = info.reserved_bytes,
                        .peak_reserved_bytes = info.peak_reserved_bytes,
                        .cached_bytes = info.reserved_bytes - info.used_bytes,
                        .largest_free_bytes = info.largest_free_bytes};
    /* Other threads may be between a figure and its peak. */
    if (out->peak_blocks < out->blocks) out->peak_blocks = out->blocks;
    if (out->peak_requested_bytes < out->requested_bytes) out->peak_requested_bytes = out->requested_bytes;
    if (out->peak_allocated_bytes < out->allocated_bytes) out->peak_allocated_bytes = out->allocated_bytes;
    if (out->peak_allocated_bytes < out->peak_requested_bytes) out->peak_allocated_bytes = out->peak_requested_bytes;
    return LOCH_OK;
}

void lochi_planned_new_segment(void *self)
{
    loch_planned *planned = self;
    planned_tag *tags = atomic_load_explicit(&planned->tags, memory_order_acquire);
    for (size_t i = 0; tags && i < LOCH_TAG_COUNT_MAX; i++) {
        planned_set(&tags[i].peak_requested, planned_get(&tags[i].requested));
        planned_set(&tags[i].peak_blocks, planned_get(&tags[i].allocs) - planned_get(&tags[i].frees));
        planned_set(&tags[i].largest, 0);
    }
    pthread_mutex_lock(&planned->lock);
    const uint64_t requested = lochi_planned_sum_requested(planned);
    planned_set(&planned->peak_requested, requested + planned_get(&planned->side_requested));
    planned_set(&planned->peak_allocated, requested + planned_get(&planned->side_allocated));
    planned_set(&planned->peak_blocks, lochi_planned_sum_blocks(planned));
    planned_set(&planned->largest, 0);
    planned_reset_marks(planned);
    pthread_mutex_unlock(&planned->lock);
}

loch_status lochi_planned_trim(void *self, size_t keep_bytes, size_t *released)
{
    return loch_allocator_trim(((loch_planned *)self)->pool, keep_bytes, released);
}

loch_attributes lochi_planned_get_attributes(void *self)
{
    return loch_allocator_get_attributes(((loch_planned *)self)->pool);
}

loch_status loch_planned_get_info(loch_planned *planned, loch_planned_info *out)
{
    if (!planned || !out || !out->size)
        return LOCH_FAIL(INVALID, "figures need a planned pool and a result with its size");
    loch_planned_info info = {.left = planned_get(&planned->left),
                              .deviations = planned_get(&planned->deviations),
                              .plans = planned_get(&planned->plans),
                              .status = atomic_load_explicit(&planned->status, memory_order_relaxed)};
    pthread_mutex_lock(&planned->lock);
    lochi_planned_sum_plans(planned, &info.served, &info.blocks);
    const plan_places *places = planned->places;
    if (places) {
        info.period = places->count;
        info.planned = places->planned;
    }
    for (size_t i = 0; places && i < places->regions_count; i++) {
        info.height += places->regions[i].bytes;
        info.lower_bound += places->regions[i].lower_bound;
    }
    for (; places; places = places->next)
        for (size_t i = 0; i < places->waits_count; i++)
            info.waiting += places->waits[i].is_freed;
    const uintptr_t owner = atomic_load_explicit(&planned->owner, memory_order_relaxed);
    if (planned->is_shared || owner == (uintptr_t)&lochi_planned_mark) info.recorded = planned->log.count;
    pthread_mutex_unlock(&planned->lock);
    const size_t size = out->size;
    info.size = size;
    memcpy(out, &info, size < sizeof info ? size : sizeof info);
    return LOCH_OK;
}
