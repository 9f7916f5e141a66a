/* SPDX-License-Identifier: MIT */
/* Changing the size of a block: in place if the outermost allocator can, else by an allocation, a copy and a free
 * through that allocator. So every wrapper sees the calls, and all statistics stay right. */
#include "memory/realloc.h"
#include "base/fail.h"
#include "kit/hint.h"
#include "kit/text.h"
#include "device/device.h"
#include "memory/grow.h"
#include "memory/life.h"
#include "memory/live/live.h"
#include "memory/pool/pool.h"
#include "memory/recorder/recorder.h"
#include "memory/session/session.h"
#include <loch/copy.h>
#include <string.h>

/* --- in place --- */

static bool realloc_is_refusal(loch_status status)
{
    return status == LOCH_E_UNSUPPORTED || status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_HOST_MEMORY ||
           status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED;
}

/* Leaves the error record alone after a refusal, because the caller then moves the block instead. */
loch_status lochi_allocator_resize_in_place(loch_allocator *allocator, void *address, size_t bytes, size_t *allocated)
{
    if (!allocator->ops.resize || !allocator->ops.find) return LOCH_E_UNSUPPORTED;
    if (allocator->ledger && !allocator->wrapped)
        return LOCH_E_UNSUPPORTED; /* its statistics would keep the old size */
    const loch_error saved = lochi_error_save();
    const loch_status status = allocator->ops.resize(allocator->self, address, bytes, allocated);
    if (status == LOCH_OK) {
        const uint32_t recorded = lochi_recorder_of(allocator);
        if (recorded) lochi_recorder_note_resize(recorded, address, bytes);
        lochi_live_resize(allocator, address, bytes);
        lochi_session_note_size(allocator, address, bytes);
        if (allocator->ledger) lochi_ledger_resize(allocator->ledger, address, bytes);
    }
    if (realloc_is_refusal(status)) lochi_error_restore(&saved);
    return status;
}

/* Returns whether the block may keep its address. It may if the next use and the free are on the block's own stream.
 * With another stream, or if the block's stream was destroyed, a new block is needed. */
static bool realloc_may_stay(const loch_allocator *allocator, const loch_stream *given, const loch_block *block)
{
    if (!block->stream_id || lochi_device_is_at_once(allocator->device)) return true;
    if (given) return loch_stream_get_id(given) == block->stream_id;
    loch_stream *own = lochi_stream_find(allocator->device, block->stream_id);
    if (own) lochi_stream_release(own);
    return own != NULL;
}

/* Resizes a growable block in place. Returns false if it has to move, to a growable block that `wanted` then asks for:
 * the size is beyond its reservation, an allocator around the pool cannot resize, or the block must not stay. Moving
 * because memory is short would need more memory. */
static bool realloc_grow(loch_allocator *allocator, const loch_block *block, bool may_stay, loch_request *wanted,
                         loch_status *status)
{
    lochi_growth growth;
    const loch_error saved = lochi_error_save();
    if (!lochi_pool_get_growth(lochi_pool_of(allocator), block->address, &growth)) return false; /* freed meanwhile */
    if (may_stay) *status = lochi_grow(allocator, block->address, wanted->bytes, &wanted->max_bytes);
    if (may_stay && *status != LOCH_E_OUT_OF_RANGE && *status != LOCH_E_UNSUPPORTED) return true;
    lochi_error_restore(&saved);
    wanted->max_bytes = growth.flags & LOCH_ALLOC_ONE_HANDLE ? 0 : growth.max_bytes;
    if (wanted->bytes > growth.max_bytes && wanted->max_bytes)
        wanted->max_bytes = wanted->bytes > 2 * growth.max_bytes ? wanted->bytes : 2 * growth.max_bytes;
    wanted->timeout_ns = growth.timeout_ns;
    wanted->flags |= growth.flags;
    return false;
}

/* --- by moving --- */

/* Computes how many bytes of the old block are copied. A user's allocator may not know the requested size. */
static loch_status realloc_measure(const loch_allocator *allocator, const loch_block *block, size_t bytes, size_t *out)
{
    size_t known = block->requested_bytes;
    if (!known && !(allocator->traits & LOCH_TRAIT_ALLOCATES_EMPTY)) {
        known = block->allocated_bytes;
        if (!known)
            return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" does not know the size of the block at %p", allocator->name,
                             block->address);
    }
    *out = known < bytes ? known : bytes;
    return LOCH_OK;
}

/* Returns the stream on which to move a block, retained. */
static loch_status realloc_choose_stream(const loch_allocator *allocator, loch_stream *given, const loch_block *block,
                                         loch_stream **out)
{
    loch_device *device = allocator->device;
    if (given) {
        *out = lochi_stream_retain(given);
        return LOCH_OK;
    }
    *out = block->stream_id ? lochi_stream_find(device, block->stream_id) : NULL;
    if (*out) return LOCH_OK;
    if (!lochi_device_is_at_once(device))
        LOCH_TRY_RETURN(loch_device_sync(device)); /* the last use was on some stream of the device */
    *out = lochi_stream_retain(&device->default_stream);
    return LOCH_OK;
}

/* Moves the contents to a new block. `request` is complete except for its stream. */
static loch_status realloc_move(loch_allocator *allocator, const loch_block *block, loch_request request,
                                loch_stream *stream, bool keeps_contents, void **out)
{
    size_t kept = 0;
    if (keeps_contents) LOCH_TRY_RETURN(realloc_measure(allocator, block, request.bytes, &kept));
    request.stream = stream;
    void *moved;
    lochi_session_frame frame;
    lochi_session_hush(&frame); /* the new block joins the session of the old one, or none */
    loch_status status = loch_allocator_alloc(allocator, &request, &moved);
    lochi_session_unhush(&frame);
    if (status != LOCH_OK) return status;
    lochi_session_block *noted = lochi_session_take_moving(allocator, block->address);
    if (kept) status = loch_copy_on(moved, block->address, kept, stream);
    if (status == LOCH_OK) status = loch_allocator_free_on(allocator, block->address, stream);
    if (lochi_is_freed(status)) {
        *out = moved;
        if (noted) lochi_session_settle_moved(noted, moved, request.bytes);
    } else {
        lochi_allocator_abandon(allocator, moved, 0, NULL);
        if (noted) lochi_session_settle(noted, lochi_session_is_gone(status));
    }
    return status;
}

