/* SPDX-License-Identifier: MIT */
/* Growable blocks: the calls of their owners. A growable block is made by an ordinary allocation whose request reserves
 * addresses, and grows through the slot `resize` of each allocator from the outermost wrapper to the pool. So each of
 * them counts the new size, and the outermost call retries: pressure functions, then the timeout that the block was
 * allocated with. */
#include "memory/grow.h"
#include "base/fail.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "memory/failure.h"
#include "memory/life.h"
#include "memory/live/live.h"
#include "memory/pool/pool.h"
#include "memory/recorder/recorder.h"
#include "memory/retry.h"
#include "memory/session/session.h"

/* Resizes a growable block in one allocator and those below it. A block that this allocator did not hand out is
 * refused. */
static loch_status grow_once(loch_allocator *allocator, void *address, size_t bytes, size_t *allocated)
{
    lochi_entry entry;
    lochi_allocator_note_user(allocator);
    if (!allocator->ops.resize)
        return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" has no slot to resize blocks in place", allocator->name);
    if (allocator->ledger) LOCH_TRY_RETURN(lochi_ledger_find(allocator->ledger, address, &entry));
    LOCH_TRY_RETURN(allocator->ops.resize(allocator->self, address, bytes, allocated));
    const uint32_t recorded = lochi_recorder_of(allocator);
    if (recorded) lochi_recorder_note_resize(recorded, address, bytes);
    lochi_live_resize(allocator, address, bytes);
    lochi_session_note_size(allocator, address, bytes);
    if (allocator->ledger) lochi_ledger_resize(allocator->ledger, address, bytes);
    return LOCH_OK;
}

bool lochi_grow_concerns(const loch_allocator *allocator, const void *address)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    return pool && lochi_pool_is_growable(pool, address);
}

loch_status lochi_grow_pass(loch_allocator *wrapped, void *address, size_t bytes, size_t *allocated)
{
    if (!lochi_grow_concerns(wrapped, address)) return LOCH_E_UNSUPPORTED;
    return grow_once(wrapped, address, bytes, allocated);
}

/* Makes one attempt to grow. `request->bytes` are the bytes to be added, `request->max_bytes` the new size. */
static loch_status grow_try(loch_allocator *allocator, const loch_request *request, void **out)
{
    size_t allocated;
    return grow_once(allocator, *out, request->max_bytes, &allocated);
}

loch_status lochi_grow(loch_allocator *allocator, void *address, size_t bytes, size_t *max_bytes)
{
    lochi_growth growth;
    lochi_pool *pool = lochi_pool_of(allocator);
    *max_bytes = 0;
    if (!pool || !lochi_pool_get_growth(pool, address, &growth))
        return LOCH_FAIL(FOREIGN, "there is no growable block at %p", address);
    *max_bytes = growth.max_bytes;
    if (bytes > growth.max_bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "%s are more than the %s reserved for the block", LOCHI_SIZE(bytes),
                         LOCHI_SIZE(growth.max_bytes));
    const loch_request request = {.size = sizeof request,
                                  .bytes = bytes > growth.bytes ? bytes - growth.bytes : 0,
                                  .max_bytes = bytes,
                                  .flags = growth.flags,
                                  .timeout_ns = growth.timeout_ns};
    const bool is_inner = lochi_failure_is_inner(); /* a user's wrapper passes the call on */
    const uint32_t mark = lochi_failure_begin();
    loch_status status = grow_try(allocator, &request, &address);
    if (status != LOCH_OK) status = lochi_retry(allocator, grow_try, &request, mark, status, is_inner, &address);
    lochi_failure_end(mark, is_inner);
    if (status != LOCH_OK && !is_inner) lochi_recorder_note_failure(allocator, request.bytes, status);
    return status;
}

loch_status loch_pool_alloc_growable(loch_allocator *pool, size_t max_bytes, const loch_request *request, void **out)
{
    if (out) *out = NULL;
    if (!lochi_pool_of(pool)) return LOCH_FAIL(INVALID, "growable blocks come from pools");
    if (!out || !max_bytes)
        return LOCH_FAIL(INVALID, "a growable block needs a largest size that is not 0, and an out pointer");
    loch_request read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a request", request, &read, sizeof read));
    read.max_bytes = max_bytes;
    return loch_allocator_alloc(pool, &read, out);
}

loch_status loch_pool_resize_growable(loch_allocator *pool, void *address, size_t bytes)
{
    size_t max_bytes;
    if (!lochi_pool_of(pool)) return LOCH_FAIL(INVALID, "growable blocks come from pools");
    if (!address) return LOCH_FAIL(INVALID, "the address of the block to resize is NULL");
    return lochi_grow(pool, address, bytes, &max_bytes);
}
