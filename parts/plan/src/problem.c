/* SPDX-License-Identifier: MIT */
#include "problem.h"
#include "memory.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <stdlib.h>

static loch_status problem_fail(size_t index, const char *reason)
{
    return LOCH_FAIL(INVALID, "buffer %zu of the problem %s", index, reason);
}

static loch_status buffer_check(const loch_plan_buffer *buffer, size_t index)
{
    if (!buffer->bytes) return problem_fail(index, "has no bytes");
    if (buffer->first >= buffer->last) return problem_fail(index, "ends before it starts");
    if ((unsigned)buffer->place > LOCH_PLAN_FIXED || (buffer->place && buffer->offset % plan_alignment(buffer)))
        return problem_fail(index, "has a fixed offset that is not a multiple of its alignment");
    if (buffer->gaps_count && !buffer->gaps) return problem_fail(index, "has a number of gaps and no gaps");
    uint64_t at = buffer->first;
    for (uint32_t i = 0; i < buffer->gaps_count; i++) {
        const loch_plan_gap *gap = &buffer->gaps[i];
        if (gap->first < at || gap->first >= gap->last || gap->last > buffer->last)
            return problem_fail(index, "has a gap outside its life, or gaps that overlap or are out of order");
        if (gap->window_begin > gap->window_end || gap->window_end > buffer->bytes)
            return problem_fail(index, "has a gap with bytes that it does not have");
        at = gap->last;
    }
    return LOCH_OK;
}

loch_status lochi_plan_problem_check(const loch_plan_problem *problem)
{
    if (!problem || problem->size < sizeof *problem || (problem->count && !problem->buffers))
        return LOCH_FAIL(INVALID, "a problem needs its size and its buffers");
    if (problem->count >= UINT32_MAX / 2)
        return LOCH_FAIL(OVERFLOW, "a problem has at most %u buffers", UINT32_MAX / 2 - 1);
    uint64_t sum = 0, top = 0;
    for (size_t i = 0; i < problem->count; i++) {
        const loch_plan_buffer *buffer = &problem->buffers[i];
        const loch_status status = buffer_check(buffer, i);
        if (status != LOCH_OK) return status;
        const uint64_t alignment = plan_alignment(buffer);
        const uint64_t offset = buffer->place ? buffer->offset : 0;
        if (buffer->bytes >= PLAN_BYTES_MAX || alignment >= PLAN_BYTES_MAX || offset >= PLAN_BYTES_MAX)
            return LOCH_FAIL(OVERFLOW, "buffer %zu of the problem needs 2^62 bytes or more", i);
        sum += buffer->bytes + alignment;
        if (offset + buffer->bytes > top) top = offset + buffer->bytes;
        if (sum + top >= PLAN_BYTES_MAX)
            return LOCH_FAIL(OVERFLOW, "the buffers of the problem need 2^62 bytes or more");
    }
    return LOCH_OK;
}

static uint64_t problem_mix(uint64_t sum, uint64_t value)
{
    sum ^= value + UINT64_C(0x9e3779b97f4a7c15) + (sum << 6) + (sum >> 2);
    sum *= UINT64_C(0xd6e8feb86659fd93);
    return sum ^ sum >> 32;
}

uint64_t lochi_plan_problem_fingerprint(const loch_plan_problem *problem)
{
    uint64_t sum = problem_mix(1, problem->count);
    for (size_t i = 0; i < problem->count; i++) {
        const loch_plan_buffer *buffer = &problem->buffers[i];
        sum = problem_mix(sum, buffer->bytes);
        sum = problem_mix(sum, plan_alignment(buffer));
        sum = problem_mix(sum, buffer->first);
        sum = problem_mix(sum, buffer->last);
        sum = problem_mix(sum, buffer->place ? buffer->offset : UINT64_MAX);
        sum = problem_mix(sum, buffer->gaps_count);
        for (uint32_t j = 0; j < buffer->gaps_count; j++) {
            sum = problem_mix(sum, buffer->gaps[j].first);
            sum = problem_mix(sum, buffer->gaps[j].last);
            sum = problem_mix(sum, buffer->gaps[j].window_begin);
            sum = problem_mix(sum, buffer->gaps[j].window_end);
        }
    }
    return sum;
}

/* State 2k is the time before gap k (or after the last one), state 2k + 1 is gap k. */
bool lochi_plan_stretch_next(const loch_plan_buffer *buffer, uint32_t *state, plan_stretch *out)
{
    for (; *state <= 2 * buffer->gaps_count; ++*state) {
        const uint32_t k = *state / 2;
        if (*state % 2) {
            const loch_plan_gap *gap = &buffer->gaps[k];
            *out = (plan_stretch){gap->first, gap->last, gap->window_begin, gap->window_end};
        } else {
            *out = (plan_stretch){k ? buffer->gaps[k - 1].last : buffer->first,
                                  k < buffer->gaps_count ? buffer->gaps[k].first : buffer->last, 0, buffer->bytes};
        }
        if (out->first < out->last && out->low < out->high) {
            ++*state;
            return true;
        }
    }
    return false;
}

/* --- the bound --- */

typedef struct bound_event {
    uint64_t time;
    int64_t bytes;
} bound_event;

/* Orders by time, ends first. */
static int bound_compare(const void *a, const void *b)
{
    const bound_event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->bytes > 0) - (y->bytes > 0);
}

bool lochi_plan_problem_bound(const loch_plan_problem *problem, uint64_t *out)
{
    size_t count = 0;
    uint64_t most = 0;
    plan_stretch stretch;
    for (size_t i = 0; i < problem->count; i++) {
        const loch_plan_buffer *buffer = &problem->buffers[i];
        const uint64_t top = buffer->bytes + (buffer->place ? buffer->offset : 0);
        for (uint32_t state = 0; lochi_plan_stretch_next(buffer, &state, &stretch);)
            count += 2;
        most = top > most ? top : most;
    }
    bound_event *events = lochi_plan_alloc(count, sizeof *events);
    if (!events) return false;
    size_t at = 0;
    for (size_t i = 0; i < problem->count; i++)
        for (uint32_t state = 0; lochi_plan_stretch_next(&problem->buffers[i], &state, &stretch);) {
            const int64_t bytes = (int64_t)(stretch.high - stretch.low);
            events[at++] = (bound_event){stretch.first, bytes};
            events[at++] = (bound_event){stretch.last, -bytes};
        }
    qsort(events, count, sizeof *events, bound_compare);
    uint64_t live = 0;
    for (size_t i = 0; i < count; i++) {
        live += (uint64_t)events[i].bytes;
        most = live > most ? live : most;
    }
    lochi_plan_free(events);
    *out = most;
    return true;
}
