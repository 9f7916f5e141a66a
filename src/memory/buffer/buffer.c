/* SPDX-License-Identifier: MIT */
/* Buffers: how they are created. */
#include "memory/buffer/buffer.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/copy.h"
#include "device/device.h"
#include "memory/pool/pool.h"
#include "memory/buffer/end.h"
#include "memory/buffer/release.h"
#include "memory/buffer/uses.h"
#include <loch/registry.h>

static _Atomic uint64_t buffer_last_id; /* relaxed: only uniqueness matters */

static loch_buffer *buffer_new(void)
{
    loch_buffer *buffer = lochi_zalloc(sizeof *buffer);
    if (!buffer) return NULL;
    atomic_init(&buffer->references, 1);
    atomic_init(&buffer->version, 1);
    buffer->id = atomic_fetch_add_explicit(&buffer_last_id, 1, memory_order_relaxed) + 1;
    return buffer;
}

static loch_status buffer_no_memory(void)
{
    return LOCH_FAIL(HOST_MEMORY, "no host memory for a buffer");
}

/* --- from allocators --- */

static loch_buffer *buffer_new_of(loch_allocator *allocator)
{
    loch_buffer *buffer = buffer_new();
    if (!buffer) return NULL;
    buffer->allocator = loch_allocator_retain(allocator);
    buffer->device = loch_device_retain(loch_allocator_get_device(allocator));
    buffer->is_on_host = loch_attributes_has(loch_allocator_get_attributes(allocator), LOCH_ATTRIBUTE_ON_HOST) ||
                         loch_device_can(buffer->device, LOCH_CAN_HOST_ACCESS);
    return buffer;
}

/* Waits for the fill with zeros, which is queued, if the host may read the memory immediately and the request has no
 * stream that orders the read. */
static loch_status buffer_wait_for_zeroes(const loch_buffer *buffer, const loch_request *request)
{
    const bool is_waited_for = request->flags & LOCH_ALLOC_ZEROED && !request->stream && buffer->is_on_host;
    return is_waited_for ? loch_stream_sync(loch_stream_get_default(buffer->device)) : LOCH_OK;
}

static loch_status buffer_make_movable(loch_buffer *buffer)
{
    buffer->movable.buffer = buffer->id;
    if (buffer->address)
        LOCH_TRY_RETURN(lochi_movable_open(buffer->allocator, buffer->address, buffer->alignment, &buffer->movable));
    buffer->is_movable = true;
    return LOCH_OK;
}

loch_status loch_buffer_create(loch_allocator *allocator, size_t bytes, const loch_request *request, loch_buffer **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a buffer needs an allocator and an out pointer");
    loch_request read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a request", request, &read, sizeof read));
    if (read.flags & LOCH_ALLOC_MOVABLE && (read.max_bytes || read.flags & LOCH_ALLOC_ONE_HANDLE))
        return LOCH_FAIL(INVALID, "a buffer cannot be movable and growable, or movable and on one handle");
    lochi_buffer_sweep();
    loch_buffer *buffer = buffer_new_of(allocator);
    if (!buffer) return buffer_no_memory();
    read.bytes = bytes;
    if (!read.alignment) read.alignment = lochi_pool_align_buffers(allocator); /* for vector instructions */
    const bool is_movable = read.flags & LOCH_ALLOC_MOVABLE;
    read.flags &= ~(uint32_t)LOCH_ALLOC_MOVABLE;
    void *address = NULL;
    loch_status status = loch_allocator_alloc(allocator, &read, &address);
    buffer->address = address;
    buffer->alignment = read.alignment;
    if (status == LOCH_OK) status = buffer_wait_for_zeroes(buffer, &read);
    if (status == LOCH_OK && is_movable) status = buffer_make_movable(buffer);
    if (status != LOCH_OK) {
        (void)lochi_buffer_end(buffer);
        return status;
    }
    buffer->bytes = buffer->capacity = bytes;
    buffer->tag = read.tag;
    if (allocator->pool && !is_movable)
        buffer->stream_id = read.stream ? read.stream->id : buffer->device->default_stream.id;
    *out = buffer;
    return LOCH_OK;
}

