/* SPDX-License-Identifier: MIT */
/* When memory is short: pressure functions first, then waiting for another's free.
 *
 * Waiting is one queue for the process, because memory that one allocator gives back may serve a request of another
 * that shares its source. A waiter raises `waiters` of its allocator and of all that it wraps, crosses the heavy
 * fence, notes the generation and tries again; a free crosses the light fence and looks at `waiters`. So either the
 * new attempt finds the memory, or the free finds the waiter: no wake-up is lost, and a free costs one load while
 * nobody waits. A waiter sleeps for a nap at most, because a free of an allocator outside its stack does not wake it. */
#include "base/cancel.h"
#include "base/fail.h"
#include "base/fence.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"
#include "memory/failure.h"
#include "memory/pool/pool.h"
#include <loch/host.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* The longest sleep before the (replaceable) clock is read again. Tests make it longer, to see that wake-ups come. */
uint64_t lochi_retry_nap_ns = 10000000;

/* What a thread is in the middle of, on its stack: for the child of a fork, which does not have that thread. */
typedef struct retry_call {
    struct retry_call *next, **link;
    uint64_t thread;
    loch_allocator *allocator; /* that it waits for, with all that it wraps; NULL: it is in a pressure function */
    lochi_pressure *asked;
} retry_call;

static lochi_lock retry_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static retry_call *retry_calls; /* under retry_lock */
static pthread_cond_t retry_cond;
static pthread_once_t retry_once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t retry_generation; /* raised under retry_lock */

static void retry_init(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&retry_cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* --- calls under way, for forks --- */

static void retry_stop_waiting(loch_allocator *allocator)
{
    for (; allocator; allocator = allocator->wrapped) {
        atomic_store_explicit(&allocator->waiters, 0, memory_order_relaxed);
        if (allocator->pool) lochi_pool_forget_waiters(allocator->pool);
    }
}

static void retry_wait_again(loch_allocator *allocator)
{
    for (; allocator; allocator = allocator->wrapped) {
        atomic_fetch_add_explicit(&allocator->waiters, 1, memory_order_relaxed);
        if (allocator->pool) lochi_pool_note_waiter(allocator->pool);
    }
}

/* How far another thread had come with its announcement is not known: all are taken back, and the own ones made again. */
static void retry_forked(void)
{
    const uint64_t self = lochi_thread_number();
    retry_init();
    for (const retry_call *call = retry_calls; call; call = call->next)
        if (call->allocator) retry_stop_waiting(call->allocator);
    for (retry_call *call = retry_calls, *next; call; call = next) {
        next = call->next;
        if (call->thread == self) {
            if (call->allocator) retry_wait_again(call->allocator);
            continue;
        }
        if (call->asked) call->asked->users--;
        *call->link = next;
        if (next) next->link = call->link;
    }
}

static lochi_fork_part retry_part = {.child = retry_forked};

static void retry_begin(retry_call *call)
{
    lochi_fork_add(&retry_part);
    call->thread = lochi_thread_number();
    lochi_lock_take(&retry_lock);
    call->next = retry_calls;
    call->link = &retry_calls;
    if (call->next) call->next->link = &call->next;
    retry_calls = call;
    lochi_lock_drop(&retry_lock);
}

static void retry_end(const retry_call *call)
{
    lochi_lock_take(&retry_lock);
    *call->link = call->next;
    if (call->next) call->next->link = call->link;
    lochi_lock_drop(&retry_lock);
}

/* --- sleeping --- */

void lochi_retry_wake(void)
{
    pthread_once(&retry_once, retry_init);
    lochi_lock_take(&retry_lock);
    atomic_fetch_add_explicit(&retry_generation, 1, memory_order_release); /* who sees it sees the free */
    pthread_cond_broadcast(&retry_cond);
    lochi_lock_drop(&retry_lock);
}

/* Sleeps until something was freed after `generation`, or for `ns` at most. */
static void retry_sleep(uint64_t generation, uint64_t ns)
{
    LOCHI_NOT_CANCELLED;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const uint64_t nap = (uint64_t)until.tv_nsec + (ns < lochi_retry_nap_ns ? ns : lochi_retry_nap_ns);
    until.tv_sec += (time_t)(nap / 1000000000u);
    until.tv_nsec = (long)(nap % 1000000000u);
    lochi_lock_take(&retry_lock);
    while (atomic_load_explicit(&retry_generation, memory_order_relaxed) == generation)
        if (!lochi_lock_wait_until(&retry_lock, &retry_cond, &until)) break;
    lochi_lock_drop(&retry_lock);
}

static bool retry_is_worth_it(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED ||
           status == LOCH_E_MOVING_FORBIDDEN; /* a move would do, and so would a free */
}

/* --- pressure functions --- */

/* Under the allocator's lock: the link to a function, or to the end of the list. */
static lochi_pressure **retry_find(loch_allocator *allocator, loch_pressure_function *function, const void *user)
{
    lochi_pressure **link = &allocator->pressure;
    while (*link && ((*link)->function != function || (*link)->user != user))
        link = &(*link)->next;
    return link;
}

loch_status loch_allocator_add_pressure(loch_allocator *allocator, loch_pressure_function *function, void *user)
{
    if (!allocator || !function) return LOCH_FAIL(INVALID, "pressure needs an allocator and a function");
    lochi_pressure *added = lochi_zalloc(sizeof *added);
    if (!added) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a pressure function");
    added->function = function;
    added->user = user;
    lochi_lock_take(&allocator->lock);
    lochi_pressure **link = retry_find(allocator, function, user);
    const bool is_new = !*link;
    if (is_new) *link = added;
    lochi_lock_drop(&allocator->lock);
    if (is_new) return LOCH_OK;
    lochi_free(added);
    return LOCH_FAIL(EXISTS, "that pressure function is there already");
}

loch_status loch_allocator_remove_pressure(loch_allocator *allocator, loch_pressure_function *function, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!allocator || !function) return LOCH_FAIL(INVALID, "pressure needs an allocator and a function");
    lochi_lock_take(&allocator->lock);
    lochi_pressure **link;
    while (*(link = retry_find(allocator, function, user)) && (*link)->users) { /* rare: somebody is inside it */
        (*link)->is_leaving = true;
        lochi_lock_drop(&allocator->lock);
        const struct timespec nap = {0, 100000};
        nanosleep(&nap, NULL);
        lochi_lock_take(&allocator->lock); /* the list may have changed meanwhile */
    }
    lochi_pressure *found = *link;
    if (found) *link = found->next;
    lochi_lock_drop(&allocator->lock);
    lochi_free(found);
    return found ? LOCH_OK : LOCH_FAIL(NOT_FOUND, "there is no such pressure function");
}

