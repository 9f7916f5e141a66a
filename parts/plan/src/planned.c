/* SPDX-License-Identifier: MIT */
/* Planned pools: creating, ending, steps. */
#include "planned.h"
#include "memory.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <string.h>

#define PLANNED_STEPS 4
#define PLANNED_RECORDS ((size_t)1 << 20)
#define PLANNED_TRIM_SHARE 64 /* of the plan's memory: less unused memory of the pool is not given back */
#define PLANNED_TIME_NS UINT64_C(100000000)

_Thread_local char lochi_planned_mark __attribute__((tls_model("initial-exec"), visibility("hidden")));

static void planned_end(void *self)
{
    loch_planned *planned = self;
    while (planned->places) {
        plan_places *places = planned->places;
        planned->places = places->next;
        lochi_plan_places_destroy(places);
    }
    lochi_plan_log_clear(&planned->log);
    lochi_plan_free(atomic_load_explicit(&planned->tags, memory_order_relaxed));
    loch_allocator_release(planned->side);
    loch_allocator_release(planned->pool);
    pthread_mutex_destroy(&planned->lock);
    lochi_plan_free(planned);
}

/* --- the interface --- */

static loch_status planned_read_options(const loch_planned_options *given, loch_planned_options *out)
{
    *out = (loch_planned_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("the options of a planned pool", given, out, sizeof *out));
    if (!out->record_steps) out->record_steps = PLANNED_STEPS;
    if (!out->record_max) out->record_max = PLANNED_RECORDS;
    if (!out->time_limit_ns) out->time_limit_ns = PLANNED_TIME_NS;
    if (out->record_steps < 2) return LOCH_FAIL(INVALID, "at least 2 steps have to be recorded");
    if (out->threads > LOCH_PLANNED_ALL_THREADS || out->renewal > LOCH_PLANNED_FIXED)
        return LOCH_FAIL(INVALID, "a choice of the options is not known");
    return LOCH_OK;
}

/* Makes what a planned pool consists of. What was made before a failure is destroyed by the caller. */
static loch_status planned_fill(loch_planned *planned, loch_allocator *pool, const char *name)
{
    loch_device *device = loch_allocator_get_device(pool);
    loch_device_properties properties = {.size = sizeof properties};
    loch_pool_info info = {.size = sizeof info};
    loch_status status = loch_pool_get_info(pool, &info);
    if (status == LOCH_OK) status = loch_device_get_properties(device, &properties);
    if (status == LOCH_OK) status = loch_tracking_create(pool, name, NULL, &planned->side);
    if (status != LOCH_OK) return status;
    planned->pool = loch_allocator_retain(pool);
    planned->alignment = properties.alignment_bytes ? properties.alignment_bytes : 64;
    planned->default_stream = loch_stream_get_default(device);
    const loch_allocator_ops ops = {.size = sizeof ops,
                                    .kind = "planned",
                                    .traits = (loch_allocator_get_traits(planned->side) | LOCH_TRAIT_TRACKS_SIZES) &
                                              ~(uint32_t)LOCH_TRAIT_ZEROES,
                                    .alloc = lochi_planned_alloc,
                                    .free = lochi_planned_free,
                                    .destroy = planned_end,
                                    .find = lochi_planned_find,
                                    .walk = lochi_planned_walk,
                                    .record_use = lochi_planned_record_use,
                                    .get_stats = lochi_planned_get_stats,
                                    .new_segment = lochi_planned_new_segment,
                                    .trim = lochi_planned_trim,
                                    .get_attributes = lochi_planned_get_attributes};
    return loch_allocator_create(device, name, &ops, planned, &planned->allocator);
}

