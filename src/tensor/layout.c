/* SPDX-License-Identifier: MIT */
/* Layouts: type, shape and strides without memory. They are checked once, when they are made. */
#include "tensor/layout.h"
#include "base/checked.h"
#include "base/fail.h"

/* Computes the number of elements, and checks the number with dimensions of size 0 counted as 1. The strides of a
 * contiguous tensor are products of the latter, so it must fit even if there are no elements: then strides never
 * overflow. */
static loch_status layout_measure(lochi_layout *layout)
{
    size_t span = 1;
    layout->elements = 1;
    for (size_t i = 0; i < layout->dimensions; i++) {
        const int64_t size = layout->shape[i];
        if (size < 0) return LOCH_FAIL(INVALID, "dimension %zu has the negative size %lld", i, (long long)size);
        if (size && !lochi_mul(span, (size_t)size, &span)) span = SIZE_MAX;
        if (!size) layout->elements = 0;
    }
    if (span > (size_t)PTRDIFF_MAX / layout->element_bytes)
        return LOCH_FAIL(OVERFLOW, "a tensor of this shape does not fit the address space");
    if (layout->elements) layout->elements = span;
    return LOCH_OK;
}

static void layout_set_rows(lochi_layout *layout)
{
    int64_t stride = 1;
    for (size_t i = layout->dimensions; i > 0; i--) {
        layout->strides[i - 1] = stride;
        if (layout->shape[i - 1]) stride *= layout->shape[i - 1];
    }
}

/* Sets strides that are never followed to 1. They may have any value, and some libraries write arbitrary numbers there.
 * So every stride in bytes fits a ptrdiff_t, and later code need not check. */
static void layout_tame(lochi_layout *layout)
{
    const int64_t most = PTRDIFF_MAX / (int64_t)layout->element_bytes;
    for (size_t i = 0; i < layout->dimensions; i++) {
        const bool is_wild = layout->strides[i] > most || layout->strides[i] < -most;
        if (is_wild && (layout->shape[i] <= 1 || !layout->elements)) layout->strides[i] = 1;
    }
}

/* Computes how far the strides lead before and after the first element. */
static loch_status layout_reach(lochi_layout *layout)
{
    layout->below = layout->above = 0;
    if (!layout->elements) return LOCH_OK;
    size_t below = 0, above = 1;
    bool fits = true;
    for (size_t i = 0; fits && i < layout->dimensions; i++) {
        const int64_t stride = layout->strides[i];
        const size_t length = stride < 0 ? 0 - (size_t)stride : (size_t)stride;
        size_t reach = 0;
        fits = lochi_mul(length, (size_t)layout->shape[i] - 1, &reach);
        if (fits && stride < 0) fits = lochi_add(below, reach, &below);
        if (fits && stride > 0) fits = lochi_add(above, reach, &above);
    }
    fits = fits && lochi_mul(below, layout->element_bytes, &layout->below) &&
           lochi_mul(above, layout->element_bytes, &layout->above) && layout->below <= PTRDIFF_MAX / 2 &&
           /* no memory is larger, and adding one more stride cannot overflow */
           layout->above <= PTRDIFF_MAX / 2 - layout->below;
    return fits ? LOCH_OK : LOCH_FAIL(OVERFLOW, "the strides lead outside of the address space");
}

loch_status lochi_layout_make(loch_dtype dtype, size_t dimensions, const int64_t *shape, const int64_t *strides,
                              lochi_layout *out)
{
    *out = (lochi_layout){.dtype = dtype, .element_bytes = loch_dtype_bytes(dtype), .dimensions = dimensions};
    if (!out->element_bytes) return LOCH_FAIL(INVALID, "%d is not a loch_dtype", (int)dtype);
    if (dimensions > LOCH_DIMENSIONS_MAX)
        return LOCH_FAIL(INVALID, "%zu dimensions are too many: at most %d are supported", dimensions,
                         LOCH_DIMENSIONS_MAX);
    if (dimensions && !shape)
        return LOCH_FAIL(INVALID, "the shape of a tensor with %zu dimensions is NULL", dimensions);
    for (size_t i = 0; i < dimensions; i++) {
        out->shape[i] = shape[i];
        out->strides[i] = strides ? strides[i] : 0;
    }
    LOCH_TRY_RETURN(layout_measure(out));
    if (strides)
        layout_tame(out);
    else
        layout_set_rows(out);
    return layout_reach(out);
}

bool lochi_layout_is_contiguous(const lochi_layout *layout)
{
    int64_t expected = 1;
    for (size_t i = layout->dimensions; layout->elements && i > 0; i--) {
        const int64_t size = layout->shape[i - 1];
        if (size != 1 && layout->strides[i - 1] != expected) return false;
        expected *= size;
    }
    return true;
}

static size_t layout_length(const lochi_layout *layout, size_t axis)
{
    const int64_t stride = layout->strides[axis];
    return stride < 0 ? 0 - (size_t)stride : (size_t)stride;
}

/* Visits axes from the shortest stride to the longest. Each stride must lead beyond everything that the shorter ones
 * reach. Interleaved layouts that never meet are reported as shared too; they do not occur in practice. */
bool lochi_layout_has_shared_places(const lochi_layout *layout)
{
    size_t reached = 0; /* number of elements after the first that the axes so far reach */
    bool is_seen[LOCH_DIMENSIONS_MAX] = {false};
    for (size_t round = 0; layout->elements && round < layout->dimensions; round++) {
        size_t next = LOCH_DIMENSIONS_MAX;
        for (size_t i = 0; i < layout->dimensions; i++) {
            if (is_seen[i] || layout->shape[i] == 1) continue;
            if (next == LOCH_DIMENSIONS_MAX || layout_length(layout, i) < layout_length(layout, next)) next = i;
        }
        if (next == LOCH_DIMENSIONS_MAX) return false;
        if (layout_length(layout, next) <= reached) return true;
        is_seen[next] = true;
        reached += layout_length(layout, next) * ((size_t)layout->shape[next] - 1);
    }
    return false;
}

loch_status lochi_axis_read(size_t dimensions, int axis, size_t *out)
{
    const int count = (int)dimensions;
    if (axis < -count || axis >= count)
        return LOCH_FAIL(INVALID, "axis %d is out of range for a tensor with %d dimensions", axis, count);
    *out = (size_t)(axis < 0 ? axis + count : axis);
    return LOCH_OK;
}
