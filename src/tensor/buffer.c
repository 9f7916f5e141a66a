/* SPDX-License-Identifier: MIT */
/* Buffers: how they come to be, are shared and end. */
#include "tensor/buffer.h"
#include "base/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/sized.h"
#include "device/copy.h"
#include "memory/pool/pool.h"
#include "device/device.h"
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

/* Zeroes are queued. Where the host may look at once, and no stream says when it may, they are waited for. */
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
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a buffer needs an allocator and a place");
    loch_request read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a request", request, &read, sizeof read));
    lochi_buffer_sweep();
    loch_buffer *buffer = buffer_new_of(allocator);
    if (!buffer) return buffer_no_memory();
    read.bytes = bytes;
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
    *out = buffer;
    return LOCH_OK;
}

loch_status loch_buffer_create_for_device(loch_device *device, size_t bytes, const loch_request *request,
                                          loch_buffer **out)
{
    if (!out) return LOCH_FAIL(INVALID, "a buffer needs a place");
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
        return LOCH_FAIL(INVALID, "adopting a block needs its allocator, its address and a place");
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

void lochi_buffer_set_meter(loch_buffer *buffer, lochi_meter *meter)
{
    buffer->meter = lochi_meter_enter(meter, buffer->capacity);
}

static void buffer_leave_meter(loch_buffer *whole)
{
    if (whole->meter) lochi_meter_leave(whole->meter, whole->capacity);
    whole->meter = NULL;
}

loch_status loch_buffer_detach(loch_buffer *buffer, void **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "detaching needs a buffer and a place");
    if (buffer->whole || !buffer->allocator)
        return LOCH_FAIL(UNSUPPORTED, "only a whole buffer with a block of an allocator can give it away");
    if (!lochi_buffer_is_sole(buffer)) return LOCH_FAIL(BUSY, "others hold the buffer or a part of it");
    if (lochi_buffer_has_deleters(buffer))
        return LOCH_FAIL(UNSUPPORTED, "the buffer has deleters, which run when its memory goes with it");
    if (lochi_buffer_is_used(buffer)) return LOCH_FAIL(BUSY, "work of another device still uses the buffer");
    if (buffer->is_movable && buffer->address) {
        if (lochi_movable_is_pinned(&buffer->movable)) return LOCH_FAIL(BUSY, "the buffer is pinned");
        void *address;
        LOCH_TRY_RETURN(lochi_movable_close(buffer->allocator, &buffer->movable, NULL, &address));
        buffer->address = address;
    }
    *out = buffer->address;
    buffer->address = NULL;
    buffer_leave_meter(buffer);
    lochi_buffer_touch(buffer);
    buffer->bytes = buffer->capacity = 0;
    return LOCH_OK;
}

/* --- from outside --- */

static bool buffer_is_host_kind(const lochi_place *place)
{
    return lochi_place_is_host(place) || place->kind == LOCH_MEMORY_MANAGED;
}

/* Whether memory that was found at `place` may be said to be of `stated`: its own device, or "the host" for memory of a
 * device that the host reaches. */
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
        return LOCH_FAIL(INVALID, "%zu bytes at %p are not memory of %s but of %s", bytes, address,
                         loch_device_get_name(stated), place.device ? loch_device_get_name(place.device) : "the host");
    buffer->address = address; /* of no bytes too: the deleter gets it */
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
    if ((unsigned)out->access > LOCH_READ_ONLY) return LOCH_FAIL(INVALID, "access %d is not known", (int)out->access);
    return LOCH_OK;
}

loch_status loch_buffer_wrap(void *address, size_t bytes, const loch_external *external, loch_buffer **out)
{
    if (!out) return LOCH_FAIL(INVALID, "a buffer needs a place");
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
    if (!buffer || !out) return LOCH_FAIL(INVALID, "a part of a buffer needs the buffer and a place");
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes from %zu on reach beyond a buffer of %zu", bytes, offset,
                         buffer->bytes);
    loch_buffer *part = lochi_zalloc(sizeof *part);
    if (!part) return buffer_no_memory();
    atomic_init(&part->references, 1);
    part->whole = loch_buffer_retain(lochi_buffer_whole(buffer));
    part->offset = buffer->offset + offset; /* a whole's is 0 */
    part->bytes = bytes;
    *out = part;
    return LOCH_OK;
}

