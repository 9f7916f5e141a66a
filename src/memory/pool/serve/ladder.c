/* SPDX-License-Identifier: MIT */
/* Makes room for a request that does not fit: tries one step after the other, and looks for a block after each. One
 * thread climbs at a time, with the supply lock held. Driver calls about memory, and waits on the host, drop the pool's
 * lock, so other threads allocate and free meanwhile. */
#include "memory/pool/serve/ladder.h"
#include "base/fail.h"
#include "memory/pool/front/front.h"
#include "memory/pool/moving/moving.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/trim/trim.h"

#define LADDER_LOOKS 64       /* blocks of another lane that a search compares */
#define LADDER_ROUNDS 16      /* waits for events in one climb, at least */
#define LADDER_WAIT_PART 8    /* a stream waits for others rather than hold this part more than is in use */
#define LADDER_CROSSED_PART 8 /* all blocks are searched once this part of the memory changed lanes */

/* --- others' memory --- */

/* Tells whether free blocks of a lane may be used by other streams at all. */
static bool ladder_may_lend(const pool_lane *lane)
{
    return !lane->capture;
}

/* Finds a free block of another lane that fits and has passed, or any that fits if `is_any`; NULL for none. */
static pool_block *ladder_find_foreign(const pool_lane *lane, const pool_want *want, bool is_any)
{
    unsigned looks = 0;
    int bin = POOL_BINS - 1;
    pool_block *best = NULL;
    for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
        for (; block && looks < LADDER_LOOKS; block = block->list_next, looks++) {
            const size_t shift = -block->start & (want->alignment - 1);
            if (block->is_piece || shift > block->bytes || want->bytes > block->bytes - shift) continue;
            if (!is_any && !lochi_pool_has_passed(lane, lochi_pool_epoch(block))) continue;
            if (!best || block->bytes < best->bytes) best = block;
        }
    return best;
}

/* Cuts the request out of a free block of another lane, and gives that part to the request's lane. */
static pool_block *ladder_take_foreign(lochi_pool *pool, pool_block *block, const pool_want *want, loch_status *status)
{
    const size_t shift = -block->start & (want->alignment - 1);
    *status = lochi_pool_cut(pool, block, block->start + shift, want->bytes);
    if (*status != LOCH_OK) return NULL;
    if (shift) block = block->behind;
    const bool has_passed = lochi_pool_has_passed(block->lane, lochi_pool_epoch(block));
    lochi_pool_set_epoch(block, has_passed ? 0 : want->lane->epoch); /* ordered after the wait */
    block->lane = want->lane;
    block->is_captured = want->lane->capture != 0;
    if (lochi_pool_epoch(block) > want->lane->freed)
        want->lane->freed = lochi_pool_epoch(block); /* a part that stays free waits for it */
    pool->crossed_bytes += block->bytes;
    return block;
}

static pool_block *ladder_borrow(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane == want->lane || !ladder_may_lend(lane)) continue;
        pool_block *block = ladder_find_foreign(lane, want, false);
        if (block) return ladder_take_foreign(pool, block, want, status);
    }
    return NULL;
}

/* Borrows a block that another stream still uses: the request's stream waits for that stream on the device. */
static pool_block *ladder_borrow_behind_wait(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    const loch_error saved = lochi_error_save();
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane == want->lane || !ladder_may_lend(lane)) continue;
        pool_block *block = ladder_find_foreign(lane, want, true);
        if (!block || lochi_pool_wait_on_device(pool, want->lane, lane, lochi_pool_epoch(block)) != LOCH_OK) continue;
        lochi_error_restore(&saved);
        return ladder_take_foreign(pool, block, want, status);
    }
    lochi_error_restore(&saved);
    return NULL;
}

/* Takes over free memory of other lanes, at most `want->bytes`, so that it can be remapped. If the other streams still
 * use it, the request's stream waits for them on the device. Returns whether there was any. */
static bool ladder_take_over(lochi_pool *pool, const pool_want *want)
{
    const loch_error saved = lochi_error_save();
    size_t left = lochi_pool_round(pool, want->bytes);
    for (pool_lane *lane = pool->lanes; lane && left; lane = lane->next) {
        if (lane == want->lane || !ladder_may_lend(lane)) continue;
        if (lochi_pool_wait_on_device(pool, want->lane, lane, lane->freed) != LOCH_OK) continue;
        int bin = POOL_BINS - 1;
        for (pool_block *block; left && (block = lochi_pool_bins_below(&lane->bins, &bin)); bin = POOL_BINS - 1) {
            if (block->bytes < pool->cell_bytes || block->is_piece) break;
            const size_t bytes = block->bytes < left ? block->bytes : left;
            if (lochi_pool_cut(pool, block, block->start, bytes) != LOCH_OK) break;
            const uint64_t epoch = lochi_pool_has_passed(lane, lochi_pool_epoch(block)) ? 0 : want->lane->epoch;
            block->lane = want->lane;
            lochi_pool_make_free(pool, block, epoch);
            pool->crossed_bytes += bytes;
            left -= bytes;
        }
    }
    lochi_error_restore(&saved);
    return left < want->bytes;
}

