/* SPDX-License-Identifier: MIT */
/* Sums the events of a window in columns of time. A column ends after so many events or so much time; an idle stretch
 * is a column of its own, so that a column's most is never drawn over time in which nothing happened.
 *
 * A moment is the number of events that have happened. Each column is packed as: time, moment of the most requested
 * bytes and its time; requested: most, least, last; reserved: most, at the moment, last; blocks at the moment; time and
 * number of driver calls; allocations. The bands of a grouping are packed as: a mask of bands that changed and their
 * changes, at the moment of the most; a mask of bands that had more elsewhere in the column, and how much more. */
#include "report.h"
#include "format.h"
#include <string.h>

typedef struct curve_column {
    uint64_t begin_ns, last_ns, events;
    uint64_t most, least, most_moment, most_ns;
    uint64_t reserved_most, reserved_there, blocks_there;
    uint64_t call_ns, calls, allocations;
} curve_column;

typedef struct curve_bands {
    uint64_t now[REPORT_BANDS], most[REPORT_BANDS], there[REPORT_BANDS], packed[REPORT_BANDS];
} curve_bands;

typedef struct curve_state {
    report_run *run;
    uint64_t *bytes; /* of each block */
    uint64_t requested, reserved, blocks;
    bool is_open;
    curve_column column, packed; /* the open column; the one before */
    curve_bands bands[REPORT_BYS];
} curve_state;

/* --- columns --- */

static void curve_note_most(curve_state *state, uint64_t moment, uint64_t time_ns)
{
    curve_column *column = &state->column;
    column->most = state->requested;
    column->most_moment = moment;
    column->most_ns = time_ns;
    column->reserved_there = state->reserved;
    column->blocks_there = state->blocks;
    for (int by = 0; by < REPORT_BYS; by++)
        memcpy(state->bands[by].there, state->bands[by].now, sizeof state->bands[by].now);
}

static void curve_open(curve_state *state, uint64_t moment, uint64_t time_ns)
{
    state->column = (curve_column){
        .begin_ns = time_ns, .last_ns = time_ns, .least = state->requested, .reserved_most = state->reserved};
    for (int by = 0; by < REPORT_BYS; by++)
        memcpy(state->bands[by].most, state->bands[by].now, sizeof state->bands[by].now);
    curve_note_most(state, moment, time_ns);
    state->is_open = true;
}

static void curve_pack_bands(report_bytes *bytes, curve_bands *bands, uint32_t count)
{
    uint64_t changed = 0, higher = 0;
    for (uint32_t i = 0; i < count; i++) {
        changed |= (uint64_t)(bands->there[i] != bands->packed[i]) << i;
        higher |= (uint64_t)(bands->most[i] > bands->there[i]) << i;
    }
    lochi_insight_report_put(bytes, changed);
    for (uint32_t i = 0; i < count; i++)
        if (changed >> i & 1) lochi_insight_report_put_change(bytes, bands->packed[i], bands->there[i]);
    lochi_insight_report_put(bytes, higher);
    for (uint32_t i = 0; i < count; i++)
        if (higher >> i & 1) lochi_insight_report_put(bytes, bands->most[i] - bands->there[i]);
    memcpy(bands->packed, bands->there, sizeof bands->packed);
}

static void curve_close(curve_state *state)
{
    report_run *run = state->run;
    report_bytes *out = &run->curves;
    const curve_column *column = &state->column, *before = &state->packed;
    if (!state->is_open) return;
    lochi_insight_report_put(out, column->begin_ns - before->begin_ns);
    lochi_insight_report_put(out, column->most_moment - before->most_moment);
    lochi_insight_report_put(out, column->most_ns - column->begin_ns);
    lochi_insight_report_put_change(out, before->most, column->most);
    lochi_insight_report_put(out, column->most - column->least);
    lochi_insight_report_put(out, column->most - state->requested);
    lochi_insight_report_put_change(out, before->reserved_most, column->reserved_most);
    lochi_insight_report_put(out, column->reserved_most - column->reserved_there);
    lochi_insight_report_put(out, column->reserved_most - state->reserved);
    lochi_insight_report_put_change(out, before->blocks_there, column->blocks_there);
    lochi_insight_report_put(out, column->call_ns);
    lochi_insight_report_put(out, column->calls);
    lochi_insight_report_put(out, column->allocations);
    for (int by = 0; by < REPORT_BYS; by++)
        if (run->groupings[by].bands) curve_pack_bands(&run->bands[by], &state->bands[by], run->groupings[by].bands);
    state->packed = *column;
    state->is_open = false;
    run->columns++;
}

/* --- events --- */

static void curve_resize(curve_state *state, uint32_t block, uint64_t bytes)
{
    const report_run *run = state->run;
    const uint64_t more = bytes - state->bytes[block];
    state->bytes[block] = bytes;
    state->requested += more;
    for (int by = 0; by < REPORT_BYS; by++) {
        const report_grouping *grouping = &run->groupings[by];
        if (!grouping->bands) continue;
        const uint32_t group = lochi_insight_report_group_of(run, (report_by)by, &run->blocks[block]);
        const uint8_t band = ((const uint8_t *)grouping->band_of.data)[group];
        curve_bands *bands = &state->bands[by];
        bands->now[band] += more;
        if (bands->now[band] > bands->most[band]) bands->most[band] = bands->now[band];
    }
}

