/* SPDX-License-Identifier: MIT */
/* Planned pools: when to record, when to make a plan of the recording, and when to do that again. */
#include "planned.h"
#include <string.h>

#define PLANNED_FIRST_LOOK 96 /* allocations before the period is looked for */
#define PLANNED_PATIENCE_MAX (1u << 20)
#define PLANNED_BAD_SHARE 16   /* a plan is bad if one of so many allocations deviates */
#define PLANNED_STEPS_MAX 1024 /* steps to record after plans that could not be made */
#define PLANNED_FRESH_STEPS 8 /* steps until the blocks of the recorded steps are freed and their streams have passed */

void lochi_planned_choose(loch_planned *planned)
{
    planned->quick = planned->is_shared || planned->is_recording ? NULL : planned->places;
}

/* Counts the allocations that plans have served. Called by the owner. */
static uint64_t planned_count_served(const loch_planned *planned)
{
    uint64_t allocs, live;
    lochi_planned_sum_plans(planned, &allocs, &live);
    return allocs;
}

void lochi_planned_reap(loch_planned *planned)
{
    if (!planned->places) return;
    planned_guard(planned);
    for (plan_places **link = &planned->places->next; *link;) {
        plan_places *places = *link;
        lochi_plan_places_settle(places);
        if (places->live || places->retired) {
            link = &places->next;
            continue;
        }
        *link = places->next;
        planned_set(&planned->old_allocs, planned_get(&planned->old_allocs) + plan_places_served(places));
        lochi_plan_places_destroy(places);
    }
    planned_unguard(planned);
}

bool lochi_planned_drop(loch_planned *planned)
{
    plan_places *places = planned->places;
    if (!places) return false;
    planned_guard(planned);
    lochi_plan_places_settle(places);
    const bool is_empty = !places->live && !places->retired;
    if (is_empty) {
        planned->places = places->next;
        planned_set(&planned->old_allocs, planned_get(&planned->old_allocs) + plan_places_served(places));
        lochi_planned_choose(planned);
    }
    planned_unguard(planned);
    if (is_empty) lochi_plan_places_destroy(places);
    return is_empty;
}

void lochi_planned_start_recording(loch_planned *planned)
{
    lochi_plan_log_clear(&planned->log);
    planned->look_at = PLANNED_FIRST_LOOK;
    planned->is_recording = true;
    lochi_planned_choose(planned);
}

void lochi_planned_stop_recording(loch_planned *planned)
{
    lochi_plan_log_clear(&planned->log);
    planned->is_recording = false;
    lochi_planned_choose(planned);
}

/* Tells whether a stream of the log is being captured: its memory would belong to the graph. */
static bool planned_is_captured(const plan_log *log)
{
    loch_capture_info info = {.size = sizeof info};
    for (size_t i = 0; i < log->streams_count; i++)
        if (loch_stream_query_capture(log->streams[i], &info) != LOCH_OK || info.active) return true;
    return false;
}

/* Sums the bytes that live longer than a period, and are freed at all. */
static uint64_t planned_sum_long(const plan_log *log, size_t begin, size_t period)
{
    uint64_t bytes = 0;
    for (size_t i = begin; i < begin + period; i++)
        if (log->entries[i].freed != PLAN_NEVER && log->entries[i].freed - i > period)
            bytes += log->entries[i].key.bytes;
    return bytes;
}

/* Gives unused memory of the pool back: what the recorded steps needed and the plan does not. */
static void planned_trim_pool(loch_planned *planned)
{
    for (size_t i = 0; i < planned->log.streams_count; i++)
        (void)!loch_stream_sync(planned->log.streams[i]);
    (void)!loch_allocator_trim(planned->pool, 0, NULL);
}

