/* SPDX-License-Identifier: MIT */
/* Segments that come from another allocator (loch_pool_options.source).
 *
 * The source may be any allocator, also one of the user, another pool, or one that calls functions of the user when
 * memory is short. So no lock is held while it is called. A request that needs a segment ends with POOL_NEEDS_SEGMENT,
 * the caller gets the segment here, and the request begins again. A segment that goes back is set aside, and given to
 * the source after the locks were dropped (idle.c).
 *
 * Two threads may get a segment at a time, each for its own request. The limit is checked before and after. */
#include "memory/pool/supply/source.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/room.h"
#include "kit/text.h"
#include "memory/live/live.h"
#include "memory/pool/supply/handle.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/session/session.h"

/* Allocates from the source. The block belongs to no session, and is not listed as a live block: those in it are. */
static loch_status source_alloc(lochi_pool *pool, const loch_request *request, void **out)
{
    lochi_session_frame frame;
    lochi_session_hush(&frame);
    lochi_live_hide();
    const loch_status status = loch_allocator_alloc(pool->options.source, request, out);
    lochi_live_show();
    lochi_session_unhush(&frame);
    return status;
}

/* A segment that a thread is fetching, on its stack. */
typedef struct pool_fetch {
    const lochi_pool *pool;
    bool is_modest;
    const struct pool_fetch *outer;
} pool_fetch;

bool lochi_pool_is_fetching(const lochi_pool *pool)
{
    const pool_fetch *fetch = lochi_room_own ? lochi_room_own->fetch : NULL;
    while (fetch && fetch->pool != pool)
        fetch = fetch->outer;
    return fetch != NULL;
}

bool lochi_pool_is_modest(void)
{
    return lochi_room_own && lochi_room_own->fetch && lochi_room_own->fetch->is_modest;
}

/* --- giving back --- */

/* Segments that their source refused to take back. They are tried again with the next segments that go back. */
static lochi_lock source_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static pool_handle *source_refused;

static pool_handle *source_swap_refused(pool_handle *segments)
{
    lochi_lock_take(&source_lock);
    pool_handle *before = source_refused;
    source_refused = segments;
    lochi_lock_drop(&source_lock);
    return before;
}

/* Gives segments back to their sources. Puts those that are refused in front of `refused`, which is returned. */
static pool_handle *source_give(pool_handle *segments, pool_handle *refused, bool is_told)
{
    while (segments) {
        pool_handle *segment = segments;
        segments = segment->next;
        const loch_status status = loch_free(segment->source, segment->raw);
        if (!lochi_is_freed(status)) {
            if (is_told)
                LOCHI_LOG(ERROR, "allocator \"%s\" does not take a segment of %s back: %s",
                          loch_allocator_get_name(segment->source), LOCHI_SIZE(segment->raw_bytes),
                          loch_error_get()->sentence);
            segment->next = refused;
            refused = segment;
            continue;
        }
        loch_allocator_release(segment->source);
        lochi_free(segment);
    }
    return refused;
}

void lochi_pool_give_returned(pool_handle *segments)
{
    if (!segments) return;
    const loch_error saved = lochi_error_save();
    pool_handle *refused = source_give(segments, NULL, true);
    refused = source_give(source_swap_refused(NULL), refused, false);
    while (refused) { /* other threads may have added some */
        pool_handle *last = refused;
        while (last->next)
            last = last->next;
        last->next = source_swap_refused(NULL);
        refused = source_swap_refused(refused);
    }
    lochi_error_restore(&saved);
}

/* Gives back a segment that is in no list of the pool. */
static void source_return(lochi_pool *pool, pool_handle *segment)
{
    segment->source = loch_allocator_retain(pool->options.source);
    segment->next = NULL;
    lochi_pool_give_returned(segment);
}

/* --- taking --- */

static loch_status source_claim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_take(&pool->lock);
    const loch_status status = lochi_pool_claim(pool, bytes);
    lochi_lock_drop(&pool->lock);
    return status;
}

static void source_unclaim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_take(&pool->lock);
    lochi_pool_unclaim(pool, bytes);
    lochi_lock_drop(&pool->lock);
}

/* Takes memory for a segment and counts it in the limits. `asked` is the alignment of the request to the source, 0 for
 * its own; `slack` are bytes for a source that aligns less. */
