/* SPDX-License-Identifier: MIT */
/* Hands out blocks, with the pool's lock held. A small request is served from a slab, a large one from the heap.
 * When nothing fits, ladder.c tries to make room. */
#include "memory/pool/serve/alloc.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "memory/failure.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/front/front.h"
#include "memory/pool/serve/exact.h"
#include "memory/pool/serve/growable.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/serve/ladder.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/limits/limits.h"
#include <string.h>
#include <time.h>

#define ALLOC_NEAR_PART 8 /* pinned memory: a free block that is larger by less than this part of a request fits well */
#define ALLOC_PATIENCE_S 1

/* --- large blocks --- */

/* Finds a free block that can be handed out uncut (preset LOCH_POOL_WHOLE_BLOCKS). Returns NULL for none. */
static pool_block *alloc_fit_whole(lochi_pool *pool, const pool_want *want)
{
    pool_block *block = lochi_pool_bins_fit(pool, &want->lane->bins, want->bytes, want->alignment, true);
    if (!block || -block->start & (want->alignment - 1)) return NULL;
    if (!lochi_pool_is_near(block, want->bytes)) return NULL;
    lochi_pool_bins_remove(&want->lane->bins, block);
    if (block->bytes > POOL_WHOLE_BIG) pool->cap.pieces_bytes -= block->bytes;
    return block;
}

/* Remaps memory for a request, or takes new memory, if that costs less than cutting the free block `fit`. Returns NULL
 * if it does not, or if *status is not LOCH_OK. */
static pool_block *alloc_improve(lochi_pool *pool, const pool_want *want, const pool_block *fit, loch_status *status)
{
    if (!lochi_pool_may_improve(pool, want, fit) || !lochi_pool_try_supply(pool)) return NULL;
    return lochi_pool_improve(pool, want, status);
}

/* Finds the smallest free block for a request. What is left of a segment of pinned memory cannot be remapped: before a
 * request cuts a much larger block, the blocks that other streams have used are looked at again. One of them may have
 * become free, and fit better. */
static pool_block *alloc_find_fit(lochi_pool *pool, const pool_want *want)
{
    pool_block *fit = lochi_pool_bins_fit(pool, &want->lane->bins, want->bytes, want->alignment, false);
    if (LOCHI_LIKELY(!fit || !pool->is_exact || !pool->waiting)) return fit;
    if (fit->bytes - want->bytes < want->bytes / ALLOC_NEAR_PART || !lochi_pool_collect(pool)) return fit;
    return lochi_pool_bins_fit(pool, &want->lane->bins, want->bytes, want->alignment, false);
}

/* Remaps memory for a request that no free block fits, or only `fit`, which costs more. If none fits, merges the blocks
 * that `cache` has in its bins (NULL for no cache), and then makes room. */
static __attribute__((noinline)) pool_block *alloc_fit_anew(lochi_pool *pool, pool_cache *cache, const pool_want *want,
                                                            const pool_block *fit, loch_status *status)
{
    if (fit && lochi_pool_try_supply(pool)) {
        pool_block *block = lochi_pool_improve(pool, want, status);
        if (block || *status != LOCH_OK) return block;
    }
    if (!fit && cache) lochi_pool_flush_bins(pool, cache);
    return lochi_pool_climb(pool, want, POOL_TO_THE_TOP, status);
}

/* Cuts a block out of an arena. Makes a new arena if no arena has room and memory for one can be found quickly. Returns
 * NULL with LOCH_OK if there is no arena: the request may still fit outside of one. */
static __attribute__((noinline)) pool_block *alloc_fit_arena(lochi_pool *pool, const pool_want *want,
                                                             loch_status *status)
{
    pool_block *block = lochi_pool_fit_arena(pool, want->lane, want, status);
    if (block || *status != LOCH_OK) return block;
    const pool_want arena = {POOL_ARENA, POOL_PAGE, want->lane, 0, 0};
    const loch_error saved = lochi_error_save();
    const pool_block *fit =
        pool->is_exact ? lochi_pool_bins_fit(pool, &want->lane->bins, POOL_ARENA, POOL_PAGE, false) : NULL;
    if (fit) block = alloc_improve(pool, &arena, fit, status);
    if (!block && *status == LOCH_OK) block = lochi_pool_climb(pool, &arena, POOL_TO_NEW_MEMORY, status);
    if (!block) {
        lochi_error_restore(&saved);
        *status = LOCH_OK;
        return NULL;
    }
    lochi_pool_make_arena(pool, block);
    return lochi_pool_fit_arena(pool, want->lane, want, status);
}

