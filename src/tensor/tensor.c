/* SPDX-License-Identifier: MIT */
/* Tensors: create, retain, release, and their properties. */
#include "tensor/tensor.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"
#include <loch/registry.h>
#include <string.h>

/* --- on buffers --- */

static loch_status tensor_check_fit(const loch_buffer *buffer, size_t offset, const lochi_layout *layout)
{
    if (!layout->elements) return LOCH_OK;
    const size_t bytes = loch_buffer_get_bytes(buffer);
    if (offset < layout->below || offset > bytes || layout->above > bytes - offset)
        return LOCH_FAIL(OUT_OF_RANGE,
                         "the tensor needs %zu bytes before and %zu bytes from offset %zu on, and does not fit the "
                         "buffer of %zu bytes",
                         layout->below, layout->above, offset, bytes);
    /* Checks that the part was not cut off by a resize. The future address of a movable buffer is not known, but it is
     * aligned like any block. */
    LOCH_TRY_RETURN(lochi_buffer_check(buffer, offset - layout->below, layout->below + layout->above));
    const uintptr_t start =
        loch_buffer_is_movable(buffer) ? buffer->offset : (uintptr_t)loch_buffer_get_address(buffer);
    if (!lochi_is_multiple(start + offset, layout->element_bytes))
        return LOCH_FAIL(INVALID, "offset %zu of the buffer is not aligned for elements of %zu bytes", offset,
                         layout->element_bytes);
    return LOCH_OK;
}

loch_status lochi_tensor_make(loch_buffer *buffer, size_t offset, const lochi_layout *layout, loch_tensor **out)
{
    *out = NULL;
    LOCH_TRY_RETURN(tensor_check_fit(buffer, offset, layout));
    loch_tensor *tensor = lochi_zalloc(sizeof *tensor);
    if (!tensor) return LOCH_FAIL(HOST_MEMORY, "no host memory for a tensor");
    atomic_init(&tensor->references, 1);
    tensor->buffer = loch_buffer_retain(buffer);
    tensor->offset = layout->elements ? offset : 0;
    tensor->layout = *layout;
    *out = tensor;
    return LOCH_OK;
}

loch_status loch_tensor_create_in(loch_buffer *buffer, size_t offset_bytes, loch_dtype dtype, size_t dimensions,
                                  const int64_t *shape, const int64_t *strides, loch_tensor **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "a tensor on a buffer needs the buffer and an out pointer");
    lochi_layout layout;
    LOCH_TRY_RETURN(lochi_layout_make(dtype, dimensions, shape, strides, &layout));
    return lochi_tensor_make(buffer, offset_bytes, &layout, out);
}

/* --- with new memory --- */

