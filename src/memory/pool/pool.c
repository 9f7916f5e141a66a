/* SPDX-License-Identifier: MIT */
/* The pool: making and ending it, and the long ways in and out, under its lock. How it is built: inside.h. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/fence.h"
#include "base/heap.h"
#include "base/sized.h"
#include "memory/failure.h"
#include "memory/ledger/ledger.h"
#include "memory/pool/quick.h"
#include <loch/copy.h>
#include <string.h>

#define POOL_CELL_MIN ((size_t)64 << 10)
#define POOL_RAW_CELL ((size_t)2 << 20)
#define POOL_ALIGNMENT_MAX ((size_t)1 << 40)
#define POOL_WHOLE_SLACK                                                                                               \
    ((size_t)1 << 20) /* LOCH_POOL_WHOLE_BLOCKS: by less than this a big block may exceed the request */
#define POOL_WHOLE_IDLE ((size_t)1 << 30)

/* --- making and ending --- */

static loch_status pool_read_options(lochi_pool *pool, const loch_pool_options *given)
{
    loch_pool_options *options = &pool->options;
    options->size = sizeof *options;
    LOCH_TRY_RETURN(lochi_sized_read("a struct of pool options", given, options, sizeof *options));
    if (options->kind != LOCH_MEMORY_DEVICE && options->kind != LOCH_MEMORY_PINNED &&
        options->kind != LOCH_MEMORY_MANAGED)
        return LOCH_FAIL(INVALID, "no pool hands out %s memory", loch_memory_kind_name(options->kind));
    if ((unsigned)options->preset > LOCH_POOL_WHOLE_BLOCKS || (unsigned)options->captures > LOCH_POOL_CAPTURES_NONE ||
        (unsigned)options->wipe > LOCH_POOL_WIPE_FREED)
        return LOCH_FAIL(INVALID, "preset %d, captures %d or wipe %d are not known", (int)options->preset,
                         (int)options->captures, (int)options->wipe);
    if (options->round_bytes > POOL_ALIGNMENT_MAX || options->handle_bytes > POOL_ALIGNMENT_MAX)
        return LOCH_FAIL(OVERFLOW, "sizes cannot be rounded up to %zu, nor handles be of %zu bytes",
                         options->round_bytes, options->handle_bytes);
    pool->kind = options->kind;
    pool->limit = options->limit_bytes;
    pool->idle = options->idle_bytes;
    pool->is_whole = options->preset == LOCH_POOL_WHOLE_BLOCKS;
    pool->is_wiped = options->wipe == LOCH_POOL_WIPE_FREED;
    pool->is_small_capped = pool->is_whole && !pool->idle;
    if (pool->is_small_capped) pool->idle = POOL_WHOLE_IDLE;
    pool->is_capped = pool->idle != 0;
    pool->is_obedient = pool->idle || pool->limit;
    return LOCH_OK;
}

/* What follows from the device. */
static loch_status pool_read_device(lochi_pool *pool, bool is_range)
{
    const loch_device_properties *properties = &pool->device->properties;
    static const uint32_t needed[] = {
        [LOCH_MEMORY_DEVICE] = 0, [LOCH_MEMORY_PINNED] = LOCH_CAN_PINNED, [LOCH_MEMORY_MANAGED] = LOCH_CAN_MANAGED};
    if (!loch_device_can(pool->device, needed[pool->kind]))
        return LOCH_FAIL(UNSUPPORTED, "%s has no %s memory", pool->device->name, loch_memory_kind_name(pool->kind));
    pool->is_virtual = pool->kind == LOCH_MEMORY_DEVICE && loch_device_can(pool->device, LOCH_CAN_VIRTUAL) && !is_range;
    pool->cell_bytes = pool->is_virtual ? properties->granule_bytes : POOL_RAW_CELL;
    if (pool->cell_bytes < POOL_CELL_MIN) pool->cell_bytes = POOL_CELL_MIN;
    pool->cell_shift = 63u - (unsigned)__builtin_clzll(pool->cell_bytes);
    pool->is_watched =
        pool->options.captures == LOCH_POOL_CAPTURES_WATCHED && loch_device_can(pool->device, LOCH_CAN_CAPTURE);
    pool->is_at_once = lochi_device_is_at_once(pool->device);
    const bool is_host = pool->is_at_once && /* else work that is queued may use it after the free */
                         (pool->kind != LOCH_MEMORY_DEVICE || loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS));
    pool->checker = (uint8_t)lochi_pool_find_checker(is_host);
    pool->is_timed = !lochi_device_is_modelled(pool->device);
    pool->default_stream = &pool->device->default_stream;
    pool->unit = properties->alignment_bytes <= 64 ? 64 : properties->alignment_bytes <= 256 ? 256 : POOL_UNIT;
    if (properties->alignment_bytes > POOL_UNIT)
        return LOCH_FAIL(UNSUPPORTED, "%s aligns to %zu bytes, more than a pool knows", pool->device->name,
                         properties->alignment_bytes);
    const size_t handle = pool->options.handle_bytes;
    if (handle) pool->options.handle_bytes = (handle + pool->cell_bytes - 1) / pool->cell_bytes * pool->cell_bytes;
    return LOCH_OK;
}

static void pool_close_peers(lochi_pool *pool)
{
    if (pool->family.parent) return; /* they are the parent's */
    for (size_t i = 0; i < pool->peers_count; i++)
        loch_device_release(pool->peers[i]);
    lochi_free(pool->peers);
}