/* Finds a block for a request and enters it in the table of pages: cuts it out of free memory, or remaps memory for it
 * if that costs less. Flushes `cache` before it makes room; NULL for no cache. Returns NULL with the status on
 * failure. */
static inline __attribute__((always_inline)) pool_block *alloc_take_block(lochi_pool *pool, pool_cache *cache,
                                                                          const pool_want *want, loch_status *status)
{
    *status = LOCH_OK;
    pool_block *block = pool->policy.is_whole ? alloc_fit_whole(pool, want) : NULL;
    if (!block && !pool->policy.is_whole && want->bytes <= POOL_ARENA_BLOCK_MAX &&
        want->alignment <= POOL_ARENA_BLOCK_MAX)
        block = alloc_fit_arena(pool, want, status);
    if (!block && *status == LOCH_OK) {
        pool_block *fit = alloc_find_fit(pool, want);
        block = LOCHI_LIKELY(fit && !lochi_pool_may_improve(pool, want, fit))
                    ? lochi_pool_fit_in(pool, fit, want, status)
                    : alloc_fit_anew(pool, cache, want, fit, status);
    }
    if (!block) return NULL;
    *status = lochi_pool_use_block(pool, block, want->paged_bytes);
    return *status == LOCH_OK ? block : NULL;
}

/* Counts an allocation in a cache, if there is one. */
static inline void alloc_count(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated)
{
    if (LOCHI_LIKELY(cache && !lochi_pool_note_alloc(cache, requested, allocated))) return;
    if (cache)
        lochi_pool_raise(pool, cache, requested);
    else
        lochi_pool_count_alloc(pool, NULL, requested, allocated);
}

/* Hands out a large block that was found for a request. */
static inline __attribute__((always_inline)) loch_status
alloc_hand_out(lochi_pool *pool, pool_cache *cache, pool_block *block, const loch_request *request, void **out)
{
    lochi_pool_set_requested(block, request->bytes);
    block->tag = (uint16_t)request->tag;
    /* All blocks of a pool that hands out whole blocks are pieces. Reading the members that were just written as one
     * word would wait until the writes reach the cache. */
    lochi_pool_set_state(block, request->tag || pool->policy.is_whole ? POOL_SPECIAL : POOL_USED);
    alloc_count(pool, cache, request->bytes, block->bytes);
    lochi_pool_show_block(pool, block->start, request->bytes);
    *out = (void *)block->start;
    return LOCH_OK;
}

/* Checks a request above all that the pool holds, before anything is done for it: it may be one that can never be
 * served. POOL_NEEDS_SEGMENT: the source has to serve it, or knows that it never can. */
static LOCHI_RARE loch_status alloc_check_beyond(lochi_pool *pool, size_t bytes, size_t alignment)
{
    LOCH_TRY_RETURN(lochi_pool_check_ceiling(pool, bytes));
    if (!pool->options.source || pool->source.dry != LOCH_OK) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    if (lochi_pool_check_limit(pool, lochi_pool_size_segment(pool, bytes, alignment).needed) == LOCH_OK)
        return POOL_NEEDS_SEGMENT;
    lochi_error_restore(&saved);
    return LOCH_OK;
}

static loch_status alloc_large(lochi_pool *pool, pool_cache *cache, pool_lane *lane, const loch_request *request,
                               void **out)
{
    const size_t alignment = request->alignment > POOL_UNIT ? request->alignment : POOL_UNIT;
    const size_t bytes = lochi_pool_round_large(pool, lochi_request_round(request));
    pool_block *block = NULL;
    if (cache && alignment == POOL_UNIT) block = lochi_pool_cache_take_block(cache, bytes);
    loch_status status = LOCH_OK;
    if (!block) {
        if (LOCHI_UNLIKELY(bytes > pool->reserved)) LOCH_TRY_RETURN(alloc_check_beyond(pool, bytes, alignment));
        pool_cache *flushed = bytes > POOL_ARENA_BLOCK_MAX ? cache : NULL;
        if (flushed) lochi_pool_flush_last(pool, flushed); /* merged before the request is cut from a larger block */
        const pool_want want = {bytes, alignment, lane, 1, 0};
        block = alloc_take_block(pool, flushed, &want, &status);
    }
    return block ? alloc_hand_out(pool, cache, block, request, out) : status;
}

/* --- small blocks --- */

