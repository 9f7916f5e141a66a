/* SPDX-License-Identifier: MIT */
/* Copies between tensors of any layouts, types and devices. Both sides together choose the method:
 *
 *     contiguous, one type            one plain copy
 *     the host can access both        the host engine (strided.c), after waiting for the stream
 *     inside one device with kernels  one call of the driver (inside.c), queued
 *     one type, a device              rows in few driver calls (rows.c), queued; or through the host if that is
 *                                     faster, for example for a transpose
 *     two types, a device             through the host (stage.c)
 *
 * Two tensors that share memory are copied directly only if it is certain that no byte is both read and written.
 * Otherwise they are copied through a separate block. Queued work is recorded as a use of both buffers, which keeps
 * them. */
#include "base/fail.h"
#include "kit/sized.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"
#include "tensor/tensor.h"
#include "tensor/transfer/inside.h"
#include "tensor/transfer/rows.h"
#include "tensor/transfer/stage.h"

/* The arguments of a copy. */
typedef struct copy_ask {
    loch_tensor *to, *from;
    loch_tensor_copy_options options;
    lochi_transfer transfer;
    lochi_converter converter;
} copy_ask;

/* --- arguments --- */

static loch_status copy_read_options(const loch_tensor_copy_options *given, loch_tensor_copy_options *out)
{
    *out = (loch_tensor_copy_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of copy options", given, out, sizeof *out));
    if ((unsigned)out->wait > LOCH_WAIT_END || (unsigned)out->overflow > LOCH_OVERFLOW_SPECIAL)
        return LOCH_FAIL(INVALID, "the copy options have an invalid value");
    if (out->wait == LOCH_WAIT_DEFAULT) out->wait = out->stream ? LOCH_WAIT_QUEUED : LOCH_WAIT_END;
    return LOCH_OK;
}

static loch_status copy_check_shapes(const lochi_layout *to, const lochi_layout *from)
{
    if (to->dimensions != from->dimensions)
        return LOCH_FAIL(INVALID, "the source has %zu dimensions and the target %zu: the shapes must be equal",
                         from->dimensions, to->dimensions);
    for (size_t i = 0; i < to->dimensions; i++)
        if (to->shape[i] != from->shape[i])
            return LOCH_FAIL(INVALID, "dimension %zu has size %lld in the source and %lld in the target", i,
                             (long long)from->shape[i], (long long)to->shape[i]);
    return LOCH_OK;
}

/* Checks that a stream belongs to one of the devices. For memory without a device any stream is accepted. */
static loch_status copy_check_stream(const copy_ask *ask)
{
    const loch_stream *stream = ask->options.stream;
    if (!stream) return LOCH_OK;
    const loch_device *to = loch_tensor_get_device(ask->to), *from = loch_tensor_get_device(ask->from);
    LOCH_TRY_RETURN(lochi_stream_check(stream, NULL));
    if ((!to && !from) || stream->device == to || stream->device == from) return LOCH_OK;
    return LOCH_FAIL(INVALID, "stream %llu of %s cannot be used for a copy from %s to %s",
                     (unsigned long long)stream->id, stream->device->name, from ? from->name : "the host",
                     to ? to->name : "the host");
}

/* Returns the device of a side that the host cannot access; NULL if it can. */
static loch_device *copy_device(const loch_tensor *tensor)
{
    return loch_tensor_is_on_host(tensor) ? NULL : loch_tensor_get_device(tensor);
}

static loch_status copy_locate(copy_ask *ask)
{
    const lochi_layout *to = &ask->to->layout, *from = &ask->from->layout;
    void *target, *source;
    LOCH_TRY_RETURN(loch_tensor_get_address(ask->to, &target));
    LOCH_TRY_RETURN(loch_tensor_get_address(ask->from, &source));
    lochi_transfer *transfer = &ask->transfer; /* not zeroed: the layouts are long */
    transfer->to_device = copy_device(ask->to);
    transfer->from_device = copy_device(ask->from);
    transfer->to = target;
    transfer->from = source;
    transfer->stream = ask->options.stream;
    lochi_strided_make(to, from, &ask->transfer.strided);
    transfer->converter = to->dtype != from->dtype ? &ask->converter : NULL; /* found when the host needs it */
    return LOCH_OK;
}

/* --- waits and uses --- */

static loch_status copy_wait_for(loch_stream *stream)
{
    return lochi_device_is_at_once(stream->device) ? LOCH_OK : loch_stream_sync(stream);
}

static loch_status copy_wait_for_device(loch_device *device)
{
    return device ? copy_wait_for(&device->default_stream) : LOCH_OK;
}

/* Waits for the work that the copy is ordered after: its stream, or the default streams of both sides. */
static loch_status copy_wait_before(const copy_ask *ask)
{
    if (ask->options.stream) return copy_wait_for(ask->options.stream);
    LOCH_TRY_RETURN(copy_wait_for_device(loch_tensor_get_device(ask->to)));
    return copy_wait_for_device(loch_tensor_get_device(ask->from));
}

/* Returns the stream that device work is queued on: the caller's stream, or the default stream of the side that is not
 * on the host, the target before the source. Returns NULL if both sides are on the host. */
static loch_stream *copy_stream(const copy_ask *ask)
{
    if (ask->options.stream) return ask->options.stream;
    loch_device *device = ask->transfer.to_device ? ask->transfer.to_device : ask->transfer.from_device;
    if (!device) device = loch_tensor_get_device(ask->to);
    if (!device) device = loch_tensor_get_device(ask->from);
    return device ? &device->default_stream : NULL;
}

/* Records the queued copy as a use of both sides. If that fails, waits for the copy. */
static loch_status copy_keep(const copy_ask *ask)
{
    loch_stream *stream = copy_stream(ask);
    if (ask->options.wait == LOCH_WAIT_END || !stream) return LOCH_OK;
    loch_status status = loch_buffer_record_use(ask->to->buffer, stream);
    if (status == LOCH_OK) status = loch_buffer_record_use(ask->from->buffer, stream);
    return status == LOCH_OK ? LOCH_OK : copy_wait_for(stream);
}

/* --- shared memory --- */

/* Computes the range of addresses that a side reaches. */
static void copy_span(const lochi_layout *layout, const char *address, uintptr_t *start, uintptr_t *end)
{
    *start = (uintptr_t)address - layout->below;
    *end = (uintptr_t)address + layout->above;
}

static bool copy_spans_overlap(const copy_ask *ask)
{
    uintptr_t to_start, to_end, from_start, from_end;
    copy_span(&ask->to->layout, ask->transfer.to, &to_start, &to_end);
    copy_span(&ask->from->layout, ask->transfer.from, &from_start, &from_end);
    return to_start < from_end && from_start < to_end;
}

/* Computes the bytes before and after the first element that the axes inside of `axis` reach. */
static void copy_reach_inside(const lochi_strided *s, size_t axis, const ptrdiff_t *strides, size_t element_bytes,
                              size_t *before, size_t *from)
{
    *before = 0;
    *from = element_bytes;
    for (size_t i = axis + 1; i < s->axes; i++) {
        if (strides[i] < 0)
            *before += (s->sizes[i] - 1) * (size_t)-strides[i];
        else
            *from += (s->sizes[i] - 1) * (size_t)strides[i];
    }
}

/* Tells whether both sides repeat at the same distance along `axis` and all axes outside of it, and are disjoint inside
 * of it. Example: columns of one matrix. */
static bool copy_is_apart_along(const lochi_transfer *transfer, size_t axis)
{
    const lochi_strided *s = &transfer->strided;
    const ptrdiff_t pitch = s->to[axis];
    if (s->from[axis] != pitch) return false;
    for (size_t i = 0; i < axis; i++)
        if (s->to[i] % pitch || s->from[i] % pitch) return false;
    size_t to_before, to_bytes, from_before, from_bytes;
    copy_reach_inside(s, axis, s->to, s->to_bytes, &to_before, &to_bytes);
    copy_reach_inside(s, axis, s->from, s->from_bytes, &from_before, &from_bytes);
    const uintptr_t to = (uintptr_t)(transfer->to + s->to_start);
    const uintptr_t from = (uintptr_t)(transfer->from + s->from_start) - from_before;
    const size_t length = (size_t)pitch;
    const size_t distance = from >= to ? (from - to) % length : (length - (to - from) % length) % length;
    return distance >= to_bytes && distance + from_before + from_bytes <= length;
}

static bool copy_is_apart(const copy_ask *ask)
{
    if (!copy_spans_overlap(ask)) return true;
    for (size_t i = 0; i < ask->transfer.strided.axes; i++)
        if (copy_is_apart_along(&ask->transfer, i)) return true;
    return false;
}

static bool copy_is_onto_itself(const copy_ask *ask)
{
    const lochi_transfer *transfer = &ask->transfer;
    if (transfer->converter || transfer->to != transfer->from) return false;
    for (size_t i = 0; i < transfer->strided.axes; i++)
        if (transfer->strided.to[i] != transfer->strided.from[i]) return false;
    return true;
}

/* Copies through a separate block, so that the source is read before it is overwritten. */
static loch_status copy_through_block(const copy_ask *ask)
{
    const lochi_layout *from = &ask->from->layout;
    lochi_layout rows;
    LOCH_TRY_RETURN(lochi_layout_make(from->dtype, from->dimensions, from->shape, NULL, &rows));
    const loch_device *stream_device = ask->options.stream ? ask->options.stream->device : NULL;
    loch_device *device = ask->transfer.from_device; /* NULL: host memory */
    const loch_tensor_options where = {.size = sizeof where,
                                       .device = device,
                                       .stream = device && stream_device == device ? ask->options.stream : NULL};
    loch_tensor *block;
    LOCH_TRY_RETURN(lochi_tensor_alloc(&rows, &where, &block));
    loch_tensor_copy_options options = ask->options;
    loch_status status = loch_tensor_copy(block, ask->from, &options);
    if (status == LOCH_OK) status = loch_tensor_copy(ask->to, block, &options);
    const loch_error saved = lochi_error_save();
    loch_tensor_release(block);
    if (status != LOCH_OK) lochi_error_restore(&saved);
    return status;
}

/* --- methods --- */

static loch_status copy_on_host(const copy_ask *ask)
{
    const lochi_transfer *transfer = &ask->transfer;
    LOCH_TRY_RETURN(copy_wait_before(ask));
    if (transfer->converter)
        lochi_strided_convert(&transfer->strided, transfer->converter, transfer->to, transfer->from);
    else
        lochi_strided_copy(&transfer->strided, transfer->to, transfer->from);
    return LOCH_OK;
}

static loch_status copy_through_host(const copy_ask *ask)
{
    LOCH_TRY_RETURN(copy_wait_before(ask));
    return lochi_stage_run(&ask->transfer);
}

static loch_status copy_queue_rows(const copy_ask *ask, const lochi_rows_plan *plan)
{
    const lochi_transfer *transfer = &ask->transfer;
    const bool is_one = plan->calls == 1;
    loch_copy_options options = {
        .size = sizeof options, .stream = ask->options.stream, .wait = is_one ? ask->options.wait : LOCH_WAIT_QUEUED};
    const loch_status status = lochi_rows_plan_run(plan, &transfer->strided, &options, transfer->to, transfer->from);
    if (status != LOCH_OK) { /* a part may be queued */
        lochi_buffer_keep_after_failure(ask->to->buffer, ask->from->buffer, ask->options.stream);
        return status;
    }
    if (!is_one && ask->options.wait == LOCH_WAIT_END) LOCH_TRY_RETURN(copy_wait_before(ask));
    return copy_keep(ask);
}

static lochi_rows_way copy_way(const copy_ask *ask)
{
    if (ask->transfer.to_device && ask->transfer.from_device) return LOCHI_ROWS_INSIDE;
    const loch_tensor *host = ask->transfer.to_device ? ask->from : ask->to;
    return loch_buffer_get_kind(host->buffer) == LOCH_MEMORY_PINNED ||
                   loch_buffer_get_kind(host->buffer) == LOCH_MEMORY_REGISTERED
               ? LOCHI_ROWS_PINNED
               : LOCHI_ROWS_PAGEABLE;
}

static loch_status copy_by_device(const copy_ask *ask, const lochi_rows_plan *plan)
{
    const bool is_by_rows = !ask->transfer.converter && plan->ns <= lochi_stage_estimate(&ask->transfer);
    return is_by_rows ? copy_queue_rows(ask, plan) : copy_through_host(ask);
}

/* Copies inside one device. E_UNSUPPORTED: its driver cannot do it. */
static loch_status copy_inside(const copy_ask *ask)
{
    const lochi_transfer *transfer = &ask->transfer;
    const lochi_inside_types types = {ask->to->layout.dtype, ask->from->layout.dtype, ask->options.overflow};
    loch_stream *stream = copy_stream(ask);
    const loch_status status = lochi_inside_copy(stream, &transfer->strided, types, transfer->to, transfer->from);
    if (status == LOCH_E_UNSUPPORTED) return status;
    if (status != LOCH_OK) { /* a part may be queued */
        lochi_buffer_keep_after_failure(ask->to->buffer, ask->from->buffer, stream);
        return status;
    }
    return ask->options.wait == LOCH_WAIT_END ? loch_stream_sync(stream) : copy_keep(ask);
}

/* Copies. Both sides have addresses. */
static loch_status copy_held(copy_ask *ask)
{
    const lochi_transfer *transfer = &ask->transfer;
    LOCH_TRY_RETURN(copy_locate(ask));
    if (copy_is_onto_itself(ask)) return LOCH_OK;
    const bool is_plain = !transfer->converter && lochi_strided_is_row(&transfer->strided);
    const bool is_apart = is_plain || copy_is_apart(ask);
    if (!is_plain && is_apart && transfer->to_device && transfer->to_device == transfer->from_device) {
        const loch_status status = copy_inside(ask);
        if (status != LOCH_E_UNSUPPORTED) return status;
    }
    if (transfer->converter)
        ask->converter = lochi_convert_find(ask->to->layout.dtype, ask->from->layout.dtype, ask->options.overflow);
    const lochi_rows_plan plan = lochi_rows_plan_make(&transfer->strided, copy_way(ask));
    if (is_plain) return copy_queue_rows(ask, &plan); /* a plain copy may overlap */
    if (!is_apart) return copy_through_block(ask);
    return ask->transfer.to_device || ask->transfer.from_device ? copy_by_device(ask, &plan) : copy_on_host(ask);
}

loch_status loch_tensor_copy(loch_tensor *to, loch_tensor *from, const loch_tensor_copy_options *options)
{
    if (!to || !from) return LOCH_FAIL(INVALID, "a copy needs two tensors");
    copy_ask ask;
    ask.to = to;
    ask.from = from;
    LOCH_TRY_RETURN(copy_read_options(options, &ask.options));
    LOCH_TRY_RETURN(copy_check_shapes(&to->layout, &from->layout));
    LOCH_TRY_RETURN(lochi_tensor_check_writable(to));
    LOCH_TRY_RETURN(copy_check_stream(&ask));
    if (!to->layout.elements) return LOCH_OK;
    /* checked first: queued work could not be removed from the graph */
    if (ask.options.stream && ask.options.wait == LOCH_WAIT_END)
        LOCH_TRY_RETURN(lochi_stream_refuse_captured(ask.options.stream, "a copy there cannot be waited for"));
    loch_stream *to_stream = lochi_buffer_choose_stream(to->buffer, from->buffer, ask.options.stream);
    loch_stream *from_stream = lochi_buffer_choose_stream(from->buffer, to->buffer, ask.options.stream);
    LOCH_TRY_RETURN(lochi_tensor_hold(to, to_stream));
    loch_status status = lochi_tensor_hold(from, from_stream);
    if (status == LOCH_OK) {
        lochi_host_scope to_scope, from_scope;
        lochi_buffer_begin_host(to->buffer, &to_scope);
        lochi_buffer_begin_host(from->buffer, &from_scope);
        status = copy_held(&ask);
        lochi_ranges_end_host(&from_scope);
        lochi_ranges_end_host(&to_scope);
        status = lochi_tensor_let_go(from, from_stream, status);
        lochi_buffer_touch(to->buffer); /* a copy that failed may have written a part */
    }
    return lochi_tensor_let_go(to, to_stream, status);
}