static unsigned curve_power(uint64_t value)
{
    return value ? 63u - (unsigned)__builtin_clzll(value) : 0;
}

static void curve_count_call(curve_state *state, const loch_recording_event *event)
{
    report_call *call = (report_call *)state->run->calls.data + event->subject;
    call->count++;
    call->total_ns += event->value;
    if (event->value > call->most_ns) call->most_ns = event->value;
    state->column.calls++;
    state->column.call_ns += event->value;
}

/* Changes the state by one event. */
static void curve_apply(curve_state *state, const loch_recording_event *event)
{
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC:
        state->blocks++;
        curve_resize(state, event->subject, event->value);
        break;
    case LOCH_RECORDED_RESIZE: curve_resize(state, event->subject, event->value); break;
    case LOCH_RECORDED_FREE:
        state->blocks--;
        curve_resize(state, event->subject, 0);
        break;
    case LOCH_RECORDED_TAKE: state->reserved += event->value; break;
    case LOCH_RECORDED_GIVE: state->reserved -= event->value; break;
    default: break;
    }
}

/* Counts what happens in the window alone. */
static void curve_count(curve_state *state, const loch_recording_event *event)
{
    report_run *run = state->run;
    if (event->kind == LOCH_RECORDED_ALLOC) {
        run->allocations++;
        run->sizes[curve_power(event->value)]++;
        state->column.allocations++;
    } else if (event->kind == LOCH_RECORDED_FREE) {
        const loch_recording_event *alloc = &run->events[run->blocks[event->subject].alloc_event];
        run->frees++;
        run->lifetimes[curve_power(event->time_ns - alloc->time_ns)]++;
    } else if (event->kind == LOCH_RECORDED_CALL && event->subject < run->info.calls) {
        curve_count_call(state, event);
    }
}

static void curve_update(curve_state *state, uint64_t moment, const loch_recording_event *event)
{
    curve_column *column = &state->column;
    column->events++;
    column->last_ns = event->time_ns;
    if (column->events == 1) { /* a column begins with its first event */
        column->reserved_most = state->reserved;
        for (int by = 0; by < REPORT_BYS; by++)
            memcpy(state->bands[by].most, state->bands[by].now, sizeof state->bands[by].now);
    }
    if (state->requested > column->most || column->events == 1) curve_note_most(state, moment, event->time_ns);
    if (state->requested < column->least || column->events == 1) column->least = state->requested;
    if (state->reserved > column->reserved_most) column->reserved_most = state->reserved;
    report_run *run = state->run;
    if (state->requested > run->peak) {
        run->peak = state->requested;
        run->peak_moment = moment;
    }
    if (state->reserved > run->peak_reserved) run->peak_reserved = state->reserved;
}

static void curve_walk(curve_state *state)
{
    report_run *run = state->run;
    const uint64_t step_events = (run->end - run->begin) / (REPORT_COLUMNS / 2) + 1;
    const uint64_t step_ns = (run->end_ns - run->begin_ns) / (REPORT_COLUMNS / 4) + 1;
    for (size_t i = 0; i < run->begin; i++)
        curve_apply(state, &run->events[i]);
    run->peak = state->requested;
    run->peak_moment = run->begin;
    run->peak_reserved = state->reserved;
    if (run->begin == run->end || run->events[run->begin].time_ns > run->begin_ns)
        curve_open(state, run->begin, run->begin_ns);
    for (size_t i = run->begin; i < run->end; i++) {
        const loch_recording_event *event = &run->events[i];
        const curve_column *column = &state->column;
        if (state->is_open && (column->events >= step_events || event->time_ns - column->begin_ns >= step_ns)) {
            const uint64_t idle_ns = column->last_ns + 1;
            curve_close(state);
            if (column->events > 1 && event->time_ns > column->last_ns + step_ns) { /* one event is flat behind it */
                curve_open(state, i, idle_ns);
                curve_close(state);
            }
        }
        if (!state->is_open) curve_open(state, i + 1, event->time_ns);
        curve_apply(state, event);
        curve_count(state, event);
        curve_update(state, i + 1, event);
    }
    curve_close(state);
    if (state->packed.events > 1 && state->packed.last_ns + step_ns < run->end_ns) {
        curve_open(state, run->end, state->packed.last_ns + 1);
        curve_close(state);
    }
    run->at_end = state->requested;
    run->at_end_blocks = state->blocks;
}

loch_status lochi_insight_report_sum(report_run *run)
{
    lochi_array bytes = {.data = NULL};
    bool is_good = lochi_array_reserve(&bytes, run->info.blocks + 1, sizeof(uint64_t)) &&
                   lochi_array_reserve(&run->calls, run->info.calls + 1, sizeof(report_call));
    if (is_good) {
        curve_state state = {.run = run, .bytes = bytes.data};
        curve_walk(&state);
        is_good = !run->curves.has_failed;
        for (int by = 0; by < REPORT_BYS; by++)
            is_good = is_good && !run->bands[by].has_failed;
    }
    lochi_array_free(&bytes);
    return is_good ? LOCH_OK : lochi_insight_no_memory(run->info.path);
}
