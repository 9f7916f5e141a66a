/* SPDX-License-Identifier: MIT */
/* Sessions: notes on their blocks, and the threads that are in them. Which session a new block belongs to is found where the outermost allocator is asked for it (allocator.c), and that
 * allocator is who gets it back in the end: so every wrapper hears of the free. The session's own allocator changes nothing,
 * so its blocks are noted as those of the allocator that it wraps, and may go back through either.
 *
 * A note is in the table of its allocator, by address, and in the list of its session. Every free that takes a long way looks
 * into the table while it is not empty, and takes the note out first; blocks of sessions never take the short way back
 * into a pool (lochi_pool_keep_off), and a thread that is in a session on a pool keeps nothing there, so it does not get
 * any the short way.
 *
 * One lock guards all tables and lists. It needs no rank, because nothing is called under it. When a pool moves a block, which it
 * does under its own lock, the note goes along; an end takes notes out under that lock, and has the block stay.
 *
 * The session lies in its allocator, which therefore lives as long as anything points at the session: until the end by the
 * session's own reference; later by its live blocks, of which those that were promoted keep their notes; and who has
 * taken a note out counts as one. */
#include "memory/session.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"
#include "base/tree.h"
#include "device/device.h"
#include "memory/pool/pool.h"
#include <pthread.h>
#include <string.h>

_Thread_local lochi_session_frame *lochi_session_top;

/* One entering of a session, for the child of a fork, which does not have the threads that entered. */
typedef struct session_stay {
    lochi_session_frame frame; /* first, so that a stay is found from its frame */
    uint64_t thread;
    struct session_stay *next, **link;
} session_stay;

static lochi_lock session_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static session_stay *session_stays; /* under session_lock */
static session_stay *session_lost;  /* of threads that the child of a fork does not have; written there, alone */
static pthread_once_t session_once = PTHREAD_ONCE_INIT;
static pthread_key_t session_key;
static bool session_has_key;

/* --- tables and lists, under the lock --- */

static lochi_session_block *session_find(const loch_allocator *owner, const void *address)
{
    lochi_tree_node *node = lochi_tree_at_or_below(&owner->session_blocks, (uintptr_t)address);
    if (!node || node->key != (uintptr_t)address) return NULL;
    return LOCHI_CONTAINER(node, lochi_session_block, node);
}

static void session_link(lochi_session_block **list, lochi_session_block *block)
{
    block->next = *list;
    block->link = list;
    if (*list) (*list)->link = &block->next;
    *list = block;
}

static void session_unlink(lochi_session_block *block)
{
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
}

static void session_table_add(lochi_session_block *block)
{
    lochi_tree_insert(&block->owner->session_blocks, &block->node);
    atomic_fetch_add_explicit(&block->owner->session_count, 1, memory_order_relaxed);
}

static void session_table_remove(lochi_session_block *block)
{
    lochi_tree_remove(&block->owner->session_blocks, &block->node);
    atomic_fetch_sub_explicit(&block->owner->session_count, 1, memory_order_relaxed);
}

static void session_count_bytes(loch_session *session, size_t bytes)
{
    session->bytes += bytes;
    if (session->bytes > session->peak) session->peak = session->bytes;
}

static void session_list_add(lochi_session_block **list, lochi_session_block *block)
{
    session_link(list, block);
    block->session->count++;
    session_count_bytes(block->session, block->bytes);
}

static void session_list_remove(lochi_session_block *block)
{
    session_unlink(block);
    block->session->count--;
    block->session->bytes -= block->bytes;
}

/* Takes a note out of both; it keeps the session's allocator alive meanwhile. */
static void session_take(lochi_session_block *block)
{
    session_table_remove(block);
    if (!block->is_promoted) session_list_remove(block);
    if (!block->is_handled) atomic_fetch_add_explicit(&block->session->allocator->live, 1, memory_order_relaxed);
}

/* Puts a note back. If the session has ended meanwhile, the block belongs to none, like one that was promoted; false when
 * the note is not needed any more. */
static bool session_put_back(lochi_session_block **list, lochi_session_block *block)
{
    if (block->session->is_over) block->is_promoted = true;
    if (block->is_promoted && !block->is_handled) return false;
    if (session_find(block->owner, (const void *)block->node.key)) return false; /* its address is another's by now */
    session_table_add(block);
    if (!block->is_promoted) session_list_add(list, block);
    return true;
}