static void pool_destroy(void *self)
{
    lochi_pool *pool = self;
    if (!pool) return;
    if (pool->listener.closing) {
        lochi_stream_unlisten(&pool->listener);
        lochi_pool_leave(pool);
        lochi_pool_wipe_again(pool);
        if (pool->range)
            lochi_child_note_uses(pool);
        else
            lochi_pool_wait_for_all(pool);
        lochi_pool_wait_for_graphs(pool);
    }
    lochi_pool_drop_all(pool);
    lochi_pool_close_naps(pool);
    lochi_pool_close_caches(pool);
    lochi_pool_close_lanes(pool);
    lochi_pool_close_place(pool);
    lochi_pool_close_slabs(pool);
    lochi_pool_close_records(pool);
    lochi_ledger_destroy(pool->tags);
    pool_close_peers(pool);
    lochi_child_close(pool);
    lochi_lock_fini(&pool->lock);
    lochi_free_aligned(pool);
}

/* --- handing out --- */

/* Blocks that are handed out as they are: the preset of whole blocks. */
static pool_block *pool_fit_whole(lochi_pool *pool, const pool_want *want)
{
    pool_block *block = lochi_pool_bins_fit(&want->lane->bins, want->bytes, want->alignment, true);
    if (!block || -block->start & (want->alignment - 1)) return NULL;
    if (block->bytes > POOL_WHOLE_BIG && block->bytes - want->bytes >= POOL_WHOLE_SLACK) return NULL;
    lochi_pool_bins_remove(&want->lane->bins, block);
    if (block->bytes > POOL_WHOLE_BIG) pool->big_idle -= block->bytes;
    return block;
}

static pool_block *pool_fit_large(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    pool_block *block = lochi_pool_fit(pool, want->lane, want, status);
    if (!block && *status == LOCH_OK) block = lochi_pool_climb(pool, want, status);
    return block;
}

/* From a nest; a new one where none has room and its memory is at hand. Else the request itself may still fit. */
static pool_block *pool_fit_nest(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    pool_block *block = lochi_pool_fit_nest(pool, want->lane, want, status);
    if (block || *status != LOCH_OK) return block;
    const pool_want nest = {POOL_NEST, POOL_PAGE, want->lane, 0};
    const loch_error saved = lochi_error_save();
    block = lochi_pool_fit(pool, want->lane, &nest, status);
    if (!block && *status == LOCH_OK) block = lochi_pool_climb_some(pool, &nest, status);
    if (!block) {
        lochi_error_restore(&saved);
        *status = LOCH_OK;
        return NULL;
    }
    lochi_pool_make_nest(pool, block);
    return lochi_pool_fit_nest(pool, want->lane, want, status);
}

pool_block *lochi_pool_take_block(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    *status = LOCH_OK;
    pool_block *block = pool->is_whole ? pool_fit_whole(pool, want) : NULL;
    if (!block && !pool->is_whole && want->bytes <= POOL_NEST_MAX && want->alignment <= POOL_NEST_MAX)
        block = pool_fit_nest(pool, want, status);
    if (!block && *status == LOCH_OK) block = pool_fit_large(pool, want, status);
    if (!block) return NULL;
    *status = lochi_pool_prepare_pages(pool, block->start, want->paged_bytes);
    if (*status != LOCH_OK) {
        lochi_pool_make_free(pool, block, block->epoch);
        return NULL;
    }
    lochi_pool_set_state(block, POOL_USED);
    block->is_piece = pool->is_whole;
    lochi_pool_enter_page(pool, block->start, lochi_pool_page_of(block));
    pool->used += block->bytes;
    if (pool->used - pool->waiting_bytes > pool->peak_used) pool->peak_used = pool->used - pool->waiting_bytes;
    if (block->is_captured) pool->captured_bytes += block->bytes;
    return block;
}

void lochi_pool_uncount(lochi_pool *pool, const pool_block *block)
{
    pool->used -= block->bytes;
    if (block->is_captured) pool->captured_bytes -= block->bytes;
}

void lochi_pool_put_block(lochi_pool *pool, pool_block *block)
{
    pool_lane *lane = block->lane;
    lochi_pool_uncount(pool, block);
    if (lochi_pool_state(block) != POOL_SLAB) lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    lochi_pool_note_freed(pool, lane, block->bytes);
    if (block->bytes > POOL_NEST_MAX) pool->freed_bytes += block->bytes;
    lochi_pool_make_free(pool, block, lane->epoch);
}

static size_t pool_round(const lochi_pool *pool, size_t bytes)
{
    const size_t round = pool->options.round_bytes;
    if (round > 1) bytes = (bytes + round - 1) / round * round;
    return bytes;
}

/* What a large block for `bytes` takes. */
static size_t pool_round_large(const lochi_pool *pool, size_t bytes)
{
    bytes = pool_round(pool, bytes);
    if (bytes <= POOL_PAGE) bytes = POOL_PAGE + 1; /* at most one block starts in a page */
    return (bytes + POOL_UNIT - 1) & ~(POOL_UNIT - 1);
}

/* Whether a request is served from slabs, and the class then. */
static bool pool_is_small(const lochi_pool *pool, size_t bytes, size_t alignment, uint32_t *class)
{
    if (alignment > pool->unit) { /* classes that are powers of two lie at their multiples */
        if (alignment > POOL_SMALL_MAX || bytes > POOL_SMALL_MAX) return false;
        size_t power = alignment;
        while (power < bytes)
            power *= 2;
        bytes = power;
    }
    if (bytes > POOL_SMALL_MAX) return false;
    *class = pool->class_of[(bytes + (1 << POOL_STEP_SHIFT) - 1) >> POOL_STEP_SHIFT];
    return true;
}

