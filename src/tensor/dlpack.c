/* SPDX-License-Identifier: MIT */
/* Exchange of tensors with other libraries by DLPack.
 *
 * An export is one allocation with the structure, the shape and the strides. It holds the buffer, not the tensor, so
 * binding the tensor to another buffer later does not change it. `data` is the address of the element with all indices
 * 0, and `byte_offset` is 0, as in NumPy, PyTorch and CuPy. `data` need not be a multiple of 256.
 *
 * An import is a buffer on external memory with exactly the bytes that the tensor reaches. With negative strides they
 * begin before the element with all indices 0. The deleter of the buffer is that of the structure. */
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"
#include "tensor/dlpack_abi.h"
#include "tensor/tensor.h"
#include <loch/dlpack.h>
#include <stdio.h>
#include <string.h>

/* --- types --- */

static const struct DLDataType dlpack_types[LOCH_DTYPE_COUNT] = {
    [LOCH_F64] = {LOCHI_DL_FLOAT, 64, 1},
    [LOCH_F32] = {LOCHI_DL_FLOAT, 32, 1},
    [LOCH_F16] = {LOCHI_DL_FLOAT, 16, 1},
    [LOCH_BF16] = {LOCHI_DL_BFLOAT, 16, 1},
    [LOCH_F8E4M3] = {LOCHI_DL_FLOAT8_E4M3FN, 8, 1},
    [LOCH_F8E5M2] = {LOCHI_DL_FLOAT8_E5M2, 8, 1},
    [LOCH_I8] = {LOCHI_DL_INT, 8, 1},
    [LOCH_I16] = {LOCHI_DL_INT, 16, 1},
    [LOCH_I32] = {LOCHI_DL_INT, 32, 1},
    [LOCH_I64] = {LOCHI_DL_INT, 64, 1},
    [LOCH_U8] = {LOCHI_DL_UINT, 8, 1},
    [LOCH_U16] = {LOCHI_DL_UINT, 16, 1},
    [LOCH_U32] = {LOCHI_DL_UINT, 32, 1},
    [LOCH_U64] = {LOCHI_DL_UINT, 64, 1},
    [LOCH_BOOL] = {LOCHI_DL_BOOL, 8, 1},
};

static loch_status dlpack_read_type(struct DLDataType type, loch_dtype *out)
{
    if (type.lanes != 1)
        return LOCH_FAIL(
            UNSUPPORTED,
            "the elements of the DLPack tensor are vectors of %u numbers; only single numbers are supported",
            (unsigned)type.lanes);
    for (int i = LOCH_DTYPE_NONE + 1; i < LOCH_DTYPE_COUNT; i++) {
        if (dlpack_types[i].code != type.code || dlpack_types[i].bits != type.bits) continue;
        *out = (loch_dtype)i;
        return LOCH_OK;
    }
    return LOCH_FAIL(UNSUPPORTED, "the DLPack tensor has type code %u with %u bits; Loch has no such type",
                     (unsigned)type.code, (unsigned)type.bits);
}

/* --- export --- */

/* An export. The structure is its first member, so both have the same address. */
typedef struct dlpack_exported {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor legacy;
    } managed;
    loch_buffer *buffer; /* retained; pinned if it is movable */
    bool is_pinned;
    loch_device *receiver;    /* device of the receiver's stream, retained; NULL if no stream was given */
    uint64_t receiver_stream; /* id of that stream */
    int64_t shape_and_strides[];
} dlpack_exported;

/* Records the use of the memory by the receiver's stream, if that stream still exists. The receiver may call the
 * deleter while its stream still works on the memory. */
static void dlpack_note_use(const dlpack_exported *exported)
{
    if (!exported->receiver) return;
    loch_stream *stream = lochi_stream_find(exported->receiver, exported->receiver_stream);
    if (!stream) return;
    const loch_error saved = lochi_error_save();
    if (loch_buffer_record_use(exported->buffer, stream) != LOCH_OK) lochi_error_restore(&saved);
    lochi_stream_release(stream);
}

static void dlpack_unpin(loch_buffer *buffer)
{
    const loch_error saved = lochi_error_save();
    if (lochi_buffer_let_go(buffer, NULL) != LOCH_OK) lochi_error_restore(&saved);
}

static void dlpack_exported_end(dlpack_exported *exported)
{
    if (!exported) return;
    dlpack_note_use(exported);
    if (exported->is_pinned) dlpack_unpin(exported->buffer);
    loch_buffer_release(exported->buffer);
    loch_device_release(exported->receiver);
    lochi_free(exported);
}

