/* SPDX-License-Identifier: MIT */
/* Copies of tensors to and from new tensors, host memory and single elements. All of them use loch_tensor_copy. */
#include "tensor/contents.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"
#include "tensor/tensor.h"
#include <loch/registry.h>

/* --- copies in new memory --- */

loch_status lochi_contents_copy(loch_tensor *to, loch_tensor *from, loch_stream *stream, loch_wait wait)
{
    const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = stream, .wait = wait};
    return loch_tensor_copy(to, from, &copy);
}

/* Chooses the memory of a copy if the options do not: the allocator of the tensor's own memory. */
static void contents_choose_memory(const loch_tensor *tensor, loch_tensor_options *options)
{
    if (options->allocator || options->device) return;
    options->allocator = loch_buffer_get_allocator(tensor->buffer);
    if (!options->allocator && !loch_tensor_is_on_host(tensor)) options->device = loch_tensor_get_device(tensor);
}

loch_status lochi_contents_alloc(const loch_tensor *from, const lochi_layout *layout,
                                 const loch_tensor_options *options, loch_tensor **out)
{
    loch_tensor_options plain = *options;
    const loch_device *device = plain.allocator ? loch_allocator_get_device(plain.allocator) : plain.device;
    const bool is_its = (plain.stream ? loch_stream_get_device(plain.stream) : loch_tensor_get_device(from)) == device;
    if (!is_its) plain.stream = NULL;
    LOCH_TRY_RETURN(lochi_tensor_alloc(layout, &plain, out));
    if (is_its || !loch_tensor_is_on_host(*out)) return LOCH_OK;
    const loch_status status = loch_stream_sync(loch_stream_get_default(loch_tensor_get_device(*out)));
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

/* Makes a contiguous copy with type `dtype`. */
static loch_status contents_duplicate(loch_tensor *tensor, loch_dtype dtype, loch_tensor_options *options,
                                      loch_tensor **out)
{
    contents_choose_memory(tensor, options);
    options->flags &= ~(uint32_t)LOCH_ALLOC_ZEROED; /* every byte is written */
    lochi_layout rows;
    LOCH_TRY_RETURN(lochi_layout_make(dtype, tensor->layout.dimensions, tensor->layout.shape, NULL, &rows));
    LOCH_TRY_RETURN(lochi_contents_alloc(tensor, &rows, options, out));
    const loch_status status = lochi_contents_copy(*out, tensor, options->stream, LOCH_WAIT_DEFAULT);
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

static loch_status contents_begin(const loch_tensor *tensor, const loch_tensor_options *given, loch_tensor **out,
                                  loch_tensor_options *options)
{
    if (out) *out = NULL;
    if (!tensor || !out) return LOCH_FAIL(INVALID, "a copy of a tensor needs the tensor and an out pointer");
    return lochi_tensor_read_options(given, options);
}

loch_status loch_tensor_clone(loch_tensor *tensor, const loch_tensor_options *options, loch_tensor **out)
{
    loch_tensor_options read;
    LOCH_TRY_RETURN(contents_begin(tensor, options, out, &read));
    return contents_duplicate(tensor, tensor->layout.dtype, &read, out);
}

loch_status loch_tensor_contiguous(loch_tensor *tensor, const loch_tensor_options *options, loch_tensor **out)
{
    loch_tensor_options read;
    LOCH_TRY_RETURN(contents_begin(tensor, options, out, &read));
    if (!lochi_layout_is_contiguous(&tensor->layout))
        return contents_duplicate(tensor, tensor->layout.dtype, &read, out);
    *out = loch_tensor_retain(tensor);
    return LOCH_OK;
}

loch_status loch_tensor_reshape(loch_tensor *tensor, size_t dimensions, const int64_t *shape,
                                const loch_tensor_options *options, loch_tensor **out)
{
    const loch_error saved = lochi_error_save();
    const loch_status status = loch_tensor_view(tensor, dimensions, shape, out);
    if (status != LOCH_E_UNSUPPORTED) return status;
    lochi_error_restore(&saved);
    loch_tensor *rows;
    LOCH_TRY_RETURN(loch_tensor_clone(tensor, options, &rows));
    const loch_status view_status = loch_tensor_view(rows, dimensions, shape, out);
    loch_tensor_release(rows);
    return view_status;
}

loch_status loch_tensor_to(loch_tensor *tensor, loch_dtype dtype, const loch_tensor_options *options, loch_tensor **out)
{
    loch_tensor_options read;
    LOCH_TRY_RETURN(contents_begin(tensor, options, out, &read));
    if (dtype == LOCH_DTYPE_NONE) dtype = tensor->layout.dtype;
    const bool moves = (read.allocator && read.allocator != loch_buffer_get_allocator(tensor->buffer)) ||
                       (read.device && !lochi_tensor_is_at(tensor, read.device));
    if (moves || dtype != tensor->layout.dtype) return contents_duplicate(tensor, dtype, &read, out);
    *out = loch_tensor_retain(tensor);
    return LOCH_OK;
}

loch_status loch_tensor_to_device(loch_tensor *tensor, loch_device *device, loch_stream *stream, loch_tensor **out)
{
    if (out) *out = NULL;
    if (!device) return LOCH_FAIL(INVALID, "the device to copy a tensor to is NULL");
    const loch_tensor_options options = {.size = sizeof options, .device = device, .stream = stream};
    return loch_tensor_to(tensor, LOCH_DTYPE_NONE, &options, out);
}

/* --- host memory --- */

static loch_status contents_check_host(const loch_tensor *tensor, const void *host, size_t bytes)
{
    if (!tensor) return LOCH_FAIL(INVALID, "a copy needs a tensor");
    const size_t own = loch_tensor_get_bytes(tensor);
    if (bytes != own) return LOCH_FAIL(INVALID, "the tensor has %zu bytes, not %zu bytes", own, bytes);
    if (own && !host) return LOCH_FAIL(INVALID, "the address of the host memory is NULL");
    return LOCH_OK;
}

/* Wraps the caller's host memory in a contiguous tensor of the same shape. */
static loch_status contents_wrap(const loch_tensor *tensor, void *host, loch_tensor **out)
{
    const lochi_layout *layout = &tensor->layout;
    LOCH_TRY_RETURN(loch_tensor_wrap(layout->dtype, layout->dimensions, layout->shape, host, NULL, out));
    if (loch_tensor_is_on_host(*out)) return LOCH_OK;
    loch_tensor_clear(out);
    return LOCH_FAIL(INVALID, "%p is not host memory", host);
}

static bool contents_is_aligned(const loch_tensor *tensor, const void *host)
{
    return lochi_is_multiple((uintptr_t)host, tensor->layout.element_bytes);
}

/* Fills host memory that is not aligned for elements: makes a contiguous copy and copies it as bytes. */
static loch_status contents_read_bytes(loch_tensor *tensor, void *to, size_t bytes, loch_stream *stream)
{
    loch_tensor *rows;
    LOCH_TRY_RETURN(loch_tensor_contiguous(
        tensor, &(loch_tensor_options){.size = sizeof(loch_tensor_options), .stream = stream}, &rows));
    loch_status status = lochi_tensor_hold(rows, stream);
    if (status != LOCH_OK) {
        loch_tensor_release(rows);
        return status;
    }
    void *from;
    status = loch_tensor_get_address(rows, &from);
    const bool is_its = stream && loch_stream_get_device(stream) == loch_tensor_get_device(rows);
    const loch_copy_options copy = {.size = sizeof copy, .stream = is_its ? stream : NULL, .wait = LOCH_WAIT_END};
    /* this stream fills the contiguous copy */
    if (status == LOCH_OK && stream && !is_its) status = loch_stream_sync(stream);
    if (status == LOCH_OK) status = loch_copy_with(to, from, bytes, &copy);
    status = lochi_tensor_let_go(rows, stream, status);
    loch_tensor_release(rows);
    return status;
}

loch_status loch_tensor_read(loch_tensor *tensor, void *to, size_t bytes, loch_stream *stream)
{
    LOCH_TRY_RETURN(contents_check_host(tensor, to, bytes));
    if (!bytes) return LOCH_OK;
    if (!contents_is_aligned(tensor, to)) return contents_read_bytes(tensor, to, bytes, stream);
    loch_tensor *host;
    LOCH_TRY_RETURN(contents_wrap(tensor, to, &host));
    const loch_status status = lochi_contents_copy(host, tensor, stream, LOCH_WAIT_END);
    loch_tensor_release(host);
    return status;
}

static loch_status contents_write_bytes(loch_tensor *tensor, const void *from, size_t bytes, loch_stream *stream)
{
    loch_tensor *rows;
    lochi_layout layout;
    LOCH_TRY_RETURN(
        lochi_layout_make(tensor->layout.dtype, tensor->layout.dimensions, tensor->layout.shape, NULL, &layout));
    LOCH_TRY_RETURN(lochi_tensor_alloc(&layout, &(loch_tensor_options){.size = sizeof(loch_tensor_options)}, &rows));
    void *to;
    loch_status status = loch_tensor_get_address(rows, &to);
    if (status == LOCH_OK) status = loch_copy(to, from, bytes);
    if (status == LOCH_OK) status = lochi_contents_copy(tensor, rows, stream, LOCH_WAIT_END);
    loch_tensor_release(rows);
    return status;
}

loch_status loch_tensor_write(loch_tensor *tensor, const void *from, size_t bytes, loch_stream *stream)
{
    LOCH_TRY_RETURN(contents_check_host(tensor, from, bytes));
    LOCH_TRY_RETURN(lochi_tensor_check_writable(tensor));
    if (!bytes) return LOCH_OK;
    if (!contents_is_aligned(tensor, from)) return contents_write_bytes(tensor, from, bytes, stream);
    loch_tensor *host;
    LOCH_TRY_RETURN(contents_wrap(tensor, (void *)(uintptr_t)from, &host)); /* only read, so the cast is safe */
    const loch_status status = lochi_contents_copy(tensor, host, stream, LOCH_WAIT_END);
    loch_tensor_release(host);
    return status;
}

loch_status loch_tensor_create_from(loch_dtype dtype, size_t dimensions, const int64_t *shape, const void *data,
                                    const loch_tensor_options *options, loch_tensor **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the tensor is NULL");
    *out = NULL;
    loch_tensor_options read;
    LOCH_TRY_RETURN(lochi_tensor_read_options(options, &read));
    LOCH_TRY_RETURN(loch_tensor_create(dtype, dimensions, shape, &read, out));
    const loch_status status = loch_tensor_write(*out, data, loch_tensor_get_bytes(*out), read.stream);
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}

/* --- single elements --- */

static loch_status contents_find_item(const loch_tensor *tensor, size_t dimensions, const int64_t *indices, char **out)
{
    if (!tensor || dimensions != tensor->layout.dimensions || (dimensions && !indices))
        return LOCH_FAIL(INVALID, "an element needs a tensor and one index for each of its dimensions");
    int64_t distance = 0;
    for (size_t i = 0; i < dimensions; i++) {
        const int64_t size = tensor->layout.shape[i];
        if (indices[i] < -size || indices[i] >= size)
            return LOCH_FAIL(OUT_OF_RANGE, "index %lld is out of range for axis %zu of size %lld",
                             (long long)indices[i], i, (long long)size);
        if (tensor->layout.elements) distance += (indices[i] + (indices[i] < 0 ? size : 0)) * tensor->layout.strides[i];
    }
    void *first;
    LOCH_TRY_RETURN(loch_tensor_get_address(tensor, &first));
    *out = (char *)first + distance * (int64_t)tensor->layout.element_bytes;
    return LOCH_OK;
}

/* Copies one element to or from `element`, which is a variable of the caller. */
static loch_status contents_move_item(const loch_tensor *tensor, uint64_t *element, void *to, const void *from,
                                      loch_stream *stream)
{
    const loch_copy_options copy = {.size = sizeof copy, .stream = stream, .wait = LOCH_WAIT_END};
    lochi_host_scope element_scope, tensor_scope;
    lochi_ranges_begin_host(&element_scope, element, sizeof *element);
    lochi_buffer_begin_host(tensor->buffer, &tensor_scope);
    const loch_status status = loch_copy_with(to, from, tensor->layout.element_bytes, &copy);
    lochi_ranges_end_host(&tensor_scope);
    lochi_ranges_end_host(&element_scope);
    return status;
}

static loch_status contents_get_item(loch_tensor *tensor, size_t dimensions, const int64_t *indices,
                                     loch_stream *stream, loch_scalar *out)
{
    char *from;
    LOCH_TRY_RETURN(contents_find_item(tensor, dimensions, indices, &from));
    uint64_t element;
    LOCH_TRY_RETURN(contents_move_item(tensor, &element, &element, from, stream));
    return loch_scalar_load(tensor->layout.dtype, &element, out);
}

loch_status loch_tensor_read_item(loch_tensor *tensor, size_t dimensions, const int64_t *indices, loch_stream *stream,
                                  loch_scalar *out)
{
    if (!tensor || !out) return LOCH_FAIL(INVALID, "reading an element needs a tensor and an out pointer");
    LOCH_TRY_RETURN(lochi_tensor_hold(tensor, stream));
    return lochi_tensor_let_go(tensor, stream, contents_get_item(tensor, dimensions, indices, stream, out));
}

static loch_status contents_set_item(loch_tensor *tensor, size_t dimensions, const int64_t *indices, loch_scalar value,
                                     loch_stream *stream)
{
    char *to;
    LOCH_TRY_RETURN(contents_find_item(tensor, dimensions, indices, &to));
    LOCH_TRY_RETURN(lochi_tensor_check_writable(tensor));
    uint64_t element;
    LOCH_TRY_RETURN(loch_scalar_store(value, tensor->layout.dtype, &element));
    return contents_move_item(tensor, &element, to, &element, stream);
}

loch_status loch_tensor_write_item(loch_tensor *tensor, size_t dimensions, const int64_t *indices, loch_scalar value,
                                   loch_stream *stream)
{
    if (!tensor) return LOCH_FAIL(INVALID, "writing an element needs a tensor");
    LOCH_TRY_RETURN(lochi_tensor_hold(tensor, stream));
    const loch_status status = contents_set_item(tensor, dimensions, indices, value, stream);
    lochi_buffer_touch(tensor->buffer);
    return lochi_tensor_let_go(tensor, stream, status);
}
