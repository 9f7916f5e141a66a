/* SPDX-License-Identifier: MIT */
/* The cap on free memory. Memory above the cap goes back to the device at the end of the call that freed it, if its
 * streams have passed; otherwise at the end of a later call.
 *
 * A freed block merges with its neighbours, and the merged block has passed only when its newest part has. A program
 * that frees in the order of addresses and always has unfinished work would never give anything back. So each handle
 * records when a part of it was last freed, and goes back when that epoch has passed, whatever lies next to it.
 *
 * Giving back needs the supply lock. A call that does not get it at once leaves the work to the thread that has it:
 * that thread looks at the cap again before it drops the supply lock, with the pool's lock held. So no free waits for
 * the driver calls of another thread.
 *
 * A free lists each handle that has no live block any more (blocks.c). Only listed handles are looked at: a pool whose
 * free memory all shares handles with live blocks does nothing more in a free, however far it is above its cap.
 *
 * An event is recorded after what was freed above the cap. While listed handles wait for such an event, the gate is
 * closed: the next call polls the event, and opens the gate when nothing waits any more. */
#include "memory/pool/trim/idle.h"
#include "base/fail.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/front/front.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/trim/shrunk.h"

#define IDLE_JOIN 8          /* blocks that a walk may visit for each piece that was freed since the last walk */
#define IDLE_JOIN_ALWAYS 256 /* blocks that it may visit in any case */

/* Returns the bytes of `idle` that the device lacks for the headroom. */
static size_t idle_count_lack(const lochi_pool *pool, size_t idle)
{
    if (LOCHI_LIKELY(pool->room.bytes >= pool->room.headroom) || !pool->policy.can_ask_room) return 0;
    return pool->room.headroom - pool->room.bytes < idle ? pool->room.headroom - pool->room.bytes : idle;
}

/* Returns the bytes that have to go back if `more` bytes were free too: above the cap, above a lowered limit, or
 * lacking for the headroom, whichever is most. */
static size_t idle_count_excess(const lochi_pool *pool, size_t more)
{
    if (pool->is_of_graphs) return 0; /* graphs use free memory: nothing can go back */
    size_t idle = lochi_pool_free_bytes(pool) + more;
    size_t above = pool->limit && pool->reserved > pool->limit ? pool->reserved - pool->limit : 0;
    if (pool->is_related) above = lochi_family_excess(pool);
    const size_t lack = idle_count_lack(pool, idle);
    if (lack > above) above = lack;
    if (pool->cap.is_for_small) idle -= pool->cap.pieces_bytes < idle ? pool->cap.pieces_bytes : idle;
    const size_t excess = pool->cap.bytes && idle > pool->cap.bytes ? idle - pool->cap.bytes : 0;
    return above > excess ? above : excess;
}

size_t lochi_pool_count_excess(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t free = lochi_pool_free_bytes(pool), excess = pool->cap.is_obedient ? idle_count_excess(pool, 0) : 0;
    return excess < free ? excess : free;
}

size_t lochi_pool_cap_keep(const lochi_pool *pool, size_t keep)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t free = lochi_pool_free_bytes(pool) + pool->waiting_bytes;
    const size_t excess = pool->cap.is_obedient ? idle_count_excess(pool, pool->waiting_bytes) : 0;
    const size_t most = free > excess ? free - excess : 0;
    return excess && most < keep ? most : keep;
}

/* Polls the pending events. Returns whether one has passed. */
static bool idle_poll(lochi_pool *pool)
{
    bool has_passed = false;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        const uint64_t done = lane->done;
        if (lane->marks_count) lochi_pool_poll(pool, lane);
        has_passed |= lane->done != done;
    }
    return has_passed;
}

/* Records events after the last frees. Returns whether one was recorded. */
static bool idle_mark(lochi_pool *pool)
{
    bool is_marked = false;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        if (lane->freed == lane->epoch && !lane->capture && !lane->is_closed && lane->done != UINT64_MAX)
            is_marked |= lochi_pool_mark(pool, lane);
    return is_marked;
}

/* Tells whether the cap ignores free pieces above 1 MiB. A limit does not. */
static bool idle_is_small(const lochi_pool *pool)
{
    return pool->cap.is_for_small && !(pool->limit && pool->reserved > pool->limit);
}

/* Tells whether something could go back now or after an event. */
static bool idle_may_help(const lochi_pool *pool)
{
    if (pool->cap.handles.first || (pool->cap.kept.first && !idle_is_small(pool)) || !pool->cap.is_listed) return true;
    return pool->unmapped_handles || pool->waiting || pool->has_shrunk || pool->dirty || pool->dirty_words;
}

/* Gives back memory above the cap whose streams have passed. Returns the bytes that stay above the cap. Tells whether
 * some of them wait for streams. */
static size_t idle_give_back(lochi_pool *pool, bool *is_unfinished)
{
    *is_unfinished = false;
    lochi_pool_list_handles(pool);
    lochi_pool_collect(pool);
    lochi_pool_drop_stale(pool, 0);
    lochi_pool_drop_shrunk(pool);
    const size_t excess = idle_count_excess(pool, 0);
    if (excess) lochi_pool_give_back_listed(pool, excess, idle_is_small(pool), is_unfinished);
    return excess ? idle_count_excess(pool, 0) : 0;
}

/* Closes the gate if the next call has to poll, or opens it again. */
static void idle_hold_gate(lochi_pool *pool, bool is_held)
{
    if (pool->cap.is_gate_held == is_held) return;
    pool->cap.is_gate_held = is_held;
    if (is_held)
        lochi_pool_stop(pool);
    else
        lochi_pool_go(pool);
}