static void dlpack_delete_versioned(struct DLManagedTensorVersioned *self)
{
    dlpack_exported_end((dlpack_exported *)self);
}

static void dlpack_delete_legacy(struct DLManagedTensor *self)
{
    dlpack_exported_end((dlpack_exported *)self);
}

/* Finds the DLPack device of a buffer. */
static loch_status dlpack_find_place(const loch_buffer *buffer, struct DLDevice *out)
{
    const loch_device *device = loch_buffer_get_device(buffer);
    *out = (struct DLDevice){LOCHI_DL_CPU, 0};
    if (!device || strcmp(device->properties.driver, "cpu") == 0) return LOCH_OK;
    if (strcmp(device->properties.driver, "cuda") != 0)
        return LOCH_FAIL(UNSUPPORTED, "DLPack cannot describe memory of %.80s: copy the tensor to the CPU first",
                         device->name);
    switch (loch_buffer_get_kind(buffer)) {
    case LOCH_MEMORY_PINNED: out->device_type = LOCHI_DL_CUDA_HOST; break;
    case LOCH_MEMORY_MANAGED: out->device_type = LOCHI_DL_CUDA_MANAGED; break;
    case LOCH_MEMORY_REGISTERED:
    case LOCH_MEMORY_HOST: return LOCH_OK;
    case LOCH_MEMORY_DEVICE:
    default: out->device_type = LOCHI_DL_CUDA; break;
    }
    out->device_id = device->properties.index;
    return LOCH_OK;
}

/* Orders the receiver after the work on the tensor: the receiver's stream on the device, or the caller on the host. */
static loch_status dlpack_order(const loch_tensor *tensor, const loch_dlpack_export *options)
{
    loch_device *device = loch_buffer_get_device(tensor->buffer);
    loch_stream *producer = options->producer;
    if (!producer && device) producer = loch_stream_get_default(device);
    if (!producer || producer == options->consumer) return LOCH_OK;
    if (lochi_device_is_at_once(producer->device)) return LOCH_OK;
    if (!options->consumer) return loch_stream_sync(producer);
    loch_event *event;
    LOCH_TRY_RETURN(loch_event_create(producer->device, LOCH_EVENT_PLAIN, &event));
    loch_status status = loch_event_record(event, producer);
    if (status == LOCH_OK) status = loch_stream_wait(options->consumer, event);
    loch_event_destroy(event);
    return status;
}

/* Returns another reference to the tensor, or a copy that the producer's stream makes. */
static loch_status dlpack_take_source(loch_tensor *tensor, const loch_dlpack_export *options, loch_tensor **out)
{
    if (options->copy == LOCH_DLPACK_SHARE) {
        *out = loch_tensor_retain(tensor);
        return LOCH_OK;
    }
    const loch_tensor_options memory = {
        .size = sizeof memory,
        .allocator = loch_buffer_get_allocator(tensor->buffer),
        .device = loch_buffer_get_device(tensor->buffer),
        .stream = options->producer,
    };
    return loch_tensor_clone(tensor, &memory, out);
}

/* Fills all members except those that differ between the two structures. */
static loch_status dlpack_fill(dlpack_exported *exported, loch_tensor *source, const loch_dlpack_export *options,
                               struct DLTensor *out)
{
    const lochi_layout *layout = &source->layout;
    const size_t bytes = layout->dimensions * sizeof(int64_t);
    LOCH_TRY_RETURN(dlpack_find_place(source->buffer, &out->device));
    exported->buffer = loch_buffer_retain(source->buffer);
    LOCH_TRY_RETURN(lochi_tensor_hold(source, options->producer));
    exported->is_pinned = true;
    LOCH_TRY_RETURN(loch_tensor_get_address(source, &out->data));
    LOCH_TRY_RETURN(dlpack_order(source, options));
    out->ndim = (int32_t)layout->dimensions;
    out->dtype = dlpack_types[layout->dtype];
    if (layout->dimensions > 0) {
        out->shape = exported->shape_and_strides;
        out->strides = out->shape + layout->dimensions;
        memcpy(out->shape, layout->shape, bytes);
        memcpy(out->strides, layout->strides, bytes);
    }
    if (options->consumer) {
        exported->receiver = loch_device_retain(loch_stream_get_device(options->consumer));
        exported->receiver_stream = loch_stream_get_id(options->consumer);
    }
    return LOCH_OK;
}

