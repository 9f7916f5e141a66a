/* SPDX-License-Identifier: MIT */
/* Copies and fills between layouts on simulated devices. The work is done by the host when the stream has come so far.
 * The checker is told exactly the bytes of each side: a side is a list of runs without gaps. */
#include "device/sim/strided.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/heap.h"
#include "device/sim/call.h"
#include "device/sim/fail.h"
#include "device/sim/stream.h"
#include "device/sim/work.h"

/* One side as runs: axes from the longest stride to the shortest, without axes along which it repeats. */
typedef struct strided_side {
    const char *start; /* lowest byte */
    size_t axes, sizes[LOCH_DIMENSIONS_MAX], strides[LOCH_DIMENSIONS_MAX];
    size_t run_bytes, runs;
} strided_side;

/* Adds an axis in order. */
static void strided_add(strided_side *side, size_t size, ptrdiff_t stride)
{
    if (!stride) return;
    size_t length = (size_t)stride;
    if (stride < 0) {
        side->start += (ptrdiff_t)(size - 1) * stride;
        length = 0 - length;
    }
    size_t at = side->axes++;
    for (; at > 0 && side->strides[at - 1] < length; at--) {
        side->strides[at] = side->strides[at - 1];
        side->sizes[at] = side->sizes[at - 1];
    }
    side->strides[at] = length;
    side->sizes[at] = size;
}

static void strided_read(const loch_strided *work, const void *first, const ptrdiff_t *strides, size_t element_bytes,
                         strided_side *out)
{
    *out = (strided_side){.start = first, .run_bytes = element_bytes, .runs = 1};
    for (size_t i = 0; i < work->axes; i++)
        strided_add(out, work->sizes[i], strides[i]);
    /* elements of a source may overlap: a run is then longer than its elements */
    while (out->axes && out->strides[out->axes - 1] <= out->run_bytes) {
        out->axes--;
        out->run_bytes += (out->sizes[out->axes] - 1) * out->strides[out->axes];
    }
    for (size_t i = 0; i < out->axes; i++)
        out->runs *= out->sizes[i];
}

static void strided_lay(const strided_side *side, lochi_sim_range *ranges, bool is_write)
{
    for (size_t run = 0; run < side->runs; run++) {
        size_t left = run;
        const char *at = side->start;
        for (size_t axis = side->axes; axis-- > 0; left /= side->sizes[axis])
            at += left % side->sizes[axis] * side->strides[axis];
        ranges[run] = (lochi_sim_range){at, side->run_bytes, is_write};
    }
}

/* Widens a side whose rows are chosen by indices to all rows, and returns the side of the indices. */
static strided_side strided_read_indices(const loch_strided *work, strided_side *to, strided_side *from)
{
    strided_side *chosen = work->indexing == LOCH_INDEXING_GATHER ? from : to;
    const ptrdiff_t *strides = work->indexing == LOCH_INDEXING_GATHER ? work->from_strides : work->to_strides;
    const void *first = work->indexing == LOCH_INDEXING_GATHER ? work->from : work->to;
    loch_strided all = *work;
    all.sizes[0] = work->index_limit;
    strided_read(&all, first, strides, lochi_dtype_bytes(work->to_type), chosen);
    strided_side indices;
    all.axes = 1;
    all.sizes[0] = work->sizes[0];
    strided_read(&all, work->indices, &work->index_stride, lochi_dtype_bytes(work->index_type), &indices);
    return indices;
}

static loch_status strided_submit(lochi_sim *sim, const loch_strided *work, loch_driver_call call, void *stream)
{
    strided_side to, from = {.runs = 0}, indices = {.runs = 0};
    strided_read(work, work->to, work->to_strides, lochi_dtype_bytes(work->to_type), &to);
    if (work->from) strided_read(work, work->from, work->from_strides, lochi_dtype_bytes(work->from_type), &from);
    if (work->indexing) indices = strided_read_indices(work, &to, &from);
    const size_t bytes = to.run_bytes * to.runs, count = to.runs + from.runs + indices.runs;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, call, bytes));
    lochi_sim_range *ranges = lochi_alloc_array(count, sizeof *ranges);
    if (!ranges) return lochi_sim_end(SIM_FAIL(HOST_MEMORY, "no host memory for a copy of %zu runs", to.runs));
    strided_lay(&to, ranges, true);
    strided_lay(&from, ranges + to.runs, false);
    strided_lay(&indices, ranges + to.runs + from.runs, false);
    const lochi_sim_request request = {.kind = work->from ? LOCHI_SIM_COPY : LOCHI_SIM_FILL,
                                       .duration_ns = sim->lag_ns,
                                       .name = work->from ? "copy of elements" : "fill of elements",
                                       .ranges = ranges,
                                       .ranges_count = count,
                                       .to = work->to,
                                       .from = work->from,
                                       .bytes = bytes,
                                       .strided = work};
    const loch_status status = lochi_sim_end(lochi_sim_submit(lochi_sim_stream_of(sim, stream), &request));
    lochi_free(ranges);
    return status;
}

loch_status lochi_sim_copy_strided(void *self, const loch_strided *work, void *stream)
{
    return strided_submit(self, work, LOCH_CALL_copy_strided, stream);
}

loch_status lochi_sim_fill_strided(void *self, const loch_strided *work, void *stream)
{
    return strided_submit(self, work, LOCH_CALL_fill_strided, stream);
}