/* --- entry points --- */

/* Resizes a block. The block is live, the stream is NULL or of the device, the size is neither 0 nor too large. */
static loch_status realloc_block(loch_allocator *allocator, const loch_block *block, const loch_request *request,
                                 bool keeps_contents, void **out)
{
    loch_status status = LOCH_E_UNSUPPORTED;
    size_t allocated = 0;
    loch_request wanted = *request;
    const bool may_stay = realloc_may_stay(allocator, request->stream, block);
    if (lochi_grow_concerns(allocator, block->address)) {
        if (realloc_grow(allocator, block, may_stay, &wanted, &status)) {
            if (status == LOCH_OK) *out = block->address;
            return status;
        }
        keeps_contents &= block->requested_bytes != 0; /* a growable block may be empty */
    } else if (may_stay) {
        status = request->bytes == block->requested_bytes
                     ? LOCH_OK
                     : lochi_allocator_resize_in_place(allocator, block->address, request->bytes, &allocated);
        if (status == LOCH_OK) *out = block->address;
        if (!realloc_is_refusal(status)) return status;
    }
    LOCH_TRY_RETURN(lochi_pool_check_awake(allocator, block->address, block->requested_bytes));
    loch_stream *chosen;
    LOCH_TRY_RETURN(realloc_choose_stream(allocator, request->stream, block, &chosen));
    status = realloc_move(allocator, block, wanted, chosen, keeps_contents, out);
    lochi_stream_release(chosen);
    return status;
}

loch_status lochi_allocator_resize(loch_allocator *allocator, void *address, const loch_request *request,
                                   bool keeps_contents, void **out)
{
    *out = NULL;
    loch_stream *stream = request->stream;
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    if (!request->bytes)
        return stream ? loch_allocator_free_on(allocator, address, stream) : loch_free(allocator, address);
    if (request->bytes >= LOCHI_ALLOCATOR_BYTES_MAX)
        return LOCH_FAIL(OVERFLOW, "a block of %s does not fit the address space", LOCHI_SIZE(request->bytes));
    loch_block block = {.size = sizeof block};
    LOCH_TRY_RETURN(loch_allocator_find(allocator, address, &block));
    block.address = address; /* a user's allocator may have written something else */
    loch_request complete = *request;
    complete.tag = block.tag;
    return realloc_block(allocator, &block, &complete, keeps_contents, out);
}

/* Moves a plain block of a pool of the host to a new block: the fast path of realloc_block and realloc_move. */
static loch_status realloc_move_simple(loch_allocator *allocator, void *address, size_t before,
                                       const loch_request *request, void **out)
{
    void *moved;
    LOCH_TRY_RETURN(loch_allocator_alloc(allocator, request, &moved));
    memcpy(moved, address, before < request->bytes ? before : request->bytes);
    const loch_status status = loch_free(allocator, address);
    if (status == LOCH_OK)
        *out = moved;
    else /* another thread has freed it */
        lochi_allocator_abandon(allocator, moved, 0, NULL);
    return status;
}

/* Resizes a block on the fast path. `recorded` is 0, or the number of a recorded allocator plus one. Returns false if
 * the call has to take the slow path. */
static inline __attribute__((always_inline)) bool realloc_fast(loch_allocator *allocator, lochi_pool *pool,
                                                               uint32_t recorded, void *address,
                                                               const loch_request *request, loch_status *status,
                                                               void **out)
{
    size_t before = 0;
    if (request->bytes - 1 >= LOCHI_ALLOCATOR_BYTES_MAX - 1) return false;
    switch (lochi_pool_resize_fast(pool, address, request->bytes, request->stream, &before)) {
    case POOL_RESIZED:
        if (recorded) lochi_recorder_note_resize(recorded, address, request->bytes);
        *out = address;
        *status = LOCH_OK;
        return true;
    case POOL_RESIZE_MOVES:
        if (!pool->policy.is_host || lochi_session_top) return false;
        *status = realloc_move_simple(allocator, address, before, request, out);
        return true;
    case POOL_RESIZE_SLOWLY: break;
    }
    return false;
}

static LOCHI_RARE bool realloc_recorded(loch_allocator *allocator, void *address, const loch_request *request,
                                        loch_status *status, void **out)
{
    const uint32_t recorded = lochi_recorder_of(allocator);
    lochi_pool *pool = recorded ? allocator->pool : NULL;
    return pool && realloc_fast(allocator, pool, recorded, address, request, status, out);
}

loch_status loch_allocator_realloc(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream,
                                   void **out)
{
    if (out) *out = NULL;
    if (!allocator || !out)
        return LOCH_FAIL(INVALID, "changing the size of a block needs an allocator and an out pointer");
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    loch_status status;
    lochi_pool *pool = atomic_load_explicit(&allocator->fast_pool, memory_order_relaxed);
    if (address && (pool ? realloc_fast(allocator, pool, 0, address, &request, &status, out)
                         : realloc_recorded(allocator, address, &request, &status, out)))
        return status;
    if (address) return lochi_allocator_resize(allocator, address, &request, true, out);
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    return loch_allocator_alloc(allocator, &request, out);
}