/* Tells whether a request is served from slabs. Sets its class. */
static bool alloc_is_small(const lochi_pool *pool, size_t bytes, size_t alignment, uint32_t *class)
{
    if (bytes > POOL_SMALL_MAX || alignment > POOL_SMALL_MAX || pool->policy.is_unsplit) return false;
    if (alignment > pool->unit) bytes = (bytes + alignment - 1) & ~(alignment - 1); /* slab.c: then it is aligned */
    *class = lochi_pool_class(pool, bytes);
    return true;
}

/* Makes a slab of a class for a lane. */
static __attribute__((noinline)) loch_status alloc_make_slab(lochi_pool *pool, pool_lane *lane, uint32_t class)
{
    loch_status status;
    const size_t bytes = pool->slab_bytes[class];
    if (bytes > pool->reserved) LOCH_TRY_RETURN(alloc_check_beyond(pool, bytes, POOL_PAGE));
    pool_slab *slab = lochi_pool_slab_take_record(pool, class);
    if (!slab) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a slab");
    const pool_want want = {bytes, lochi_pool_slab_alignment(pool, class), lane, bytes, 0};
    pool_block *block = alloc_take_block(pool, NULL, &want, &status);
    if (block)
        lochi_pool_slab_make(pool, slab, lane, block);
    else
        lochi_pool_slab_keep_record(pool, slab);
    return status;
}

/* Hands out a small block that was found for a request. */
static inline loch_status alloc_hand_out_small(lochi_pool *pool, pool_cache *cache, const pool_entry *entry,
                                               uint32_t class, const loch_request *request, void **out)
{
    atomic_store_explicit(entry->word,
                          POOL_WORD_LIVE | (uint32_t)request->tag << POOL_WORD_TAG_SHIFT | (uint32_t)request->bytes,
                          memory_order_relaxed);
    lochi_pool_count_alloc(pool, cache, request->bytes, pool->class_bytes[class]);
    lochi_pool_show_block(pool, (uintptr_t)entry->address, request->bytes);
    *out = entry->address;
    return LOCH_OK;
}

/* --- requests --- */

static loch_status alloc_locked(lochi_pool *pool, const loch_request *request, loch_stream *stream, void **out)
{
    lochi_lock_assert_held(&pool->lock);
    loch_status status = LOCH_OK;
    /* If queued work is done at once, one lane and its caches serve all streams. */
    pool_cache *cache = lochi_pool_cache_serving(pool, pool->policy.is_at_once ? pool->default_stream : stream);
    pool_lane *lane = cache ? cache->lane : lochi_pool_lane(pool, stream, &status);
    if (!lane) return status;
    if (!cache) cache = lochi_pool_cache(pool, lane);
    if (cache) cache->transfer = lane->transfer; /* another thread may have made it */
    uint32_t class;
    const size_t rounded = lochi_pool_round_request(pool, lochi_request_round(request));
    if (!alloc_is_small(pool, rounded, request->alignment, &class)) return alloc_large(pool, cache, lane, request, out);
    pool_entry entry;
    const bool is_cached = cache && cache->stacks[class].count;
    if (!is_cached && !lochi_pool_slab_find(lane, class)) LOCH_TRY_RETURN(alloc_make_slab(pool, lane, class));
    if (!cache || lochi_pool_cache_take(pool, cache, class, &entry) != LOCH_OK)
        lochi_pool_slab_take(lane, class, &entry, 1);
    return alloc_hand_out_small(pool, cache, &entry, class, request, out);
}

/* Allocates at an address (loch_request.address). Both locks are held: the addresses may need memory. */
static LOCHI_RARE loch_status alloc_at(lochi_pool *pool, const loch_request *request, void **out)
{
    const uintptr_t address = (uintptr_t)request->address;
    const size_t alignment = request->alignment ? request->alignment : 1, rounded = lochi_request_round(request);
    loch_status status;
    uint32_t class;
    if (address & (alignment - 1))
        return LOCH_FAIL(INVALID, "%p is not aligned to %s", request->address, LOCHI_SIZE(alignment));
    pool_lane *lane = lochi_pool_lane(pool, request->stream, &status);
    if (!lane) return status;
    pool_cache *cache = lochi_pool_cache(pool, lane);
    if (alloc_is_small(pool, lochi_pool_round_request(pool, rounded), alignment, &class)) {
        pool_entry entry;
        LOCH_TRY_RETURN(lochi_pool_take_small_at(pool, lane, class, address, &entry));
        return alloc_hand_out_small(pool, cache, &entry, class, request, out);
    }
    if (address & (POOL_UNIT - 1))
        return LOCH_FAIL(INVALID, "%p is not aligned to %zu bytes, as large blocks are", request->address, POOL_UNIT);
    const pool_want want = {lochi_pool_round_large(pool, rounded), POOL_UNIT, lane, 1, address};
    pool_block *block;
    LOCH_TRY_RETURN(lochi_pool_take_block_at(pool, &want, &block));
    return alloc_hand_out(pool, cache, block, request, out);
}