/* Makes a plan and serves from it. On failure returns false, and the next recording takes longer. */
static bool planned_make(loch_planned *planned, plan_source *source)
{
    source->log = &planned->log;
    source->pool = planned->pool;
    source->alignment = planned->alignment;
    source->time_limit_ns = planned->options.time_limit_ns;
    if (planned->options.renewal == LOCH_PLANNED_MENDED)
        (void)lochi_planned_drop(planned); /* its memory serves the new plan */
    planned_trim_pool(planned);            /* so that the plan gets memory in pieces of its size */
    plan_places *places = NULL;
    const loch_status status = lochi_plan_places_create(source, &places);
    atomic_store_explicit(&planned->status, status, memory_order_relaxed);
    if (status != LOCH_OK) {
        if (planned->steps_wanted < PLANNED_STEPS_MAX) planned->steps_wanted *= 2;
        return false;
    }
    planned_set(&planned->plans, planned_get(&planned->plans) + 1);
    planned_guard(planned);
    places->first_id = UINT64_C(1) << 63 | planned_get(&planned->plans) << 44;
    places->next = planned->places;
    planned->places = places;
    planned_unguard(planned);
    lochi_planned_reap(planned);
    planned_reset_marks(planned);
    planned->judged = 0;
    planned->judged_at = planned_count_served(planned);
    planned->fresh = PLANNED_FRESH_STEPS;
    planned_trim_pool(planned);
    return true;
}

/* Makes a plan of the marked steps. The last complete step tells when blocks of the one before were freed. */
void lochi_planned_make_marked(loch_planned *planned)
{
    const plan_log *log = &planned->log;
    const size_t count = log->steps_count, end = count - 2;
    size_t best = 1;
    uint64_t least = UINT64_MAX;
    if (planned_is_captured(log)) return;
    for (size_t steps = 1; steps <= 4 && steps <= end && least; steps *= 2) {
        const size_t begin = log->steps[end - steps];
        const uint64_t bytes = planned_sum_long(log, begin, log->steps[end] - begin);
        if (bytes >= least) continue;
        least = bytes;
        best = steps;
    }
    plan_source source = {.begin = log->steps[end - best], .before = PLAN_NONE, .after = PLAN_NONE};
    source.period = log->steps[end] - source.begin;
    source.steps = (uint32_t)best;
    for (size_t i = 0; i < best; i++)
        source.step_begins[i] = (uint32_t)(log->steps[end - best + i] - source.begin);
    source.position = source.step_begins[1 % best]; /* the steps before were the last of the period and its first */
    if (end >= 2 * best && source.begin - log->steps[end - 2 * best] == source.period)
        source.before = log->steps[end - 2 * best];
    if (best == 1 && log->count - log->steps[end] == source.period) source.after = log->steps[end];
    if (source.period && planned_make(planned, &source))
        lochi_planned_stop_recording(planned);
    else
        lochi_planned_start_recording(planned);
}

/* Looks for the period of a program that marks no steps, and makes a plan. */
static void planned_look(loch_planned *planned)
{
    const plan_log *log = &planned->log;
    planned->look_at = log->count + log->count / 4;
    if (planned_is_captured(log)) return;
    const size_t period = lochi_plan_log_find_period(log);
    if (!period) return;
    size_t begin = log->count - 2 * period, periods = 1;
    if (planned_sum_long(log, begin, period) > planned_sum_long(log, begin - period, 2 * period)) {
        begin -= period;
        periods = 2;
    }
    plan_source source = {.begin = begin,
                          .period = periods * period,
                          .before = PLAN_NONE,
                          .after = periods == 1 ? begin + period : PLAN_NONE,
                          .position = (uint32_t)(period % (periods * period))};
    if (planned_make(planned, &source)) lochi_planned_stop_recording(planned);
}

void lochi_planned_deviate(loch_planned *planned)
{
    planned_set(&planned->deviations, planned_get(&planned->deviations) + 1);
    if (++planned->judged < planned->patience || planned->is_recording) return;
    const uint64_t served = planned_count_served(planned) - planned->judged_at;
    const bool is_bad = served < (uint64_t)planned->judged * PLANNED_BAD_SHARE;
    planned->judged = 0;
    planned->judged_at += served;
    if (!is_bad) {
        planned->patience = PLANNED_PATIENCE;
    } else if (planned->options.renewal == LOCH_PLANNED_MENDED) {
        if (planned->patience < PLANNED_PATIENCE_MAX) planned->patience *= 2;
        lochi_planned_start_recording(planned);
    }
}

void lochi_planned_log_alloc(loch_planned *planned, const plan_key *key, const void *address)
{
    plan_log *log = &planned->log;
    if (log->count >= planned->options.record_max || !lochi_plan_log_alloc(log, key, address)) {
        lochi_planned_stop_recording(planned);
        atomic_store_explicit(&planned->status, LOCH_E_LIMIT, memory_order_relaxed);
    } else if (!planned->is_marked && log->count >= planned->look_at) {
        planned_look(planned);
    }
}
