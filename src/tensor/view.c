/* SPDX-License-Identifier: MIT */
/* Views: other shapes and strides on the same buffer. Each function computes the new layout and the offset of the first
 * element. */
#include "base/checked.h"
#include "base/fail.h"
#include "tensor/tensor.h"
#include <string.h>

/* The plan of a view. It starts as a copy of the tensor's layout, is changed, and then made into a tensor. */
typedef struct view_plan {
    loch_tensor *tensor;
    loch_dtype dtype;
    size_t dimensions;
    int64_t shape[LOCH_DIMENSIONS_MAX];
    int64_t strides[LOCH_DIMENSIONS_MAX];
    int64_t moved; /* offset of the first element, in elements of the tensor's type */
} view_plan;

static loch_status view_begin(loch_tensor *tensor, loch_tensor **out, view_plan *view)
{
    if (out) *out = NULL;
    if (!tensor || !out) return LOCH_FAIL(INVALID, "a view needs a tensor and an out pointer");
    const lochi_layout *layout = &tensor->layout;
    view->tensor = tensor;
    view->dtype = layout->dtype;
    view->dimensions = layout->dimensions;
    view->moved = 0;
    memcpy(view->shape, layout->shape, sizeof view->shape);
    memcpy(view->strides, layout->strides, sizeof view->strides);
    return LOCH_OK;
}

static loch_status view_end(const view_plan *view, loch_tensor **out)
{
    lochi_layout layout;
    LOCH_TRY_RETURN(lochi_layout_make(view->dtype, view->dimensions, view->shape, view->strides, &layout));
    /* Cannot overflow: the offset lies inside the tensor. A view without elements has offset 0. */
    const int64_t moved = layout.elements ? view->moved * (int64_t)view->tensor->layout.element_bytes : 0;
    return lochi_tensor_make(view->tensor->buffer, (size_t)((int64_t)view->tensor->offset + moved), &layout, out);
}

static void view_remove_axis(view_plan *view, size_t axis)
{
    view->dimensions--;
    for (size_t i = axis; i < view->dimensions; i++) {
        view->shape[i] = view->shape[i + 1];
        view->strides[i] = view->strides[i + 1];
    }
}

/* --- one axis --- */

/* Reads a bound of a slice: open, counted from the end, or clipped to [low, high]. */
static int64_t view_slice_bound(int64_t bound, int64_t size, int64_t open, int64_t low, int64_t high)
{
    if (bound == LOCH_OPEN) return open;
    if (bound < 0) bound += size;
    if (bound < low) return low;
    return bound > high ? high : bound;
}

/* Returns the number of values start, start + step, ... before stop. The step is not 0. Distances are unsigned: they
 * may be larger than any index. */
static int64_t view_slice_count(int64_t start, int64_t stop, int64_t step)
{
    const bool is_forward = step > 0;
    if (is_forward ? start >= stop : start <= stop) return 0;
    const uint64_t distance = is_forward ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t length = is_forward ? (uint64_t)step : 0 - (uint64_t)step;
    return (int64_t)((distance - 1) / length + 1);
}

loch_status loch_tensor_slice(loch_tensor *tensor, int axis, int64_t start, int64_t stop, int64_t step,
                              loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    size_t at;
    LOCH_TRY_RETURN(lochi_axis_read(view.dimensions, axis, &at));
    if (!step) return LOCH_FAIL(INVALID, "the step of a slice must not be 0");
    const int64_t size = view.shape[at];
    if (step > 0) {
        start = view_slice_bound(start, size, 0, 0, size);
        stop = view_slice_bound(stop, size, size, 0, size);
    } else {
        start = view_slice_bound(start, size, size - 1, -1, size - 1);
        stop = view_slice_bound(stop, size, -1, -1, size - 1);
    }
    view.shape[at] = view_slice_count(start, stop, step);
    if (tensor->layout.elements && view.shape[at]) { /* no product leads outside of the tensor */
        view.moved = start * view.strides[at];
        if (view.shape[at] > 1) view.strides[at] *= step;
    }
    return view_end(&view, out);
}