/* --- allocating --- */

bool lochi_session_is_own(const loch_allocator *allocator)
{
    return allocator->session && allocator->session->allocator == allocator;
}

/* The outermost level counts, and there who has entered. */
static loch_session *session_choose(const loch_allocator *allocator)
{
    if (lochi_session_top && !lochi_session_top->session) return NULL;
    for (; allocator; allocator = allocator->wrapped) {
        for (const lochi_session_frame *frame = lochi_session_top; frame; frame = frame->next)
            if (frame->session->wrapped == allocator) return frame->session;
        if (lochi_session_is_own(allocator)) return allocator->session;
    }
    return NULL;
}

static bool session_is_ending(const loch_session *session)
{
    lochi_lock_take(&session_lock);
    const bool is_ending = session->is_ending;
    lochi_lock_drop(&session_lock);
    return is_ending;
}

static loch_status session_refuse(const loch_session *session)
{
    return LOCH_FAIL(INVALID, "the session \"%s\" has ended", session->allocator->name);
}

loch_status lochi_session_begin_alloc(loch_allocator *allocator, lochi_session_alloc *alloc)
{
    *alloc = (lochi_session_alloc){.allocator = allocator, .session = session_choose(allocator)};
    if (alloc->session) {
        if (session_is_ending(alloc->session)) return session_refuse(alloc->session);
        alloc->block = lochi_zalloc(sizeof *alloc->block);
        if (!alloc->block) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block of a session");
    }
    lochi_session_hush(&alloc->frame);
    return LOCH_OK;
}

/* Enters a note; false when the session has ended meanwhile. */
static bool session_add(lochi_session_block *block, loch_allocator **left)
{
    lochi_session_block *stale = NULL;
    lochi_lock_take(&session_lock);
    const bool is_open = !block->session->is_ending;
    if (is_open) {
        stale = session_find(block->owner, (const void *)block->node.key);
        if (stale) session_take(stale); /* was freed behind its allocator's back */
        session_table_add(block);
        session_list_add(&block->session->blocks, block);
        if (block->is_handled) atomic_fetch_add_explicit(&block->session->allocator->live, 1, memory_order_relaxed);
    }
    lochi_lock_drop(&session_lock);
    if (stale) *left = lochi_session_settle(stale, true);
    return is_open;
}

loch_status lochi_session_end_alloc(lochi_session_alloc *alloc, loch_status status, size_t bytes, void *address,
                                    bool *is_refused, loch_allocator **left)
{
    lochi_session_block *block = alloc->block;
    *is_refused = false;
    lochi_session_unhush(&alloc->frame);
    if (!block) return status;
    if (status != LOCH_OK || !address) {
        lochi_free(block);
        return status;
    }
    block->session = alloc->session;
    block->is_handled = alloc->allocator == alloc->session->allocator;
    block->owner = block->is_handled ? alloc->session->wrapped : alloc->allocator;
    block->node.key = (uintptr_t)address;
    block->bytes = bytes;
    if (block->owner->pool) lochi_pool_keep_off(block->owner->pool, address);
    if (session_add(block, left)) return LOCH_OK;
    *is_refused = true;
    lochi_free(block);
    return session_refuse(alloc->session);
}

bool lochi_session_is_in(const loch_allocator *allocator)
{
    for (const lochi_session_frame *frame = lochi_session_top; frame; frame = frame->next)
        if (frame->session && frame->session->wrapped == allocator) return true;
    return false;
}

/* --- freeing --- */

lochi_session_block *lochi_session_take_any(loch_allocator *allocator, const void *address)
{
    lochi_lock_take(&session_lock);
    lochi_session_block *block = session_find(allocator, address);
    if (block) session_take(block);
    lochi_lock_drop(&session_lock);
    return block;
}

bool lochi_session_put(lochi_session_block *block, bool is_gone)
{
    const bool is_handled = block->is_handled;
    bool is_kept = false;
    if (!is_gone) {
        lochi_lock_take(&session_lock);
        is_kept = session_put_back(&block->session->blocks, block);
        lochi_lock_drop(&session_lock);
    }
    if (!is_kept) lochi_free(block);
    return !is_kept || !is_handled;
}