/* --- sharing and ending --- */

loch_buffer *loch_buffer_retain(loch_buffer *buffer)
{
    /* relaxed: who retains holds a reference already, so nothing has to be seen */
    if (buffer) atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

/* Release: what this thread did with the buffer comes before its end. Acquire: whoever ends it sees what all others did. */
static bool buffer_drop(loch_buffer *buffer)
{
    return atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) == 1;
}

loch_status loch_buffer_add_deleter(loch_buffer *buffer, loch_buffer_deleter *deleter, void *user)
{
    if (!buffer || !deleter) return LOCH_FAIL(INVALID, "adding a deleter needs a buffer and a function");
    lochi_deleter *added = lochi_alloc(sizeof *added);
    if (!added) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a deleter of a buffer");
    *added = (lochi_deleter){.function = deleter, .user = user};
    lochi_buffer_link_deleter(lochi_buffer_whole(buffer), added);
    return LOCH_OK;
}

/* Runs them, the last one first. Nobody else has the buffer any more. */
static void buffer_run_deleters(loch_buffer *whole)
{
    lochi_deleter *deleter;
    if (!whole->deleters) return;
    LOCHI_NOT_CANCELLED;
    while ((deleter = whole->deleters)) {
        whole->deleters = deleter->next;
        deleter->function(whole->address, whole->bytes, deleter->user);
        lochi_free(deleter);
    }
}

static void buffer_free_block(loch_buffer *whole)
{
    const loch_status status = loch_allocator_free(whole->allocator, whole->address);
    if (status == LOCH_OK) return;
    LOCHI_LOG(ERROR, "a buffer's block at %p could not be freed: %s", (void *)whole->address,
              loch_error_get()->sentence);
    if (whole->is_movable) lochi_movable_forget(whole->allocator, &whole->movable);
}

loch_buffer *lochi_buffer_end(loch_buffer *whole)
{
    loch_buffer *owner = whole->owner;
    if (whole->is_movable && whole->address)
        whole->address = lochi_movable_hold(whole->allocator, &whole->movable); /* stays until it is freed */
    buffer_run_deleters(whole);
    if (whole->allocator && whole->address) buffer_free_block(whole);
    if (whole->deleter) {
        LOCHI_NOT_CANCELLED;
        whole->deleter(whole->address, whole->bytes, whole->user);
    }
    buffer_leave_meter(whole);
    lochi_watch_release(whole->watch);
    loch_allocator_release(whole->allocator);
    loch_device_release(whole->device);
    lochi_free(whole);
    return owner;
}

/* Nobody holds it any more: what was made of its contents is of no use, even while its memory waits for work. */
static void buffer_say_over(const loch_buffer *whole)
{
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_relaxed);
    if (watch) lochi_watch_change(watch);
}

/* The end of a part lets go of its whole, that of a whole of its owner: in a loop, because such a chain may be long. */
void loch_buffer_release(loch_buffer *buffer)
{
    lochi_buffer_sweep();
    while (buffer && buffer_drop(buffer)) {
        loch_buffer *next = buffer->whole;
        if (!next) buffer_say_over(buffer);
        if (next)
            lochi_free(buffer);
        else if (!lochi_buffer_keep_if_used(buffer))
            next = lochi_buffer_end(buffer);
        buffer = next;
    }
}

void loch_buffer_clear(loch_buffer **slot)
{
    if (slot) loch_buffer_release(loch_buffer_take(slot));
}

loch_buffer *loch_buffer_take(loch_buffer **slot)
{
    if (!slot) return NULL;
    loch_buffer *taken = *slot;
    *slot = NULL;
    return taken;
}

/* --- where it is --- */

loch_status lochi_buffer_check(const loch_buffer *buffer, size_t offset, size_t bytes)
{
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    size_t end;
    if (!lochi_add(offset, bytes, &end) || end > buffer->bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "%zu bytes from %zu on reach beyond a buffer of %zu", bytes, offset,
                         buffer->bytes);
    if (buffer->offset + end > whole->bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "the part of a buffer was cut off: it ends at %zu, and the buffer has %zu bytes",
                         buffer->offset + end, whole->bytes);
    return LOCH_OK;
}

/* The address now; NULL when it has none. */
static char *buffer_address(const loch_buffer *whole)
{
    if (!whole->is_movable || !whole->address) return whole->address;
    return lochi_movable_is_pinned(&whole->movable) ? whole->movable.address : NULL;
}