static loch_status pool_alloc_small(lochi_pool *pool, pool_cache *cache, pool_lane *lane, uint32_t class,
                                    const loch_request *request, void **out)
{
    pool_entry entry;
    size_t taken;
    loch_status status = LOCH_E_HOST_MEMORY;
    if (cache) status = lochi_pool_cache_take(pool, cache, class, &entry);
    if (status == LOCH_E_HOST_MEMORY) status = lochi_pool_slab_take(pool, lane, class, &entry, 1, &taken);
    if (status != LOCH_OK) return status;
    atomic_store_explicit(entry.word, POOL_WORD_LIVE | (uint64_t)request->tag << POOL_WORD_TAG_SHIFT | request->bytes,
                          memory_order_relaxed);
    lochi_pool_count_alloc(pool, cache, request->bytes, pool->class_bytes[class]);
    lochi_pool_show_block(pool, (uintptr_t)entry.address, request->bytes);
    *out = entry.address;
    return LOCH_OK;
}

/* What the thread keeps is merged before a request is cut from larger blocks: all of it where none would fit. */
static void pool_flush_for(lochi_pool *pool, pool_cache *cache, size_t bytes, size_t alignment)
{
    lochi_pool_flush_last(pool, cache);
    if (cache->quick_bytes && !lochi_pool_bins_fit(&cache->lane->bins, bytes, alignment, false))
        lochi_pool_flush_bins(pool, cache);
}

static loch_status pool_alloc_large(lochi_pool *pool, pool_cache *cache, pool_lane *lane, const loch_request *request,
                                    void **out)
{
    const size_t alignment = request->alignment > POOL_UNIT ? request->alignment : POOL_UNIT;
    const size_t bytes = pool_round_large(pool, lochi_request_round(request));
    pool_block *block = NULL;
    if (cache && alignment == POOL_UNIT) block = lochi_pool_cache_take_block(cache, bytes);
    loch_status status = LOCH_OK;
    if (!block) {
        if (cache && bytes > POOL_NEST_MAX) pool_flush_for(pool, cache, bytes, alignment);
        const pool_want want = {bytes, alignment, lane, 1};
        block = lochi_pool_take_block(pool, &want, &status);
    }
    if (!block) return status;
    lochi_pool_set_requested(block, request->bytes);
    block->tag = (uint16_t)request->tag;
    lochi_pool_set_state(block, block->tag || block->is_piece ? POOL_SPECIAL : POOL_USED);
    lochi_pool_count_alloc(pool, cache, request->bytes, block->bytes);
    lochi_pool_show_block(pool, block->start, request->bytes);
    *out = (void *)block->start;
    return LOCH_OK;
}

void lochi_pool_count_tag(lochi_pool *pool, loch_tag tag, size_t requested, int sign)
{
    if (!tag) return;
    const lochi_entry entry = {.requested = requested, .tag = (uint16_t)tag};
    lochi_ledger_count_tag(pool->tags, &entry, sign, sign > 0);
}

/* Under the lock. */
static loch_status pool_try_locked(lochi_pool *pool, const loch_request *request, loch_stream *stream, void **out)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return status;
    pool_cache *cache = lochi_pool_cache(pool, lane);
    uint32_t class;
    return pool_is_small(pool, pool_round(pool, lochi_request_round(request)), request->alignment, &class)
               ? pool_alloc_small(pool, cache, lane, class, request, out)
               : pool_alloc_large(pool, cache, lane, request, out);
}