loch_status loch_buffer_create_for_device(loch_device *device, size_t bytes, const loch_request *request,
                                          loch_buffer **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the buffer is NULL");
    *out = NULL;
    loch_device *opened = NULL;
    loch_allocator *allocator = NULL;
    loch_status status = LOCH_OK;
    if (!device) LOCH_TRY(loch_device_open("cpu", &opened), end);
    LOCH_TRY(
        loch_device_acquire_allocator(device ? device : opened, (loch_attributes){0}, LOCH_FALLBACK_NONE, &allocator),
        end);
    status = loch_buffer_create(allocator, bytes, request, out);
end:
    loch_allocator_release(allocator);
    loch_device_release(opened);
    return status;
}

loch_status loch_buffer_adopt(loch_allocator *allocator, void *address, loch_buffer **out)
{
    if (out) *out = NULL;
    if (!allocator || !address || !out)
        return LOCH_FAIL(INVALID, "adopting a block needs its allocator, its address and an out pointer");
    loch_block block = {.size = sizeof block};
    LOCH_TRY_RETURN(loch_allocator_find(allocator, address, &block));
    const size_t bytes = block.requested_bytes ? block.requested_bytes : block.allocated_bytes;
    if (!bytes)
        return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" does not know the size of the block at %p",
                         loch_allocator_get_name(allocator), address);
    loch_buffer *buffer = buffer_new_of(allocator);
    if (!buffer) return buffer_no_memory();
    buffer->address = address;
    buffer->bytes = buffer->capacity = bytes;
    buffer->tag = block.tag;
    *out = buffer;
    return LOCH_OK;
}

loch_status loch_buffer_detach(loch_buffer *buffer, void **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "detaching needs a buffer and an out pointer");
    if (buffer->whole || !buffer->allocator)
        return LOCH_FAIL(UNSUPPORTED, "only a whole buffer with a block of an allocator can be detached");
    if (!lochi_buffer_is_sole(buffer))
        return LOCH_FAIL(BUSY, "the buffer has other references, or a part of it exists");
    if (lochi_buffer_has_deleters(buffer))
        return LOCH_FAIL(UNSUPPORTED, "the buffer has deleters: they must run together with the free of its memory");
    if (lochi_buffer_is_used(buffer)) return LOCH_FAIL(BUSY, "work of another device still uses the buffer");
    if (buffer->is_movable && buffer->address) {
        if (lochi_movable_is_pinned(&buffer->movable)) return LOCH_FAIL(BUSY, "the buffer is pinned");
        void *address;
        LOCH_TRY_RETURN(lochi_movable_close(buffer->allocator, &buffer->movable, NULL, &address));
        buffer->address = address;
    }
    *out = buffer->address;
    buffer->address = NULL;
    lochi_buffer_leave_meter(buffer);
    lochi_buffer_touch(buffer);
    buffer->bytes = buffer->capacity = 0;
    return LOCH_OK;
}

/* --- from external memory --- */

static bool buffer_is_host_kind(const lochi_place *place)
{
    return lochi_place_is_host(place) || place->kind == LOCH_MEMORY_MANAGED;
}

/* Tells whether the caller may state that memory found at `place` belongs to `stated`. This is true for its own device,
 * and for "the host" if the host can access the memory. */
static bool buffer_is_at(const lochi_place *place, const loch_device *stated)
{
    if (!stated || stated == place->device) return true;
    return loch_device_can(stated, LOCH_CAN_HOST_ACCESS) && buffer_is_host_kind(place);
}