loch_allocator *lochi_session_settle(lochi_session_block *block, bool is_gone)
{
    loch_allocator *allocator = block->session->allocator;
    return lochi_session_put(block, is_gone) ? allocator : NULL;
}

lochi_session_block *lochi_session_take_moving(loch_allocator *allocator, const void *address)
{
    return lochi_session_take(lochi_session_is_own(allocator) ? allocator->wrapped : allocator, address);
}

void lochi_session_note_move(lochi_session_block *block, void *address, size_t bytes)
{
    block->node.key = (uintptr_t)address;
    block->bytes = bytes;
    if (block->owner->pool) lochi_pool_keep_off(block->owner->pool, address);
}

void lochi_session_follow(loch_allocator *allocator, const void *from, void *to)
{
    if (!atomic_load_explicit(&allocator->session_count, memory_order_relaxed)) return;
    lochi_lock_take(&session_lock);
    lochi_session_block *block = session_find(allocator, from);
    if (block) {
        session_table_remove(block);
        block->node.key = (uintptr_t)to;
        session_table_add(block);
    }
    lochi_lock_drop(&session_lock);
}

void lochi_session_note_size(loch_allocator *allocator, const void *address, size_t bytes)
{
    if (!atomic_load_explicit(&allocator->session_count, memory_order_relaxed)) return;
    lochi_lock_take(&session_lock);
    lochi_session_block *block = session_find(allocator, address);
    if (block && !block->is_promoted) {
        block->session->bytes -= block->bytes;
        session_count_bytes(block->session, bytes);
    }
    if (block) block->bytes = bytes;
    lochi_lock_drop(&session_lock);
}

/* --- threads --- */

/* Under the lock: a thread is in a session no more. */
static void session_remove_stay(session_stay *stay)
{
    stay->frame.session->entered--;
    *stay->link = stay->next;
    if (stay->next) stay->next->link = stay->link;
}

static void session_leave(lochi_session_frame *frame)
{
    session_stay *stay = (session_stay *)(void *)frame;
    lochi_lock_take(&session_lock);
    session_remove_stay(stay);
    lochi_lock_drop(&session_lock);
    lochi_free(stay);
}

/* A thread has ended inside sessions. */
static void session_thread_ends(void *value)
{
    (void)value;
    while (lochi_session_top) {
        lochi_session_frame *frame = lochi_session_top;
        lochi_session_top = frame->next;
        session_leave(frame);
    }
}

/* In the child of a fork: other threads are in no session. */
static void session_forked(void)
{
    for (session_stay *stay = session_stays, *next; stay; stay = next) {
        next = stay->next;
        if (stay->thread == lochi_thread_number()) continue;
        session_remove_stay(stay);
        stay->next = session_lost;
        session_lost = stay;
    }
}

static void session_settle_forked(void)
{
    while (session_lost) {
        session_stay *stay = session_lost;
        session_lost = stay->next;
        lochi_free(stay);
    }
}

static lochi_fork_part session_part = {.child = session_forked, .settle = session_settle_forked};

static void session_make_key(void)
{
    session_has_key = pthread_key_create(&session_key, session_thread_ends) == 0;
}

static loch_status session_enter(loch_session *session, session_stay *stay)
{
    lochi_fork_add(&session_part);
    lochi_lock_take(&session_lock);
    const bool is_open = !session->is_ending;
    if (is_open) {
        session->entered++;
        *stay = (session_stay){{lochi_session_top, session}, lochi_thread_number(), session_stays, &session_stays};
        if (stay->next) stay->next->link = &stay->next;
        session_stays = stay;
    }
    lochi_lock_drop(&session_lock);
    return is_open ? LOCH_OK : session_refuse(session);
}

loch_status loch_session_enter(loch_session *session)
{
    if (!session) return LOCH_FAIL(INVALID, "there is no session to enter");
    if (lochi_session_top && !lochi_session_top->session)
        return LOCH_FAIL(INVALID, "a session cannot be entered from inside an allocation");
    pthread_once(&session_once, session_make_key);
    session_stay *stay = lochi_alloc(sizeof *stay);
    if (!stay || !session_has_key || pthread_setspecific(session_key, session) != 0) {
        lochi_free(stay);
        return LOCH_FAIL(HOST_MEMORY, "no host memory to enter a session");
    }
    const loch_status status = session_enter(session, stay);
    if (status != LOCH_OK) {
        lochi_free(stay);
        return status;
    }
    lochi_session_top = &stay->frame;
    if (session->wrapped->pool) lochi_pool_drop_cache(session->wrapped->pool);
    return LOCH_OK;
}