static loch_status dlpack_read_export(const loch_tensor *tensor, const loch_dlpack_export *given,
                                      loch_dlpack_export *out)
{
    *out = (loch_dlpack_export){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("options of a DLPack export", given, out, sizeof *out));
    if (out->copy != LOCH_DLPACK_SHARE && out->copy != LOCH_DLPACK_COPY)
        return LOCH_FAIL(INVALID, "%d is not a loch_dlpack_copy value", (int)out->copy);
    if (out->access != LOCH_READ_WRITE && out->access != LOCH_READ_ONLY)
        return LOCH_FAIL(INVALID, "%d is not a loch_access value", (int)out->access);
    if (out->copy == LOCH_DLPACK_SHARE && loch_tensor_get_access(tensor) == LOCH_READ_ONLY)
        out->access = LOCH_READ_ONLY;
    return LOCH_OK;
}

static loch_status dlpack_export(loch_tensor *tensor, const loch_dlpack_export *options, size_t tensor_offset,
                                 dlpack_exported **out)
{
    struct DLDevice place; /* found first, before anything is copied */
    LOCH_TRY_RETURN(dlpack_find_place(tensor->buffer, &place));
    const size_t numbers = 2 * tensor->layout.dimensions * sizeof(int64_t);
    dlpack_exported *exported = lochi_zalloc(sizeof *exported + numbers);
    if (!exported) return LOCH_FAIL(HOST_MEMORY, "no host memory for a DLPack structure");
    loch_tensor *source = NULL;
    loch_status status;
    LOCH_TRY(dlpack_take_source(tensor, options, &source), fail);
    LOCH_TRY(dlpack_fill(exported, source, options, (struct DLTensor *)((char *)exported + tensor_offset)), fail);
    loch_tensor_release(source);
    *out = exported;
    return LOCH_OK;
fail:
    loch_tensor_release(source);
    dlpack_exported_end(exported);
    return status;
}

loch_status loch_tensor_to_dlpack(loch_tensor *tensor, const loch_dlpack_export *options,
                                  struct DLManagedTensorVersioned **out)
{
    if (out) *out = NULL;
    if (!tensor || !out) return LOCH_FAIL(INVALID, "a DLPack export needs a tensor and an out pointer");
    loch_dlpack_export read;
    dlpack_exported *exported;
    LOCH_TRY_RETURN(dlpack_read_export(tensor, options, &read));
    LOCH_TRY_RETURN(dlpack_export(tensor, &read, offsetof(struct DLManagedTensorVersioned, dl_tensor), &exported));
    struct DLManagedTensorVersioned *managed = &exported->managed.versioned;
    managed->version = (struct DLPackVersion){LOCH_DLPACK_MAJOR, LOCH_DLPACK_MINOR};
    managed->manager_ctx = exported;
    managed->deleter = dlpack_delete_versioned;
    if (read.access == LOCH_READ_ONLY) managed->flags |= LOCHI_DL_READ_ONLY;
    if (read.copy == LOCH_DLPACK_COPY) managed->flags |= LOCHI_DL_IS_COPIED;
    *out = managed;
    return LOCH_OK;
}

loch_status loch_tensor_to_dlpack_legacy(loch_tensor *tensor, const loch_dlpack_export *options,
                                         struct DLManagedTensor **out)
{
    if (out) *out = NULL;
    if (!tensor || !out) return LOCH_FAIL(INVALID, "a DLPack export needs a tensor and an out pointer");
    loch_dlpack_export read;
    dlpack_exported *exported;
    LOCH_TRY_RETURN(dlpack_read_export(tensor, options, &read));
    if (read.access == LOCH_READ_ONLY && read.copy == LOCH_DLPACK_SHARE)
        return LOCH_FAIL(UNSUPPORTED, "DLPack before version 1 cannot mark memory as read-only: export a copy");
    LOCH_TRY_RETURN(dlpack_export(tensor, &read, offsetof(struct DLManagedTensor, dl_tensor), &exported));
    struct DLManagedTensor *managed = &exported->managed.legacy;
    managed->manager_ctx = exported;
    managed->deleter = dlpack_delete_legacy;
    *out = managed;
    return LOCH_OK;
}

/* --- import --- */

/* The common part of the two structures, and their deleter. */
typedef struct dlpack_source {
    const struct DLTensor *tensor;
    void *managed;
    void (*end)(void *managed);
    loch_access access;
} dlpack_source;

