/* SPDX-License-Identifier: MIT */
/* Fills tensors. On a device, a contiguous tensor is filled by the driver's fill, and another by its fill_strided. A
 * driver without that slot fills contiguous parts; an element of 8 bytes is filled in two
 * halves. Then every axis is filled by copying the filled part behind itself, twice as much each time, from the
 * innermost axis outwards. This takes a few calls for each axis, whatever its size. */
#include "base/fail.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"
#include "tensor/tensor.h"
#include "tensor/transfer/inside.h"
#include "tensor/transfer/rows.h"
#include <string.h>

typedef struct fill_ask {
    loch_tensor *tensor;
    char *address;         /* of the element with all indices 0 */
    lochi_strided strided; /* source and target are both the tensor */
    unsigned char element[sizeof(uint64_t)];
    size_t pattern_bytes; /* the shortest part of the element whose repetition gives the element */
    loch_stream *stream;  /* the caller's, or the default stream of the device; NULL for plain host memory */
} fill_ask;

/* --- on the host --- */

static loch_status fill_on_host(const fill_ask *ask)
{
    if (ask->stream && !lochi_device_is_at_once(ask->stream->device)) LOCH_TRY_RETURN(loch_stream_sync(ask->stream));
    lochi_strided spread = ask->strided;
    memset(spread.from, 0, sizeof spread.from);
    spread.from_start = 0;
    lochi_strided_copy(&spread, ask->address, ask->element);
    return LOCH_OK;
}

/* --- on a device --- */

/* Fills the axes from `axis` on. The elements with index 0 along it are filled already. */
static loch_status fill_axis(const fill_ask *ask, size_t axis, const loch_copy_options *options)
{
    const lochi_strided *s = &ask->strided;
    char *first = ask->address + s->to_start;
    for (size_t done = 1; done < s->sizes[axis];) {
        const size_t left = s->sizes[axis] - done, count = left < done ? left : done;
        size_t sizes[LOCH_DIMENSIONS_MAX];
        memcpy(sizes, s->sizes, sizeof sizes);
        sizes[axis] = count;
        lochi_strided part;
        lochi_strided_order(sizes + axis, s->axes - axis, s->to_bytes, s->to + axis, s->to + axis, &part);
        const lochi_rows_plan plan = lochi_rows_plan_make(&part, LOCHI_ROWS_INSIDE);
        LOCH_TRY_RETURN(lochi_rows_plan_run(&plan, &part, options, first + (ptrdiff_t)done * s->to[axis], first));
        done += count;
    }
    return LOCH_OK;
}

static loch_status fill_on_device(const fill_ask *ask)
{
    const lochi_strided *s = &ask->strided;
    if (!lochi_strided_is_row(s) || ask->pattern_bytes > sizeof(uint32_t)) {
        const loch_dtype type = ask->tensor->layout.dtype;
        const loch_status status = lochi_inside_fill(ask->stream, s, type, ask->address, ask->element);
        if (status != LOCH_E_UNSUPPORTED) return status;
    }
    const size_t half = sizeof(uint32_t);
    const loch_copy_options options = {.size = sizeof options, .stream = ask->stream, .wait = LOCH_WAIT_QUEUED};
    char *first = ask->address + s->to_start;
    size_t axes;
    size_t row_bytes = lochi_strided_row(s, &axes);
    if (ask->pattern_bytes <= sizeof(uint32_t)) {
        LOCH_TRY_RETURN(loch_fill_on(first, row_bytes, ask->element, ask->pattern_bytes, ask->stream));
    } else { /* no copy from the host: a graph would read the element from this stack frame at each launch */
        LOCH_TRY_RETURN(loch_fill_on(first, half, ask->element, half, ask->stream));
        LOCH_TRY_RETURN(loch_fill_on(first + half, half, ask->element + half, half, ask->stream));
        axes = s->axes;
    }
    for (size_t axis = axes; axis-- > 0;)
        LOCH_TRY_RETURN(fill_axis(ask, axis, &options));
    return LOCH_OK;
}

/* --- arguments --- */

static size_t fill_shorten(const unsigned char *element, size_t bytes)
{
    while (bytes > 1 && !memcmp(element, element + bytes / 2, bytes / 2))
        bytes /= 2;
    return bytes;
}

static loch_status fill_prepare(loch_tensor *tensor, loch_scalar value, loch_stream *stream, fill_ask *out)
{
    const lochi_layout *layout = &tensor->layout;
    loch_device *device = loch_tensor_get_device(tensor);
    *out = (fill_ask){.tensor = tensor, .stream = stream};
    if (!stream && device) out->stream = &device->default_stream;
    LOCH_TRY_RETURN(lochi_tensor_check_writable(tensor));
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, device));
    LOCH_TRY_RETURN(loch_scalar_store(value, layout->dtype, out->element));
    out->pattern_bytes = fill_shorten(out->element, layout->element_bytes);
    void *address;
    LOCH_TRY_RETURN(loch_tensor_get_address(tensor, &address));
    out->address = address;
    if (address) lochi_strided_make(layout, layout, &out->strided);
    return LOCH_OK;
}

/* Waits for the queued fill, or records it as a use of the tensor, also if a part of it failed. If the use cannot be
 * recorded, waits. */
static loch_status fill_settle(const fill_ask *ask, loch_status filled, loch_stream *given)
{
    const loch_error saved = lochi_error_save();
    loch_status status = given ? loch_buffer_record_use(ask->tensor->buffer, given) : LOCH_E_BUSY;
    if (status != LOCH_OK) status = loch_stream_sync(ask->stream);
    if (filled == LOCH_OK) return status;
    lochi_error_restore(&saved);
    return filled;
}

/* Fills a tensor that has an address. */
static loch_status fill_held(loch_tensor *tensor, loch_scalar value, loch_stream *stream)
{
    fill_ask ask;
    LOCH_TRY_RETURN(fill_prepare(tensor, value, stream, &ask));
    if (!ask.address) return LOCH_OK;
    if (loch_tensor_is_on_host(tensor)) return fill_on_host(&ask);
    return fill_settle(&ask, fill_on_device(&ask), stream);
}

loch_status loch_tensor_fill(loch_tensor *tensor, loch_scalar value, loch_stream *stream)
{
    if (!tensor) return LOCH_FAIL(INVALID, "a fill needs a tensor");
    if (!tensor->layout.elements) return lochi_tensor_check_writable(tensor);
    LOCH_TRY_RETURN(lochi_tensor_hold(tensor, stream));
    const loch_status status = fill_held(tensor, value, stream);
    lochi_buffer_touch(tensor->buffer);
    return lochi_tensor_let_go(tensor, stream, status);
}