/* Tells whether the pool is above its cap. There, pieces become ordinary free memory, which serves requests of all
 * sizes: those that are freed from now on, and by a walk those that are free. Frees below the cap pay for it. */
static bool idle_is_above(lochi_pool *pool)
{
    const bool is_above = idle_count_excess(pool, pool->waiting_bytes) != 0;
    pool->cap.joined_bytes = !is_above ? 0 : idle_is_small(pool) ? POOL_WHOLE_BIG : SIZE_MAX;
    if (is_above && pool->cap.pieces_freed &&
        pool->cap.pieces_freed * IDLE_JOIN + IDLE_JOIN_ALWAYS > pool->records.count)
        lochi_pool_join_pieces(pool, pool->cap.joined_bytes);
    return is_above;
}

void lochi_pool_obey_soon(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->cap.is_gate_held && pool->lanes && (!idle_is_above(pool) || !idle_may_help(pool))) {
        pool->cap.has_freed = pool->cap.is_over = false; /* nothing can go back, or nothing is above the cap */
        return;
    }
    lochi_pool_try_obey(pool, false);
}

/* Sets whether threads cache large blocks. Takes those that they have cached if they may not. */
static void idle_set_capped(lochi_pool *pool, bool is_capped)
{
    if (LOCHI_LIKELY(pool->is_capped == is_capped)) return;
    lochi_pool_stop(pool);
    pool->is_capped = is_capped;
    if (is_capped) lochi_pool_flush_all(pool, lochi_pool_flush_last);
    lochi_pool_go(pool);
}

/* Gives free memory back while the device has less left than the headroom. A call that took or gave back memory looks
 * once, before it drops the supply lock. Memory that is freed later goes back at the end of its free. */
static void idle_keep_headroom(lochi_pool *pool)
{
    if (LOCHI_LIKELY(pool->room.bytes >= pool->room.headroom)) {
        idle_set_capped(pool, pool->cap.bytes != 0);
        return;
    }
    if (!pool->policy.can_ask_room || pool->is_of_graphs || !pool->lanes) return; /* graphs use free memory */
    idle_set_capped(pool, true);
    pool->cap.is_obedient |= !pool->range; /* a range never gives memory back */
    const loch_error saved = lochi_error_save();
    lochi_pool_mark_freed(pool);
    lochi_pool_give_back(pool, pool->room.headroom - pool->room.bytes, NULL);
    lochi_error_restore(&saved);
}

/* Drops the supply lock, after a last look at the cap. The pool's lock stays held. */
static void idle_drop_supply(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    idle_keep_headroom(pool);
    while (pool->cap.is_put_off) {
        pool->cap.is_put_off = false;
        pool->cap.has_freed = true; /* maybe by another thread, during the driver calls of this one */
        lochi_pool_obey_idle(pool, false);
    }
    lochi_lock_drop(&pool->supply);
}

void lochi_pool_try_obey(lochi_pool *pool, bool is_thorough)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->cap.is_obedient) return;
    const bool is_mine = lochi_lock_is_mine(&pool->supply);
    if (lochi_pool_is_outside(pool) || (!is_mine && !lochi_lock_try(&pool->supply))) {
        pool->cap.is_put_off = true; /* the thread that has the supply lock looks before it drops the lock */
        return;
    }
    lochi_pool_obey_idle(pool, is_thorough);
    if (!is_mine) idle_drop_supply(pool);
}

pool_handle *lochi_pool_drop_both(lochi_pool *pool)
{
    if (LOCHI_UNLIKELY(lochi_lock_is_mine(&pool->supply)) && !pool->is_outside) idle_drop_supply(pool);
    pool_handle *returned = pool->is_outside ? NULL : lochi_pool_take_returned(pool);
    lochi_lock_drop(&pool->lock);
    return returned;
}

void lochi_pool_drop_any(lochi_pool *pool)
{
    pool_handle *returned = lochi_pool_drop_both(pool); /* last access to the pool */
    if (LOCHI_UNLIKELY(returned != NULL)) lochi_pool_give_returned(returned);
}

void lochi_pool_obey_idle(lochi_pool *pool, bool is_thorough)
{
    lochi_pool_assert_both(pool);
    if (!pool->cap.is_obedient || !pool->lanes) return;
    const loch_error saved = lochi_error_save();
    bool is_unfinished = false, is_put_off = false, is_waited_for = false;
    size_t left = 0;
    if (idle_is_above(pool) && idle_may_help(pool)) {
        const bool has_passed = idle_poll(pool);
        if (!has_passed && !pool->cap.has_freed && !is_thorough) return; /* nothing has changed */
        left = idle_give_back(pool, &is_unfinished);
    }
    if (idle_is_above(pool) && idle_may_help(pool) && idle_mark(pool) && idle_poll(pool))
        left = idle_give_back(pool, &is_unfinished);
    const bool is_waiting = idle_is_above(pool) && pool->waiting;
    if (left || is_waiting) {
        is_waited_for = pool->waiting_bytes >= pool->smallest || is_unfinished;
        is_put_off = is_waiting;
        for (const pool_lane *lane = pool->lanes; lane && pool->cap.handles.first; lane = lane->next)
            is_put_off |= lane->marks_count != 0;
    }
    pool->cap.has_freed = false;
    pool->cap.is_over = is_put_off || is_waited_for;
    idle_hold_gate(pool, is_waited_for);
    lochi_error_restore(&saved);
}