loch_status lochi_buffer_locate(const loch_buffer *buffer, size_t offset, size_t bytes, char **out)
{
    *out = NULL;
    LOCH_TRY_RETURN(lochi_buffer_check(buffer, offset, bytes));
    if (!bytes) return LOCH_OK;
    char *address = buffer_address(lochi_buffer_whole_const(buffer));
    if (!address) return LOCH_FAIL(BUSY, "a buffer that may move has an address only while it is pinned");
    *out = address + buffer->offset + offset;
    return LOCH_OK;
}

/* --- pins --- */

loch_status loch_buffer_pin(loch_buffer *buffer, loch_stream *stream, void **out)
{
    if (out) *out = NULL;
    if (!buffer || !out) return LOCH_FAIL(INVALID, "a pin needs a buffer and a place");
    loch_buffer *whole = lochi_buffer_whole(buffer);
    LOCH_TRY_RETURN(lochi_buffer_check(buffer, 0, buffer->bytes));
    void *address = whole->address;
    if (whole->is_movable && address) {
        if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, whole->device));
        LOCH_TRY_RETURN(lochi_movable_pin(whole->allocator, &whole->movable, stream, &address));
    }
    *out = address ? (char *)address + buffer->offset : NULL;
    return LOCH_OK;
}

loch_status loch_buffer_unpin(loch_buffer *buffer, loch_stream *stream)
{
    if (!buffer) return LOCH_FAIL(INVALID, "there is no buffer to unpin");
    loch_buffer *whole = lochi_buffer_whole(buffer);
    if (!whole->address) return LOCH_OK;
    if (!whole->is_movable) return loch_buffer_record_use(whole, stream);
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, whole->device));
    return lochi_movable_unpin(whole->allocator, &whole->movable, stream);
}

/* Whether the pool of a buffer that may move does not hear of a stream, because it is of another device. */
static bool buffer_is_foreign(const loch_buffer *whole, const loch_stream *stream)
{
    return stream && whole->is_movable && whole->address && stream->device != whole->device;
}

/* Without an event it is waited for. What is captured runs whenever its graph does, and is its owner's to order. */
loch_status lochi_buffer_order(loch_stream *first, loch_stream *then)
{
    if (lochi_device_is_at_once(first->device) || lochi_stream_is_captured(first) || lochi_stream_is_captured(then))
        return LOCH_OK;
    const loch_error saved = lochi_error_save();
    if (lochi_copy_order(first, then) == LOCH_OK) return LOCH_OK;
    lochi_error_restore(&saved);
    return loch_stream_sync(first);
}

/* A stream of another device works on the memory, too. The pool hears of its own streams alone, so the default one stands for it: it is
 * behind the last move when the buffer is pinned, and behind the other stream's work before it is unpinned. */
loch_status lochi_buffer_hold(loch_buffer *buffer, loch_stream *stream)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    const bool is_foreign = buffer_is_foreign(whole, stream);
    void *unused;
    LOCH_TRY_RETURN(loch_buffer_pin(buffer, is_foreign ? NULL : stream, &unused));
    if (!is_foreign || !lochi_movable_count(whole->allocator, &whole->movable)) return LOCH_OK;
    const loch_status status = lochi_buffer_order(&whole->device->default_stream, stream);
    if (status != LOCH_OK) lochi_movable_drop(whole->allocator, &whole->movable);
    return status;
}

loch_stream *lochi_buffer_choose_stream(const loch_buffer *buffer, const loch_buffer *other, loch_stream *stream)
{
    loch_device *own = lochi_buffer_whole_const(buffer)->device, *its = lochi_buffer_whole_const(other)->device;
    return stream || !own || !its || own == its ? stream : &its->default_stream;
}

loch_status lochi_buffer_let_go(loch_buffer *buffer, loch_stream *stream)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    if (!whole->is_movable) return LOCH_OK; /* what is queued here is recorded by who queues it */
    if (!buffer_is_foreign(whole, stream)) return loch_buffer_unpin(buffer, stream);
    const loch_status status = lochi_buffer_order(stream, &whole->device->default_stream);
    return lochi_first_failure(status, loch_buffer_unpin(buffer, NULL));
}

