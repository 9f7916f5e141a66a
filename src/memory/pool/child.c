/* SPDX-License-Identifier: MIT */
/* Child pools.
 *
 * A range is a block of the parent and the only raw segment of the child. Nothing else lies in it. It is freed like
 * any block, ordered after the streams that used it. A quota is a pool of its own whose memory counts in the limits
 * of its parents (family.c). */
#include "memory/pool/child.h"
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/text.h"
#include "base/logging.h"
#include "memory/live/live.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/supply/supply.h"
#include "memory/session/session.h"

#define CHILD_RANGE_MIN ((size_t)16 << 10) /* two pages: a range is a large block of its parent and serves small ones */

/* Reserves the minimum of a child in its parent. Returns false if it does not fit the limits. */
static bool child_promise(lochi_pool *parent, size_t minimum)
{
    lochi_pool_take_locks(parent);
    const bool fits = lochi_family_promise(parent, minimum);
    lochi_pool_drop_locks(parent);
    return fits;
}

static loch_status child_open_quota(lochi_pool *pool, const loch_child_options *options)
{
    lochi_pool *parent = pool->family.parent;
    size_t minimum;
    if (parent->range)
        return LOCH_FAIL(UNSUPPORTED, "the parent is a child with a range: its children must have ranges too");
    if (options->limit_bytes && options->minimum_bytes > options->limit_bytes)
        return LOCH_FAIL(INVALID, "the minimum of %s is more than the limit of %s", LOCHI_SIZE(options->minimum_bytes),
                         LOCHI_SIZE(options->limit_bytes));
    if (!lochi_round_up(options->minimum_bytes, pool->cell_bytes, &minimum)) /* memory comes in whole cells */
        return LOCH_FAIL(OVERFLOW, "the minimum of %s does not fit the address space",
                         LOCHI_SIZE(options->minimum_bytes));
    if (options->limit_bytes && minimum > options->limit_bytes) minimum = options->limit_bytes;
    bool fits = child_promise(parent, minimum);
    if (!fits && lochi_pool_ask_family(parent, minimum, true)) fits = child_promise(parent, minimum);
    if (!fits)
        return LOCH_FAIL(LIMIT, "the minimum of %s does not fit the limits of pool \"%s\" and its parents",
                         LOCHI_SIZE(minimum), loch_allocator_get_name(parent->allocator));
    pool->family.minimum = minimum;
    pool->family.is_counted = true;
    pool->is_related = pool->cap.is_obedient = true;
    pool->limit = options->limit_bytes;
    return LOCH_OK;
}

static loch_status child_open_range(lochi_pool *pool, const loch_child_options *options)
{
    lochi_pool *parent = pool->family.parent;
    loch_stream *stream = options->stream ? options->stream : pool->default_stream;
    const loch_request request = {.size = sizeof request,
                                  .bytes = options->limit_bytes,
                                  .alignment = POOL_PAGE,
                                  .stream = stream,
                                  .tag = options->tag};
    loch_status status;
    void *range;
    if (options->minimum_bytes)
        return LOCH_FAIL(INVALID, "a child with a range has no minimum: it gets the whole range at once");
    if (options->limit_bytes < CHILD_RANGE_MIN)
        return LOCH_FAIL(INVALID, "a range of %zu bytes is too small: the smallest has %zu", options->limit_bytes,
                         CHILD_RANGE_MIN);
    if (pool->is_of_graphs)
        return LOCH_FAIL(UNSUPPORTED,
                         "a child with a range cannot have LOCH_POOL_CAPTURES_SHARED: its memory belongs to "
                         "one stream at first, and no other stream would get any");
    LOCH_TRY_RETURN(lochi_stream_check(stream, pool->device));
    lochi_lock_take(&pool->lock);
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    lochi_lock_drop(&pool->lock);
    if (!lane) return status;
    if (lane->capture) return LOCH_FAIL(BUSY, "a child pool with a range cannot be made on a stream that is captured");
    lochi_session_frame frame;
    lochi_session_hush(&frame); /* the range outlives the session that the thread is in */
    lochi_live_hide();          /* its blocks are listed, not the range */
    status = loch_allocator_alloc(parent->allocator, &request, &range);
    lochi_live_show();
    lochi_session_unhush(&frame);
    if (status != LOCH_OK) return status;
    lochi_pool_keep_range(parent, range, pool);
    pool->range = range;
    pool->limit = options->limit_bytes & ~(POOL_UNIT - 1);
    pool->cap.bytes = 0;
    pool->is_capped = pool->cap.is_obedient = false; /* a range never gives memory back */
    lochi_pool_take_locks(pool);
    status = lochi_pool_adopt_range(pool, pool->limit, lane);
    lochi_pool_drop_locks(pool);
    return status;
}