static void dlpack_end_versioned(void *managed)
{
    LOCHI_NOT_CANCELLED;
    struct DLManagedTensorVersioned *versioned = managed;
    if (versioned->deleter) versioned->deleter(versioned);
}

static void dlpack_end_legacy(void *managed)
{
    LOCHI_NOT_CANCELLED;
    struct DLManagedTensor *legacy = managed;
    if (legacy->deleter) legacy->deleter(legacy);
}

/* What a buffer stores about an imported structure. The caller owns the structure until the import has succeeded. Only
 * after that does the end of the buffer call its deleter. */
typedef struct dlpack_imported {
    void *managed;
    void (*end)(void *managed);
    bool is_ours;
} dlpack_imported;

static void dlpack_imported_end(void *address, size_t bytes, void *user)
{
    (void)address;
    (void)bytes;
    const dlpack_imported imported = *(dlpack_imported *)user;
    lochi_free(user);
    if (imported.is_ours) imported.end(imported.managed);
}

static loch_status dlpack_read_layout(const struct DLTensor *given, lochi_layout *out)
{
    loch_dtype dtype;
    if (given->ndim < 0 || given->ndim > LOCH_DIMENSIONS_MAX)
        return LOCH_FAIL(INVALID, "the DLPack tensor has %d dimensions; 0 to %d are supported", (int)given->ndim,
                         LOCH_DIMENSIONS_MAX);
    if (given->ndim > 0 && !given->shape) return LOCH_FAIL(INVALID, "the DLPack tensor has dimensions but no shape");
    LOCH_TRY_RETURN(dlpack_read_type(given->dtype, &dtype));
    return lochi_layout_make(dtype, (size_t)given->ndim, given->shape, given->ndim > 0 ? given->strides : NULL, out);
}

/* Finds the first byte that the tensor reaches. NULL if it has no elements. */
static loch_status dlpack_read_address(const struct DLTensor *given, const lochi_layout *layout, void **out)
{
    *out = NULL;
    if (layout->elements == 0) return LOCH_OK;
    if (!given->data)
        return LOCH_FAIL(INVALID, "the DLPack tensor has %zu elements but its data is NULL", layout->elements);
    size_t first, end;
    if (given->byte_offset > SIZE_MAX || !lochi_add((uintptr_t)given->data, (size_t)given->byte_offset, &first) ||
        first < layout->below || !lochi_add(first, layout->above, &end))
        return LOCH_FAIL(OVERFLOW, "the DLPack tensor reaches beyond the address space");
    if (first % layout->element_bytes != 0)
        return LOCH_FAIL(INVALID,
                         "the DLPack data at %p is not a multiple of the %zu bytes of an element: copy it first",
                         (void *)first, layout->element_bytes);
    *out = (void *)(first - layout->below);
    return LOCH_OK;
}

/* Opens the CUDA device of a structure; the caller releases it. NULL for the CPU. */
static loch_status dlpack_open(struct DLDevice place, loch_device **out)
{
    char name[24];
    *out = NULL;
    switch (place.device_type) {
    case LOCHI_DL_CPU: return LOCH_OK;
    case LOCHI_DL_CUDA:
    case LOCHI_DL_CUDA_HOST:
    case LOCHI_DL_CUDA_MANAGED: break;
    default:
        return LOCH_FAIL(UNSUPPORTED, "the DLPack tensor is on a device of type %d, which is neither CPU nor CUDA",
                         (int)place.device_type);
    }
    if (place.device_id < 0)
        return LOCH_FAIL(INVALID, "the DLPack tensor is on CUDA device %d; device numbers are not negative",
                         (int)place.device_id);
    (void)snprintf(name, sizeof name, "cuda:%d", (int)place.device_id);
    return loch_device_open(name, out);
}

/* Makes a buffer on the memory; the buffer owns `imported`. For host memory, finds out which device it belongs to. */
static loch_status dlpack_wrap(const dlpack_source *source, const lochi_layout *layout, dlpack_imported *imported,
                               loch_buffer **out)
{
    void *address;
    loch_device *device;
    const struct DLDevice place = source->tensor->device;
    const bool is_host = place.device_type == LOCHI_DL_CPU || place.device_type == LOCHI_DL_CUDA_HOST;
    LOCH_TRY_RETURN(dlpack_read_address(source->tensor, layout, &address));
    LOCH_TRY_RETURN(dlpack_open(place, &device));
    const loch_external external = {.size = sizeof external,
                                    .device = is_host ? NULL : device,
                                    .deleter = dlpack_imported_end,
                                    .user = imported,
                                    .access = source->access};
    const loch_status status = loch_buffer_wrap(address, layout->below + layout->above, &external, out);
    loch_device_release(device); /* the buffer retains it */
    return status;
}

