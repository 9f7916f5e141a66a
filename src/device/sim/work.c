/* SPDX-License-Identifier: MIT */
/* Work on simulated devices: copies, fills, kernels and calls become operations in the queue of a stream, or items
 * of its capture. */
#include "device/sim/work.h"
#include "base/heap.h"
#include "device/sim/call.h"
#include "device/sim/capture.h"
#include "device/sim/clock.h"
#include "device/sim/fail.h"
#include "device/sim/op.h"
#include "device/sim/order.h"
#include "device/sim/span.h"
#include "device/sim/stream.h"

loch_status lochi_sim_submit(lochi_sim_stream *stream, const lochi_sim_request *request)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *sim = stream->device;
    if (stream->capture) return lochi_sim_capture_add(stream, request);
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    lochi_sim_op *op;
    LOCH_TRY_RETURN(lochi_sim_op_create(sim, request, &op));
    LOCH_TRY_RETURN(lochi_sim_op_queue(stream, op));
    if (!request->is_waited && (sim->capabilities & LOCH_CAN_ASYNC)) {
        lochi_sim_settle(sim);
        return LOCH_OK;
    }
    /* Join before the wait: the stream may have ended after it. */
    lochi_sim_vector_join(&lochi_sim_all.host, &stream->seen);
    return lochi_sim_wait(sim, op->key);
}

/* --- slots --- */

/* One side of a copy: its rows, and the range from the first byte to the last. */
typedef struct work_side {
    const void *address;
    size_t extent;
    lochi_sim_range *ranges;
    size_t count;
} work_side;

/* Sets the ranges of a copy: those of the target first, then those of the source. Device memory and page-locked
 * memory are used when the copy runs. Pageable memory is used during the call and is not checked. */
static void work_add_sides(const lochi_sim *sim, loch_direction direction, lochi_sim_request *request,
                           const work_side *to, const work_side *from)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const bool to_host = direction == LOCH_DEVICE_TO_HOST, from_host = direction == LOCH_HOST_TO_DEVICE;
    request->ranges = to->ranges;
    request->ranges_count = to->count + from->count;
    request->any_device = direction == LOCH_PEER_TO_PEER;
    if (to_host && !lochi_sim_is_pinned(sim, to->address, to->extent)) {
        request->is_waited = true;
        request->ranges = from->ranges;
        request->ranges_count = from->count;
    }
    if (from_host && !lochi_sim_is_pinned(sim, from->address, from->extent)) {
        request->is_staged = true;
        request->ranges_count = to->count;
    }
}

loch_status lochi_sim_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                           void *stream)
{
    lochi_sim *sim = self;
    (void)peer; /* the addresses identify both devices */
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_copy, bytes));
    lochi_sim_range ranges[] = {{to, bytes, true}, {from, bytes, false}};
    lochi_sim_request request = {
        .kind = LOCHI_SIM_COPY, .duration_ns = sim->lag_ns, .name = "copy", .to = to, .from = from, .bytes = bytes};
    const work_side target = {to, bytes, &ranges[0], 1}, source = {from, bytes, &ranges[1], 1};
    work_add_sides(sim, direction, &request, &target, &source);
    return lochi_sim_end(lochi_sim_submit(lochi_sim_stream_of(sim, stream), &request));
}

/* Counts the ranges of the rows of one side, and computes their length. Adjacent rows are one range. */
static size_t work_count_runs(const loch_pitched *shape, size_t row_pitch, size_t plane_pitch, size_t *run_bytes)
{
    *run_bytes = shape->row_bytes;
    if (row_pitch != shape->row_bytes) return shape->rows * shape->planes;
    *run_bytes = shape->row_bytes * shape->rows;
    if (shape->planes == 1 || plane_pitch != *run_bytes) return shape->planes;
    *run_bytes *= shape->planes;
    return 1;
}

/* Writes the ranges of one side, and describes the side. */
static work_side work_lay_side(const loch_pitched *shape, const void *address, size_t row_pitch, size_t plane_pitch,
                               lochi_sim_range *ranges, bool is_write)
{
    size_t run_bytes, extent = (shape->rows - 1) * row_pitch + shape->row_bytes;
    const size_t count = work_count_runs(shape, row_pitch, plane_pitch, &run_bytes);
    const size_t rows = row_pitch == shape->row_bytes ? 1 : shape->rows;
    for (size_t i = 0; i < count; i++)
        ranges[i] = (lochi_sim_range){(const char *)address + i / rows * plane_pitch + i % rows * row_pitch, run_bytes,
                                      is_write};
    if (shape->planes > 1) extent += (shape->planes - 1) * plane_pitch;
    return (work_side){address, extent, ranges, count};
}

loch_status lochi_sim_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                   const loch_pitched *shape, void *peer, void *stream)
{
    lochi_sim *sim = self;
    (void)peer;
    const size_t bytes = shape->row_bytes * shape->rows * shape->planes;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_copy_pitched, bytes));
    size_t run_bytes;
    const size_t to_count = work_count_runs(shape, shape->to_row_pitch, shape->to_plane_pitch, &run_bytes);
    const size_t from_count = work_count_runs(shape, shape->from_row_pitch, shape->from_plane_pitch, &run_bytes);
    lochi_sim_range *ranges = lochi_alloc_array(to_count + from_count, sizeof *ranges);
    if (!ranges) return lochi_sim_end(SIM_FAIL(HOST_MEMORY, "no host memory for a copy of %zu rows", shape->rows));
    lochi_sim_request request = {.kind = LOCHI_SIM_COPY,
                                 .duration_ns = sim->lag_ns,
                                 .name = "copy of rows",
                                 .to = to,
                                 .from = from,
                                 .bytes = bytes,
                                 .shape = *shape};
    const work_side target = work_lay_side(shape, to, shape->to_row_pitch, shape->to_plane_pitch, ranges, true);
    const work_side source =
        work_lay_side(shape, from, shape->from_row_pitch, shape->from_plane_pitch, ranges + to_count, false);
    work_add_sides(sim, direction, &request, &target, &source);
    const loch_status status = lochi_sim_end(lochi_sim_submit(lochi_sim_stream_of(sim, stream), &request));
    lochi_free(ranges);
    return status;
}

loch_status lochi_sim_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_fill, bytes));
    const lochi_sim_range range = {to, bytes, true};
    const lochi_sim_request request = {.kind = LOCHI_SIM_FILL,
                                       .duration_ns = sim->lag_ns,
                                       .name = "fill",
                                       .ranges = &range,
                                       .ranges_count = 1,
                                       .to = to,
                                       .bytes = bytes,
                                       .pattern = pattern,
                                       .pattern_bytes = pattern_bytes};
    return lochi_sim_end(lochi_sim_submit(lochi_sim_stream_of(sim, stream), &request));
}

loch_status lochi_sim_stream_call(void *self, void *stream, loch_stream_function *function, void *user)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_stream_call, 0));
    const lochi_sim_request request = {.kind = LOCHI_SIM_CALL, .name = "call", .function = function, .user = user};
    return lochi_sim_end(lochi_sim_submit(lochi_sim_stream_of(self, stream), &request));
}