loch_status loch_planned_create(loch_allocator *pool, const char *name, const loch_planned_options *options,
                                loch_planned **out)
{
    if (out) *out = NULL;
    if (!pool || !out) return LOCH_FAIL(INVALID, "a planned pool needs a pool and an out pointer");
    loch_planned_options read;
    loch_status status = planned_read_options(options, &read);
    if (status != LOCH_OK) return status;
    loch_planned *planned = lochi_plan_alloc(1, sizeof *planned);
    if (!planned) return LOCH_FAIL(HOST_MEMORY, "no host memory for a planned pool");
    planned->options = read;
    planned->is_shared = read.threads == LOCH_PLANNED_ALL_THREADS;
    planned->steps_wanted = read.record_steps;
    planned->patience = PLANNED_PATIENCE;
    atomic_init(&planned->owner, (uintptr_t)&lochi_planned_mark);
    lochi_planned_start_recording(planned);
    pthread_mutex_init(&planned->lock, NULL);
    status = planned_fill(planned, pool, name ? name : "planned");
    if (status == LOCH_OK)
        *out = planned;
    else
        planned_end(planned);
    return status;
}

void loch_planned_destroy(loch_planned *planned)
{
    if (planned) loch_allocator_release(planned->allocator);
}

loch_allocator *loch_planned_get_allocator(const loch_planned *planned)
{
    return planned ? planned->allocator : NULL;
}

/* Moves on to the start of the next step. */
static void planned_begin_step(plan_places *places)
{
    uint32_t next = 0;
    for (uint32_t i = places->steps; i-- > 0;)
        if (places->step_begins[i] >= places->position) next = places->step_begins[i];
    if (places->steps && next != places->position) lochi_plan_places_move(places, next);
    places->misses = 0;
}

/* Gives memory of the pool back, if it is much beside that of the plan: what served deviations of the last step, and
 * after the first steps of a plan the blocks of the recorded steps that lived on. */
static void planned_trim_unused(loch_planned *planned)
{
    const uint64_t deviations = planned_get(&planned->deviations);
    uint64_t height = 0, grown = 0;
    if (!planned->places || planned->is_recording || (deviations == planned->trimmed && !planned->fresh)) return;
    planned->trimmed = deviations;
    if (planned->fresh) planned->fresh--;
    for (size_t i = 0; i < planned->places->regions_count; i++)
        height += planned->places->regions[i].bytes;
    for (size_t i = 0; i < planned->places->regions_count; i++)
        grown += planned->places->regions[i].grown;
    const bool is_much = grown - height > height / PLANNED_TRIM_SHARE;
    if (is_much) {
        planned_guard(planned);
        lochi_plan_places_settle(planned->places);
        lochi_plan_places_shrink(planned->places);
        planned_unguard(planned);
    }
    loch_pool_info info = {.size = sizeof info};
    if (loch_pool_get_info(planned->pool, &info) == LOCH_OK &&
        (is_much || info.reserved_bytes - info.used_bytes > height / PLANNED_TRIM_SHARE))
        (void)!loch_allocator_trim(planned->pool, 0, NULL);
}

loch_status loch_planned_step(loch_planned *planned)
{
    if (!planned) return LOCH_FAIL(INVALID, "a step needs a planned pool");
    atomic_store_explicit(&planned->owner, (uintptr_t)&lochi_planned_mark, memory_order_relaxed);
    (void)planned_enter(planned);
    planned->is_marked = true;
    if (planned->places) planned_begin_step(planned->places);
    lochi_planned_reap(planned);
    planned_trim_unused(planned);
    if (planned->is_recording) {
        if (!lochi_plan_log_step(&planned->log))
            lochi_planned_stop_recording(planned);
        else if (planned->log.steps_count > planned->steps_wanted)
            lochi_planned_make_marked(planned);
    }
    planned_leave(planned);
    return LOCH_OK;
}

loch_status loch_planned_record(loch_planned *planned)
{
    if (!planned) return LOCH_FAIL(INVALID, "a recording needs a planned pool");
    if (planned_enter(planned)) {
        planned->steps_wanted = planned->options.record_steps;
        planned->patience = PLANNED_PATIENCE;
        lochi_planned_start_recording(planned);
    } else {
        return LOCH_FAIL(INVALID, "only the thread that the plan serves can record");
    }
    planned_leave(planned);
    return LOCH_OK;
}
