/* SPDX-License-Identifier: MIT */
/* Copies rows in few driver calls. One call copies a row along two further axes. The plan uses the two axes that leave
 * the fewest calls. The strides of the source are arbitrary: an axis along which it repeats or runs backwards cannot be
 * part of a call, nor can two axes that overlap. */
#include "tensor/transfer/rows.h"
#include "base/checked.h"
#include "base/fail.h"

/* cost of a call with its device overhead; this and the numbers below were measured on an H200 */
#define ROWS_CALL_NS 6000
#define ROWS_CALLS_MAX 65536 /* with more calls any other method is better */

/* Nanoseconds for a thousand rows of any length, and for a thousand bytes. */
static const struct {
    unsigned rows_ns, bytes_ns;
} rows_costs[] = {
    [LOCHI_ROWS_INSIDE] = {300, 1}, [LOCHI_ROWS_PINNED] = {2000, 20}, [LOCHI_ROWS_PAGEABLE] = {6000, 100}};

uint64_t lochi_bus_ns(size_t bytes)
{
    return ROWS_CALL_NS + bytes / 1000 * rows_costs[LOCHI_ROWS_PINNED].bytes_ns;
}

static uint64_t rows_estimate(const lochi_rows_plan *plan, lochi_rows_way way)
{
    if (plan->calls > ROWS_CALLS_MAX) return UINT64_MAX;
    return plan->calls * ROWS_CALL_NS + plan->rows / 1000 * rows_costs[way].rows_ns +
           plan->rows * plan->row_bytes / 1000 * rows_costs[way].bytes_ns;
}

/* Tells whether an axis of the source can be an axis of a call whose inner part has `inner` bytes. */
static bool rows_fits(const lochi_strided *s, size_t axis, size_t inner)
{
    return s->from[axis] > 0 && (size_t)s->from[axis] >= inner;
}

/* Returns the bytes of the source from the first element to the end of the last along an axis. */
static size_t rows_reach(const lochi_strided *s, size_t axis, size_t row_bytes)
{
    return (s->sizes[axis] - 1) * (size_t)s->from[axis] + row_bytes;
}

static void rows_choose(const lochi_strided *s, lochi_rows_plan *plan)
{
    size_t most = 1;
    for (size_t row = 0; row < plan->axes; row++) {
        if (!rows_fits(s, row, plan->row_bytes)) continue;
        if (s->sizes[row] > most) {
            most = s->sizes[row];
            plan->rows_axis = row;
            plan->planes_axis = plan->axes;
        }
        const size_t reach = rows_reach(s, row, plan->row_bytes);
        for (size_t plane = 0; plane < row; plane++) { /* strides of the target increase outwards */
            size_t both;
            if (!rows_fits(s, plane, reach) || !lochi_mul(s->sizes[row], s->sizes[plane], &both) || both <= most)
                continue;
            most = both;
            plan->rows_axis = row;
            plan->planes_axis = plane;
        }
    }
    plan->calls = plan->rows / most;
}

lochi_rows_plan lochi_rows_plan_make(const lochi_strided *strided, lochi_rows_way way)
{
    lochi_rows_plan plan = {.rows = 1};
    plan.row_bytes = lochi_strided_row(strided, &plan.axes);
    plan.rows_axis = plan.planes_axis = plan.axes;
    for (size_t i = 0; i < plan.axes; i++)
        plan.rows *= strided->sizes[i];
    rows_choose(strided, &plan);
    plan.ns = rows_estimate(&plan, way);
    return plan;
}

loch_status lochi_rows_plan_run(const lochi_rows_plan *plan, const lochi_strided *strided,
                                const loch_copy_options *options, char *to, const char *from)
{
    const lochi_strided *s = strided;
    loch_pitched shape = {.row_bytes = plan->row_bytes, .rows = 1, .planes = 1};
    if (plan->rows_axis < plan->axes) {
        shape.rows = s->sizes[plan->rows_axis];
        shape.to_row_pitch = (size_t)s->to[plan->rows_axis];
        shape.from_row_pitch = (size_t)s->from[plan->rows_axis];
    }
    if (plan->planes_axis < plan->axes) {
        shape.planes = s->sizes[plan->planes_axis];
        shape.to_plane_pitch = (size_t)s->to[plan->planes_axis];
        shape.from_plane_pitch = (size_t)s->from[plan->planes_axis];
    }
    size_t at[LOCH_DIMENSIONS_MAX] = {0};
    to += s->to_start;
    from += s->from_start;
    for (;;) {
        LOCH_TRY_RETURN(loch_copy_pitched(to, from, &shape, options));
        size_t axis = plan->axes;
        while (axis-- > 0) {
            if (axis == plan->rows_axis || axis == plan->planes_axis) continue;
            to += s->to[axis];
            from += s->from[axis];
            if (++at[axis] < s->sizes[axis]) break;
            to -= (ptrdiff_t)s->sizes[axis] * s->to[axis];
            from -= (ptrdiff_t)s->sizes[axis] * s->from[axis];
            at[axis] = 0;
        }
        if (axis == SIZE_MAX) return LOCH_OK;
    }
}