static loch_status pool_try(lochi_pool *pool, const loch_request *request, bool is_retry, void **out)
{
    lochi_lock_take(&pool->lock);
    loch_status status;
    pool->retries += is_retry;
    if (lochi_pool_is_out_of_use(pool)) /* only the long way gets here then: the gate is closed */
        status = lochi_pool_refuse_asleep(pool);
    else
        status = pool_try_locked(pool, request, request->stream, out);
    if (status == LOCH_OK) lochi_pool_count_tag(pool, request->tag, request->bytes, 1);
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

bool lochi_pool_alloc_plainly(lochi_pool *pool, const loch_request *request, loch_status *status, void **out)
{
    loch_stream *stream = request->stream ? request->stream : pool->default_stream;
    if (request->alignment > pool->unit || request->bytes > POOL_ALIGNMENT_MAX) return false;
    if (request->stream && lochi_stream_check(stream, pool->device) != LOCH_OK) return false;
    lochi_lock_take(&pool->lock);
    const bool is_open = atomic_load_explicit(&pool->gate, memory_order_relaxed) == 0; /* it is closed under the lock */
    if (is_open) *status = pool_try_locked(pool, request, stream, out);
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return is_open;
}

/* Has others give back what they do not use, where that could help; says how much. */
static size_t pool_ask_others(lochi_pool *pool, const loch_request *request, loch_status status)
{
    const bool is_forbidden = status == LOCH_E_MOVING_FORBIDDEN; /* moves would do, and so would memory of either */
    const bool is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_FRAGMENTED || is_forbidden;
    size_t gone = 0;
    if (status == LOCH_E_LIMIT || is_forbidden)
        gone = lochi_pool_ask_family(pool, lochi_request_round(request) + request->alignment, false);
    if (is_short && !pool->range) gone += lochi_pool_ask_siblings(pool);
    return gone;
}

loch_status lochi_pool_alloc_again(lochi_pool *pool, const loch_request *request, loch_status status, void **out)
{
    if (pool_ask_others(pool, request, status)) status = pool_try(pool, request, true, out);
    if (status != LOCH_OK) lochi_failure_count(&pool->failures);
    return status;
}

static loch_status pool_alloc(void *self, const loch_request *request, void **out)
{
    lochi_pool *pool = self;
    const size_t rounded = lochi_request_round(request);
    loch_status status;
    if (request->alignment > POOL_ALIGNMENT_MAX || rounded > POOL_ALIGNMENT_MAX * 64)
        status =
            LOCH_FAIL(DEVICE_MEMORY, "no address space holds %zu bytes aligned to %zu", rounded, request->alignment);
    else
        status = pool_try(pool, request, false, out);
    return status == LOCH_OK ? LOCH_OK : lochi_pool_alloc_again(pool, request, status, out);
}

/* --- finding --- */

typedef struct pool_found {
    pool_block *block;
    pool_word *word; /* of a small block */
    size_t requested, allocated;
    loch_tag tag;
} pool_found;

/* For an error message. */
static bool pool_is_inside(const lochi_pool *pool, uintptr_t address)
{
    const pool_block *block = lochi_pool_find_around(pool, address);
    return block && (lochi_pool_is_out(lochi_pool_state(block)) || lochi_pool_state(block) == POOL_SLAB);
}

static loch_status pool_refuse(lochi_pool *pool, const void *address, uintptr_t page)
{
    if (page & POOL_IS_FREED && page == POOL_MARK((uintptr_t)address))
        return LOCH_FAIL(DOUBLE_FREE, "the block at %p was freed before", address);
    if (pool_is_inside(pool, (uintptr_t)address)) return LOCH_FAIL(INTERIOR, "%p lies inside a block", address);
    return LOCH_FAIL(FOREIGN, "the pool \"%s\" has no block at %p", loch_allocator_get_name(pool->allocator), address);
}

static loch_status pool_find_small(lochi_pool *pool, const void *address, pool_slab *slab, pool_found *out)
{
    pool_word *word = lochi_pool_slab_word(slab, (uintptr_t)address);
    if (!word) { /* whether it points into a block that is out */
        const uint32_t index = (uint32_t)(((uintptr_t)address - slab->start) / slab->object_bytes);
        const bool is_live =
            index < slab->count && atomic_load_explicit(&slab->words[index], memory_order_relaxed) & POOL_WORD_LIVE;
        return is_live ? LOCH_FAIL(INTERIOR, "%p lies inside a block", address)
                       : LOCH_FAIL(FOREIGN, "the pool \"%s\" has no block at %p",
                                   loch_allocator_get_name(pool->allocator), address);
    }
    const uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen & POOL_WORD_FREED) return LOCH_FAIL(DOUBLE_FREE, "the block at %p was freed before", address);
    if (!(seen & POOL_WORD_LIVE))
        return LOCH_FAIL(FOREIGN, "the pool \"%s\" has no block at %p", loch_allocator_get_name(pool->allocator),
                         address);
    *out = (pool_found){slab->block, word, seen & POOL_WORD_BYTES, slab->object_bytes,
                        (loch_tag)(seen >> POOL_WORD_TAG_SHIFT & UINT16_MAX)};
    return LOCH_OK;
}

/* The live block at an address. */
static loch_status pool_find_live(lochi_pool *pool, const void *address, pool_found *out)
{
    const uintptr_t page = lochi_pool_find_page(pool, (uintptr_t)address);
    pool_slab *slab = lochi_pool_page_slab(page);
    if (slab) return pool_find_small(pool, address, slab, out);
    pool_block *block = lochi_pool_page_block(page);
    if (!block) return pool_refuse(pool, address, page);
    const pool_state state = lochi_pool_state(block);
    if (block->start != (uintptr_t)address) return pool_refuse(pool, address, 0);
    if (state == POOL_CACHED || state == POOL_WAITING)
        return LOCH_FAIL(DOUBLE_FREE, "the block at %p was freed before", address);
    if (!lochi_pool_is_out(state)) return pool_refuse(pool, address, 0);
    *out = (pool_found){block, NULL, lochi_pool_requested(block),
                        state == POOL_GROWABLE ? block->committed : block->bytes, block->tag};
    return LOCH_OK;
}

static bool pool_is_elsewhere(const pool_found *found)
{
    return found->word ? (atomic_load_explicit(found->word, memory_order_relaxed) & POOL_WORD_ELSEWHERE) != 0
                       : found->block->is_elsewhere;
}

static void pool_set_elsewhere(const pool_found *found)
{
    if (found->word) {
        atomic_fetch_or_explicit(found->word, POOL_WORD_ELSEWHERE, memory_order_relaxed);
    } else {
        found->block->is_elsewhere = true;
        if (lochi_pool_state(found->block) == POOL_USED) lochi_pool_set_state(found->block, POOL_SPECIAL);
    }
}

void lochi_pool_keep_range(lochi_pool *pool, const void *address, lochi_pool *child)
{
    pool_found found;
    lochi_lock_take(&pool->lock);
    if (pool_find_live(pool, address, &found) == LOCH_OK) {
        atomic_store_explicit(&found.block->child, child, memory_order_release);
        /* what lies in it is told by the child */
        if (pool->checker == POOL_CHECKER_VALGRIND && child) lochi_poison_take_back(pool, (uintptr_t)address, 0);
        if (pool->checker == POOL_CHECKER_VALGRIND && !child)
            lochi_poison_hand_out(pool, (uintptr_t)address, found.requested);
        if (child) lochi_pool_set_state(found.block, POOL_SPECIAL); /* a free takes the long way, which looks */
    }
    lochi_lock_drop(&pool->lock);
}

/* --- taking back --- */

/* A free on another stream than the block's own, which the caller has ordered behind all uses: the block waits for that
 * stream. Without host memory for that, the host waits. */