/* Makes a tensor on a buffer. Checks that memory which the structure calls host memory is host memory. */
static loch_status dlpack_make(const dlpack_source *source, const lochi_layout *layout, loch_buffer *buffer,
                               loch_tensor **out)
{
    const loch_device *device = loch_buffer_get_device(buffer);
    const int32_t place = source->tensor->device.device_type;
    if ((place == LOCHI_DL_CPU || place == LOCHI_DL_CUDA_HOST) && !loch_buffer_is_on_host(buffer))
        return LOCH_FAIL(INVALID, "the DLPack structure says host memory, but the data is on %.80s",
                         device ? device->name : "another device");
    return lochi_tensor_make(buffer, layout->below, layout, out);
}

/* Makes a tensor on the memory. Its buffer owns `imported`; the caller sets `is_ours` afterwards. */
static loch_status dlpack_share(const dlpack_source *source, dlpack_imported **imported, loch_tensor **out)
{
    lochi_layout layout;
    loch_buffer *buffer = NULL;
    LOCH_TRY_RETURN(dlpack_read_layout(source->tensor, &layout));
    dlpack_imported *made = lochi_zalloc(sizeof *made);
    if (!made) return LOCH_FAIL(HOST_MEMORY, "no host memory for a DLPack import");
    *made = (dlpack_imported){source->managed, source->end, false};
    loch_status status = dlpack_wrap(source, &layout, made, &buffer);
    if (status != LOCH_OK) {
        lochi_free(made);
        return status;
    }
    status = dlpack_make(source, &layout, buffer, out);
    loch_buffer_release(buffer);
    *imported = made;
    return status;
}

static loch_status dlpack_import(const dlpack_source *source, const loch_dlpack_import *given, loch_tensor **out)
{
    loch_dlpack_import options = {.size = sizeof options};
    dlpack_imported *imported;
    loch_tensor *shared;
    LOCH_TRY_RETURN(lochi_sized_read("options of a DLPack import", given, &options, sizeof options));
    if (options.copy != LOCH_DLPACK_SHARE && options.copy != LOCH_DLPACK_COPY)
        return LOCH_FAIL(INVALID, "%d is not a loch_dlpack_copy value", (int)options.copy);
    LOCH_TRY_RETURN(dlpack_share(source, &imported, &shared));
    if (options.copy == LOCH_DLPACK_SHARE) {
        imported->is_ours = true;
        *out = shared;
        return LOCH_OK;
    }
    const loch_status status = loch_tensor_clone(shared, NULL, out);
    loch_tensor_release(shared);
    if (status == LOCH_OK) source->end(source->managed);
    return status;
}

loch_status loch_tensor_from_dlpack(struct DLManagedTensorVersioned *managed, const loch_dlpack_import *options,
                                    loch_tensor **out)
{
    if (out) *out = NULL;
    if (!managed || !out) return LOCH_FAIL(INVALID, "a DLPack import needs a structure and an out pointer");
    if (managed->version.major != LOCH_DLPACK_MAJOR) /* with another major version no other member may be read */
        return LOCH_FAIL(UNSUPPORTED, "the DLPack structure has version %u.%u; only major version %d is supported",
                         (unsigned)managed->version.major, (unsigned)managed->version.minor, LOCH_DLPACK_MAJOR);
    const dlpack_source source = {&managed->dl_tensor, managed, dlpack_end_versioned,
                                  managed->flags & LOCHI_DL_READ_ONLY ? LOCH_READ_ONLY : LOCH_READ_WRITE};
    return dlpack_import(&source, options, out);
}

loch_status loch_tensor_from_dlpack_legacy(struct DLManagedTensor *managed, const loch_dlpack_import *options,
                                           loch_tensor **out)
{
    if (out) *out = NULL;
    if (!managed || !out) return LOCH_FAIL(INVALID, "a DLPack import needs a structure and an out pointer");
    const dlpack_source source = {&managed->dl_tensor, managed, dlpack_end_legacy, LOCH_READ_WRITE};
    return dlpack_import(&source, options, out);
}
