/* SPDX-License-Identifier: MIT */
/* Observers of driver memory: a list in order of addition, each with a number.
 *
 * A new observer is in the list at once, while it is still being called for the ranges that exist already. A range
 * that is about to end waits for that, so that no observer is called for an end before the beginning. A range that
 * ends stays in the table of ranges until all observers were called: an observer that was added meanwhile found the
 * range there, and is called for its end too. Functions are called outside all locks; a count keeps their entry
 * alive. */
#include "device/observers.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"
#include <pthread.h>

typedef struct observer {
    struct observer *next;
    uint64_t number;     /* rises along the list */
    loch_device *device; /* retained; NULL for all devices */
    loch_range_observer *function;
    void *user;
    unsigned users;  /* calls of the function under way */
    bool is_hearing; /* still being called for the ranges that existed when it was added */
    uint64_t adder;  /* the thread that adds it */
    bool is_leaving; /* being removed: no new call may begin */
} observer;

_Atomic uint64_t lochi_observers_newest;

static lochi_lock observer_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_OBSERVERS);
static pthread_cond_t observer_cond = PTHREAD_COND_INITIALIZER; /* a call has ended, or an observer was removed */
static observer *observer_list;                                 /* under observer_lock */
/* Number of observers ever added; under observer_lock. */
static uint64_t observer_count;

/* A call under way, on the stack of its thread. For the child of a fork, which does not have that thread. */
typedef struct observer_call {
    struct observer_call *next, **link;
    observer *called;
    uint64_t thread;
} observer_call;

static observer_call *observer_calls; /* under observer_lock */

/* --- calls --- */

static void observer_begin(observer_call *call, observer *called)
{
    lochi_lock_assert_held(&observer_lock);
    *call = (observer_call){observer_calls, &observer_calls, called, lochi_thread_number()};
    if (call->next) call->next->link = &call->next;
    observer_calls = call;
    called->users++;
}

/* Ends a call. Under the lock, or in the child of a fork. */
static void observer_end(const observer_call *call)
{
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    call->called->users--;
}

/* Ends the calls and removals of other threads. Called in the child of a fork. */
static void observer_forked(void)
{
    const uint64_t self = lochi_thread_number();
    pthread_cond_init(&observer_cond, NULL);
    for (observer_call *call = observer_calls, *next; call; call = next) {
        next = call->next;
        if (call->thread != self) observer_end(call);
    }
    for (observer *v = observer_list; v; v = v->next) {
        if (v->adder != self) v->is_hearing = false;
        v->is_leaving = false;
    }
}

static lochi_fork_part observer_part = {.child = observer_forked};

/* Finds the link to an observer, or to the end of the list. */
static observer **observer_find(const loch_device *device, loch_range_observer *function, const void *user)
{
    lochi_lock_assert_held(&observer_lock);
    observer **link = &observer_list;
    for (; *link; link = &(*link)->next)
        if ((*link)->device == device && (*link)->function == function && (*link)->user == user) break;
    return link;
}

/* --- calling observers --- */

/* Finds the next observer to call, of those with numbers in (after, upto]: the first one for a new range, the last
 * one for a range that ends. */
static observer *observer_next(loch_range_event event, const loch_device *device, uint64_t after, uint64_t upto)
{
    lochi_lock_assert_held(&observer_lock);
    observer *found = NULL;
    for (observer *v = observer_list; v && v->number <= upto; v = v->next) {
        if (v->number <= after || (v->device && v->device != device)) continue;
        /* It is still called for ranges, which must not end before that. */
        if (v->is_leaving && !v->is_hearing) continue;
        found = v;
        if (event == LOCH_RANGE_TAKEN) break;
    }
    return found;
}

static void observer_tell(loch_range_event event, const loch_range *range, uint64_t after, uint64_t upto)
{
    LOCHI_NOT_CANCELLED;
    observer *v;
    /* Keep the record of the library's own failure, whatever observers do. */
    const loch_error saved = lochi_error_save();
    lochi_lock_take(&observer_lock);
    while ((v = observer_next(event, range->device, after, upto))) {
        if (event == LOCH_RANGE_GOING && v->is_hearing) {
            lochi_lock_wait(&observer_lock, &observer_cond);
            continue; /* the list may have changed */
        }
        observer_call call;
        observer_begin(&call, v);
        lochi_lock_drop(&observer_lock);
        v->function(event, range, v->user);
        lochi_lock_take(&observer_lock);
        if (event == LOCH_RANGE_TAKEN)
            after = v->number;
        else
            upto = v->number - 1;
        observer_end(&call);
        if (!v->users) pthread_cond_broadcast(&observer_cond);
    }
    lochi_lock_drop(&observer_lock);
    lochi_error_restore(&saved);
}