static loch_status pool_free_elsewhere(lochi_pool *pool, const pool_found *found, const void *address,
                                       loch_stream *stream)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return loch_stream_sync(stream);
    if (lane == found->block->lane || lane->done == UINT64_MAX) return LOCH_OK;
    if (!found->word && !lane->capture && !found->block->is_captured &&
        lochi_pool_state(found->block) != POOL_GROWABLE) {
        found->block->lane = lane; /* free in that stream's order from now on */
        pool->crossed_bytes += found->block->bytes;
        return LOCH_OK;
    }
    status = lochi_pool_note_use(pool, (uintptr_t)address, lane);
    if (status != LOCH_OK) return loch_stream_sync(stream);
    pool_set_elsewhere(found);
    return LOCH_OK;
}

static void pool_release_small(lochi_pool *pool, pool_cache *cache, const pool_found *found, uintptr_t address)
{
    const bool is_elsewhere = pool_is_elsewhere(found);
    pool_slab *slab = found->block->slab;
    lochi_pool_small_disown(pool, slab, found->word);
    atomic_store_explicit(found->word, POOL_WORD_FREED, memory_order_relaxed);
    lochi_pool_hide_block(pool, address, found->allocated);
    if (is_elsewhere) {
        lochi_pool_wait_for_uses(pool, address, found->block, found->word);
        return;
    }
    if (!lochi_pool_wipe_word(pool, slab, found->word)) return;
    const pool_entry entry = {(void *)address, found->word};
    const bool is_kept = cache && cache->lane == found->block->lane && !slab->is_closed;
    if (!is_kept || !lochi_pool_cache_give(pool, cache, slab, entry)) lochi_pool_slab_give(pool, slab, found->word);
}

static void pool_release_large(lochi_pool *pool, pool_cache *cache, const pool_found *found)
{
    pool_block *block = found->block;
    if (lochi_pool_state(block) == POOL_GROWABLE) {
        lochi_pool_free_growable(pool, block);
        return;
    }
    lochi_pool_hide_block(pool, block->start, block->bytes);
    if (block->owner) lochi_pool_disown(pool, block);
    block->id = 0;
    block->tag = 0;
    if (block->is_elsewhere) {
        block->is_elsewhere = false;
        lochi_pool_wait_for_uses(pool, block->start, block, NULL);
        return;
    }
    if (!lochi_pool_wipe_block(pool, block)) return;
    if (cache && cache->lane == block->lane && !block->is_piece && lochi_pool_cache_give_block(pool, cache, block))
        return;
    lochi_pool_put_block(pool, block);
}

/* Under the lock. */
static loch_status pool_free_locked(lochi_pool *pool, void *address, size_t bytes, loch_stream *stream)
{
    pool_found found;
    loch_status status = pool_find_live(pool, address, &found);
    if (status == LOCH_OK && bytes && bytes != found.requested)
        status = LOCH_FAIL(INVALID, "the block at %p has %zu bytes, not %zu", address, found.requested, bytes);
    if (status == LOCH_OK && lochi_pool_is_range(found.block))
        status = LOCH_FAIL(BUSY, "a child pool lives in the block at %p", address);
    if (status == LOCH_OK && found.block->frozen) status = lochi_pool_thaw(pool, found.block);
    if (status == LOCH_OK && stream && stream != found.block->lane->stream)
        status = pool_free_elsewhere(pool, &found, address, stream);
    if (status == LOCH_OK) {
        pool_cache *cache = lochi_pool_cache(pool, found.block->lane);
        lochi_pool_count_free(pool, cache, found.requested, found.allocated);
        lochi_pool_count_tag(pool, found.tag, found.requested, -1);
        if (pool->naps) cache = NULL; /* threads keep nothing that sleeps */
        if (found.word)
            pool_release_small(pool, cache, &found, (uintptr_t)address);
        else
            pool_release_large(pool, cache, &found);
    }
    return status;
}

static loch_status pool_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    const loch_status status = pool_free_locked(pool, address, bytes, stream);
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

bool lochi_pool_free_plainly(lochi_pool *pool, void *address)
{
    lochi_lock_take(&pool->lock);
    const bool is_open = atomic_load_explicit(&pool->gate, memory_order_relaxed) == 0;
    const bool is_freed = is_open && pool_free_locked(pool, address, 0, NULL) == LOCH_OK;
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock); /* the last touch: with the gate open nobody can have begun to end the pool before */
    return is_freed;
}

static loch_status pool_record_use(void *self, void *address, loch_stream *stream)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    pool_found found;
    loch_status status = pool_find_live(pool, address, &found);
    pool_lane *lane = status == LOCH_OK ? lochi_pool_lane(pool, stream, &status) : NULL;
    if (lane && lane != found.block->lane && lane->done != UINT64_MAX) {
        status = lochi_pool_note_use(pool, (uintptr_t)address, lane);
        if (status == LOCH_OK) pool_set_elsewhere(&found);
    }
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

void lochi_pool_keep_off(lochi_pool *pool, const void *address)
{
    lochi_lock_take(&pool->lock);
    pool_found found;
    if (pool_find_live(pool, address, &found) == LOCH_OK) {
        if (found.word)
            atomic_fetch_or_explicit(found.word, POOL_WORD_KEPT_OFF, memory_order_relaxed);
        else if (lochi_pool_state(found.block) == POOL_USED)
            lochi_pool_set_state(found.block, POOL_SPECIAL);
    }
    lochi_lock_drop(&pool->lock);
}

/* Takes `more` bytes of what is free behind a block. Two records are stocked. */
static loch_status pool_extend(lochi_pool *pool, pool_block *block, size_t more)
{
    pool_block *behind = block->behind;
    LOCH_TRY_RETURN(lochi_pool_cut(pool, behind, behind->start, more));
    block->bytes += more;
    block->behind = behind->behind;
    if (block->behind) block->behind->before = block;
    lochi_pool_drop_record(pool, behind);
    pool->used += more;
    if (block->is_captured) pool->captured_bytes += more;
    return LOCH_OK;
}