loch_status loch_tensor_index(loch_tensor *tensor, int axis, int64_t index, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    size_t at;
    LOCH_TRY_RETURN(lochi_axis_read(view.dimensions, axis, &at));
    const int64_t size = view.shape[at];
    if (index < -size || index >= size)
        return LOCH_FAIL(OUT_OF_RANGE, "index %lld is out of range for an axis of size %lld", (long long)index,
                         (long long)size);
    if (tensor->layout.elements) view.moved = (index < 0 ? index + size : index) * view.strides[at];
    view_remove_axis(&view, at);
    return view_end(&view, out);
}

loch_status loch_tensor_squeeze_axis(loch_tensor *tensor, int axis, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    size_t at;
    LOCH_TRY_RETURN(lochi_axis_read(view.dimensions, axis, &at));
    if (view.shape[at] != 1)
        return LOCH_FAIL(INVALID, "axis %d has size %lld, not 1: it cannot be removed", axis,
                         (long long)view.shape[at]);
    view_remove_axis(&view, at);
    return view_end(&view, out);
}

loch_status loch_tensor_unsqueeze(loch_tensor *tensor, int axis, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    size_t at;
    LOCH_TRY_RETURN(lochi_axis_read(view.dimensions + 1, axis, &at));
    if (view.dimensions == LOCH_DIMENSIONS_MAX)
        return LOCH_FAIL(INVALID, "the view would have more than %d dimensions", LOCH_DIMENSIONS_MAX);
    for (size_t i = view.dimensions; i > at; i--) {
        view.shape[i] = view.shape[i - 1];
        view.strides[i] = view.strides[i - 1];
    }
    /* as in a contiguous tensor: size times stride of the next axis; this overflows only if no stride is used */
    if (at == view.dimensions || __builtin_mul_overflow(view.shape[at + 1], view.strides[at + 1], &view.strides[at]))
        view.strides[at] = 1;
    view.shape[at] = 1;
    view.dimensions++;
    return view_end(&view, out);
}

/* --- all axes --- */

loch_status loch_tensor_transpose(loch_tensor *tensor, int axis, int other, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    size_t a, b;
    LOCH_TRY_RETURN(lochi_axis_read(view.dimensions, axis, &a));
    LOCH_TRY_RETURN(lochi_axis_read(view.dimensions, other, &b));
    const lochi_layout *layout = &tensor->layout;
    view.shape[a] = layout->shape[b];
    view.strides[a] = layout->strides[b];
    view.shape[b] = layout->shape[a];
    view.strides[b] = layout->strides[a];
    return view_end(&view, out);
}

loch_status loch_tensor_permute(loch_tensor *tensor, size_t dimensions, const int *axes, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    if (dimensions != view.dimensions || (dimensions && !axes))
        return LOCH_FAIL(INVALID, "a tensor with %zu dimensions cannot be permuted by %zu axes", view.dimensions,
                         dimensions);
    bool is_used[LOCH_DIMENSIONS_MAX] = {false};
    for (size_t i = 0; i < dimensions; i++) {
        size_t from;
        LOCH_TRY_RETURN(lochi_axis_read(dimensions, axes[i], &from));
        if (is_used[from]) return LOCH_FAIL(INVALID, "axis %zu is in the list twice", from);
        is_used[from] = true;
        view.shape[i] = tensor->layout.shape[from];
        view.strides[i] = tensor->layout.strides[from];
    }
    return view_end(&view, out);
}

loch_status loch_tensor_squeeze(loch_tensor *tensor, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    for (size_t i = view.dimensions; i > 0; i--)
        if (view.shape[i - 1] == 1) view_remove_axis(&view, i - 1);
    return view_end(&view, out);
}