/* Orders the free of a range after the work of a lane. Returns false if that is not possible and the caller has to
 * wait. Takes the child's lock and the parent's lock one after the other, never both. */
static bool child_note_lane(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_take(&pool->lock);
    if (lane->is_closed) lochi_pool_poll(pool, lane);
    const bool may_record = !lane->is_closed && !lochi_pool_is_under_capture(pool, lane);
    const bool has_passed = lane->is_closed && lochi_pool_has_passed(lane, lane->epoch);
    lochi_lock_drop(&pool->lock);
    if (!may_record) return has_passed;
    return loch_allocator_record_use(pool->family.parent->allocator, pool->range, lane->stream) == LOCH_OK;
}

void lochi_child_note_uses(lochi_pool *pool)
{
    const loch_error saved = lochi_error_save();
    bool is_noted = true;
    for (pool_lane *lane = pool->lanes; lane && is_noted; lane = lane->next) /* captures are waited for elsewhere */
        if (lane->done != UINT64_MAX && !lane->capture) is_noted = child_note_lane(pool, lane);
    if (!is_noted) {
        lochi_pool_take_locks(pool);
        lochi_pool_wait_for_all(pool);
        lochi_pool_drop_locks(pool);
    }
    lochi_error_restore(&saved);
}

loch_status lochi_child_open(lochi_pool *pool, const pool_descent *descent)
{
    pool->family.parent = descent->parent;
    pool->peers = descent->parent->peers;
    pool->peers_count = descent->parent->peers_count;
    loch_allocator_retain(descent->parent->allocator);
    return descent->options.kind == LOCH_CHILD_RANGE ? child_open_range(pool, &descent->options)
                                                     : child_open_quota(pool, &descent->options);
}

void lochi_child_close(lochi_pool *pool)
{
    lochi_pool *parent = pool->family.parent;
    if (!parent) return;
    const loch_error saved = lochi_error_save();
    lochi_family_unlink(pool);
    if (pool->range) {
        lochi_pool_keep_range(parent, pool->range, NULL);
        if (pool->dirty || pool->dirty_words) /* not wiped: the memory must never be handed out again */
            LOCHI_LOG(ERROR, "a child's range of %s could not be wiped and is lost", LOCHI_SIZE(pool->limit));
        else if (loch_free(parent->allocator, pool->range) != LOCH_OK)
            LOCHI_LOG(ERROR, "a child's range is lost: %s", loch_error_get()->sentence);
    }
    loch_allocator_release(parent->allocator);
    lochi_error_restore(&saved);
}

/* --- for users --- */

loch_allocator *loch_pool_get_parent(const loch_allocator *pool)
{
    while (pool && pool->wrapped)
        pool = pool->wrapped;
    const lochi_pool *self = pool ? pool->pool : NULL;
    return self && self->family.parent ? self->family.parent->allocator : NULL;
}

loch_status loch_pool_walk_children(loch_allocator *pool, loch_child_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    const lochi_pool *self = lochi_pool_of(pool);
    if (!self || !visitor) return LOCH_FAIL(INVALID, "the walk over children needs a pool and a visitor");
    loch_status status = LOCH_OK;
    uint64_t number = 0;
    for (loch_allocator *child; status == LOCH_OK && (child = lochi_family_next_child(self, &number));) {
        status = visitor(child, user);
        loch_allocator_release(child);
    }
    return status;
}

loch_allocator *lochi_pool_get_range_owner(const lochi_pool *pool)
{
    return pool->range ? pool->family.parent->allocator : pool->options.source;
}