/* Gives the end of a block back. */
static void pool_shorten(lochi_pool *pool, pool_block *block, size_t bytes)
{
    pool_block *rest = lochi_pool_split(pool, block, block->start + bytes);
    pool->used -= rest->bytes;
    if (block->is_captured) pool->captured_bytes -= rest->bytes;
    lochi_pool_hide(pool, rest->start, rest->bytes);
    lochi_pool_make_free(pool, rest, rest->lane->epoch);
}

static bool pool_can_extend(const pool_block *block, size_t more)
{
    const pool_block *behind = block->behind;
    return behind && lochi_pool_state(behind) == POOL_FREE && behind->lane == block->lane && behind->bytes >= more;
}

/* In place: a large block into what is free behind it, or giving its end back. All that may refuse comes first: a frozen block that
 * cannot change stays frozen. */
static loch_status pool_resize_large(lochi_pool *pool, pool_block *block, size_t bytes)
{
    const size_t rounded = pool_round_large(pool, bytes);
    if (lochi_pool_is_range(block))
        return LOCH_FAIL(BUSY, "a child pool lives in the block at %p", (void *)block->start);
    if (block->is_elsewhere || block->is_piece) return LOCH_FAIL(UNSUPPORTED, "the block cannot change in place");
    if (!lochi_pool_stock_records(pool, 2)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    if (rounded > block->bytes && !pool_can_extend(block, rounded - block->bytes))
        return LOCH_FAIL(FRAGMENTED, "%zu bytes are not free behind the block", rounded - block->bytes);
    if (block->frozen) LOCH_TRY_RETURN(lochi_pool_thaw(pool, block));
    if (rounded < block->bytes)
        LOCH_TRY_RETURN(lochi_pool_wipe(pool, block->lane, block->start + rounded, block->bytes - rounded));
    if (rounded > block->bytes)
        LOCH_TRY_RETURN(pool_extend(pool, block, rounded - block->bytes));
    else if (rounded < block->bytes)
        pool_shorten(pool, block, rounded);
    if (pool->checker) lochi_poison_resize(pool, block->start, lochi_pool_requested(block), bytes, block->bytes);
    lochi_pool_set_requested(block, bytes);
    return LOCH_OK;
}

/* Within its class, unless much of it would be lost. */
static loch_status pool_resize_small(lochi_pool *pool, const pool_found *found, uintptr_t address, size_t bytes)
{
    if (pool_round(pool, bytes) > found->allocated || bytes <= found->allocated / 2)
        return LOCH_FAIL(UNSUPPORTED, "small blocks do not change their size");
    atomic_fetch_and_explicit(found->word, ~POOL_WORD_FROZEN, memory_order_relaxed);
    atomic_fetch_add_explicit(found->word, bytes - found->requested, memory_order_relaxed);
    if (pool->checker) lochi_poison_resize(pool, address, found->requested, bytes, found->allocated);
    return LOCH_OK;
}

static loch_status pool_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    pool_found found;
    loch_status status = pool_find_live(pool, address, &found);
    if (status == LOCH_OK && (pool->is_asleep || lochi_pool_sleeps_at(pool, found.block->start, found.block->bytes)))
        status = lochi_pool_refuse_at(address);
    if (status == LOCH_OK && found.word) {
        status = pool_resize_small(pool, &found, (uintptr_t)address, bytes);
    } else if (status == LOCH_OK && lochi_pool_state(found.block) == POOL_GROWABLE) {
        status = lochi_pool_resize_block(pool, found.block, bytes);
    } else if (status == LOCH_OK) {
        status = pool_resize_large(pool, found.block, bytes);
    }
    if (status == LOCH_OK) {
        *allocated = found.word                                       ? found.allocated
                     : lochi_pool_state(found.block) == POOL_GROWABLE ? found.block->committed
                                                                      : found.block->bytes;
        pool_cache *cache = lochi_pool_cache(pool, found.block->lane);
        lochi_pool_count_change(pool, cache, (int64_t)bytes - (int64_t)found.requested,
                                (int64_t)*allocated - (int64_t)found.allocated);
        lochi_pool_count_tag(pool, found.tag, found.requested, -1);
        lochi_pool_count_tag(pool, found.tag, bytes, 1);
    }
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

/* --- questions --- */

/* The mark in the word goes with the block: the next one at its place gets an id of its own. */
static uint64_t pool_get_small_id(lochi_pool *pool, const pool_found *found)
{
    pool_slab *slab = found->block->slab;
    if (!slab->ids) slab->ids = lochi_zalloc(slab->count * sizeof *slab->ids);
    if (!slab->ids) return 0;
    uint64_t *id = &slab->ids[found->word - slab->words];
    uint64_t seen = atomic_load_explicit(found->word, memory_order_relaxed);
    while (seen & POOL_WORD_LIVE && !(seen & POOL_WORD_NAMED)) /* may be freed meanwhile, the short way */
        if (atomic_compare_exchange_weak_explicit(found->word, &seen, seen | POOL_WORD_NAMED, memory_order_relaxed,
                                                  memory_order_relaxed))
            return *id = ++pool->last_id;
    return *id;
}

static uint64_t pool_get_id(lochi_pool *pool, const pool_found *found)
{
    if (found->word) return pool_get_small_id(pool, found);
    if (!found->block->id) found->block->id = ++pool->last_id;
    return found->block->id;
}

static void pool_describe(lochi_pool *pool, const pool_found *found, uintptr_t address, loch_block *out)
{
    *out = (loch_block){.size = sizeof *out,
                        .address = (void *)address,
                        .requested_bytes = found->requested,
                        .allocated_bytes = found->allocated,
                        .id = pool_get_id(pool, found),
                        .tag = found->tag,
                        .stream_id = loch_stream_get_id(found->block->lane->stream)};
}

static loch_status pool_find(void *self, const void *address, loch_block *out)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    pool_found found;
    const loch_status status = pool_find_live(pool, address, &found);
    if (status == LOCH_OK) pool_describe(pool, &found, (uintptr_t)address, out);
    lochi_lock_drop(&pool->lock);
    return status;
}