loch_status loch_tensor_expand(loch_tensor *tensor, size_t dimensions, const int64_t *shape, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    const size_t own = view.dimensions;
    if (dimensions < own || dimensions > LOCH_DIMENSIONS_MAX || (dimensions && !shape))
        return LOCH_FAIL(INVALID, "a tensor with %zu dimensions cannot be expanded to %zu dimensions", own, dimensions);
    const size_t added = dimensions - own;
    for (size_t i = 0; i < dimensions; i++) {
        const int64_t size = i < added ? 1 : tensor->layout.shape[i - added];
        const bool is_stretched = size == 1 && shape[i] != 1;
        if (size != shape[i] && !is_stretched)
            return LOCH_FAIL(INVALID, "an axis of size %lld cannot be expanded to size %lld", (long long)size,
                             (long long)shape[i]);
        view.shape[i] = shape[i];
        view.strides[i] = i < added || is_stretched ? 0 : tensor->layout.strides[i - added];
    }
    view.dimensions = dimensions;
    return view_end(&view, out);
}

/* --- other shapes --- */

/* Reads a shape in which one size may be -1. */
static loch_status view_read_shape(const loch_tensor *tensor, size_t dimensions, const int64_t *shape, int64_t *out)
{
    if (dimensions > LOCH_DIMENSIONS_MAX || (dimensions && !shape))
        return LOCH_FAIL(INVALID, "the shape is NULL or has more than %d dimensions", LOCH_DIMENSIONS_MAX);
    const size_t elements = tensor->layout.elements;
    size_t known = 1, open = dimensions;
    for (size_t i = 0; i < dimensions; i++) {
        out[i] = shape[i];
        if (shape[i] == -1 && open == dimensions)
            open = i;
        else if (shape[i] < 0)
            return LOCH_FAIL(INVALID, "dimension %zu has the negative size %lld", i, (long long)shape[i]);
        else if (!lochi_mul(known, (size_t)shape[i], &known))
            return LOCH_FAIL(OVERFLOW, "a tensor of this shape does not fit the address space");
    }
    if (open == dimensions && known == elements) return LOCH_OK;
    if (open == dimensions || !known || elements % known)
        return LOCH_FAIL(INVALID, "the shape does not match the tensor's %zu elements", elements);
    out[open] = (int64_t)(elements / known);
    return LOCH_OK;
}

/* Finds strides for a new shape on the same elements. Both shapes are divided into the shortest groups of axes with
 * equal numbers of elements. The old axes of a group must form one row of elements at equal distances, which the new
 * axes then divide. */
static bool view_find_strides(const lochi_layout *layout, size_t dimensions, const int64_t *shape, int64_t *strides)
{
    size_t old = 0, new = 0;
    while (new < dimensions) {
        int64_t old_count = 1, new_count = shape[new];
        int64_t distance = 1;
        const size_t new_first = new ++;
        bool is_begun = false;
        while (old < layout->dimensions && (old_count < new_count || layout->shape[old] == 1)) {
            const int64_t size = layout->shape[old], stride = layout->strides[old];
            old++;
            if (size == 1) continue;
            if (is_begun && distance != size * stride) return false;
            distance = stride;
            is_begun = true;
            old_count *= size;
            while (new_count < old_count && new < dimensions)
                new_count *= shape[new ++];
        }
        while (new < dimensions && shape[new] == 1)
            new ++;
        for (size_t i = new; i > new_first; i--) {
            strides[i - 1] = distance;
            distance *= shape[i - 1];
        }
    }
    return true;
}

loch_status loch_tensor_view(loch_tensor *tensor, size_t dimensions, const int64_t *shape, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    LOCH_TRY_RETURN(view_read_shape(tensor, dimensions, shape, view.shape));
    view.dimensions = dimensions;
    if (!tensor->layout.elements) {
        lochi_layout rows;
        LOCH_TRY_RETURN(lochi_layout_make(view.dtype, dimensions, view.shape, NULL, &rows));
        return lochi_tensor_make(tensor->buffer, 0, &rows, out);
    }
    if (!view_find_strides(&tensor->layout, dimensions, view.shape, view.strides))
        return LOCH_FAIL(UNSUPPORTED, "the strides of the tensor do not allow this shape without a copy");
    return view_end(&view, out);
}