/* A request for which the source of the pool has no segment. */
typedef struct alloc_dry {
    loch_status status;     /* why it has none; LOCH_OK: it gave one */
    uint64_t missing_bytes; /* what it lacks; 0: not known */
    size_t *given;          /* sizes of segments that the pool gave back for the request */
    size_t given_count;
} alloc_dry;

/* Notes the sizes of the segments that go back to the source when the locks are dropped. Without host memory for that,
 * they are not fetched again. */
static void alloc_note_given(const lochi_pool *pool, alloc_dry *dry)
{
    size_t count = dry->given_count;
    for (const pool_handle *segment = pool->source.returned; segment; segment = segment->next)
        count++;
    size_t *given = count > dry->given_count ? lochi_realloc(dry->given, count * sizeof *given) : NULL;
    if (!given) return;
    dry->given = given;
    for (const pool_handle *segment = pool->source.returned; segment; segment = segment->next)
        given[dry->given_count++] = segment->bytes;
}

/* Tries once. `dry` is not NULL if the source of the pool has no segment, and the request has to do without one. */
static loch_status alloc_try(lochi_pool *pool, const loch_request *request, bool is_retry, alloc_dry *dry, void **out)
{
    const bool is_mapped = request->max_bytes || request->address; /* the request itself maps memory */
    if (is_mapped || dry)
        lochi_pool_take_locks(pool);
    else
        lochi_lock_take(&pool->lock);
    loch_status status;
    pool->counts.retries += is_retry;
    if (dry) { /* for the holder of the supply lock */
        pool->source.dry = dry->status;
        pool->source.dry_missing = dry->missing_bytes;
    }
    if (lochi_pool_is_out_of_use(pool)) /* only the slow path gets here: the gate is closed */
        status = lochi_pool_refuse_asleep(pool);
    else if (is_mapped)
        status = request->max_bytes ? lochi_pool_make_growable(pool, request, out) : alloc_at(pool, request, out);
    else
        status = alloc_locked(pool, request, request->stream, out);
    if (status == LOCH_OK) lochi_pool_count_tag(pool, request->tag, request->bytes, 1);
    if (dry) {
        pool->source.dry = LOCH_OK;
        pool->source.dry_missing = 0;
        alloc_note_given(pool, dry);
    }
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    return status;
}

bool lochi_pool_alloc_locked(lochi_pool *pool, const loch_request *request, loch_status *status, void **out)
{
    loch_stream *stream = request->stream ? request->stream : pool->default_stream;
    if (request->alignment > POOL_SMALL_MAX || request->bytes > POOL_ALIGNMENT_MAX) return false;
    if (request->stream && lochi_stream_check(stream, pool->device) != LOCH_OK) return false;
    lochi_lock_take(&pool->lock);
    const bool is_open = atomic_load_explicit(&pool->gate, memory_order_relaxed) ==
                         0; /* relaxed: the gate is closed with the lock held */
    if (is_open) *status = alloc_locked(pool, request, stream, out);
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    return is_open;
}

/* Tells whether memory is short: of the device, or up to a limit. */
static bool alloc_is_short(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_FRAGMENTED || status == LOCH_E_LIMIT;
}

/* Tells whether the source of a pool has asked the pools of the device itself. Those of the library do. */
static bool alloc_has_asked(const lochi_pool *pool, const loch_request *request)
{
    const loch_allocator *source = pool->options.source;
    while (source && source->wrapped)
        source = source->wrapped;
    const bool may_retry = !(request->flags & LOCH_ALLOC_NO_RETRY);
    return source && (source->pool || (may_retry && !strcmp(source->ops.kind, "direct")));
}