typedef struct pool_walk {
    loch_block_visitor *visitor;
    void *user;
} pool_walk;

static loch_status pool_visit(lochi_pool *pool, uintptr_t address, const pool_walk *walk)
{
    pool_found found;
    const loch_error saved = lochi_error_save();
    loch_block block;
    if (pool_find_live(pool, (const void *)address, &found) != LOCH_OK) {
        lochi_error_restore(&saved);
        return LOCH_OK;
    }
    pool_describe(pool, &found, address, &block);
    return walk->visitor(&block, walk->user);
}

static loch_status pool_visit_block(lochi_pool *pool, const pool_block *block, const pool_walk *walk)
{
    if (lochi_pool_state(block) != POOL_SLAB) return pool_visit(pool, block->start, walk);
    const pool_slab *slab = block->slab;
    loch_status status = LOCH_OK;
    for (uint32_t i = 0; i < slab->count && status == LOCH_OK; i++)
        if (atomic_load_explicit(&slab->words[i], memory_order_relaxed) & POOL_WORD_LIVE)
            status = pool_visit(pool, block->start + (uintptr_t)i * slab->object_bytes, walk);
    return status;
}

static loch_status pool_walk_blocks(void *self, loch_block_visitor *visitor, void *user)
{
    lochi_pool *pool = self;
    const pool_walk walk = {visitor, user};
    loch_status status = LOCH_OK;
    lochi_lock_take(&pool->lock);
    lochi_pool_stop(pool); /* the short ways change what is described */
    for (const pool_block *block = NULL; status == LOCH_OK && (block = lochi_pool_next_block(pool, block));) {
        const pool_state state = lochi_pool_state(block);
        if (lochi_pool_is_out(state) || state == POOL_SLAB) status = pool_visit_block(pool, block, &walk);
    }
    lochi_pool_go(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

static loch_status pool_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    lochi_pool *pool = self;
    if (tag) {
        lochi_ledger_get_stats(pool->tags, tag, out);
        return LOCH_OK;
    }
    lochi_lock_take(&pool->lock);
    lochi_pool_obey_idle(pool, true);
    lochi_pool_read_stats(pool, out);
    lochi_lock_drop(&pool->lock);
    return LOCH_OK;
}

static void pool_new_segment(void *self)
{
    lochi_pool *pool = self;
    lochi_ledger_new_segment(pool->tags);
    lochi_lock_take(&pool->lock);
    lochi_pool_begin_segment(pool);
    lochi_lock_drop(&pool->lock);
}

static loch_status pool_trim(void *self, size_t keep_bytes, size_t *released)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    *released = lochi_pool_trim(pool, lochi_pool_cap_keep(pool, keep_bytes));
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return LOCH_OK;
}

static loch_attributes pool_get_attributes(void *self)
{
    const lochi_pool *pool = self;
    static const uint32_t bits[] = {[LOCH_MEMORY_PINNED] = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE |
                                                           LOCH_ATTRIBUTE_NIC_COMPATIBLE,
                                    [LOCH_MEMORY_MANAGED] = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    if (pool->kind != LOCH_MEMORY_DEVICE) return (loch_attributes){bits[pool->kind], 0};
    uint32_t own =
        loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) ? LOCH_ATTRIBUTE_ON_HOST : LOCH_ATTRIBUTE_GPU_COMPATIBLE;
    if (pool->options.handle.rdma == LOCH_RDMA_ON) own |= LOCH_ATTRIBUTE_NIC_COMPATIBLE;
    return (loch_attributes){own, 0};
}

static const loch_allocator_ops pool_ops = {
    .size = sizeof pool_ops,
    .kind = "pool",
    .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES | LOCH_TRAIT_STREAM_ORDERED,
    .alloc = pool_alloc,
    .free = pool_free,
    .destroy = pool_destroy,
    .find = pool_find,
    .walk = pool_walk_blocks,
    .record_use = pool_record_use,
    .get_stats = pool_get_stats,
    .new_segment = pool_new_segment,
    .trim = pool_trim,
    .get_attributes = pool_get_attributes,
    .resize = pool_resize,
};

loch_status lochi_pool_make(loch_device *device, const char *name, const loch_pool_options *options,
                            const pool_descent *descent, loch_allocator **out)
{
    lochi_pool *pool = lochi_zalloc_aligned(_Alignof(lochi_pool), sizeof *pool);
    if (!pool) return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool");
    loch_status status;
    lochi_lock_init(&pool->lock, LOCHI_RANK_MEMORY);
    lochi_pool_open_bounds(pool);
    lochi_fence_prepare();
    pool->device = device;
    pool->waiting_end = &pool->waiting;
    pool->fading_end = &pool->fading;
    LOCH_TRY(pool_read_options(pool, options), fail);
    LOCH_TRY(pool_read_device(pool, descent && descent->options.kind == LOCH_CHILD_RANGE), fail);
    if (descent) LOCH_TRY(lochi_child_open(pool, descent), fail);
    pool->family.limit = pool->limit;
    /* For good: the short ways round no sizes, wipe nothing, tell no tool, and rely on a fence that not every system has. */
    if (pool->options.round_bytes > 1 || pool->is_wiped || !lochi_fence_has_lightest() ||
        (pool->checker && !LOCHI_POOL_IS_CHECKED_HERE))
        atomic_store(&pool->gate, 1);
    lochi_pool_lay_out_classes(pool);
    LOCH_TRY(lochi_ledger_create(&pool->tags), fail);
    LOCH_TRY(lochi_pool_open_place(pool), fail);
    LOCH_TRY(loch_allocator_create(device, name ? name : "pool", &pool_ops, pool, &pool->allocator), fail);
    pool->listener = (lochi_stream_listener){.device = device, .closing = lochi_pool_stream_closing};
    lochi_stream_listen(&pool->listener);
    lochi_pool_join(pool);
    lochi_allocator_set_pool(pool->allocator, pool);
    if (descent) lochi_child_link(pool);
    *out = pool->allocator;
    return LOCH_OK;
fail:
    pool_destroy(pool);
    return status;
}

