/* SPDX-License-Identifier: MIT */
/* Operations of simulated devices: created from requests, and queued on a stream with the key that says when they
 * take effect. */
#include "device/sim/op.h"
#include "base/checked.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/pitched.h"
#include "device/sim/backing.h"
#include "device/sim/check.h"
#include "device/sim/fail.h"
#include "device/sim/order.h"
#include "device/sim/span.h"
#include <string.h>

/* Finds the spans of a range; only counts them if `uses` is NULL. A range may cross spans only inside a reservation:
 * adjacent raw blocks are adjacent by chance. */
static loch_status op_find(const lochi_sim *sim, const lochi_sim_range *range, bool any_device, lochi_sim_use *uses,
                           size_t *count)
{
    if (!lochi_range_fits(range->address, range->bytes))
        return SIM_FAIL(OUT_OF_RANGE, "%zu bytes at %p reach beyond the end of the address space", range->bytes,
                        range->address);
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

/* Copies the source of a copy out of pageable memory. The staged rows are adjacent. */
static void op_stage(lochi_sim_op *op)
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

/* Makes the contents that an operation uses accessible. An operation that moves nothing, because some of its memory is
 * unbacked, needs none. Refuses a copy out of unbacked memory into memory that has contents: it would leave there what
 * was there before. */
static loch_status op_open_contents(const lochi_sim *sim, lochi_sim_op *op, bool to_host)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_use *bare = NULL;
    for (size_t i = 0; i < op->uses_count; i++) {
        const lochi_sim_use *use = &op->uses[i];
        to_host |= use->is_write && use->span->is_real;
        if (!use->span->is_real) bare = use;
    }
    op->is_real = !bare;
    if (bare && op->kind == LOCHI_SIM_COPY && to_host)
        return SIM_FAIL(UNSUPPORTED,
                        "the memory at %p has no contents, because its simulated device is unbacked: open the device "
                        "without \"unbacked\"",
                        (void *)(bare->span->node.key + bare->offset));
    if (bare || (op->kind == LOCHI_SIM_KERNEL && !(op->function && sim->is_backed))) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_sim_host_check(op->uses, op->uses_count));
    for (size_t i = 0; i < op->uses_count; i++)
        LOCH_TRY_RETURN(lochi_sim_host_map(op->uses[i].span));
    return LOCH_OK;
}

void lochi_sim_op_destroy(lochi_sim_op *op)
{
    if (!op) return;
    lochi_free(op->staging);
    lochi_free(op->strided);
    lochi_free(op);
}

loch_status lochi_sim_op_create(lochi_sim *sim, const lochi_sim_request *request, lochi_sim_op **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    size_t count = 0, bytes;
    for (size_t i = 0; i < request->ranges_count; i++)
        LOCH_TRY_RETURN(op_find(sim, &request->ranges[i], request->any_device, NULL, &count));
    lochi_sim_op *op = NULL;
    if (lochi_mul(count, sizeof *op->uses, &bytes) && lochi_add(bytes, sizeof *op, &bytes)) op = lochi_zalloc(bytes);
    if (!op) return SIM_FAIL(HOST_MEMORY, "no host memory for an operation");
    *op = (lochi_sim_op){.kind = request->kind,
                         .duration_ns = request->duration_ns,
                         .to = request->to,
                         .from = request->from,
                         .bytes = request->bytes,
                         .shape = request->shape,
                         .pattern = request->pattern,
                         .pattern_bytes = request->pattern_bytes,
                         .function = request->function,
                         .user = request->user};
    memcpy(op->name, request->name, strnlen(request->name, sizeof op->name - 1)); /* zeroed after it */
    for (size_t i = 0; i < request->ranges_count; i++) {
        const loch_status status = op_find(sim, &request->ranges[i], request->any_device, op->uses, &op->uses_count);
        (void)status; /* found above, under the same lock */
    }
    loch_status status = op_open_contents(sim, op, request->is_waited);
    if (status == LOCH_OK && request->strided) {
        op->strided = lochi_alloc(sizeof *op->strided);
        if (op->strided)
            *op->strided = *request->strided;
        else
            status = SIM_FAIL(HOST_MEMORY, "no host memory for an operation");
    }
    if (status == LOCH_OK && request->is_staged && op->is_real) {
        op->staging = lochi_alloc(op->bytes);
        if (op->staging)
            op_stage(op);
        else
            status = SIM_FAIL(HOST_MEMORY, "no host memory to stage a copy of %s", LOCHI_SIZE(request->bytes));
    }
    if (status != LOCH_OK) {
        lochi_sim_op_destroy(op);
        return status;
    }
    *out = op;
    return LOCH_OK;
}

loch_status lochi_sim_op_queue(lochi_sim_stream *stream, lochi_sim_op *op)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
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
    for (size_t i = 0; i < op->uses_count; i++)
        op->uses[i].span->pending++;
    lochi_sim_check_uses(stream, op, op->uses, op->uses_count, epoch);
    if (op->kind == LOCHI_SIM_COPY) lochi_sim_check_overlap(stream, op);
    const loch_status status = lochi_sim_check_refuse(sim);
    op->is_dead = op->is_dead || status != LOCH_OK;
    return status;
}
