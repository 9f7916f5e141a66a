/* SPDX-License-Identifier: MIT */
/* Work on simulated devices: copies, fills, kernels and calls become operations in a stream's queue; the clock makes
 * them take effect, in the order of their keys.
 *
 * Settling is done by one thread at a time for a device. The lock is let go while a function that the user queued runs
 * (it may take locks of its own), so other threads may come in: they see as done only what has taken effect, and those
 * that wait sleep until it has. An operation may wait for another device; keys rise along every dependency and settling
 * follows the keys, so two devices cannot wait for each other in a circle. */
#include "base/cancel.h"
#include "base/checked.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/copy.h"
#include "device/sim/sim.h"
#include <string.h>

uint64_t lochi_sim_add_ns(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* --- operations --- */

/* Finds the spans under a range; with `uses` NULL it only counts. Ranges go over several spans only inside a
 * reservation: neighbouring raw blocks are neighbours by chance. */
static loch_status work_find(const lochi_sim *sim, const lochi_sim_range *range, bool any_device, lochi_sim_use *uses,
                             size_t *count)
{
    if (!lochi_range_fits(range->address, range->bytes))
        return SIM_FAIL(OUT_OF_RANGE, "%zu bytes at %p wrap around", range->bytes, range->address);
    const uintptr_t start = (uintptr_t)range->address, end = start + range->bytes;
    const lochi_sim_reservation *reservation = NULL;
    for (uintptr_t at = start; at < end;) {
        lochi_sim_span *span = lochi_sim_span_reach(sim, at, any_device);
        if (!span || (at != start && (!reservation || span->reservation != reservation)))
            return SIM_FAIL(OUT_OF_RANGE, "of %zu bytes at %p, those from %p on are not mapped memory of the device",
                            range->bytes, range->address, (void *)at);
        reservation = span->reservation;
        const uintptr_t span_end = span->node.key + span->bytes, piece_end = span_end < end ? span_end : end;
        if (uses)
            uses[*count] = (lochi_sim_use){
                .span = span, .offset = at - span->node.key, .bytes = piece_end - at, .is_write = range->is_write};
        ++*count;
        at = piece_end;
    }
    return LOCH_OK;
}

/* Takes what the operation is to copy out of pageable memory: side by side, whatever the distances there. */
static void work_stage(lochi_sim_op *op)
{
    loch_pitched *shape = &op->shape;
    if (!shape->rows) {
        memcpy(op->staging, op->from, op->bytes);
        return;
    }
    loch_pitched packing = *shape;
    packing.to_row_pitch = shape->row_bytes;
    packing.to_plane_pitch = shape->row_bytes * shape->rows;
    lochi_pitched_host(op->staging, op->from, &packing);
    shape->from_row_pitch = packing.to_row_pitch;
    shape->from_plane_pitch = packing.to_plane_pitch;
}

loch_status lochi_sim_op_create(lochi_sim *sim, const lochi_sim_request *request, lochi_sim_op **out)
{
    size_t count = 0, bytes;
    for (size_t i = 0; i < request->ranges_count; i++)
        LOCH_TRY_RETURN(work_find(sim, &request->ranges[i], request->any_device, NULL, &count));
    lochi_sim_op *op = NULL;
    if (lochi_mul(count, sizeof *op->uses, &bytes) && lochi_add(bytes, sizeof *op, &bytes)) op = lochi_zalloc(bytes);
    if (!op) return SIM_FAIL(HOST_MEMORY, "no host memory for an operation");
    *op = (lochi_sim_op){.kind = request->kind,
                         .duration_ns = request->duration_ns,
                         .is_real = true,
                         .to = request->to,
                         .from = request->from,
                         .bytes = request->bytes,
                         .shape = request->shape,
                         .pattern = request->pattern,
                         .pattern_bytes = request->pattern_bytes,
                         .function = request->function,
                         .user = request->user};
    memcpy(op->name, request->name, strnlen(request->name, sizeof op->name - 1)); /* zeroed behind it */
    for (size_t i = 0; i < request->ranges_count; i++) {
        const loch_status status = work_find(sim, &request->ranges[i], request->any_device, op->uses, &op->uses_count);
        (void)status; /* it was found above, under the same lock */
    }
    for (size_t i = 0; i < op->uses_count; i++)
        op->is_real = op->is_real && op->uses[i].span->is_real;
    if (request->is_staged && op->is_real) {
        op->staging = lochi_alloc(op->bytes);
        if (!op->staging) {
            lochi_free(op);
            return SIM_FAIL(HOST_MEMORY, "no host memory to stage a copy of %zu bytes", request->bytes);
        }
        work_stage(op);
    }
    *out = op;
    return LOCH_OK;
}

void lochi_sim_op_destroy(lochi_sim_op *op)
{
    if (!op) return;
    lochi_free(op->staging);
    lochi_free(op);
}

void lochi_sim_op_queue(lochi_sim_stream *stream, lochi_sim_op *op)
{
    lochi_sim *sim = stream->device;
    const uint64_t start = sim->now_ns > stream->tail.end_ns ? sim->now_ns : stream->tail.end_ns;
    op->key.end_ns = lochi_sim_add_ns(start, op->duration_ns);
    if (op->awaited && op->key.end_ns < op->awaited_key.end_ns) op->key.end_ns = op->awaited_key.end_ns;
    op->key.number = ++lochi_sim_all.last_op;
    op->stream = stream->number;
    op->next = NULL;
    if (stream->last)
        stream->last->next = op;
    else
        stream->first = op;
    stream->last = op;
    stream->tail = op->key;
    sim->last = lochi_sim_key_later(sim->last, op->key);
    if (op->key.end_ns < sim->next_ns) sim->next_ns = op->key.end_ns;
    sim->pending++;
    const uint64_t epoch = lochi_sim_slot_tick(stream);
    for (size_t i = 0; i < op->uses_count; i++) {
        op->uses[i].span->pending++;
        lochi_sim_check_use(stream, op, &op->uses[i], epoch);
    }
    if (op->kind == LOCHI_SIM_COPY) lochi_sim_check_overlap(stream, op);
}

loch_status lochi_sim_submit(lochi_sim_stream *stream, const lochi_sim_request *request)
{
    lochi_sim *sim = stream->device;
    if (stream->capture) return lochi_sim_capture_add(stream, request);
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    lochi_sim_op *op;
    LOCH_TRY_RETURN(lochi_sim_op_create(sim, request, &op));
    lochi_sim_op_queue(stream, op);
    if (!request->is_waited && (sim->capabilities & LOCH_CAN_ASYNC)) {
        lochi_sim_settle(sim);
        return LOCH_OK;
    }
    /* Joined before the wait: the stream may be gone behind it. */
    lochi_sim_vector_join(&lochi_sim_all.host, &stream->seen);
    return lochi_sim_wait(sim, op->key);
}

/* --- taking effect --- */

static void work_run(lochi_sim_op *op)
{
    op->is_running = true;
    lochi_lock_drop(&lochi_sim_all.lock);
    op->function(op->user);
    lochi_lock_take(&lochi_sim_all.lock);
    op->is_running = false;
}

static void work_fill(const lochi_sim_op *op)
{
    if (op->pattern_bytes == 1) {
        memset(op->to, (int)(op->pattern & 0xff), op->bytes);
        return;
    }
    unsigned char pattern[sizeof op->pattern];
    const uint16_t half = (uint16_t)op->pattern;
    if (op->pattern_bytes == 2)
        memcpy(pattern, &half, sizeof half);
    else
        memcpy(pattern, &op->pattern, sizeof op->pattern);
    for (size_t i = 0; i < op->bytes; i += op->pattern_bytes)
        memcpy((char *)op->to + i, pattern, op->pattern_bytes);
}

static void work_copy(const lochi_sim_op *op)
{
    const void *from = op->staging ? op->staging : op->from;
    if (op->shape.rows)
        lochi_pitched_host(op->to, from, &op->shape);
    else
        memmove(op->to, from, op->bytes);
}

/* False when the operation waits for a device that this thread is settling further out, and that is not there yet. */
static bool work_take_effect(lochi_sim *sim, lochi_sim_op *op)
{
    const bool is_alive = !op->is_dead && !sim->is_lost;
    switch (op->kind) {
    case LOCHI_SIM_COPY:
        if (is_alive && op->is_real) work_copy(op);
        break;
    case LOCHI_SIM_FILL:
        if (is_alive && op->is_real) work_fill(op);
        break;
    case LOCHI_SIM_KERNEL:
        if (is_alive && op->function && sim->is_backed) work_run(op);
        break;
    case LOCHI_SIM_CALL:
        if (is_alive) work_run(op);
        break;
    case LOCHI_SIM_WAIT:
        if (op->awaited) return lochi_sim_wait(op->awaited, op->awaited_key) == LOCH_OK;
        break;
    case LOCHI_SIM_FREE: lochi_sim_span_remove(sim, op->freed, "freed"); break;
    }
    return true;
}

/* The stream whose first operation ends first. */
static lochi_sim_stream *work_next(lochi_sim *sim)
{
    lochi_sim_stream *found = NULL;
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        if (stream->first && (!found || lochi_sim_key_before(stream->first->key, found->first->key))) found = stream;
    return found;
}

static void work_retire(lochi_sim *sim, lochi_sim_stream *stream)
{
    lochi_sim_op *op = stream->first;
    stream->first = op->next;
    if (!stream->first) stream->last = NULL;
    for (size_t i = 0; i < op->uses_count; i++)
        if (op->uses[i].span) op->uses[i].span->pending--;
    sim->pending--;
    sim->settled = op->key;
    lochi_sim_op_destroy(op);
    if (stream->is_destroyed && !stream->first) lochi_sim_stream_drop(stream);
}

void lochi_sim_settle(lochi_sim *sim)
{
    if (sim->is_settling) return;
    if (sim->next_ns <= sim->now_ns) {
        LOCHI_NOT_CANCELLED; /* functions of the user may run */
        sim->is_settling = true;
        sim->settler = lochi_thread_number();
        lochi_sim_stream *stream;
        bool is_stuck = false;
        while (!is_stuck && (stream = work_next(sim)) && stream->first->key.end_ns <= sim->now_ns) {
            is_stuck = !work_take_effect(sim, stream->first);
            if (!is_stuck) work_retire(sim, stream);
            pthread_cond_broadcast(&lochi_sim_all.settled);
        }
        sim->next_ns = stream ? stream->first->key.end_ns : UINT64_MAX;
        sim->is_settling = false;
        if (is_stuck) return;
    }
    sim->settled = (lochi_sim_key){sim->now_ns, lochi_sim_all.last_op};
}

void lochi_sim_work_forked(lochi_sim *sim)
{
    if (!sim->is_settling || sim->settler == lochi_thread_number()) return;
    sim->is_settling = false;
    sim->next_ns = 0; /* what was under way is looked at again */
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        for (lochi_sim_op *op = stream->first; op; op = op->next)
            op->is_running = false;
}

bool lochi_sim_is_done(const lochi_sim *sim, lochi_sim_key key)
{
    return !lochi_sim_key_before(sim->settled, key);
}

void lochi_sim_move_clock(lochi_sim *sim, uint64_t ns)
{
    if (sim->now_ns < ns) sim->now_ns = ns;
    lochi_sim_settle(sim);
}

loch_status lochi_sim_wait(lochi_sim *sim, lochi_sim_key key)
{
    LOCHI_NOT_CANCELLED;
    for (;;) {
        lochi_sim_move_clock(sim, key.end_ns);
        if (lochi_sim_is_done(sim, key)) return LOCH_OK;
        if (!sim->is_settling || sim->settler == lochi_thread_number())
            return SIM_FAIL(DRIVER, "a function that was queued on a stream must not wait for the device");
        lochi_lock_wait(&lochi_sim_all.lock, &lochi_sim_all.settled);
    }
}

/* --- slots --- */

/* One side of a copy: its rows, and all that lies from the first byte to the last. */
typedef struct work_side {
    const void *address;
    size_t extent;
    lochi_sim_range *ranges;
    size_t count;
} work_side;

/* Sets up a copy's ranges, which lie target first, source behind it. Device memory is used when the copy runs, and so is
 * page-locked memory; pageable memory is used during the call and is not the device's to check. */
static void work_add_sides(const lochi_sim *sim, loch_direction direction, lochi_sim_request *request,
                           const work_side *to, const work_side *from)
{
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

/* Says, once a device and without a lock, that memory without contents leaves its copy on the host as it was. */
static void work_warn_unbacked(lochi_sim *sim, loch_direction direction, const void *from)
{
    if (direction != LOCH_DEVICE_TO_HOST || (uintptr_t)from < LOCHI_SIM_WINDOW_BASE) return;
    if (atomic_exchange_explicit(&sim->has_said_unbacked, true, memory_order_relaxed)) return;
    LOCHI_LOG(
        WARNING,
        "a simulated device of %zu bytes is unbacked: copies from it take their time and are checked, but nothing is "
        "copied. Open it with \"backed\" for contents",
        sim->capacity);
}

loch_status lochi_sim_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                           void *stream)
{
    lochi_sim *sim = self;
    (void)peer; /* the addresses say where they are */
    work_warn_unbacked(sim, direction, from);
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_copy, bytes));
    lochi_sim_range ranges[] = {{to, bytes, true}, {from, bytes, false}};
    lochi_sim_request request = {
        .kind = LOCHI_SIM_COPY, .duration_ns = sim->lag_ns, .name = "copy", .to = to, .from = from, .bytes = bytes};
    const work_side target = {to, bytes, &ranges[0], 1}, source = {from, bytes, &ranges[1], 1};
    work_add_sides(sim, direction, &request, &target, &source);
    return lochi_sim_end(lochi_sim_submit(lochi_sim_stream_of(sim, stream), &request));
}

/* How many ranges the rows of one side are, and how long each: rows that touch are one. */
static size_t work_count_runs(const loch_pitched *shape, size_t row_pitch, size_t plane_pitch, size_t *run_bytes)
{
    *run_bytes = shape->row_bytes;
    if (row_pitch != shape->row_bytes) return shape->rows * shape->planes;
    *run_bytes = shape->row_bytes * shape->rows;
    if (shape->planes == 1 || plane_pitch != *run_bytes) return shape->planes;
    *run_bytes *= shape->planes;
    return 1;
}

/* Writes the ranges of one side, and describes it. */
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
    work_warn_unbacked(sim, direction, from);
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