loch_status loch_pool_create(loch_device *device, const char *name, const loch_pool_options *options,
                             loch_allocator **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "a pool needs a device and a place");
    return lochi_pool_make(device, name, options, NULL, out);
}

/* --- what only a pool has --- */

lochi_pool *lochi_pool_of(loch_allocator *allocator)
{
    while (allocator && allocator->wrapped)
        allocator = allocator->wrapped;
    return allocator && allocator->ops.alloc == pool_alloc ? allocator->self : NULL;
}

#define POOL_NEEDED(pool, allocator)                                                                                   \
    lochi_pool *pool = lochi_pool_of(allocator);                                                                       \
    if (!(pool)) return LOCH_FAIL(INVALID, "\"%s\" is no pool", loch_allocator_get_name(allocator))

loch_status lochi_pool_open_to(loch_allocator *allocator, loch_device *const *peers, size_t count)
{
    POOL_NEEDED(pool, allocator);
    if (!count || !pool->is_virtual) return LOCH_OK; /* raw memory is open to who enabled the peer */
    pool->peers = lochi_alloc_array(count, sizeof(loch_device *));
    if (!pool->peers) return LOCH_FAIL(HOST_MEMORY, "no host memory for a list of %zu devices", count);
    for (size_t i = 0; i < count; i++)
        pool->peers[i] = loch_device_retain(peers[i]);
    pool->peers_count = count;
    return LOCH_OK;
}

loch_status loch_pool_set_limit(loch_allocator *allocator, size_t limit_bytes)
{
    POOL_NEEDED(pool, allocator);
    if (pool->range) return LOCH_FAIL(UNSUPPORTED, "a child's range stays as large as it is");
    lochi_lock_take(&pool->lock);
    const loch_status status = lochi_family_set_limit(pool, limit_bytes);
    if (status == LOCH_OK) {
        pool->limit = limit_bytes;
        pool->is_obedient |= limit_bytes != 0;
    }
    if (status == LOCH_OK && limit_bytes && pool->reserved > limit_bytes) {
        const size_t excess = pool->reserved - limit_bytes, free = lochi_pool_free_bytes(pool);
        lochi_pool_trim(pool, free > excess ? free - excess : 0);
    }
    lochi_lock_drop(&pool->lock);
    if (status == LOCH_OK) (void)lochi_pool_ask_family(pool, 0, true);
    return status;
}

loch_status loch_pool_set_idle(loch_allocator *allocator, size_t idle_bytes)
{
    POOL_NEEDED(pool, allocator);
    if (pool->range) return LOCH_FAIL(UNSUPPORTED, "a child keeps its range to its end");
    lochi_lock_take(&pool->lock);
    pool->idle = idle_bytes;
    pool->is_small_capped = false;
    pool->is_obedient |= idle_bytes != 0;
    lochi_pool_stop(pool);
    pool->is_capped = idle_bytes != 0;
    lochi_pool_go(pool);
    if (idle_bytes) lochi_pool_trim(pool, idle_bytes);
    lochi_lock_drop(&pool->lock);
    return LOCH_OK;
}

loch_status loch_pool_release_capture(loch_allocator *allocator, uint64_t capture_id)
{
    POOL_NEEDED(pool, allocator);
    lochi_lock_take(&pool->lock);
    bool is_known = false;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        is_known |= capture_id && lane->capture == capture_id;
    loch_status status;
    if (is_known)
        status = loch_device_sync(pool->device); /* its last launch may still run */
    else
        status = LOCH_FAIL(NOT_FOUND, "no memory is kept for capture %llu", (unsigned long long)capture_id);
    if (status == LOCH_OK) status = lochi_pool_wipe_capture(pool, capture_id);
    if (status == LOCH_OK) lochi_pool_release_lanes(pool, capture_id);
    lochi_pool_look_at_idle(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

loch_status lochi_pool_check_awake(loch_allocator *allocator, const void *address, size_t bytes)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_OK;
    lochi_lock_take(&pool->lock);
    const bool is_asleep = lochi_pool_sleeps_at(pool, (uintptr_t)address, bytes);
    lochi_lock_drop(&pool->lock);
    return is_asleep ? lochi_pool_refuse_at(address) : LOCH_OK;
}

loch_status loch_pool_get_info(loch_allocator *allocator, loch_pool_info *out)
{
    POOL_NEEDED(pool, allocator);
    if (!out || out->size < sizeof out->size) return LOCH_FAIL(INVALID, "a pool's figures need a place with its size");
    loch_pool_info info = {.size = out->size};
    lochi_lock_take(&pool->lock);
    lochi_pool_obey_idle(pool, true);
    lochi_pool_read_info(pool, &info);
    lochi_lock_drop(&pool->lock);
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    return LOCH_OK;
}
