/* SPDX-License-Identifier: MIT */
/* Copies and fills of any layouts inside one device: one call of the driver's copy_strided or fill_strided, which are
 * kernels on a GPU. The struct that is handed over also says how a host does the work, for drivers that let it. */
#include "tensor/transfer/inside.h"
#include "device/calls.h"
#include <string.h>

/* Does the work on the host: loch_strided.run. */
static void inside_run(const loch_strided *work)
{
    lochi_strided s = {.to_bytes = loch_dtype_bytes(work->to_type), .axes = work->axes};
    s.from_bytes = work->from ? loch_dtype_bytes(work->from_type) : s.to_bytes;
    for (size_t i = 0; i < s.axes; i++) {
        s.sizes[i] = work->sizes[i];
        s.to[i] = work->to_strides[i];
        s.from[i] = work->from ? work->from_strides[i] : 0;
    }
    if (!work->from || work->to_type == work->from_type) {
        lochi_strided_copy(&s, work->to, work->from ? work->from : work->element);
        return;
    }
    const lochi_converter converter = lochi_convert_find(work->to_type, work->from_type, work->overflow);
    lochi_strided_convert(&s, &converter, work->to, work->from);
}

/* Fills in all members except those of a fill. Members of axes that are not there stay as they are. */
static void inside_describe(const lochi_strided *s, lochi_inside_types types, char *to, const char *from,
                            loch_strided *out)
{
    out->size = sizeof *out;
    out->to = to + s->to_start;
    out->from = from ? from + s->from_start : NULL;
    out->to_type = types.to;
    out->from_type = types.from;
    out->overflow = types.overflow;
    out->axes = s->axes;
    memcpy(out->sizes, s->sizes, s->axes * sizeof *out->sizes);
    memcpy(out->to_strides, s->to, s->axes * sizeof *out->to_strides);
    memcpy(out->from_strides, s->from, s->axes * sizeof *out->from_strides);
    out->run = inside_run;
    out->indexing = LOCH_INDEXING_NONE;
}

loch_status lochi_inside_copy(const loch_stream *stream, const lochi_strided *strided, lochi_inside_types types,
                              char *to, const char *from)
{
    loch_strided work;
    loch_status status;
    inside_describe(strided, types, to, from, &work);
    LOCHI_CALL(status, stream->device, copy_strided, (stream->device->self, &work, stream->native));
    return status;
}

loch_status lochi_inside_fill(const loch_stream *stream, const lochi_strided *strided, loch_dtype type, char *to,
                              const unsigned char *element)
{
    loch_strided work;
    loch_status status;
    inside_describe(strided, (lochi_inside_types){.to = type, .from = type}, to, NULL, &work);
    memcpy(work.element, element, sizeof work.element);
    LOCHI_CALL(status, stream->device, fill_strided, (stream->device->self, &work, stream->native));
    return status;
}