static loch_status source_take(lochi_pool *pool, pool_handle *segment, size_t asked, size_t slack, loch_stream *stream,
                               uint32_t flags)
{
    const loch_request request = {
        .size = sizeof request, .bytes = segment->bytes + slack, .alignment = asked, .stream = stream, .flags = flags};
    segment->raw_bytes = request.bytes;
    LOCH_TRY_RETURN(source_claim(pool, segment->raw_bytes));
    loch_status status = source_alloc(pool, &request, &segment->raw);
    if (status == LOCH_OK && !segment->raw)
        status = LOCH_FAIL(DEVICE_MEMORY, "allocator \"%s\" returned no block for %s",
                           loch_allocator_get_name(pool->options.source), LOCHI_SIZE(request.bytes));
    if (status != LOCH_OK) source_unclaim(pool, segment->raw_bytes);
    return status;
}

loch_status lochi_pool_enter_fetched(lochi_pool *pool, pool_handle *segment, loch_stream *stream)
{
    lochi_pool_assert_both(pool);
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return status;
    if (!pool->is_related) LOCH_TRY_RETURN(lochi_pool_check_limit(pool, segment->raw_bytes));
    segment->age = pool->source.fetched;
    const bool is_ordered = loch_allocator_get_traits(pool->options.source) & LOCH_TRAIT_STREAM_ORDERED;
    LOCH_TRY_RETURN(lochi_pool_enter_segment(pool, segment, lane, is_ordered ? lane->epoch : 0));
    if (is_ordered) lochi_pool_mark(pool, lane); /* other streams use it after this event */
    return LOCH_OK;
}

void lochi_pool_refund_segment(lochi_pool *pool, pool_handle *segment)
{
    source_unclaim(pool, segment->raw_bytes);
    source_return(pool, segment);
}

/* Gets a segment of `bytes`. With `slack` it is aligned whatever the source aligns to; otherwise E_UNSUPPORTED if the
 * source aligns less. */
static loch_status source_get(lochi_pool *pool, size_t bytes, size_t alignment, size_t asked, size_t slack,
                              loch_stream *stream, uint32_t flags, pool_handle **out)
{
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a segment");
    segment->bytes = bytes;
    const loch_status status = source_take(pool, segment, asked, slack, stream, flags);
    if (status != LOCH_OK) {
        lochi_free(segment);
        return status;
    }
    segment->at = ((uintptr_t)segment->raw + alignment - 1) & ~(uintptr_t)(alignment - 1);
    *out = segment;
    if (slack || segment->at == (uintptr_t)segment->raw) return LOCH_OK;
    lochi_pool_refund_segment(pool, segment);
    return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" does not align to %s",
                     loch_allocator_get_name(pool->options.source), LOCHI_SIZE(alignment));
}

/* Gets a segment of `bytes` from a source that aligns as it is asked, or well by itself, or else with more bytes. Only
 * segments of one block are worth the second try. */
static loch_status source_fetch(lochi_pool *pool, size_t bytes, size_t alignment, loch_stream *stream, uint32_t flags,
                                pool_handle **out)
{
    loch_status status = source_get(pool, bytes, alignment, alignment, 0, stream, flags, out);
    if (status == LOCH_E_UNSUPPORTED && pool->policy.is_unsplit)
        status = source_get(pool, bytes, alignment, 0, 0, stream, flags, out);
    if (status == LOCH_E_UNSUPPORTED) status = source_get(pool, bytes, alignment, 0, alignment, stream, flags, out);
    return status;
}

loch_status lochi_pool_fetch_segment(lochi_pool *pool, const pool_segment_size *size, loch_stream *stream,
                                     uint32_t flags, pool_handle **out)
{
    lochi_room *room = lochi_room_get();
    const bool is_modest = size->is_modest || lochi_pool_is_modest(); /* what it is fetched for can do without it */
    pool_fetch fetch = {.pool = pool, .is_modest = true, .outer = room ? room->fetch : NULL};
    loch_status status = LOCH_E_DEVICE_MEMORY;
    const loch_error saved = lochi_error_save();
    if (room) room->fetch = &fetch;
    if (size->wished > size->needed)
        status = source_fetch(pool, size->wished, size->alignment, stream, flags | LOCH_ALLOC_NO_RETRY, out);
    if (status != LOCH_OK) {
        fetch.is_modest = is_modest;
        lochi_error_restore(&saved);
        status = source_fetch(pool, size->needed, size->alignment, stream, flags, out);
    }
    if (room) room->fetch = fetch.outer;
    return status;
}
