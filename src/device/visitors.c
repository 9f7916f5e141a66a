/* SPDX-License-Identifier: MIT */
/* Visitors on driver memory: a list in order of addition, each with a number of its own.
 *
 * A visitor that is being added is in the list at once, but still hears of what is there; a range that wants to go
 * waits for that, so that nobody hears of an end before the beginning. What goes stays in the table of ranges until
 * everybody has heard: a visitor that was added meanwhile found it there, and is told as well. Functions are called
 * outside all locks; their entry is kept by a count. */
#include "device/visitors.h"
#include "base/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"
#include <pthread.h>

typedef struct visitor {
    struct visitor *next;
    uint64_t number;     /* rises along the list */
    loch_device *device; /* retained; NULL for all */
    loch_range_observer *function;
    void *user;
    unsigned users;  /* threads inside it */
    bool is_hearing; /* of what was there when it was added */
    uint64_t adder;  /* the thread in which it does */
    bool is_leaving; /* no thread may enter any more */
} visitor;

_Atomic uint64_t lochi_visitors_newest;

static lochi_lock visitor_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_VISITORS);
static pthread_cond_t visitor_cond = PTHREAD_COND_INITIALIZER; /* somebody has heard, or left */
static visitor *visitor_list;                                  /* under visitor_lock */
static uint64_t visitor_count;                                 /* that there ever were; under visitor_lock */

/* A call that is under way, on its thread's stack; for the child of a fork, which does not have that thread. */
typedef struct visitor_call {
    struct visitor_call *next, **link;
    visitor *called;
    uint64_t thread;
} visitor_call;

static visitor_call *visitor_calls; /* under visitor_lock */

/* --- calls --- */

static void visitor_begin(visitor_call *call, visitor *called)
{
    lochi_lock_assert_held(&visitor_lock);
    *call = (visitor_call){visitor_calls, &visitor_calls, called, lochi_thread_number()};
    if (call->next) call->next->link = &call->next;
    visitor_calls = call;
    called->users++;
}

/* Ends a call; under the lock, or in the child of a fork. */
static void visitor_end(const visitor_call *call)
{
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    call->called->users--;
}

/* In the child of a fork: other threads are in no visitor, and remove none. */
static void visitor_forked(void)
{
    const uint64_t self = lochi_thread_number();
    pthread_cond_init(&visitor_cond, NULL);
    for (visitor_call *call = visitor_calls, *next; call; call = next) {
        next = call->next;
        if (call->thread != self) visitor_end(call);
    }
    for (visitor *v = visitor_list; v; v = v->next) {
        if (v->adder != self) v->is_hearing = false;
        v->is_leaving = false;
    }
}

static lochi_fork_part visitor_part = {.child = visitor_forked};

/* Finds the link to a visitor, or to the end of the list. */
static visitor **visitor_find(const loch_device *device, loch_range_observer *function, const void *user)
{
    lochi_lock_assert_held(&visitor_lock);
    visitor **link = &visitor_list;
    for (; *link; link = &(*link)->next)
        if ((*link)->device == device && (*link)->function == function && (*link)->user == user) break;
    return link;
}

/* --- telling --- */

/* Finds the visitor that is told next, of those with numbers in (after, upto]: the first for a range that is taken, the
 * last for one that goes. */
static visitor *visitor_next(loch_range_event event, const loch_device *device, uint64_t after, uint64_t upto)
{
    lochi_lock_assert_held(&visitor_lock);
    visitor *found = NULL;
    for (visitor *v = visitor_list; v && v->number <= upto; v = v->next) {
        if (v->number <= after || (v->device && v->device != device)) continue;
        if (v->is_leaving && !v->is_hearing) continue; /* what it still hears of must not go before */
        found = v;
        if (event == LOCH_RANGE_TAKEN) break;
    }
    return found;
}

static void visitor_tell(loch_range_event event, const loch_range *range, uint64_t after, uint64_t upto)
{
    LOCHI_NOT_CANCELLED;
    visitor *v;
    const loch_error saved = lochi_error_save(); /* the record is of what the library does, not of what visitors do */
    lochi_lock_take(&visitor_lock);
    while ((v = visitor_next(event, range->device, after, upto))) {
        if (event == LOCH_RANGE_GOING && v->is_hearing) {
            lochi_lock_wait(&visitor_lock, &visitor_cond);
            continue; /* the list may have changed */
        }
        visitor_call call;
        visitor_begin(&call, v);
        lochi_lock_drop(&visitor_lock);
        v->function(event, range, v->user);
        lochi_lock_take(&visitor_lock);
        if (event == LOCH_RANGE_TAKEN)
            after = v->number;
        else
            upto = v->number - 1;
        visitor_end(&call);
        if (!v->users) pthread_cond_broadcast(&visitor_cond);
    }
    lochi_lock_drop(&visitor_lock);
    lochi_error_restore(&saved);
}