uint64_t loch_buffer_get_generation(const loch_buffer *buffer)
{
    const loch_buffer *whole = buffer ? lochi_buffer_whole_const(buffer) : NULL;
    return whole && whole->is_movable && whole->address ? lochi_movable_count(whole->allocator, &whole->movable) : 0;
}

int loch_buffer_is_movable(const loch_buffer *buffer)
{
    return buffer && lochi_buffer_whole_const(buffer)->is_movable;
}

/* --- questions --- */

void *loch_buffer_get_address(const loch_buffer *buffer)
{
    if (!buffer) return NULL;
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    const bool is_there = whole->bytes && buffer->offset + buffer->bytes <= whole->bytes;
    char *address = is_there ? buffer_address(whole) : NULL;
    return address ? address + buffer->offset : NULL;
}

size_t loch_buffer_get_bytes(const loch_buffer *buffer)
{
    return buffer ? buffer->bytes : 0;
}

loch_device *loch_buffer_get_device(const loch_buffer *buffer)
{
    return buffer ? lochi_buffer_whole_const(buffer)->device : NULL;
}

loch_allocator *loch_buffer_get_allocator(const loch_buffer *buffer)
{
    return buffer ? lochi_buffer_whole_const(buffer)->allocator : NULL;
}

/* That of an allocator's block is asked for when somebody wants to know: buffers are made more often. */
loch_memory_kind loch_buffer_get_kind(const loch_buffer *buffer)
{
    if (!buffer) return LOCH_MEMORY_HOST;
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    if (whole->is_movable) return lochi_movable_get_kind(whole->allocator);
    loch_address_info info = {.size = sizeof info};
    if (!whole->allocator || !whole->address || loch_address_query(whole->address, &info) != LOCH_OK)
        return whole->kind;
    return info.kind;
}

loch_access loch_buffer_get_access(const loch_buffer *buffer)
{
    if (!buffer) return LOCH_READ_ONLY;
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    bool is_frozen = false;
    if (whole->is_movable)
        is_frozen = lochi_movable_is_protected(whole->allocator, &whole->movable);
    else if (whole->allocator)
        is_frozen = lochi_pool_is_protected(whole->allocator, whole->address);
    return is_frozen ? LOCH_READ_ONLY : whole->access;
}

int loch_buffer_is_on_host(const loch_buffer *buffer)
{
    return buffer && lochi_buffer_whole_const(buffer)->is_on_host;
}

size_t loch_buffer_get_references(const loch_buffer *buffer)
{
    return buffer ? atomic_load_explicit(&buffer->references, memory_order_relaxed) : 0;
}

uint64_t loch_buffer_get_id(const loch_buffer *buffer)
{
    return buffer ? lochi_buffer_whole_const(buffer)->id : 0;
}

/* The allocator and the tag of a buffer never change, so the sum never falls. */
uint64_t loch_buffer_get_version(const loch_buffer *buffer)
{
    if (!buffer) return 0;
    const loch_buffer *whole = lochi_buffer_whole_const(buffer);
    return atomic_load_explicit(&whole->version, memory_order_relaxed) +
           lochi_pool_count_drops(whole->allocator, whole->tag);
}

void loch_buffer_touch(loch_buffer *buffer)
{
    if (buffer) lochi_buffer_touch(buffer);
}

loch_status lochi_buffer_check_writable(const loch_buffer *buffer)
{
    return loch_buffer_get_access(buffer) == LOCH_READ_WRITE
               ? LOCH_OK
               : LOCH_FAIL(INVALID, "the memory is read-only: it must not be written");
}

/* --- for pools of buffers --- */

loch_status lochi_buffer_set_bytes(loch_buffer *buffer, size_t bytes)
{
    if (buffer->whole || bytes > buffer->capacity)
        return LOCH_FAIL(OUT_OF_RANGE, "a buffer's block has %zu bytes, not %zu", buffer->capacity, bytes);
    buffer->bytes = bytes;
    return LOCH_OK;
}

size_t lochi_buffer_get_capacity(const loch_buffer *buffer)
{
    return lochi_buffer_whole_const(buffer)->capacity;
}

/* Acquire: what those did who let go comes before what the caller does alone. */
bool lochi_buffer_is_sole(const loch_buffer *buffer)
{
    return !buffer->whole && atomic_load_explicit(&buffer->references, memory_order_acquire) == 1;
}
