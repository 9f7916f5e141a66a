/* SPDX-License-Identifier: MIT */
/* Threads that wait for memory, and the list of pressure functions.
 *
 * There is one queue for the process, because memory that one allocator frees may serve a request of another one
 * with the same source. A waiter raises `waiters` of its allocator and of all allocators that it wraps, crosses the
 * heavy fence, reads the generation and tries again. A free crosses the light fence and reads `waiters`. So either
 * the new attempt finds the memory, or the free sees the waiter: no wake-up is lost, and a free costs one load while
 * no thread waits. A waiter sleeps for one nap at most, because a free through an allocator outside its stack does
 * not wake it. tests/models/waiters.pml is a model of this. */
#include "memory/waiting.h"
#include "kit/backoff.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/fence.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/room.h"
#include "base/thread.h"
#include "memory/pool/pool.h"
#include <loch/host.h>
#include <pthread.h>
#include <time.h>

/* The longest sleep before the (replaceable) clock is read again. Tests make it longer to check the wake-ups. */
uint64_t lochi_retry_nap_ns = 10000000;

static lochi_lock waiting_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static waiting_call *waiting_calls; /* under waiting_lock */
static pthread_cond_t waiting_cond;
static pthread_once_t waiting_once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t waiting_generation; /* raised under waiting_lock */

static void waiting_init(void)
{
    lochi_lock_init_condition(&waiting_cond);
}

/* --- running calls, for forks --- */

static void waiting_stop_waiting(loch_allocator *allocator)
{
    for (; allocator; allocator = allocator->wrapped) {
        atomic_store_explicit(&allocator->waiters, 0, memory_order_relaxed);
        if (allocator->pool) lochi_pool_forget_waiters(allocator->pool);
    }
}

static void waiting_wait_again(loch_allocator *allocator)
{
    for (; allocator; allocator = allocator->wrapped) {
        atomic_fetch_add_explicit(&allocator->waiters, 1, memory_order_relaxed);
        if (allocator->pool) lochi_pool_note_waiter(allocator->pool);
    }
}

/* Repairs the state in the child of a fork. It is not known how far the other threads had come, so all announcements
 * are taken back, and those of the calling thread are made again. */
static void waiting_forked(void)
{
    const uint64_t self = lochi_thread_number();
    waiting_init();
    for (const waiting_call *call = waiting_calls; call; call = call->next)
        if (call->allocator) waiting_stop_waiting(call->allocator);
    for (waiting_call *call = waiting_calls, *next; call; call = next) {
        next = call->next;
        if (call->thread == self) {
            if (call->allocator) waiting_wait_again(call->allocator);
            continue;
        }
        if (call->asked) call->asked->users--;
        *call->link = next;
        if (next) next->link = call->link;
    }
}

static lochi_fork_part waiting_part = {.child = waiting_forked};

void lochi_waiting_note(waiting_call *call)
{
    lochi_fork_add(&waiting_part);
    call->thread = lochi_thread_number();
    lochi_lock_take(&waiting_lock);
    call->next = waiting_calls;
    call->link = &waiting_calls;
    if (call->next) call->next->link = &call->next;
    waiting_calls = call;
    lochi_lock_drop(&waiting_lock);
}

void lochi_waiting_forget(const waiting_call *call)
{
    lochi_lock_take(&waiting_lock);
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    lochi_lock_drop(&waiting_lock);
}

/* --- waiting --- */

static void waiting_announce(loch_allocator *allocator, int sign)
{
    for (; allocator; allocator = allocator->wrapped) {
        atomic_fetch_add_explicit(&allocator->waiters, (unsigned)sign, memory_order_relaxed);
        if (!allocator->pool) continue;
        if (sign > 0)
            lochi_pool_shut_waiting(allocator->pool); /* frees then take the slow path, which reads `waiters` */
        else
            lochi_pool_go_waiting(allocator->pool);
    }
}

void lochi_waiting_begin(loch_allocator *allocator)
{
    pthread_once(&waiting_once, waiting_init);
    waiting_announce(allocator, 1);
    lochi_fence_heavy();
}

void lochi_waiting_end(loch_allocator *allocator)
{
    waiting_announce(allocator, -1);
}

uint64_t lochi_waiting_get_generation(void)
{
    return atomic_load_explicit(&waiting_generation, memory_order_acquire);
}

void lochi_retry_wake(void)
{
    pthread_once(&waiting_once, waiting_init);
    lochi_lock_take(&waiting_lock);
    atomic_fetch_add_explicit(&waiting_generation, 1, memory_order_release); /* a thread that sees it sees the free */
    pthread_cond_broadcast(&waiting_cond);
    lochi_lock_drop(&waiting_lock);
}