void lochi_retry_fini(loch_allocator *allocator)
{
    while (allocator->pressure) {
        lochi_pressure *next = allocator->pressure->next;
        lochi_free(allocator->pressure);
        allocator->pressure = next;
    }
}

/* Tries once more, and counts that; the attempt before has not failed then. */
static loch_status retry_once_more(loch_allocator *allocator, const loch_request *request, uint32_t mark, void **out)
{
    lochi_lock_take(&allocator->lock);
    allocator->retries++;
    lochi_lock_drop(&allocator->lock);
    lochi_failure_drop(mark);
    return lochi_allocator_try(allocator, request, out);
}

/* Asks each function of one allocator in turn, and tries again after each that gave something back. */
static loch_status retry_ask(loch_allocator *allocator, loch_allocator *asking, const loch_request *request,
                             uint32_t mark, loch_status status, void **out)
{
    LOCHI_NOT_CANCELLED;
    lochi_lock_take(&allocator->lock);
    lochi_pressure *asked = allocator->pressure;
    for (; asked && retry_is_worth_it(status); asked = asked->next) {
        if (asked->is_leaving) continue;
        retry_call call = {.asked = asked};
        asked->users++; /* keeps it in the list */
        retry_begin(&call);
        lochi_lock_drop(&allocator->lock);
        const uint32_t paused = lochi_failure_pause();
        const bool has_freed = asked->function(allocator, request->bytes, asked->user) != 0;
        lochi_failure_resume(paused);
        if (has_freed) status = retry_once_more(asking, request, mark, out);
        lochi_lock_take(&allocator->lock);
        asked->users--;
        retry_end(&call);
    }
    lochi_lock_drop(&allocator->lock);
    return status;
}

/* Asks the allocator's own functions, then those of what it wraps. */
static loch_status retry_under_pressure(loch_allocator *allocator, const loch_request *request, uint32_t mark,
                                        loch_status status, void **out)
{
    for (loch_allocator *level = allocator; level && retry_is_worth_it(status); level = level->wrapped)
        status = retry_ask(level, allocator, request, mark, status, out);
    return status;
}

/* --- waiting --- */

/* Whether a free by another thread can be on its way: another thread has used an allocator of the stack before. Whether
 * blocks are out, or threads alive, is not asked. The memory may be a block of an allocator outside the stack that shares
 * the source, or one that is between its owner and the figures; and the system's list of threads can miss a live one. */
static bool retry_has_others(const loch_allocator *allocator)
{
    const uint64_t own = lochi_thread_number();
    for (; allocator; allocator = allocator->wrapped) {
        const uint64_t user = atomic_load_explicit(&allocator->user, memory_order_relaxed);
        if (user && user != own) return true;
    }
    return false;
}

static void retry_announce(loch_allocator *allocator, int sign)
{
    for (; allocator; allocator = allocator->wrapped) {
        atomic_fetch_add_explicit(&allocator->waiters, (unsigned)sign, memory_order_relaxed);
        if (!allocator->pool) continue;
        if (sign > 0)
            lochi_pool_shut_waiting(allocator->pool); /* frees take the long way, which looks at the waiters */
        else
            lochi_pool_go_waiting(allocator->pool);
    }
}

/* Tries until it works, time is up, or no other thread has ever used the stack. */
static loch_status retry_waiting(loch_allocator *allocator, const loch_request *request, uint32_t mark,
                                 loch_status status, void **out)
{
    pthread_once(&retry_once, retry_init);
    const uint64_t start = loch_host_now_ns();
    uint64_t waited = 0;
    retry_call call = {.allocator = allocator};
    retry_begin(&call);
    retry_announce(allocator, 1);
    lochi_fence_heavy();
    while (retry_is_worth_it(status)) {
        const uint64_t generation = atomic_load_explicit(&retry_generation, memory_order_acquire);
        status = retry_once_more(allocator, request, mark, out);
        waited = loch_host_now_ns() - start;
        if (!retry_is_worth_it(status) || waited >= request->timeout_ns || !retry_has_others(allocator)) break;
        retry_sleep(generation, request->timeout_ns - waited);
    }
    retry_announce(allocator, -1);
    retry_end(&call);
    lochi_lock_take(&allocator->lock);
    allocator->waits_ns += waited;
    lochi_lock_drop(&allocator->lock);
    return status;
}

loch_status lochi_retry(loch_allocator *allocator, const loch_request *request, uint32_t mark, loch_status status,
                        void **out)
{
    if (request->flags & LOCH_ALLOC_NO_RETRY || !retry_is_worth_it(status)) return status;
    status = retry_under_pressure(allocator, request, mark, status, out);
    if (!retry_is_worth_it(status) || !request->timeout_ns) return status;
    return retry_waiting(allocator, request, mark, status, out);
}