/* Asks other pools to give back unused memory if that can help. Returns the bytes given back. */
static size_t alloc_ask_others(lochi_pool *pool, const loch_request *request, loch_status status)
{
    const bool is_forbidden =
        status == LOCH_E_MOVING_FORBIDDEN; /* moves would make room, and so would memory of other pools */
    const bool is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_FRAGMENTED || is_forbidden;
    const size_t bytes = lochi_request_round(request);
    const size_t slack = request->alignment > pool->cell_bytes && !pool->policy.is_virtual ? request->alignment : 0;
    size_t gone = 0;
    if (lochi_error_is_final(status) || lochi_pool_is_modest()) return 0;
    if (status == LOCH_E_LIMIT || is_forbidden || (status == LOCH_E_DEVICE_MEMORY && pool->is_related))
        gone = lochi_pool_ask_family(pool, bytes + slack, false);
    if (is_short && !pool->range && !alloc_has_asked(pool, request))
        gone += lochi_pool_ask_siblings(pool, bytes, status);
    return gone;
}

/* Gets a segment from the source of a pool. */
static loch_status alloc_fetch_segment(lochi_pool *pool, const pool_segment_size *size, loch_stream *stream,
                                       uint32_t flags)
{
    pool_handle *segment = NULL;
    loch_status status = lochi_pool_fetch_segment(pool, size, stream, flags, &segment);
    lochi_pool_take_locks(pool);
    if (status == LOCH_OK) {
        status = lochi_pool_enter_fetched(pool, segment, stream);
        pool->source.fetched += status == LOCH_OK;
        if (status == LOCH_OK) segment = NULL;
    }
    if (pool->source.fetches) pool->source.fetches--; /* 0 in the child of a fork that the source made */
    pthread_cond_broadcast(&pool->source.has_fetched);
    lochi_pool_drop_locks(pool);
    if (segment) lochi_pool_refund_segment(pool, segment);
    return status;
}

/* Tells whether a segment of the pool could serve `bytes` if it were free. */
static bool alloc_has_segment(lochi_pool *pool, size_t bytes)
{
    lochi_lock_take(&pool->lock);
    const pool_handle *segment = pool->handles;
    while (segment && segment->bytes < bytes)
        segment = segment->next;
    lochi_lock_drop(&pool->lock);
    return segment != NULL;
}

/* Gets a segment for a request from the source of a pool. The error record says why there is none. Sets `*is_final` if
 * the source can never have it, and no other segment can serve the request. */
static loch_status alloc_fetch(lochi_pool *pool, const loch_request *request, bool may_retry, bool *is_final)
{
    const size_t rounded = lochi_request_round(request);
    uint32_t class;
    const bool is_small = alloc_is_small(pool, lochi_pool_round_request(pool, rounded), request->alignment, &class);
    const size_t bytes = is_small ? pool->slab_bytes[class] : lochi_pool_round_large(pool, rounded);
    const uint32_t flags = may_retry ? request->flags & LOCH_ALLOC_NO_RETRY : LOCH_ALLOC_NO_RETRY;
    const size_t alignment = is_small ? POOL_PAGE : request->alignment;
    lochi_lock_take(&pool->lock);
    const pool_segment_size size = lochi_pool_size_segment(pool, bytes, alignment);
    pool->source.fetches++;
    lochi_lock_drop(&pool->lock);
    const loch_status status = alloc_fetch_segment(pool, &size, request->stream, flags);
    *is_final = status != LOCH_OK && lochi_error_is_final(status) && !is_small && !alloc_has_segment(pool, bytes);
    return status;
}

/* Gets segments back that the pool has given to the source in vain, so that it has the idle memory that it had. */
static void alloc_fetch_back(lochi_pool *pool, const loch_request *request, const alloc_dry *dry)
{
    const loch_error saved = lochi_error_save();
    for (size_t i = 0; i < dry->given_count; i++) {
        const pool_segment_size size = {
            .needed = dry->given[i], .wished = dry->given[i], .alignment = pool->cell_bytes, .is_modest = true};
        lochi_lock_take(&pool->lock);
        pool->source.fetches++;
        lochi_lock_drop(&pool->lock);
        (void)alloc_fetch_segment(pool, &size, request->stream, LOCH_ALLOC_NO_RETRY);
    }
    lochi_error_restore(&saved);
}

/* Refuses a request that the source can never serve. The error record is that of the source. */
static loch_status alloc_refuse_finally(const lochi_pool *pool, const loch_request *request)
{
    const loch_error why = lochi_error_save();
    (void)LOCH_FAIL(DEVICE_MEMORY, "%s can never fit in pool \"%s\", because of its source: %s",
                    LOCHI_SIZE(request->bytes), loch_allocator_get_name(pool->allocator), why.sentence);
    lochi_error_note_short(why.owner, why.missing_bytes, LOCH_REMEDY_NONE);
    return LOCH_E_DEVICE_MEMORY;
}

