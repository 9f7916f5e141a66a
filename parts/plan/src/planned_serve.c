/* SPDX-License-Identifier: MIT */
/* Planned pools: allocating, freeing and uses on other streams, from the plan or from the pool. */
#include "planned.h"
#include "memory.h"
#include "kit/fail.h"
#include <stddef.h>

/* --- figures --- */

static uint64_t planned_add(planned_figure *figure, uint64_t value)
{
    return atomic_fetch_add_explicit(figure, value, memory_order_relaxed) + value;
}

static void planned_raise(planned_figure *figure, uint64_t value)
{
    uint_least64_t seen = planned_get(figure);
    while (seen < value &&
           !atomic_compare_exchange_weak_explicit(figure, &seen, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Raises the peaks, and computes up to where the next allocations of the plan need not look at them. */
static __attribute__((noinline)) loch_status planned_raise_peaks(loch_planned *planned, uint64_t live)
{
    const uint64_t blocks = lochi_planned_sum_blocks(planned), of_plans = lochi_planned_sum_requested(planned);
    const uint64_t requested = of_plans + planned_get(&planned->side_requested);
    planned_raise(&planned->peak_blocks, blocks);
    planned_raise(&planned->peak_requested, requested);
    planned_raise(&planned->peak_allocated, of_plans + planned_get(&planned->side_allocated));
    planned_set(&planned->requested_mark,
                planned_get(&planned->requested) + planned_get(&planned->peak_requested) - requested);
    planned_set(&planned->live_mark, live + planned_get(&planned->peak_blocks) - blocks);
    return LOCH_OK; /* so that the short way ends with this call */
}

/* Counts an allocation of the newest plan. Called by the owner. */
static inline loch_status planned_count_alloc(loch_planned *planned, uint64_t live, uint64_t bytes)
{
    const uint64_t requested = planned_get(&planned->requested) + bytes;
    planned_set(&planned->requested, requested);
    if (__builtin_expect(bytes > planned_get(&planned->largest), 0)) planned_set(&planned->largest, bytes);
    if (__builtin_expect(requested > planned_get(&planned->requested_mark), 0) ||
        __builtin_expect(live > planned_get(&planned->live_mark), 0))
        return planned_raise_peaks(planned, live);
    return LOCH_OK;
}

/* Counts a free to the plan. Called by the owner. */
static inline void planned_count_free(loch_planned *planned, uint64_t bytes)
{
    planned_set(&planned->requested, planned_get(&planned->requested) - bytes);
}

/* Returns the figures of a tag, which are made for the first one; NULL without host memory. The lock is held, or the
 * caller is the owner. */
static planned_tag *planned_require_tag(loch_planned *planned, loch_tag tag)
{
    planned_tag *tags = atomic_load_explicit(&planned->tags, memory_order_acquire);
    if (!tags) {
        tags = lochi_plan_alloc(LOCH_TAG_COUNT_MAX, sizeof *tags);
        planned_tag *none = NULL;
        /* Release: another thread sees the zeros. */
        if (tags && !atomic_compare_exchange_strong_explicit(&planned->tags, &none, tags, memory_order_acq_rel,
                                                             memory_order_acquire)) {
            lochi_plan_free(tags);
            tags = none;
        }
    }
    return tags ? &tags[tag] : NULL;
}

static void planned_count_tag(loch_planned *planned, loch_tag tag, uint64_t bytes)
{
    planned_tag *figures = tag ? planned_require_tag(planned, tag) : NULL;
    if (!figures) return;
    const uint64_t blocks = planned_add(&figures->allocs, 1) - planned_get(&figures->frees);
    planned_raise(&figures->peak_blocks, blocks);
    planned_raise(&figures->peak_requested, planned_add(&figures->requested, bytes));
    planned_raise(&figures->largest, bytes);
}

static void planned_uncount_tag(loch_planned *planned, loch_tag tag, uint64_t bytes)
{
    planned_tag *tags = tag ? atomic_load_explicit(&planned->tags, memory_order_acquire) : NULL;
    if (!tags) return;
    planned_add(&tags[tag].frees, 1);
    planned_add(&tags[tag].requested, -bytes);
}

/* Returns the tag of a live slot. */
static loch_tag planned_slot_tag(const plan_places *places, uint32_t index)
{
    return PLAN_LOAD(places->slots[index].flags) & PLAN_ODD ? (loch_tag)PLAN_LOAD(places->odds[index].tag) : 0;
}

/* Counts a block of the pool. The lock is held. */
static void planned_count_side(loch_planned *planned, const loch_block *block)
{
    planned_count_tag(planned, block->tag, block->requested_bytes);
    planned_add(&planned->side_allocs, 1);
    planned_add(&planned->side_requested, block->requested_bytes);
    planned_add(&planned->side_allocated, block->allocated_bytes);
    const uint64_t of_plans = lochi_planned_sum_requested(planned);
    planned_raise(&planned->peak_requested, of_plans + planned_get(&planned->side_requested));
    planned_raise(&planned->peak_allocated, of_plans + planned_get(&planned->side_allocated));
    planned_raise(&planned->peak_blocks, lochi_planned_sum_blocks(planned));
    planned_raise(&planned->largest, block->requested_bytes);
    planned_reset_marks(planned);
}

/* --- allocating --- */

/* Serves a request from the plan, or returns NULL. Called by the owner. */
static void *planned_serve(loch_planned *planned, const loch_request *request)
{
    plan_places *places = planned->places;
    const plan_key key = {request->bytes, request->alignment, request->stream};
    void *address = NULL;
    if (!places || request->round_bytes > 1) return NULL;
    const plan_slot *next = request->tag ? NULL : plan_places_next(places, request, request->stream);
    if (next) {
        address = next->address;
    } else {
        bool deviates;
        planned_guard(planned); /* other threads may read the slot of a guest */
        if (places->waits_count || places->remote != PLAN_NONE || places->retired) lochi_plan_places_settle(places);
        address = lochi_plan_places_serve(places, &key, request->tag, &deviates);
        planned_unguard(planned);
        if (deviates)
            lochi_planned_deviate(planned);
        else if (!address)
            planned_set(&planned->left, planned_get(&planned->left) + 1);
    }
    if (!address) return NULL;
    (void)planned_count_alloc(planned, planned->places->live, request->bytes);
    planned_count_tag(planned, request->tag, request->bytes);
    if (planned->is_recording) lochi_planned_log_alloc(planned, &key, address);
    return address;
}

/* Tells whether a failure may be cured by giving the plan's memory back. */
static bool planned_is_short(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED;
}

/* Allocates from the pool, and once more after the memory of an unused plan was given back. Pressure functions of the
 * pool are called; the caller of this allocator waits. */
static loch_status planned_ask_pool(loch_planned *planned, const loch_request *request, void **out)
{
    loch_request inner = *request;
    inner.timeout_ns = 0;
    loch_status status = loch_allocator_alloc(planned->side, &inner, out);
    if (__builtin_expect(!planned_is_short(status) || planned->options.renewal != LOCH_PLANNED_MENDED, 1))
        return status;
    if (!planned_enter(planned)) return status;
    const bool is_dropped = lochi_planned_drop(planned);
    if (is_dropped) lochi_planned_start_recording(planned);
    planned_leave(planned);
    return is_dropped ? loch_allocator_alloc(planned->side, &inner, out) : status;
}

/* Serves a request from the pool. */
static loch_status planned_fall_back(loch_planned *planned, const loch_request *request, void **out)
{
    const loch_status status = planned_ask_pool(planned, request, out);
    if (status != LOCH_OK || !*out) {
        if (status != LOCH_OK) planned_add(&planned->failures, 1);
        return status;
    }
    loch_block block = {.size = offsetof(loch_block, id)};
    if (loch_allocator_find(planned->side, *out, &block) != LOCH_OK)
        block.requested_bytes = block.allocated_bytes = request->bytes;
    block.tag = request->tag;
    pthread_mutex_lock(&planned->lock);
    planned_count_side(planned, &block);
    pthread_mutex_unlock(&planned->lock);
    if (request->round_bytes > 1 || !planned_enter(planned)) return LOCH_OK;
    const plan_key key = {request->bytes, request->alignment, request->stream};
    if (planned->is_recording) lochi_planned_log_alloc(planned, &key, *out);
    planned_leave(planned);
    return LOCH_OK;
}

loch_status lochi_planned_alloc(void *self, const loch_request *request, void **out)
{
    loch_planned *planned = self;
    if (planned_enter(planned)) {
        void *address = planned_serve(planned, request);
        planned_leave(planned);
        if (address) {
            *out = address;
            return LOCH_OK;
        }
    }
    return planned_fall_back(planned, request, out);
}

/* Tells whether a request has only a size, an alignment and a stream. */
static inline bool planned_is_plain(const loch_request *request)
{
    return !(request->tag | request->flags | request->round_bytes | request->max_bytes | (uintptr_t)request->address);
}

/* Tells whether the calling thread is the owner, if only one thread can be. */
static inline bool planned_is_owner(const loch_planned *planned)
{
    return atomic_load_explicit(&planned->owner, memory_order_relaxed) == (uintptr_t)&lochi_planned_mark;
}

static __attribute__((noinline)) loch_status planned_alloc_slowly(loch_planned *planned, const loch_request *request,
                                                                  void **out)
{
    if (planned) return loch_allocator_alloc(planned->allocator, request, out);
    if (out) *out = NULL;
    return LOCH_FAIL(INVALID, "an allocation needs a planned pool");
}

loch_status loch_planned_alloc(loch_planned *planned, const loch_request *request, void **out)
{
    if (__builtin_expect(!planned || !request || !out || !planned_is_owner(planned), 0))
        return planned_alloc_slowly(planned, request, out);
    plan_places *places = planned->quick;
    if (__builtin_expect(!places || request->size != sizeof *request || !planned_is_plain(request), 0))
        return planned_alloc_slowly(planned, request, out);
    const plan_slot *slot =
        plan_places_next(places, request, request->stream ? request->stream : planned->default_stream);
    if (__builtin_expect(!slot, 0)) return planned_alloc_slowly(planned, request, out);
    *out = slot->address;
    return planned_count_alloc(planned, places->live, request->bytes);
}

/* --- freeing --- */

loch_status lochi_planned_find_slot(const loch_planned *planned, const void *address, plan_places **in, uint32_t *out)
{
    *in = NULL;
    for (plan_places *places = planned->places; places; places = places->next) {
        if (!lochi_plan_places_has(places, address)) continue;
        const uint32_t slot = lochi_plan_places_find(places, address);
        if (slot != PLAN_NONE && PLAN_LOAD(places->slots[slot].state) == PLAN_LIVE) {
            *in = places;
            *out = slot;
            return LOCH_OK;
        }
        if (lochi_plan_places_is_inside(places, address))
            return LOCH_FAIL(INTERIOR, "%p is inside a block, not at its start", address);
        if (slot != PLAN_NONE) return LOCH_FAIL(DOUBLE_FREE, "the block at %p was freed already", address);
        return LOCH_FAIL(FOREIGN, "there was no block at %p", address);
    }
    return LOCH_OK;
}

/* Adds the use of another stream to a block; waits on the host without memory for that. The lock is held. */
static loch_status planned_share(plan_places *places, uint32_t slot, loch_stream *stream)
{
    if (stream == places->kinds[places->slots[slot].kind].stream || lochi_plan_places_share(places, slot, stream))
        return LOCH_OK;
    return loch_stream_sync(stream);
}

/* Frees a live slot. Called by the owner. */
static loch_status planned_free_slot(loch_planned *planned, plan_places *places, uint32_t index, loch_stream *stream)
{
    plan_slot *slot = &places->slots[index];
    const uint64_t bytes = plan_slot_bytes(places, index);
    const loch_tag tag = planned_slot_tag(places, index);
    loch_status status = LOCH_OK;
    if (__builtin_expect((stream && stream != places->kinds[slot->kind].stream) || slot->flags, 0)) {
        planned_guard(planned);
        if (stream) status = planned_share(places, index, stream);
        if (status == LOCH_OK && slot->flags & PLAN_SHARED)
            lochi_plan_places_free_shared(places, index);
        else if (status == LOCH_OK)
            lochi_plan_places_free_flagged(places, index);
        planned_unguard(planned);
        if (status != LOCH_OK) return status;
    } else {
        plan_slot_drop(places, slot);
    }
    if (index < places->count) places->free_next = slot->next_free;
    planned_count_free(planned, bytes);
    planned_uncount_tag(planned, tag, bytes);
    return LOCH_OK;
}

/* Frees a live slot for the owner, which finds it in a list. The lock is held. */
static loch_status planned_free_remote(loch_planned *planned, plan_places *places, uint32_t index, loch_stream *stream)
{
    plan_slot *slot = &places->slots[index];
    if (stream) {
        const loch_status status = planned_share(places, index, stream);
        if (status != LOCH_OK) return status;
    }
    const uint64_t bytes = plan_slot_bytes(places, index);
    places->odds[index].remote_next = places->remote;
    PLAN_STORE(slot->state, (uint8_t)PLAN_REMOTE);
    PLAN_STORE(places->remote, index);
    PLAN_STORE(places->freed, places->freed + 1);
    planned_uncount_tag(planned, planned_slot_tag(places, index), bytes);
    planned_set(&planned->remote_bytes, planned_get(&planned->remote_bytes) + bytes);
    return LOCH_OK;
}

static loch_status planned_free_side(loch_planned *planned, void *address, size_t bytes, loch_stream *stream)
{
    loch_block block = {.size = sizeof block};
    loch_status status = loch_allocator_find(planned->side, address, &block);
    if (status != LOCH_OK) return status;
    if (bytes && bytes != block.requested_bytes)
        return LOCH_FAIL(INVALID, "the block at %p has %zu bytes, not %zu", address, block.requested_bytes, bytes);
    status = stream ? loch_allocator_free_on(planned->side, address, stream) : loch_free(planned->side, address);
    if (status != LOCH_OK && status != LOCH_E_CORRUPT) return status;
    planned_add(&planned->side_requested, -(uint64_t)block.requested_bytes);
    planned_add(&planned->side_allocated, -(uint64_t)block.allocated_bytes);
    planned_uncount_tag(planned, block.tag, block.requested_bytes);
    planned_add(&planned->side_frees, 1);
    return status;
}

loch_status lochi_planned_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    loch_planned *planned = self;
    plan_places *places = NULL;
    const bool is_owner = planned_enter(planned);
    uint32_t slot = PLAN_NONE;
    loch_status status = LOCH_OK;
    if (is_owner && planned->places) {
        places = planned->places;
        slot = plan_places_expected(places, address);
    }
    if (!is_owner) pthread_mutex_lock(&planned->lock);
    if (slot == PLAN_NONE) status = lochi_planned_find_slot(planned, address, &places, &slot);
    if (status == LOCH_OK && slot != PLAN_NONE && bytes && bytes != plan_slot_bytes(places, slot))
        status = LOCH_FAIL(INVALID, "the block at %p has %llu bytes, not %zu", address,
                           (unsigned long long)plan_slot_bytes(places, slot), bytes);
    if (status == LOCH_OK && is_owner && planned->is_recording) lochi_plan_log_free(&planned->log, address, stream);
    if (status == LOCH_OK && slot != PLAN_NONE)
        status = is_owner ? planned_free_slot(planned, places, slot, stream)
                          : planned_free_remote(planned, places, slot, stream);
    if (is_owner)
        planned_leave(planned);
    else
        pthread_mutex_unlock(&planned->lock);
    return status != LOCH_OK || slot != PLAN_NONE ? status : planned_free_side(planned, address, bytes, stream);
}

static __attribute__((noinline)) loch_status planned_free_slowly(loch_planned *planned, void *address)
{
    if (planned) return loch_free(planned->allocator, address);
    return LOCH_FAIL(INVALID, "a free needs the planned pool of the block");
}

loch_status loch_planned_free(loch_planned *planned, void *address)
{
    if (__builtin_expect(!planned || !planned_is_owner(planned), 0)) return planned_free_slowly(planned, address);
    plan_places *places = planned->quick;
    if (__builtin_expect(!places, 0)) return planned_free_slowly(planned, address);
    const uint32_t next = places->free_next;
    plan_slot *slot = &places->slots[next];
    if (__builtin_expect(slot->address != address || PLAN_LOAD(slot->state) != PLAN_LIVE || PLAN_LOAD(slot->flags), 0))
        return planned_free_slowly(planned, address);
    plan_slot_drop(places, slot);
    places->free_next = slot->next_free;
    __builtin_prefetch(&places->slots[slot->next_free], 1);
    planned_count_free(planned, slot->bytes);
    return LOCH_OK;
}

loch_status lochi_planned_record_use(void *self, void *address, loch_stream *stream)
{
    loch_planned *planned = self;
    plan_places *places;
    uint32_t slot = PLAN_NONE;
    const bool is_owner = planned_enter(planned);
    if (!planned->is_shared) pthread_mutex_lock(&planned->lock);
    loch_status status = lochi_planned_find_slot(planned, address, &places, &slot);
    if (status == LOCH_OK && places && stream != places->kinds[places->slots[slot].kind].stream &&
        !lochi_plan_places_share(places, slot, stream))
        status = LOCH_FAIL(HOST_MEMORY, "no host memory for the use of a stream");
    if (status == LOCH_OK && is_owner && planned->is_recording) lochi_plan_log_share(&planned->log, address);
    pthread_mutex_unlock(&planned->lock);
    return status == LOCH_OK && !places ? loch_allocator_record_use(planned->side, address, stream) : status;
}