void lochi_waiting_sleep(uint64_t generation, uint64_t ns)
{
    LOCHI_NOT_CANCELLED;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t nap = (uint64_t)until.tv_nsec + (ns < lochi_retry_nap_ns ? ns : lochi_retry_nap_ns);
    until.tv_sec += (time_t)(nap / 1000000000u);
    until.tv_nsec = (long)(nap % 1000000000u);
    lochi_lock_take(&waiting_lock);
    while (atomic_load_explicit(&waiting_generation, memory_order_relaxed) == generation)
        if (!lochi_lock_wait_until(&waiting_lock, &waiting_cond, &until)) break;
    lochi_lock_drop(&waiting_lock);
}

/* --- pressure functions --- */

/* Finds the link to a function, or the end of the list. */
static lochi_pressure **waiting_find(loch_allocator *allocator, loch_pressure_function *function, const void *user)
{
    lochi_lock_assert_held(&allocator->lock);
    lochi_pressure **link = &allocator->pressure;
    while (*link && ((*link)->function != function || (*link)->user != user))
        link = &(*link)->next;
    return link;
}

loch_status loch_allocator_add_pressure(loch_allocator *allocator, loch_pressure_function *function, void *user)
{
    if (!allocator || !function)
        return LOCH_FAIL(INVALID, "a pressure function needs an allocator, and must not be NULL");
    lochi_pressure *added = lochi_zalloc(sizeof *added);
    if (!added) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a pressure function");
    added->function = function;
    added->user = user;
    lochi_lock_take(&allocator->lock);
    lochi_pressure **link = waiting_find(allocator, function, user);
    const bool is_new = !*link;
    if (is_new) *link = added;
    lochi_lock_drop(&allocator->lock);
    if (is_new) return LOCH_OK;
    lochi_free(added);
    return LOCH_FAIL(EXISTS, "the pressure function was added already, with the same user pointer");
}

uint64_t loch_pressure_get_left_ns(void)
{
    const uint64_t until_ns = lochi_room_own ? lochi_room_own->pressure_until_ns : 0;
    if (!until_ns) return UINT64_MAX;
    const uint64_t now_ns = loch_host_now_ns();
    return until_ns > now_ns ? until_ns - now_ns : 0;
}

/* Tells whether the calling thread is inside a function. */
static bool waiting_is_inside(const lochi_pressure *asked)
{
    const uint64_t self = lochi_thread_number();
    lochi_lock_take(&waiting_lock);
    const waiting_call *call = waiting_calls;
    while (call && (call->asked != asked || call->thread != self))
        call = call->next;
    lochi_lock_drop(&waiting_lock);
    return call != NULL;
}

lochi_pressure *lochi_waiting_leave(loch_allocator *allocator, const waiting_call *call)
{
    lochi_pressure *asked = call->asked, *next = asked->next;
    lochi_waiting_forget(call);
    if (--asked->users || !asked->is_left) return next;
    *waiting_find(allocator, asked->function, asked->user) = next;
    lochi_free(asked);
    return next;
}

loch_status loch_allocator_remove_pressure(loch_allocator *allocator, loch_pressure_function *function, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!allocator || !function)
        return LOCH_FAIL(INVALID, "a pressure function needs an allocator, and must not be NULL");
    lochi_lock_take(&allocator->lock);
    lochi_pressure **link;
    unsigned turn = 0;
    /* Rare: a thread is inside the function. */
    while (*(link = waiting_find(allocator, function, user)) && (*link)->users) {
        (*link)->is_leaving = true;
        if (waiting_is_inside(*link)) {
            (*link)->is_left = true;
            lochi_lock_drop(&allocator->lock);
            return LOCH_OK;
        }
        lochi_lock_drop(&allocator->lock);
        lochi_backoff(&turn);
        lochi_lock_take(&allocator->lock); /* the list may have changed in between */
    }
    lochi_pressure *found = *link;
    if (found) *link = found->next;
    lochi_lock_drop(&allocator->lock);
    lochi_free(found);
    return found ? LOCH_OK : LOCH_FAIL(NOT_FOUND, "the pressure function was not added with this user pointer");
}

void lochi_retry_fini(loch_allocator *allocator)
{
    while (allocator->pressure) {
        lochi_pressure *next = allocator->pressure->next;
        lochi_free(allocator->pressure);
        allocator->pressure = next;
    }
}