void lochi_observers_call_taken(const loch_range *range, uint64_t upto)
{
    observer_tell(LOCH_RANGE_TAKEN, range, 0, upto);
}

void lochi_observers_tell_going(loch_device *device, loch_memory_kind kind, uintptr_t start, size_t bytes,
                                const void *memory)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    const loch_range range = {device, kind, (void *)start, bytes, memory};
    uint64_t told = 0, newest;
    while ((newest = lochi_observers_now()) > told) {
        lochi_ranges_unlock();
        observer_tell(LOCH_RANGE_GOING, &range, told, newest);
        told = newest;
        lochi_ranges_lock();
    }
}

/* --- adding and removing --- */

/* Lists the existing ranges and inserts the observer, in one critical section of the table of ranges. Returns the
 * number of ranges; if that is above `capacity`, nothing was inserted. */
static size_t observer_enter(observer *added, loch_range *there, size_t capacity)
{
    lochi_lock_assert_held(&observer_lock);
    lochi_ranges_lock();
    const size_t count = lochi_ranges_list(added->device, there, capacity);
    if (count <= capacity) {
        added->number = ++observer_count;
        atomic_store_explicit(&lochi_observers_newest, added->number, memory_order_relaxed);
    }
    lochi_ranges_unlock();
    return count;
}

/* Inserts an observer into the list, and lists the ranges that it must be called for. */
static loch_status observer_insert(observer *added, loch_range **there, size_t *count)
{
    size_t capacity = 0;
    for (;;) {
        lochi_lock_take(&observer_lock);
        observer **link = observer_find(added->device, added->function, added->user);
        const bool is_new = !*link;
        *count = is_new ? observer_enter(added, *there, capacity) : 0;
        if (is_new && *count <= capacity) *link = added;
        lochi_lock_drop(&observer_lock);
        if (!is_new) return LOCH_FAIL(EXISTS, "the observer was already added for that device");
        if (*count <= capacity) return LOCH_OK;
        capacity = *count + *count / 4 + 16; /* ranges may be added meanwhile */
        lochi_free(*there);
        *there = lochi_alloc_array(capacity, sizeof **there);
        if (!*there) return LOCH_FAIL(HOST_MEMORY, "no host memory to list %zu ranges for an observer", *count);
    }
}

static void observer_destroy(observer *gone)
{
    loch_device_release(gone->device);
    lochi_free(gone);
}

loch_status loch_observer_add(loch_device *device, loch_range_observer *function, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!function) return LOCH_FAIL(INVALID, "the observer function is NULL");
    observer *added = lochi_zalloc(sizeof *added);
    if (!added) return LOCH_FAIL(HOST_MEMORY, "no host memory to record an observer");
    added->device = loch_device_retain(device);
    added->function = function;
    added->user = user;
    added->is_hearing = true;
    added->adder = lochi_thread_number();
    lochi_fork_add(&observer_part);
    loch_range *there = NULL;
    size_t count;
    const loch_status status = observer_insert(added, &there, &count);
    if (status != LOCH_OK) {
        lochi_free(there);
        observer_destroy(added);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        function(LOCH_RANGE_TAKEN, &there[i], user); /* these ranges cannot end before the observer was called */
    lochi_free(there);
    lochi_lock_take(&observer_lock);
    added->is_hearing = false;
    pthread_cond_broadcast(&observer_cond);
    lochi_lock_drop(&observer_lock);
    return LOCH_OK;
}

/* Sets the newest number to that of the last observer left after a removal, so that calls cost nothing again when no
 * observer is left. */
static void observer_renew_newest(void)
{
    lochi_lock_assert_held(&observer_lock);
    uint64_t newest = 0;
    for (const observer *v = observer_list; v; v = v->next)
        newest = v->number;
    atomic_store_explicit(&lochi_observers_newest, newest, memory_order_relaxed);
}

loch_status loch_observer_remove(loch_device *device, loch_range_observer *function, void *user)
{
    LOCHI_NOT_CANCELLED;
    lochi_lock_take(&observer_lock);
    observer *gone = *observer_find(device, function, user);
    const bool is_found = gone && !gone->is_leaving;
    if (is_found) {
        gone->is_leaving = true;
        while (gone->users || gone->is_hearing)
            lochi_lock_wait(&observer_lock, &observer_cond);
        *observer_find(device, function, user) = gone->next;
        observer_renew_newest();
    }
    lochi_lock_drop(&observer_lock);
    if (!is_found) return LOCH_FAIL(NOT_FOUND, "the observer was not added for that device");
    observer_destroy(gone);
    return LOCH_OK;
}
