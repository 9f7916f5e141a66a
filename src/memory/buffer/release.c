/* SPDX-License-Identifier: MIT */
/* References of buffers, and wholes that wait for work before they are destroyed.
 *
 * If the last reference to a whole is released before its uses have passed (uses.c), the whole is put on one list of
 * the process. Every later call on buffers checks the list if it is not empty. So no thread of the library is needed,
 * and no call sleeps. Destroying a whole releases the reference to its owner, which may be destroyed too. Therefore the
 * list and the release are in one file. */
#include "memory/buffer/release.h"
#include "kit/backoff.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/lock.h"
#include "device/device.h"
#include "memory/live/live.h"
#include "memory/buffer/end.h"
#include "memory/buffer/uses.h"

/* Guards the list. Held only for list operations, and never together with the lock of uses. */
static lochi_lock waiting_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_BUFFERS);
static loch_buffer *waiting_first; /* guarded by waiting_lock */

/* Counts the wholes on the list and those taken from it to be queried. Relaxed: a thread that needs earlier writes
 * takes the lock. */
static atomic_size_t waiting_count;

/* --- retain and release --- */

loch_buffer *loch_buffer_retain(loch_buffer *buffer)
{
    /* relaxed: the caller holds a reference already, so no write must become visible */
    if (buffer) atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

/* Drops a reference. Returns whether it was the last one. Release: the use of the buffer by this thread comes before
 * its end. Acquire: the thread that destroys it sees the writes of all others. */
static bool release_drop(loch_buffer *buffer)
{
    return atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) == 1;
}

/* --- wholes that wait --- */

/* Puts a chain of wholes back on the list. */
static void waiting_put(loch_buffer *first)
{
    if (!first) return;
    loch_buffer *last = first;
    while (last->next_waiting)
        last = last->next_waiting;
    lochi_lock_take(&waiting_lock);
    last->next_waiting = waiting_first;
    waiting_first = first;
    lochi_lock_drop(&waiting_lock);
}

/* Takes all wholes off the list. */
static loch_buffer *waiting_take(void)
{
    lochi_lock_take(&waiting_lock);
    loch_buffer *first = waiting_first;
    waiting_first = NULL;
    lochi_lock_drop(&waiting_lock);
    return first;
}

/* Counts the list again in the child of a fork. Wholes that other threads had taken from the list are lost. */
static void waiting_forked(void)
{
    size_t count = 0;
    for (const loch_buffer *whole = waiting_first; whole; whole = whole->next_waiting)
        count++;
    atomic_store_explicit(&waiting_count, count, memory_order_relaxed);
}

static lochi_fork_part waiting_part = {.child = waiting_forked};

/* Takes the block of a whole without owners off the list of live blocks. */
static void release_forget(loch_buffer *whole)
{
    if (!lochi_live_is_kept() || !whole->allocator || !whole->address) return;
    const void *address = whole->address;
    if (whole->is_movable) address = lochi_movable_hold(whole->allocator, &whole->movable);
    lochi_live_forget(whole->allocator, address);
    if (whole->is_movable) lochi_movable_drop(whole->allocator, &whole->movable);
}

/* If work that the allocator cannot track still uses a whole, puts it on the list and returns true. Its last reference
 * has been dropped. */
static bool waiting_keep_if_used(loch_buffer *whole)
{
    whole->uses = lochi_uses_without_passed(whole->uses); /* no other thread has the whole any more */
    if (!whole->uses) return false;
    release_forget(whole);
    lochi_fork_add(&waiting_part);
    atomic_fetch_add_explicit(&waiting_count, 1, memory_order_relaxed);
    whole->next_waiting = NULL;
    waiting_put(whole);
    return true;
}

/* Destroys the wholes of a chain whose uses have passed, and puts the others back. Putting back and counting come
 * first: a deleter may wait for all waiting wholes, and would otherwise wait for wholes that its own thread holds. */
static void waiting_end_passed(loch_buffer *list)
{
    loch_buffer *left = NULL, *passed = NULL;
    while (list) {
        loch_buffer *whole = list;
        list = whole->next_waiting;
        whole->uses = lochi_uses_without_passed(whole->uses);
        loch_buffer **where = whole->uses ? &left : &passed;
        whole->next_waiting = *where;
        *where = whole;
        if (!whole->uses) atomic_fetch_sub_explicit(&waiting_count, 1, memory_order_relaxed);
    }
    waiting_put(left);
    while (passed) {
        loch_buffer *whole = passed;
        passed = whole->next_waiting;
        loch_buffer_release(lochi_buffer_end(whole));
    }
}

void lochi_buffer_sweep(void)
{
    if (atomic_load_explicit(&waiting_count, memory_order_relaxed)) waiting_end_passed(waiting_take());
}

/* --- destroying --- */

/* Notifies the watch that the whole has no reference any more, even if its memory still waits for work. */
static void release_tell_watch(const loch_buffer *whole)
{
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_relaxed);
    if (watch) lochi_watch_change(watch);
}

/* The end of a part releases its whole, the end of a whole releases its owner. A loop is used because such a chain may
 * be long. */
void loch_buffer_release(loch_buffer *buffer)
{
    lochi_buffer_sweep();
    while (buffer && release_drop(buffer)) {
        loch_buffer *next = buffer->whole;
        if (!next) release_tell_watch(buffer);
        if (next)
            lochi_free(buffer);
        else if (!waiting_keep_if_used(buffer))
            next = lochi_buffer_end(buffer);
        buffer = next;
    }
}

/* --- waiting for all wholes --- */

/* Waits for all events of a chain. Stops at the first failure; the chain stays unchanged. */
static loch_status waiting_sync(const loch_buffer *list)
{
    for (; list; list = list->next_waiting) {
        for (const lochi_use *use = list->uses; use; use = use->next) {
            const loch_status status = loch_event_sync(use->event);
            if (status != LOCH_OK && !lochi_is_gone(status)) return status;
        }
    }
    return LOCH_OK;
}

/* Waits for all wholes on the list and destroys them. Other threads may have taken some to query them; these return to
 * the list or are destroyed. */
static loch_status waiting_end_all(void)
{
    unsigned turn = 0;
    while (atomic_load_explicit(&waiting_count, memory_order_relaxed)) {
        loch_buffer *list = waiting_take();
        if (list)
            turn = 0;
        else
            lochi_backoff(&turn);
        const loch_status status = waiting_sync(list);
        waiting_end_passed(list);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

loch_status loch_buffer_collect(loch_wait wait, size_t *waiting)
{
    loch_status status = LOCH_OK;
    if (wait == LOCH_WAIT_END)
        status = waiting_end_all();
    else
        lochi_buffer_sweep();
    if (waiting) *waiting = atomic_load_explicit(&waiting_count, memory_order_relaxed);
    return status;
}