/* --- steps: each returns a block, or NULL; *status other than LOCH_OK ends the climb --- */

typedef pool_block *ladder_step(lochi_pool *pool, const pool_want *want, loch_status *status);

/* Polls the pending events. What has passed may have to go back (idle.c). */
static void ladder_poll(lochi_pool *pool)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        const uint64_t done = lane->done;
        if (lane->marks_count) lochi_pool_poll(pool, lane);
        pool->cap.has_freed |= lane->done != done;
    }
}

/* Frees blocks whose events have passed, and borrows idle blocks from other lanes. */
static pool_block *ladder_look_at_events(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    ladder_poll(pool);
    lochi_pool_drop_stale(pool, POOL_STALE_MAX);
    lochi_pool_drop_shrunk(pool);
    pool_block *block = NULL;
    if (lochi_pool_collect(pool)) block = lochi_pool_fit(pool, want->lane, want, status);
    if (!block && *status == LOCH_OK && pool->lanes->next && !pool->is_of_graphs) {
        pool->is_hungry = true;
        block = ladder_borrow(pool, want, status);
    }
    return block;
}

/* Flushes the large blocks that other threads cache, and what threads left to each other. */
static pool_block *ladder_take_from_threads(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    const bool is_stored = atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed) != 0;
    if (!pool->is_shared || (!is_stored && !lochi_pool_count_last(pool))) return NULL;
    lochi_pool_stop_outside(pool);
    bool has_any = lochi_pool_flush_all(pool, lochi_pool_flush_last);
    has_any |= lochi_pool_flush_transfers(pool);
    lochi_pool_go(pool);
    return has_any ? lochi_pool_fit(pool, want->lane, want, status) : NULL;
}

/* Merges free memory that was split because blocks changed lanes, once that is much. */
static pool_block *ladder_join_lanes(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    if (!pool->crossed_bytes || pool->crossed_bytes < pool->reserved / LADDER_CROSSED_PART) return NULL;
    pool->crossed_bytes = 0;
    lochi_pool_join_lanes(pool);
    pool_block *block = lochi_pool_fit(pool, want->lane, want, status);
    return !block && *status == LOCH_OK ? ladder_borrow(pool, want, status) : block;
}

/* Cuts the request out of new memory. Returns NULL if there is none, because *status is not LOCH_OK. */
static pool_block *ladder_cut(lochi_pool *pool, const pool_want *want, const pool_supplied *new, loch_status *status)
{
    if (*status != LOCH_OK) return NULL;
    if (pool->policy.is_virtual) {
        *status = lochi_pool_cut(pool, new->block, new->at, want->bytes);
        if (*status != LOCH_OK) return NULL;
        return new->block->start == new->at ? new->block : new->block->behind;
    }
    pool_block *block = lochi_pool_fit(pool, want->lane, want, status);
    if (!block && *status == LOCH_OK) *status = LOCH_FAIL(FRAGMENTED, "the new memory does not fit the request");
    return block;
}

static bool ladder_is_short(loch_status status)
{
    return status == LOCH_E_FRAGMENTED || status == LOCH_E_LIMIT || status == LOCH_E_DEVICE_MEMORY;
}

static pool_block *ladder_try_supply(lochi_pool *pool, const pool_want *want, pool_source source, loch_status *status)
{
    const loch_error saved = lochi_error_save();
    pool_supplied new;
    *status = lochi_pool_supply(pool, want, source, &new);
    pool_block *block = ladder_cut(pool, want, &new, status);
    if (ladder_is_short(*status)) {
        *status = LOCH_OK;
        lochi_error_restore(&saved);
    }
    return block;
}

static pool_block *ladder_move(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    return ladder_try_supply(pool, want, POOL_MOVED, status);
}

pool_block *lochi_pool_improve(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    lochi_pool_assert_both(pool);
    ladder_poll(pool);
    pool_block *block =
        pool->is_exact ? ladder_try_supply(pool, want, POOL_CREATED, status) : ladder_move(pool, want, status);
    if (pool->search.map == lochi_pool_count_changes(pool)) lochi_pool_miss(pool);
    return block;
}

