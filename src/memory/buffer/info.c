/* SPDX-License-Identifier: MIT */
/* Properties of buffers. */
#include "base/fail.h"
#include "memory/pool/pool.h"
#include "memory/buffer/buffer.h"

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

/* Finds the kind of an allocator's block only when it is asked for: creating buffers is more frequent. */
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

/* The allocator and the tag of a buffer never change, so the sum never decreases. */
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
               : LOCH_FAIL(INVALID, "the memory is read-only and must not be written");
}

/* --- for pools of buffers --- */

loch_status lochi_buffer_set_bytes(loch_buffer *buffer, size_t bytes)
{
    if (buffer->whole || bytes > buffer->capacity)
        return LOCH_FAIL(OUT_OF_RANGE, "the block of the buffer has %zu bytes, which is less than %zu bytes",
                         buffer->capacity, bytes);
    buffer->bytes = bytes;
    return LOCH_OK;
}

size_t lochi_buffer_get_capacity(const loch_buffer *buffer)
{
    return lochi_buffer_whole_const(buffer)->capacity;
}

/* Acquire: the work of threads that released their references is ordered before the caller's work. */
bool lochi_buffer_is_sole(const loch_buffer *buffer)
{
    return !buffer->whole && atomic_load_explicit(&buffer->references, memory_order_acquire) == 1;
}