/* Waits until another thread has got a segment: its memory may serve this request too. Returns false if there is no
 * such thread. The other thread may be in a function of the user that waits for this one, so the wait ends after
 * ALLOC_PATIENCE_S. */
static bool alloc_wait_for_fetch(lochi_pool *pool, uint64_t fetched, bool may_wait)
{
    LOCHI_NOT_CANCELLED;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ALLOC_PATIENCE_S;
    lochi_lock_take(&pool->lock);
    while (pool->source.fetched == fetched && pool->source.fetches && may_wait)
        if (!lochi_lock_wait_until(&pool->lock, &pool->source.has_fetched, &until)) break;
    const bool has_come = pool->source.fetched != fetched;
    lochi_lock_drop(&pool->lock);
    return has_come;
}

/* Serves a request that needs a segment of the source. If there is none, takes all other steps, and asks again if the
 * pool gave segments back on the way. Another thread may use up what was fetched, so this may take several rounds. The
 * source may be dry because other threads have segments that are not in the pool yet: these are waited for. */
static LOCHI_RARE loch_status alloc_from_source(lochi_pool *pool, const loch_request *request, void **out)
{
    loch_status status = POOL_NEEDS_SEGMENT;
    alloc_dry dry = {.status = LOCH_OK};
    const loch_error saved = lochi_error_save();
    for (bool may_retry = false, is_final; status == POOL_NEEDS_SEGMENT; may_retry = true) {
        dry.status = alloc_fetch(pool, request, may_retry, &is_final);
        if (is_final) {
            status = alloc_refuse_finally(pool, request);
            break;
        }
        dry.missing_bytes = dry.status != LOCH_OK ? loch_error_get()->missing_bytes : 0;
        if (alloc_is_short(dry.status)) dry.status = LOCH_E_DEVICE_MEMORY; /* not a limit of this pool */
        lochi_lock_take(&pool->lock);
        const uint64_t released = pool->counts.handles_released, fetched = pool->source.fetched;
        lochi_lock_drop(&pool->lock);
        lochi_error_restore(&saved);
        status = alloc_try(pool, request, false, dry.status != LOCH_OK ? &dry : NULL, out);
        if (dry.status == LOCH_OK || !alloc_is_short(status)) continue;
        lochi_lock_take(&pool->lock);
        const bool has_given = pool->counts.handles_released != released;
        lochi_lock_drop(&pool->lock);
        if (has_given || !may_retry)
            status = POOL_NEEDS_SEGMENT;
        else if (alloc_wait_for_fetch(pool, fetched, !(request->flags & LOCH_ALLOC_NO_RETRY)))
            status = alloc_try(pool, request, false, NULL, out);
    }
    if (status != LOCH_OK && dry.given_count) alloc_fetch_back(pool, request, &dry);
    lochi_free(dry.given);
    return status;
}

loch_status lochi_pool_alloc_again(lochi_pool *pool, const loch_request *request, loch_status status, void **out)
{
    const bool has_source = pool->options.source != NULL;
    if (has_source && status == POOL_NEEDS_SEGMENT) status = alloc_from_source(pool, request, out);
    if (status != LOCH_OK && alloc_ask_others(pool, request, status)) {
        status = alloc_try(pool, request, true, NULL, out);
        if (has_source && status == POOL_NEEDS_SEGMENT) status = alloc_from_source(pool, request, out);
    }
    if (status != LOCH_OK) lochi_failure_count(&pool->counts.failures);
    return status;
}

loch_status lochi_pool_alloc(void *self, const loch_request *request, void **out)
{
    lochi_pool *pool = self;
    const size_t rounded = lochi_request_round(request);
    loch_status status;
    if (request->alignment > POOL_ALIGNMENT_MAX || rounded > POOL_ALIGNMENT_MAX * 64) {
        status = LOCH_FAIL(DEVICE_MEMORY, "the address space has no room for %s aligned to %s", LOCHI_SIZE(rounded),
                           LOCHI_SIZE(request->alignment));
        lochi_error_note_short(loch_allocator_get_name(pool->allocator), rounded, LOCH_REMEDY_NONE);
    } else {
        status = alloc_try(pool, request, false, NULL, out);
    }
    return status == LOCH_OK ? LOCH_OK : lochi_pool_alloc_again(pool, request, status, out);
}