void lochi_visitors_call_taken(const loch_range *range, uint64_t upto)
{
    visitor_tell(LOCH_RANGE_TAKEN, range, 0, upto);
}

void lochi_visitors_tell_going(loch_device *device, loch_memory_kind kind, uintptr_t start, size_t bytes)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    const loch_range range = {device, kind, (void *)start, bytes};
    uint64_t told = 0, newest;
    while ((newest = lochi_visitors_now()) > told) {
        lochi_ranges_unlock();
        visitor_tell(LOCH_RANGE_GOING, &range, told, newest);
        told = newest;
        lochi_ranges_lock();
    }
}

/* --- adding and removing --- */

/* Lists what is there and makes the visitor known, both at one moment of the table of ranges.
 * Returns the room that the list needs; nothing was done when that is more than `capacity`. */
static size_t visitor_enter(visitor *added, loch_range *there, size_t capacity)
{
    lochi_lock_assert_held(&visitor_lock);
    lochi_ranges_lock();
    const size_t count = lochi_ranges_list(added->device, there, capacity);
    if (count <= capacity) {
        added->number = ++visitor_count;
        atomic_store_explicit(&lochi_visitors_newest, added->number, memory_order_relaxed);
    }
    lochi_ranges_unlock();
    return count;
}

/* Puts the visitor into the list, with the ranges that it has to hear of. */
static loch_status visitor_insert(visitor *added, loch_range **there, size_t *count)
{
    size_t capacity = 0;
    for (;;) {
        lochi_lock_take(&visitor_lock);
        visitor **link = visitor_find(added->device, added->function, added->user);
        const bool is_new = !*link;
        *count = is_new ? visitor_enter(added, *there, capacity) : 0;
        if (is_new && *count <= capacity) *link = added;
        lochi_lock_drop(&visitor_lock);
        if (!is_new) return LOCH_FAIL(EXISTS, "that visitor is there already");
        if (*count <= capacity) return LOCH_OK;
        capacity = *count + *count / 4 + 16; /* ranges may come meanwhile */
        lochi_free(*there);
        *there = lochi_alloc_array(capacity, sizeof **there);
        if (!*there) return LOCH_FAIL(HOST_MEMORY, "no host memory to list %zu ranges for a visitor", *count);
    }
}

static void visitor_destroy(visitor *gone)
{
    loch_device_release(gone->device);
    lochi_free(gone);
}

loch_status loch_observer_add(loch_device *device, loch_range_observer *function, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!function) return LOCH_FAIL(INVALID, "there is no visitor to add");
    visitor *added = lochi_zalloc(sizeof *added);
    if (!added) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a visitor");
    added->device = loch_device_retain(device);
    added->function = function;
    added->user = user;
    added->is_hearing = true;
    added->adder = lochi_thread_number();
    lochi_fork_add(&visitor_part);
    loch_range *there = NULL;
    size_t count;
    const loch_status status = visitor_insert(added, &there, &count);
    if (status != LOCH_OK) {
        lochi_free(there);
        visitor_destroy(added);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        function(LOCH_RANGE_TAKEN, &there[i], user); /* they cannot go before it has heard */
    lochi_free(there);
    lochi_lock_take(&visitor_lock);
    added->is_hearing = false;
    pthread_cond_broadcast(&visitor_cond);
    lochi_lock_drop(&visitor_lock);
    return LOCH_OK;
}

/* Notes the last visitor that is left as the newest after a removal, so that no visitors cost nothing again. */
static void visitor_renew_newest(void)
{
    lochi_lock_assert_held(&visitor_lock);
    uint64_t newest = 0;
    for (const visitor *v = visitor_list; v; v = v->next)
        newest = v->number;
    atomic_store_explicit(&lochi_visitors_newest, newest, memory_order_relaxed);
}

loch_status loch_observer_remove(loch_device *device, loch_range_observer *function, void *user)
{
    LOCHI_NOT_CANCELLED;
    lochi_lock_take(&visitor_lock);
    visitor *gone = *visitor_find(device, function, user);
    const bool is_found = gone && !gone->is_leaving;
    if (is_found) {
        gone->is_leaving = true;
        while (gone->users || gone->is_hearing)
            lochi_lock_wait(&visitor_lock, &visitor_cond);
        *visitor_find(device, function, user) = gone->next;
        visitor_renew_newest();
    }
    lochi_lock_drop(&visitor_lock);
    if (!is_found) return LOCH_FAIL(NOT_FOUND, "there is no such visitor");
    visitor_destroy(gone);
    return LOCH_OK;
}