loch_status lochi_tensor_read_options(const loch_tensor_options *given, loch_tensor_options *out)
{
    *out = (loch_tensor_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of tensor options", given, out, sizeof *out));
    if (out->allocator && out->device && loch_allocator_get_device(out->allocator) != out->device)
        return LOCH_FAIL(INVALID, "allocator \"%s\" does not belong to device %s",
                         loch_allocator_get_name(out->allocator), loch_device_get_name(out->device));
    if (out->name && strlen(out->name) >= LOCH_TENSOR_NAME_MAX)
        return LOCH_FAIL(INVALID, "the name of the tensor is too long: at most %d characters are allowed",
                         LOCH_TENSOR_NAME_MAX - 1);
    return LOCH_OK;
}

static loch_status tensor_make_buffer(size_t bytes, const loch_tensor_options *options, loch_buffer **out)
{
    const loch_request request = {.size = sizeof request,
                                  .alignment = options->alignment,
                                  .stream = options->stream,
                                  .tag = options->tag,
                                  .flags = options->flags,
                                  .timeout_ns = options->timeout_ns,
                                  .round_bytes = options->round_bytes};
    return options->allocator ? loch_buffer_create(options->allocator, bytes, &request, out)
                              : loch_buffer_create_for_device(options->device, bytes, &request, out);
}

loch_status lochi_tensor_alloc(const lochi_layout *layout, const loch_tensor_options *options, loch_tensor **out)
{
    *out = NULL;
    loch_buffer *buffer;
    LOCH_TRY_RETURN(tensor_make_buffer(layout->elements * layout->element_bytes, options, &buffer));
    const loch_status status = lochi_tensor_make(buffer, 0, layout, out);
    loch_buffer_release(buffer);
    if (status == LOCH_OK && options->name) strcpy((*out)->name, options->name); /* its length was checked */
    return status;
}

loch_status loch_tensor_create(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                               const loch_tensor_options *options, loch_tensor **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the tensor is NULL");
    *out = NULL;
    loch_tensor_options read;
    LOCH_TRY_RETURN(lochi_tensor_read_options(options, &read));
    lochi_layout layout;
    LOCH_TRY_RETURN(lochi_layout_make(dtype, dimensions, shape, NULL, &layout));
    return lochi_tensor_alloc(&layout, &read, out);
}

loch_status loch_tensor_wrap(loch_dtype dtype, size_t dimensions, const int64_t *shape, void *address,
                             const loch_external *external, loch_tensor **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the tensor is NULL");
    *out = NULL;
    lochi_layout layout;
    LOCH_TRY_RETURN(lochi_layout_make(dtype, dimensions, shape, NULL, &layout));
    if (layout.elements && !lochi_is_multiple((uintptr_t)address, layout.element_bytes))
        return LOCH_FAIL(INVALID, "%p is not aligned for elements of %zu bytes", address, layout.element_bytes);
    /* everything that can fail comes before the deleter is taken over */
    loch_external plain = {.size = sizeof plain};
    LOCH_TRY_RETURN(lochi_sized_read("a description of memory from outside", external, &plain, sizeof plain));
    loch_buffer_deleter *deleter = plain.deleter;
    plain.deleter = NULL;
    loch_buffer *buffer;
    LOCH_TRY_RETURN(loch_buffer_wrap(address, layout.elements * layout.element_bytes, &plain, &buffer));
    const loch_status status = lochi_tensor_make(buffer, 0, &layout, out);
    if (status == LOCH_OK) buffer->deleter = deleter;
    loch_buffer_release(buffer);
    return status;
}

/* --- retain and release --- */

loch_tensor *loch_tensor_retain(loch_tensor *tensor)
{
    /* relaxed: the caller holds a reference already */
    if (tensor) atomic_fetch_add_explicit(&tensor->references, 1, memory_order_relaxed);
    return tensor;
}

void loch_tensor_release(loch_tensor *tensor)
{
    /* acquire and release: the thread that destroys it sees the writes of all others */
    if (!tensor || atomic_fetch_sub_explicit(&tensor->references, 1, memory_order_acq_rel) != 1) return;
    loch_buffer_release(tensor->buffer);
    lochi_free(tensor);
}

/* --- properties --- */

loch_dtype loch_tensor_get_dtype(const loch_tensor *tensor)
{
    return tensor ? tensor->layout.dtype : LOCH_DTYPE_NONE;
}

size_t loch_tensor_get_dimensions(const loch_tensor *tensor)
{
    return tensor ? tensor->layout.dimensions : 0;
}

static const int64_t tensor_no_sizes[1] = {0};

const int64_t *loch_tensor_get_shape(const loch_tensor *tensor)
{
    return tensor ? tensor->layout.shape : tensor_no_sizes;
}

const int64_t *loch_tensor_get_strides(const loch_tensor *tensor)
{
    return tensor ? tensor->layout.strides : tensor_no_sizes;
}

int64_t loch_tensor_get_size(const loch_tensor *tensor, int axis)
{
    const int count = (int)loch_tensor_get_dimensions(tensor);
    if (axis < -count || axis >= count) return -1;
    return tensor->layout.shape[axis < 0 ? axis + count : axis];
}

size_t loch_tensor_get_elements(const loch_tensor *tensor)
{
    return tensor ? tensor->layout.elements : 0;
}

size_t loch_tensor_get_bytes(const loch_tensor *tensor)
{
    return tensor ? tensor->layout.elements * tensor->layout.element_bytes : 0;
}

int loch_tensor_is_contiguous(const loch_tensor *tensor)
{
    return tensor && lochi_layout_is_contiguous(&tensor->layout);
}

int loch_tensor_is_on_host(const loch_tensor *tensor)
{
    return tensor && loch_buffer_is_on_host(tensor->buffer);
}

bool lochi_tensor_is_at(const loch_tensor *tensor, const loch_device *device)
{
    const loch_device *own = loch_tensor_get_device(tensor);
    if (loch_device_can(device, LOCH_CAN_HOST_ACCESS)) return !own || own == device;
    return own == device && !loch_tensor_is_on_host(tensor);
}

loch_buffer *loch_tensor_get_buffer(const loch_tensor *tensor)
{
    return tensor ? tensor->buffer : NULL;
}

size_t loch_tensor_get_offset(const loch_tensor *tensor)
{
    return tensor ? tensor->offset : 0;
}

loch_device *loch_tensor_get_device(const loch_tensor *tensor)
{
    return tensor ? loch_buffer_get_device(tensor->buffer) : NULL;
}

loch_status loch_tensor_get_address(const loch_tensor *tensor, void **out)
{
    if (out) *out = NULL;
    if (!tensor || !out) return LOCH_FAIL(INVALID, "the address of a tensor needs the tensor and an out pointer");
    const lochi_layout *layout = &tensor->layout;
    if (!layout->elements) return LOCH_OK;
    char *lowest;
    LOCH_TRY_RETURN(
        lochi_buffer_locate(tensor->buffer, tensor->offset - layout->below, layout->below + layout->above, &lowest));
    *out = lowest + layout->below;
    return LOCH_OK;
}

loch_access loch_tensor_get_access(const loch_tensor *tensor)
{
    return tensor ? loch_buffer_get_access(tensor->buffer) : LOCH_READ_ONLY;
}

const char *loch_tensor_get_name(const loch_tensor *tensor)
{
    return tensor ? tensor->name : "";
}

loch_status lochi_tensor_set_name(loch_tensor *tensor, const char *name)
{
    if (!tensor) return LOCH_FAIL(INVALID, "the tensor to name is NULL");
    const size_t length = name ? strlen(name) : 0;
    if (length >= LOCH_TENSOR_NAME_MAX)
        return LOCH_FAIL(INVALID, "the name of the tensor is too long: at most %d characters are allowed",
                         LOCH_TENSOR_NAME_MAX - 1);
    memmove(tensor->name, name ? name : "", length + 1);
    return LOCH_OK;
}

loch_status lochi_tensor_hold(const loch_tensor *tensor, loch_stream *stream)
{
    return lochi_buffer_hold(tensor->buffer, stream);
}

loch_status lochi_tensor_let_go(const loch_tensor *tensor, loch_stream *stream, loch_status status)
{
    return lochi_first_failure(status, lochi_buffer_let_go(tensor->buffer, stream));
}

loch_status lochi_tensor_check_writable(const loch_tensor *tensor)
{
    LOCH_TRY_RETURN(lochi_buffer_check_writable(tensor->buffer));
    if (lochi_layout_has_shared_places(&tensor->layout))
        return LOCH_FAIL(INVALID, "elements of the tensor share memory: it cannot be written");
    return LOCH_OK;
}
