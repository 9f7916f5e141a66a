/* SPDX-License-Identifier: MIT */
/* Sessions. Which session a new block belongs to is found where the outermost allocator is asked for it (allocator.c), and that
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
#include "memory/wrap/wrapper.h"
#include <pthread.h>
#include <string.h>

struct lochi_session_block {
    lochi_tree_node node; /* key: its address */
    loch_session *session;
    loch_allocator *owner; /* that it goes back to, and in whose table it is */
    struct lochi_session_block *next, **link;
    size_t bytes;
    bool is_handled;  /* came by the session's allocator, among whose live blocks it counts */
    bool is_promoted; /* in no list any more */
};

struct loch_session {
    loch_allocator *allocator, *wrapped;
    lochi_session_block *blocks; /* this and the rest under the lock */
    lochi_session_block *failed; /* could not be freed by an end that is under way */
    size_t count, bytes, peak;
    size_t entered;
    bool is_ending, is_over;
};

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
static bool session_add(lochi_session_block *block)
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
    if (stale) lochi_session_settle(stale, true);
    return is_open;
}

loch_status lochi_session_end_alloc(lochi_session_alloc *alloc, loch_status status, size_t bytes, void **out)
{
    lochi_session_block *block = alloc->block;
    lochi_session_unhush(&alloc->frame);
    if (!block) return status;
    if (status != LOCH_OK || !*out) {
        lochi_free(block);
        return status;
    }
    block->session = alloc->session;
    block->is_handled = alloc->allocator == alloc->session->allocator;
    block->owner = block->is_handled ? alloc->session->wrapped : alloc->allocator;
    block->node.key = (uintptr_t)*out;
    block->bytes = bytes;
    if (block->owner->pool) lochi_pool_keep_off(block->owner->pool, *out);
    if (session_add(block)) return LOCH_OK;
    status = session_refuse(alloc->session);
    lochi_free(block);
    lochi_allocator_abandon(alloc->allocator, *out, 0, NULL);
    *out = NULL;
    return status;
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

/* Whether the session's allocator has one live block less now. */
static bool session_settle(lochi_session_block *block, bool is_gone)
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

void lochi_session_settle(lochi_session_block *block, bool is_gone)
{
    loch_allocator *allocator = block->session->allocator;
    if (session_settle(block, is_gone)) lochi_allocator_count_out(allocator);
}

lochi_session_block *lochi_session_take_moving(loch_allocator *allocator, const void *address)
{
    return lochi_session_take(lochi_session_is_own(allocator) ? allocator->wrapped : allocator, address);
}

void lochi_session_settle_moved(lochi_session_block *block, void *address, size_t bytes)
{
    block->node.key = (uintptr_t)address;
    block->bytes = bytes;
    if (block->owner->pool) lochi_pool_keep_off(block->owner->pool, address);
    lochi_session_settle(block, false);
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

/* --- the session's allocator --- */

static loch_status session_alloc(void *self, const loch_request *request, void **out)
{
    return lochi_allocator_try(((loch_session *)self)->wrapped, request, out);
}

/* Who called this looks whether the allocator is over. */
static loch_status session_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    loch_session *session = self;
    lochi_session_block *block = lochi_session_take(session->wrapped, address);
    const loch_status status = lochi_allocator_give_back(session->wrapped, address, bytes, stream);
    if (!block) return status;
    if (block->session != session) /* one of another session on the same allocator */
        lochi_session_settle(block, lochi_session_is_gone(status));
    else if (session_settle(block, lochi_session_is_gone(status)))
        atomic_fetch_sub_explicit(&session->allocator->live, 1, memory_order_relaxed);
    return status;
}

static loch_status session_find_block(void *self, const void *address, loch_block *out)
{
    return loch_allocator_find(((loch_session *)self)->wrapped, address, out);
}

static loch_status session_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    return lochi_allocator_resize_in_place(((loch_session *)self)->wrapped, address, bytes, allocated);
}

static void session_destroy(void *self)
{
    lochi_free(self);
}

static const loch_allocator_ops session_ops = {
    .size = sizeof session_ops,
    .kind = "session",
    .alloc = session_alloc,
    .free = session_free,
    .destroy = session_destroy,
    .find = session_find_block,
    .resize = session_resize,
};

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

/* --- beginning, promoting, figures --- */

loch_status loch_session_begin(loch_allocator *allocator, const char *name, loch_session **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a session needs an allocator and a place");
    while (lochi_session_is_own(allocator))
        allocator = allocator->wrapped;
    loch_session *session = lochi_zalloc(sizeof *session);
    if (!session) return LOCH_FAIL(HOST_MEMORY, "no host memory for a session");
    session->wrapped = allocator;
    const loch_status status =
        lochi_wrapper_create(allocator, name, &session_ops, session, LOCHI_ACCOUNT_NOTES, &session->allocator);
    if (status != LOCH_OK) {
        lochi_free(session);
        return status;
    }
    session->allocator->session = session;
    *out = session;
    return LOCH_OK;
}

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

/* From now on nothing comes in. */
static loch_status session_begin_end(loch_session *session)
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

/* The same; a block that its pool may move stays where it is from then on. */
static lochi_session_block *session_next_still(loch_session *session, bool has_failed)
{
    lochi_pool *pool = session->wrapped->pool;
    if (!pool) return session_next(session, has_failed);
    lochi_pool_hold_still(pool);
    lochi_session_block *block = session_next(session, has_failed);
    if (block && block->owner == session->wrapped) lochi_pool_make_stay(pool, (const void *)block->node.key);
    lochi_pool_let_move(pool);
    return block;
}

/* A block that could not be freed: it is not tried again by this end. */
static void session_keep(lochi_session_block *block)
{
    loch_allocator *allocator = block->session->allocator;
    const bool is_handled = block->is_handled;
    lochi_lock_take(&session_lock);
    const bool is_kept = session_put_back(&block->session->failed, block);
    lochi_lock_drop(&session_lock);
    if (!is_kept) lochi_free(block);
    if (!is_kept || !is_handled) lochi_allocator_count_out(allocator);
}

loch_status loch_session_end(loch_session *session, loch_stream *stream, size_t *bytes)
{
    if (bytes) *bytes = 0;
    if (!session) return LOCH_FAIL(INVALID, "there is no session to end");
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, session->wrapped->device));
    LOCH_TRY_RETURN(session_begin_end(session));
    loch_status first = LOCH_OK;
    loch_error error;
    lochi_session_block *block;
    while ((block = session_next_still(session, first != LOCH_OK))) {
        void *address = (void *)block->node.key;
        const size_t freed = block->bytes;
        const loch_status status =
            stream ? loch_allocator_free_on(block->owner, address, stream) : loch_allocator_free(block->owner, address);
        if (status != LOCH_OK && first == LOCH_OK) {
            first = status;
            error = lochi_error_save();
        }
        if (bytes && lochi_is_freed(status)) *bytes += freed;
        if (lochi_session_is_gone(status))
            lochi_session_settle(block, true);
        else
            session_keep(block);
    }
    if (first == LOCH_OK)
        loch_allocator_release(session->allocator);
    else
        lochi_error_restore(&error);
    return first;
}