/* --- other types --- */

/* Splits each element into `ratio` smaller ones. Strides that are never followed, and might overflow, stay
 * unchanged. */
static loch_status view_split(view_plan *view, int64_t ratio)
{
    const size_t last = view->dimensions - 1;
    for (size_t i = 0; i < last; i++)
        if (view->tensor->layout.elements && view->shape[i] > 1) view->strides[i] *= ratio;
    if (__builtin_mul_overflow(view->shape[last], ratio, &view->shape[last]))
        return LOCH_FAIL(OVERFLOW, "a tensor of this shape does not fit the address space");
    view->strides[last] = 1;
    return LOCH_OK;
}

/* Joins `ratio` elements into one larger element. */
static loch_status view_join(view_plan *view, int64_t ratio)
{
    const size_t last = view->dimensions - 1;
    if (view->shape[last] % ratio)
        return LOCH_FAIL(INVALID, "the last axis has %lld elements, which is not a multiple of %lld",
                         (long long)view->shape[last], (long long)ratio);
    for (size_t i = 0; i < last; i++) {
        if (view->strides[i] % ratio && view->shape[i] > 1)
            return LOCH_FAIL(UNSUPPORTED, "the stride of axis %zu does not allow elements of this size", i);
        view->strides[i] /= ratio;
    }
    view->shape[last] /= ratio;
    view->strides[last] = 1;
    return LOCH_OK;
}

loch_status loch_tensor_view_as(loch_tensor *tensor, loch_dtype dtype, loch_tensor **out)
{
    view_plan view;
    LOCH_TRY_RETURN(view_begin(tensor, out, &view));
    const size_t from = tensor->layout.element_bytes, to = loch_dtype_bytes(dtype);
    if (!to) return LOCH_FAIL(INVALID, "%d is not a loch_dtype", (int)dtype);
    view.dtype = dtype;
    if (from != to) {
        const size_t last = view.dimensions - 1;
        if (!view.dimensions || (view.shape[last] > 1 && view.strides[last] != 1))
            return LOCH_FAIL(UNSUPPORTED, "a view with elements of another size needs a contiguous last axis");
        LOCH_TRY_RETURN(from > to ? view_split(&view, (int64_t)(from / to)) : view_join(&view, (int64_t)(to / from)));
    }
    return view_end(&view, out);
}

/* --- pieces --- */

loch_status loch_tensor_chunk(loch_tensor *tensor, int axis, size_t chunks, loch_tensor **out, size_t *count)
{
    if (count) *count = 0;
    for (size_t i = 0; out && i < chunks; i++)
        out[i] = NULL;
    if (!tensor || !out || !count || !chunks)
        return LOCH_FAIL(INVALID, "chunks need a tensor, a number above 0 and out pointers");
    size_t at;
    LOCH_TRY_RETURN(lochi_axis_read(tensor->layout.dimensions, axis, &at));
    const int64_t size = tensor->layout.shape[at];
    const int64_t length = size ? (int64_t)(((size_t)size - 1) / chunks + 1) : 0;
    for (size_t i = 0; i < chunks && (!size || (int64_t)i * length < size); i++) {
        const int64_t start = (int64_t)i * length, stop = size - start < length ? size : start + length;
        const loch_status status = loch_tensor_slice(tensor, axis, start, stop, 1, &out[i]);
        if (status != LOCH_OK) {
            while (i > 0)
                loch_tensor_clear(&out[--i]);
            *count = 0;
            return status;
        }
        *count = i + 1;
    }
    return LOCH_OK;
}