static loch_status buffer_place(loch_buffer *buffer, void *address, size_t bytes, loch_device *stated)
{
    lochi_place place = {.device = stated, .kind = stated ? LOCH_MEMORY_DEVICE : LOCH_MEMORY_HOST};
    if (bytes) LOCH_TRY_RETURN(lochi_copy_locate(address, bytes, "memory from outside", &place));
    if (!buffer_is_at(&place, stated))
        return LOCH_FAIL(INVALID, "the %s at %p are memory of %s, not of %s", LOCHI_SIZE(bytes), address,
                         place.device ? loch_device_get_name(place.device) : "the host", loch_device_get_name(stated));
    buffer->address = address; /* set for 0 bytes too: the deleter receives it */
    buffer->bytes = buffer->capacity = bytes;
    buffer->kind = place.kind;
    buffer->is_on_host = buffer_is_host_kind(&place);
    buffer->device = loch_device_retain(place.device ? place.device : stated);
    return LOCH_OK;
}

static loch_status buffer_read_external(const loch_external *external, loch_external *out)
{
    *out = (loch_external){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a description of memory from outside", external, out, sizeof *out));
    if ((unsigned)out->access > LOCH_READ_ONLY)
        return LOCH_FAIL(INVALID, "%d is not a loch_access value", (int)out->access);
    return LOCH_OK;
}

loch_status loch_buffer_wrap(void *address, size_t bytes, const loch_external *external, loch_buffer **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the buffer is NULL");
    *out = NULL;
    loch_external read;
    LOCH_TRY_RETURN(buffer_read_external(external, &read));
    lochi_buffer_sweep();
    loch_buffer *buffer = buffer_new();
    if (!buffer) return buffer_no_memory();
    const loch_status status = buffer_place(buffer, address, bytes, read.device);
    if (status != LOCH_OK) {
        (void)lochi_buffer_end(buffer);
        return status;
    }
    buffer->access = read.access;
    buffer->owner = loch_buffer_retain(read.owner);
    buffer->deleter = read.deleter;
    buffer->user = read.user;
    *out = buffer;
    return LOCH_OK;
}

/* --- parts --- */

loch_status loch_buffer_slice(loch_buffer *buffer, size_t offset, size_t bytes, loch_buffer **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "a part of a buffer needs the buffer and an out pointer");
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes from offset %zu on do not fit a buffer of %zu bytes", bytes, offset,
                         buffer->bytes);
    loch_buffer *part = lochi_zalloc(sizeof *part);
    if (!part) return buffer_no_memory();
    atomic_init(&part->references, 1);
    part->whole = loch_buffer_retain(lochi_buffer_whole(buffer));
    part->offset = buffer->offset + offset; /* 0 for a whole */
    part->bytes = bytes;
    *out = part;
    return LOCH_OK;
}

/* --- deleters, watches and meters --- */

loch_status loch_buffer_add_deleter(loch_buffer *buffer, loch_buffer_deleter *deleter, void *user)
{
    if (!buffer || !deleter) return LOCH_FAIL(INVALID, "adding a deleter needs a buffer and a function");
    lochi_deleter *added = lochi_alloc(sizeof *added);
    if (!added) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a deleter of a buffer");
    *added = (lochi_deleter){.function = deleter, .user = user};
    lochi_buffer_link_deleter(lochi_buffer_whole(buffer), added);
    return LOCH_OK;
}

/* Creates the watch on first use. Two threads may do so at a time; the first watch stays. Release and acquire: a thread
 * that finds the watch sees it initialized. */
loch_status lochi_buffer_watch(loch_buffer *buffer, lochi_watch **out)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_acquire);
    if (!watch) {
        lochi_watch *made;
        *out = NULL;
        LOCH_TRY_RETURN(lochi_watch_create(&made));
        if (atomic_compare_exchange_strong_explicit(&whole->watch, &watch, made, memory_order_acq_rel,
                                                    memory_order_acquire))
            watch = made;
        else
            lochi_watch_release(made);
    }
    atomic_fetch_add_explicit(&watch->references, 1, memory_order_relaxed); /* the buffer holds a reference itself */
    *out = watch;
    return LOCH_OK;
}

void lochi_buffer_set_meter(loch_buffer *buffer, lochi_meter *meter)
{
    buffer->meter = lochi_meter_enter(meter, buffer->capacity);
}
