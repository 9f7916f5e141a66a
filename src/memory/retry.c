/* SPDX-License-Identifier: MIT */
/* Retries when memory is short: first the pressure functions, then waiting for a free of another thread (waiting.c). */
#include "memory/retry.h"
#include "base/cancel.h"
#include "base/thread.h"
#include "memory/failure.h"
#include "memory/snapshot/snapshot.h"
#include "memory/waiting.h"
#include <loch/host.h>

static bool retry_is_worth_it(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED ||
           status == LOCH_E_MOVING_FORBIDDEN; /* a move would help, and so would a free */
}

/* Retries once, and counts the retry. Drops the failure notes of the attempt before. */
static loch_status retry_once_more(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request,
                                   uint32_t mark, void **out)
{
    lochi_lock_take(&allocator->lock);
    allocator->retries++;
    lochi_lock_drop(&allocator->lock);
    lochi_failure_drop(mark);
    return attempt(allocator, request, out);
}

/* Calls each pressure function of one allocator in turn. Retries after each that freed something. */
static loch_status retry_ask(loch_allocator *allocator, loch_allocator *asking, lochi_attempt *attempt,
                             const loch_request *request, uint32_t mark, loch_status status, void **out)
{
    LOCHI_NOT_CANCELLED;
    lochi_lock_take(&allocator->lock);
    lochi_pressure *asked = allocator->pressure;
    for (; asked && retry_is_worth_it(status); asked = asked->next) {
        if (asked->is_leaving) continue;
        waiting_call call = {.asked = asked};
        asked->users++; /* keeps the function in the list */
        lochi_waiting_note(&call);
        lochi_lock_drop(&allocator->lock);
        const uint32_t paused = lochi_failure_pause();
        const bool has_freed = asked->function(allocator, request->bytes, asked->user) != 0;
        lochi_failure_resume(paused);
        if (has_freed) status = retry_once_more(asking, attempt, request, mark, out);
        lochi_lock_take(&allocator->lock);
        asked->users--;
        lochi_waiting_forget(&call);
    }
    lochi_lock_drop(&allocator->lock);
    return status;
}

/* Calls the pressure functions of the allocator, then those of the allocators that it wraps. */
static loch_status retry_under_pressure(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request,
                                        uint32_t mark, loch_status status, void **out)
{
    for (loch_allocator *level = allocator; level && retry_is_worth_it(status); level = level->wrapped)
        status = retry_ask(level, allocator, attempt, request, mark, status, out);
    return status;
}

/* --- waiting --- */

/* Returns whether another thread may free memory: another thread has used an allocator of the stack before. Live
 * blocks and live threads are not checked. The memory may be a block of an allocator outside the stack with the same
 * source, or a block that is freed but not yet counted; and the system's list of threads can miss a live thread. */
static bool retry_has_others(const loch_allocator *allocator)
{
    const uint64_t own = lochi_thread_number();
    for (; allocator; allocator = allocator->wrapped) {
        const uint64_t user = atomic_load_explicit(&allocator->user, memory_order_relaxed);
        if (user && user != own) return true;
    }
    return false;
}

/* Retries until it succeeds, the timeout is over, or no other thread has ever used the stack. */
static loch_status retry_waiting(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request,
                                 uint32_t mark, loch_status status, void **out)
{
    const uint64_t start = loch_host_now_ns();
    uint64_t waited = 0;
    waiting_call call = {.allocator = allocator};
    lochi_waiting_note(&call);
    lochi_waiting_begin(allocator);
    while (retry_is_worth_it(status)) {
        const uint64_t generation = lochi_waiting_get_generation();
        status = retry_once_more(allocator, attempt, request, mark, out);
        waited = loch_host_now_ns() - start;
        if (!retry_is_worth_it(status) || waited >= request->timeout_ns || !retry_has_others(allocator)) break;
        lochi_waiting_sleep(generation, request->timeout_ns - waited);
    }
    lochi_waiting_end(allocator);
    lochi_waiting_forget(&call);
    lochi_lock_take(&allocator->lock);
    allocator->waits_ns += waited;
    lochi_lock_drop(&allocator->lock);
    return status;
}

static loch_status retry_all(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request,
                             uint32_t mark, loch_status status, void **out)
{
    if (request->flags & LOCH_ALLOC_NO_RETRY || !retry_is_worth_it(status)) return status;
    status = retry_under_pressure(allocator, attempt, request, mark, status, out);
    if (!retry_is_worth_it(status) || !request->timeout_ns) return status;
    return retry_waiting(allocator, attempt, request, mark, status, out);
}

loch_status lochi_retry(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request, uint32_t mark,
                        loch_status status, void **out)
{
    status = retry_all(allocator, attempt, request, mark, status, out);
    if (retry_is_worth_it(status) && lochi_failure_is_outermost())
        lochi_snapshot_note_failure(allocator, request, status);
    return status;
}
