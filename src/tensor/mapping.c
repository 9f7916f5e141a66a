/* SPDX-License-Identifier: MIT */
/* Maps tensors for the host: in place if the host can access them, otherwise through a contiguous copy. */
#include "base/fail.h"
#include "base/heap.h"
#include "memory/buffer/buffer.h"
#include "tensor/contents.h"
#include <loch/registry.h>

struct lochi_mapping {
    loch_tensor *tensor; /* retained; pinned if it is movable */
    bool is_pinned;
    loch_tensor *copy; /* contiguous, on the host; NULL if the tensor is mapped in place */
    loch_map_access access;
};

static void mapping_end(struct lochi_mapping *mapping)
{
    const loch_error saved = lochi_error_save();
    if (mapping->is_pinned && lochi_tensor_let_go(mapping->tensor, NULL, LOCH_OK) != LOCH_OK)
        lochi_error_restore(&saved); /* the host has waited for all work, so nothing is lost */
    loch_tensor_release(mapping->copy);
    loch_tensor_release(mapping->tensor);
    lochi_free(mapping);
}

static loch_status mapping_wait(const loch_tensor *tensor, loch_stream *stream)
{
    loch_device *device = loch_tensor_get_device(tensor);
    if (!stream && device) stream = loch_stream_get_default(device);
    return stream ? loch_stream_sync(stream) : LOCH_OK;
}

/* Allocates the copy, ordered by `stream` like the copy itself. Uses pinned memory if the device has it: copies are
 * several times faster. */
static loch_status mapping_alloc(const loch_tensor *tensor, loch_stream *stream, loch_tensor **out)
{
    loch_allocator *allocator;
    const loch_attributes pinned = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    LOCH_TRY_RETURN(
        loch_device_acquire_allocator(loch_tensor_get_device(tensor), pinned, LOCH_FALLBACK_PAGEABLE, &allocator));
    const loch_tensor_options options = {.size = sizeof options, .allocator = allocator, .stream = stream};
    lochi_layout rows;
    loch_status status =
        lochi_layout_make(tensor->layout.dtype, tensor->layout.dimensions, tensor->layout.shape, NULL, &rows);
    if (status == LOCH_OK) status = lochi_contents_alloc(tensor, &rows, &options, out);
    loch_allocator_release(allocator);
    return status;
}

static loch_status mapping_fill(struct lochi_mapping *mapping, loch_stream *stream, loch_mapping *out)
{
    loch_tensor *shown = mapping->tensor;
    if (loch_tensor_is_on_host(shown)) {
        LOCH_TRY_RETURN(mapping_wait(shown, stream));
    } else {
        LOCH_TRY_RETURN(mapping_alloc(shown, stream, &mapping->copy));
        shown = mapping->copy;
        LOCH_TRY_RETURN(mapping->access == LOCH_MAP_WRITE
                            ? mapping_wait(mapping->tensor, stream)
                            : lochi_contents_copy(shown, mapping->tensor, stream, LOCH_WAIT_END));
    }
    for (size_t i = 0; i < shown->layout.dimensions; i++)
        out->strides[i] = shown->layout.strides[i];
    return loch_tensor_get_address(shown, &out->address);
}

loch_status loch_tensor_map(loch_tensor *tensor, loch_map_access access, loch_stream *stream, loch_mapping *out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the mapping is NULL");
    *out = (loch_mapping){0};
    if (!tensor || (unsigned)access > LOCH_MAP_READ_WRITE)
        return LOCH_FAIL(INVALID, "a mapping needs a tensor and a valid loch_map_access value");
    if (access != LOCH_MAP_READ) LOCH_TRY_RETURN(lochi_tensor_check_writable(tensor));
    struct lochi_mapping *mapping = lochi_zalloc(sizeof *mapping);
    if (!mapping) return LOCH_FAIL(HOST_MEMORY, "no host memory for a mapping");
    mapping->tensor = loch_tensor_retain(tensor);
    mapping->access = access;
    loch_status status = lochi_tensor_hold(tensor, stream);
    mapping->is_pinned = status == LOCH_OK;
    if (status == LOCH_OK) status = mapping_fill(mapping, stream, out);
    if (status == LOCH_OK) {
        out->inside = mapping;
        return LOCH_OK;
    }
    mapping_end(mapping);
    *out = (loch_mapping){0};
    return status;
}

loch_status loch_tensor_unmap(loch_mapping *mapping, loch_stream *stream)
{
    if (!mapping || !mapping->inside) return LOCH_OK;
    struct lochi_mapping *inside = mapping->inside;
    *mapping = (loch_mapping){0};
    loch_status status = LOCH_OK;
    if (inside->copy && inside->access != LOCH_MAP_READ)
        status = lochi_contents_copy(inside->tensor, inside->copy, stream, LOCH_WAIT_END);
    if (inside->access != LOCH_MAP_READ) lochi_buffer_touch(inside->tensor->buffer);
    mapping_end(inside);
    return status;
}
