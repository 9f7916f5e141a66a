/* SPDX-License-Identifier: MIT */
/* How buffers are shared, and how they wait for work and end.
 *
 * When the last reference on a whole goes before its uses have passed (uses.c), it is put on one list of the process; every
 * later call on buffers looks at the list when it is not empty. No thread is needed for that, and none may sleep in it. The
 * end of a whole drops the reference on its owner, which may end too: so the list and the release are one part. */
#include "tensor/buffer/release.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/lock.h"
#include "device/device.h"
#include "tensor/buffer/end.h"
#include "tensor/buffer/uses.h"
#include <sched.h>

/* Guards the list; held for list operations alone, and never together with the lock of uses. */
static lochi_lock waiting_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_BUFFERS);
static loch_buffer *waiting_first; /* under waiting_lock */

/* Counts those on the list and those taken from it to be asked. Relaxed: who needs what was written before takes the lock. */
static atomic_size_t waiting_count;

/* --- sharing --- */

loch_buffer *loch_buffer_retain(loch_buffer *buffer)
{
    /* relaxed: who retains holds a reference already, so nothing has to be seen */
    if (buffer) atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

/* Release: what this thread did with the buffer comes before its end. Acquire: whoever ends it sees what all others did. */
static bool release_drop(loch_buffer *buffer)
{
    return atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) == 1;
}

/* --- those that wait --- */

/* Puts a list of wholes back. */
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

/* Counts the list again in the child of a fork: what other threads had taken from it does not come back. */
static void waiting_forked(void)
{
    size_t count = 0;
    for (const loch_buffer *whole = waiting_first; whole; whole = whole->next_waiting)
        count++;
    atomic_store_explicit(&waiting_count, count, memory_order_relaxed);
}

static lochi_fork_part waiting_part = {.child = waiting_forked};

/* Puts a whole on the list, and returns true, when work that the allocator does not know of still uses it. Its last reference
 * has gone. */
static bool waiting_keep_if_used(loch_buffer *whole)
{
    whole->uses = lochi_uses_without_passed(whole->uses); /* nobody else has it any more */
    if (!whole->uses) return false;
    lochi_fork_add(&waiting_part);
    atomic_fetch_add_explicit(&waiting_count, 1, memory_order_relaxed);
    whole->next_waiting = NULL;
    waiting_put(whole);
    return true;
}

/* Ends those of a list whose uses have passed, and puts the others back. That comes first, and so does the count: a deleter
 * may wait for all of them, and would wait for those in its own hands. */
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

/* --- ending --- */

/* Tells the watch that nobody holds the whole any more, even while its memory waits for work. */
static void release_tell_watch(const loch_buffer *whole)
{
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_relaxed);
    if (watch) lochi_watch_change(watch);
}

/* The end of a part lets go of its whole, that of a whole of its owner: in a loop, because such a chain may be long. */
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

/* --- waiting for all of them --- */

/* Waits for all events of a list; stops at the first failure, with the list as it was. */
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

/* Others may have some in their hands, to ask them without waiting; those come back to the list or end. */
static loch_status waiting_end_all(void)
{
    while (atomic_load_explicit(&waiting_count, memory_order_relaxed)) {
        loch_buffer *list = waiting_take();
        if (!list) sched_yield();
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