/* Takes blocks that streams still use, ordered after waits on the device. */
static pool_block *ladder_wait_on_device(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    pool_block *block = NULL;
    if (lochi_pool_is_in_capture(want->lane)) return NULL;
    while (!block && *status == LOCH_OK && lochi_pool_collect_behind_wait(pool, want->lane))
        block = lochi_pool_fit(pool, want->lane, want, status);
    if (!block && *status == LOCH_OK) block = ladder_borrow_behind_wait(pool, want, status);
    if (!block && *status == LOCH_OK && ladder_take_over(pool, want)) block = ladder_move(pool, want, status);
    return block;
}

/* Takes blocks that streams still use while there is much unfinished memory: taking new memory would hold an eighth
 * more than is in use. */
static pool_block *ladder_wait_if_much(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    const size_t held = pool->used - pool->waiting_bytes + want->bytes;
    if (!pool->lanes->next || pool->reserved + pool->sleep.bytes + want->bytes <= held + held / LADDER_WAIT_PART)
        return NULL;
    pool_block *block = ladder_wait_on_device(pool, want, status);
    return !block && *status == LOCH_OK ? ladder_move(pool, want, status) : block;
}

/* Flushes everything that threads and slabs cache, and merges it, so that handles can be remapped where they are
 * needed. */
static pool_block *ladder_scrape(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    lochi_pool_empty_caches(pool);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        lochi_pool_slab_trim(pool, lane);
    lochi_pool_join_all(pool);
    pool_block *block = lochi_pool_fit(pool, want->lane, want, status);
    if (!block && *status == LOCH_OK) block = ladder_move(pool, want, status);
    return block;
}

/* Gives idle handles back, as many as new memory for the request needs, adds them to `given` and returns their bytes.
 * Gives nothing back if all of them together are known not to be enough: they serve later requests, and are targets for
 * blocks that may move. */
static size_t ladder_make_way(lochi_pool *pool, const pool_want *want, pool_given *given)
{
    lochi_pool_look_at_room(pool, want->bytes);
    const size_t room = lochi_pool_find_room(pool), left = room == SIZE_MAX ? 0 : room;
    const size_t slack = want->alignment > pool->step_bytes && !pool->policy.is_virtual ? want->alignment : 0;
    const size_t needed = (want->bytes + slack + pool->step_bytes - 1) / pool->step_bytes * pool->step_bytes;
    const bool is_known = room != SIZE_MAX && (pool->policy.can_ask_room || lochi_pool_find_limit_room(pool) < needed);
    if (is_known && lochi_pool_count_idle(pool, true) + left < needed) return 0;
    if (pool->source.dry_missing && lochi_pool_count_idle(pool, true) < pool->source.dry_missing) return 0;
    /* Up to a handle more at each end, if there is so much: free memory beside the request may be in use in part, and a
     * driver that aligns less gives a cell more. */
    const size_t more = pool->policy.is_virtual || pool->is_exact ? pool->step_bytes : pool->cell_bytes;
    const size_t wished = needed + 2 * more;
    return lochi_pool_give_back(pool, is_known && wished > left ? wished - left : wished, given);
}

static pool_block *ladder_remake(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    lochi_pool_drop_stale(pool, 0);
    lochi_pool_join_all(pool);
    pool_block *block =
        lochi_pool_fit(pool, want->lane, want, status); /* neighbours of several streams may have passed */
    if (!block && *status == LOCH_OK) block = ladder_borrow(pool, want, status);
    if (block || *status != LOCH_OK) return block;
    pool_given given = {NULL, 0, 0};
    if (ladder_make_way(pool, want, &given)) {
        pool_supplied new;
        *status = lochi_pool_supply(pool, want, POOL_CREATED, &new);
        block = ladder_cut(pool, want, &new, status);
    }
    if (!block && !pool->options.source) lochi_pool_take_back(pool, &given); /* a source gets it when locks drop */
    lochi_pool_forget_given(&given);
    return block;
}

/* Waits for the oldest events until the request fits or no event is left. */
static pool_block *ladder_wait_on_host(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        if (lane->done != UINT64_MAX && !lane->is_closed) lochi_pool_mark(pool, lane);
    pool_block *block = NULL;
    size_t rounds = LADDER_ROUNDS; /* other threads record further events meanwhile */
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        if (rounds < 2 * lane->marks_count + LADDER_ROUNDS) rounds = 2 * lane->marks_count + LADDER_ROUNDS;
    while (!block && *status == LOCH_OK && rounds-- && lochi_pool_wait_on_host(pool)) {
        block = ladder_look_at_events(pool, want, status);
        if (!block && *status == LOCH_OK) block = lochi_pool_fit(pool, want->lane, want, status);
        if (!block && *status == LOCH_OK) block = ladder_move(pool, want, status);
    }
    return block;
}