loch_status loch_session_leave(loch_session *session)
{
    lochi_session_frame *frame = lochi_session_top;
    if (!session || !frame || frame->session != session)
        return LOCH_FAIL(INVALID, "that is not the session that this thread entered last");
    lochi_session_top = frame->next;
    session_leave(frame);
    return LOCH_OK;
}

/* --- promoting, figures --- */

loch_allocator *loch_session_get_allocator(const loch_session *session)
{
    return session ? session->allocator : NULL;
}

/* The session's own block at an address; those that came through wrappers around its allocator have to be searched. */
static lochi_session_block *session_find_own(const loch_session *session, const void *address)
{
    lochi_session_block *block = session_find(session->wrapped, address);
    if (block && block->session == session && !block->is_promoted) return block;
    for (block = session->blocks; block && block->node.key != (uintptr_t)address; block = block->next)
        ;
    return block;
}

loch_status loch_session_promote(loch_session *session, void *address)
{
    if (!session || !address) return LOCH_FAIL(INVALID, "promoting needs a session and a block");
    lochi_lock_take(&session_lock);
    lochi_session_block *block = session_find_own(session, address), *gone = NULL;
    if (block) {
        session_list_remove(block);
        block->is_promoted = true;
        if (!block->is_handled) {
            session_table_remove(block);
            gone = block;
        }
    }
    lochi_lock_drop(&session_lock);
    lochi_free(gone);
    if (block) return LOCH_OK;
    return LOCH_FAIL(FOREIGN, "the session \"%s\" has no block at %p", session->allocator->name, address);
}

loch_status loch_session_get_stats(loch_session *session, loch_session_stats *out)
{
    if (!session || !out || out->size < sizeof out->size)
        return LOCH_FAIL(INVALID, "a session's figures need a session and a place with its size");
    loch_session_stats stats = {.size = out->size};
    lochi_lock_take(&session_lock);
    stats.blocks = session->count;
    stats.bytes = session->bytes;
    stats.peak_bytes = session->peak;
    lochi_lock_drop(&session_lock);
    memcpy(out, &stats, out->size < sizeof stats ? out->size : sizeof stats);
    return LOCH_OK;
}

/* --- the end --- */

loch_status lochi_session_begin_end(loch_session *session)
{
    lochi_lock_take(&session_lock);
    const size_t entered = session->entered;
    const bool is_busy = entered || session->is_ending;
    if (!is_busy) session->is_ending = true;
    lochi_lock_drop(&session_lock);
    if (!is_busy) return LOCH_OK;
    return LOCH_FAIL(BUSY, "the session \"%s\" cannot end: threads are in it %zu times", session->allocator->name,
                     entered);
}

/* The next block to free, taken out; NULL when none is left that was not tried. The session is over then, or as it was with
 * what is left. */
static lochi_session_block *session_next(loch_session *session, bool has_failed)
{
    lochi_lock_take(&session_lock);
    lochi_session_block *block = session->blocks;
    if (block) {
        session_take(block);
    } else {
        session->blocks = session->failed;
        if (session->blocks) session->blocks->link = &session->blocks;
        session->failed = NULL;
        session->is_over = !has_failed;
        session->is_ending = !has_failed;
    }
    lochi_lock_drop(&session_lock);
    return block;
}

lochi_session_block *lochi_session_next(loch_session *session, bool has_failed)
{
    lochi_pool *pool = session->wrapped->pool;
    if (!pool) return session_next(session, has_failed);
    lochi_pool_hold_still(pool);
    lochi_session_block *block = session_next(session, has_failed);
    if (block && block->owner == session->wrapped) lochi_pool_make_stay(pool, (const void *)block->node.key);
    lochi_pool_let_move(pool);
    return block;
}

loch_allocator *lochi_session_keep(lochi_session_block *block)
{
    loch_allocator *allocator = block->session->allocator;
    const bool is_handled = block->is_handled;
    lochi_lock_take(&session_lock);
    const bool is_kept = session_put_back(&block->session->failed, block);
    lochi_lock_drop(&session_lock);
    if (!is_kept) lochi_free(block);
    return !is_kept || !is_handled ? allocator : NULL;
}