/* Moves movable blocks to make room for `bytes` of the request. Segments and handles that become empty go back when
 * the copies have ended. The host waits for that if nothing else fits. */
static pool_block *ladder_compact_for(lochi_pool *pool, const pool_want *want, pool_goal goal, size_t bytes,
                                      loch_status *status)
{
    const uint64_t moves = pool->moving.moves;
    *status = lochi_pool_compact(pool, want->lane, goal, bytes);
    if (*status != LOCH_OK) return NULL;
    pool_block *block = lochi_pool_fit(pool, want->lane, want, status);
    if (!block && *status == LOCH_OK) block = ladder_move(pool, want, status);
    if (!block && *status == LOCH_OK) block = ladder_remake(pool, want, status);
    if (block || pool->moving.moves == moves || (*status != LOCH_OK && !ladder_is_short(*status))) return block;
    *status = LOCH_OK;
    block = ladder_wait_on_host(pool, want, status);
    return !block && *status == LOCH_OK ? ladder_remake(pool, want, status) : block;
}

/* Compacts for the part of the request that new memory up to the limit does not cover. If that is not enough,
 * compacts for the whole request. */
static pool_block *ladder_compact(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    if (!pool->moving.bytes || want->lane->capture) return NULL;
    const size_t all = want->bytes + (want->alignment > POOL_UNIT ? want->alignment : 0);
    size_t more = pool->limit > pool->reserved ? pool->limit - pool->reserved : 0;
    more -= more % pool->step_bytes; /* less than a granule cannot be created */
    pool_block *block = NULL;
    if (more && more < all) block = ladder_compact_for(pool, want, POOL_GOAL_HANDLES, all - more, status);
    if (block || (*status != LOCH_OK && !ladder_is_short(*status))) return block;
    return ladder_compact_for(pool, want, POOL_GOAL_PIECE, all, status);
}

/* --- climbing --- */

/* Looks for free memory, and takes the supply lock if there is none. If another thread had that, it may have made room:
 * looks again. */
static pool_block *ladder_begin(lochi_pool *pool, const pool_want *want, loch_status *status)
{
    pool_block *block = lochi_pool_fit(pool, want->lane, want, status);
    if (block || *status != LOCH_OK) return block;
    bool is_dropped;
    *status = lochi_pool_take_supply(pool, &is_dropped);
    if (*status != LOCH_OK || !is_dropped) return NULL;
    if (lochi_pool_is_out_of_use(pool)) *status = lochi_pool_refuse_asleep(pool);
    return *status == LOCH_OK ? lochi_pool_fit(pool, want->lane, want, status) : NULL;
}

/* Refuses a request that is larger than a limit or the device, although the pool holds more than that: the limit was
 * lowered, or the host has overcommitted its memory. */
static loch_status ladder_check(const lochi_pool *pool, const pool_want *want)
{
    const bool is_above = pool->limit && want->bytes > pool->limit;
    if (LOCHI_LIKELY(!is_above && (!pool->room.total || want->bytes <= pool->room.total))) return LOCH_OK;
    return lochi_pool_check_ceiling(pool, want->bytes);
}

pool_block *lochi_pool_climb(lochi_pool *pool, const pool_want *want, pool_height height, loch_status *status)
{
    static ladder_step *const first[] = {ladder_look_at_events, ladder_take_from_threads, ladder_join_lanes,
                                         ladder_move, ladder_wait_if_much};
    static ladder_step *const after[] = {ladder_scrape,       ladder_remake, ladder_wait_on_device,
                                         ladder_wait_on_host, ladder_remake, ladder_compact};
    pool_block *block = ladder_begin(pool, want, status);
    if (!block && *status == LOCH_OK) *status = ladder_check(pool, want);
    if (block || *status != LOCH_OK) return block;
    for (size_t i = 0; !block && *status == LOCH_OK && i < sizeof first / sizeof *first; i++)
        block = first[i](pool, want, status);
    if (!block && *status == LOCH_OK) {
        pool_supplied new;
        *status = lochi_pool_supply(pool, want, POOL_CREATED, &new);
        block = ladder_cut(pool, want, &new, status);
    }
    loch_status why = height == POOL_TO_THE_TOP ? *status : LOCH_OK;
    for (size_t i = 0; !block && ladder_is_short(why) && i < sizeof after / sizeof *after; i++) {
        *status = LOCH_OK;
        block = after[i](pool, want, status);
        if (*status != LOCH_OK && !ladder_is_short(*status)) return NULL;
        if (ladder_is_short(*status) && after[i] != ladder_compact)
            why = *status; /* a compaction that fails does not say what is short */
    }
    if (!block && ladder_is_short(why)) *status = lochi_pool_fail(pool, want, why);
    return block;
}
