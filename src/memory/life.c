/* SPDX-License-Identifier: MIT */
/* Creating and destroying allocators, one attempt to allocate, and freeing. Empty slots are handled here: a
 * wrapper's empty slots forward to the wrapped allocator, and a ledger keeps account for an allocator that does not.
 *
 * An allocator is destroyed when its last reference and its last block are gone. So a free may destroy the allocator
 * in which it runs. Frees mark themselves as inside (base/hazard.h), and the thread that destroys the allocator
 * waits for all others that are inside. */
#include "memory/life.h"
#include "base/fail.h"
#include "base/fence.h"
#include "base/heap.h"
#include "kit/hint.h"
#include "base/room.h"
#include "base/hazard.h"
#include "base/logging.h"
#include "device/device.h"
#include "memory/account.h"
#include "memory/latency.h"
#include "memory/live/live.h"
#include "memory/owner.h"
#include "memory/pool/pool.h"
#include "memory/recorder/recorder.h"
#include "memory/session/session.h"
#include "memory/snapshot/snapshot.h"
#include "memory/waiting.h"
#include <loch/wrapper.h>
#include <loch/host.h>
#include <string.h>

/* --- creating and destroying --- */

static unsigned life_depth(const loch_allocator *allocator)
{
    unsigned depth = 0;
    for (; allocator->wrapped; allocator = allocator->wrapped)
        depth++;
    return depth;
}

/* Checks a table of operations. A wrapper may leave out every slot; any other allocator needs alloc and free. */
static loch_status life_check_ops(const char *name, const loch_allocator_ops *ops, bool is_wrapper)
{
    const size_t needed = offsetof(loch_allocator_ops, destroy) + sizeof ops->destroy;
    if (!name || !*name || strlen(name) >= LOCHI_ALLOCATOR_NAME_MAX)
        return LOCH_FAIL(INVALID, "the name of an allocator needs 1 to %d characters", LOCHI_ALLOCATOR_NAME_MAX - 1);
    if (!ops || ops->size < needed || !ops->kind || (!is_wrapper && (!ops->alloc || !ops->free)))
        return LOCH_FAIL(INVALID, "allocator \"%s\" needs a table of operations with its size%s", name,
                         is_wrapper ? " and kind" : ", kind, alloc and free");
    return LOCH_OK;
}

static void life_destroy(loch_allocator *allocator)
{
    loch_device *device = allocator->device;
    loch_allocator *wrapped = allocator->wrapped;
    if (allocator->account != LOCHI_ACCOUNT_NOTES) lochi_owner_remove(allocator);
    if (allocator->ops.destroy) allocator->ops.destroy(allocator->self);
    lochi_ledger_destroy(allocator->ledger);
    lochi_account_close(allocator);
    lochi_retry_fini(allocator);
    lochi_free(allocator->latency_kept);
    lochi_lock_fini(&allocator->lock);
    lochi_free(allocator);
    loch_allocator_release(wrapped);
    loch_device_release(device);
}

static loch_status life_make(loch_device *device, loch_allocator *wrapped, const char *name,
                             const loch_allocator_ops *ops, void *self, lochi_account account, loch_allocator **out)
{
    LOCH_TRY_RETURN(life_check_ops(name, ops, wrapped != NULL));
    LOCH_TRY_RETURN(lochi_live_prepare());
    const unsigned depth = wrapped ? life_depth(wrapped) + 1 : 0;
    if (depth >= LOCHI_ALLOCATOR_DEPTH_MAX)
        return LOCH_FAIL(LIMIT, "allocator \"%s\" would be wrapper number %u around one allocator; the maximum is %d",
                         name, depth, LOCHI_ALLOCATOR_DEPTH_MAX - 1);
    LOCH_TRY_RETURN(lochi_top_start());
    lochi_fence_prepare();
    LOCH_TRY_RETURN(lochi_recorder_start_by_option());
    loch_allocator *allocator = lochi_zalloc(sizeof *allocator);
    if (!allocator) return LOCH_FAIL(HOST_MEMORY, "no host memory for allocator \"%s\"", name);
    memcpy(&allocator->ops, ops, ops->size < sizeof *ops ? ops->size : sizeof *ops);
    if (!wrapped && !(allocator->ops.find && allocator->ops.walk && allocator->ops.get_stats))
        account = LOCHI_ACCOUNT_LEDGER;
    allocator->account = account;
    if (account == LOCHI_ACCOUNT_LEDGER) {
        const loch_status status = lochi_ledger_create(&allocator->ledger);
        if (status != LOCH_OK) {
            lochi_free(allocator);
            return status;
        }
    }
    /* Lock order: an outer allocator's lock before an inner one's. */
    lochi_lock_init(&allocator->lock, (lochi_rank)(LOCHI_RANK_ALLOCATOR + LOCHI_ALLOCATOR_DEPTH_MAX - 1 - depth));
    allocator->self = self;
    allocator->device = loch_device_retain(device);
    allocator->wrapped = loch_allocator_retain(wrapped);
    allocator->session = wrapped ? wrapped->session : NULL;
    allocator->traits = (wrapped ? wrapped->traits & ~ops->lost_traits : 0) | ops->traits;
    if (allocator->ledger && !wrapped) allocator->traits |= LOCH_TRAIT_TRACKS_SIZES;
    atomic_init(&allocator->references, 1);
    memcpy(allocator->name, name, strlen(name) + 1);
    lochi_account_open(allocator);
    *out = allocator;
    /* A session's blocks are freed through the wrapped allocator. */
    if (account == LOCHI_ACCOUNT_NOTES) return LOCH_OK;
    lochi_owner_add(allocator);
    if (allocator->ledger) lochi_owner_index(allocator, allocator->ledger);
    if (!wrapped) lochi_recorder_apply(allocator, NULL);
    return LOCH_OK;
}

loch_status loch_allocator_create(loch_device *device, const char *name, const loch_allocator_ops *ops, void *self,
                                  loch_allocator **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "an allocator needs a device and an out pointer");
    return life_make(device, NULL, name, ops, self, LOCHI_ACCOUNT_OWN, out);
}

loch_status lochi_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                 lochi_account account, loch_allocator **out)
{
    return life_make(wrapped->device, wrapped, name ? name : wrapped->name, ops, self, account, out);
}

loch_status loch_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "a wrapper needs an allocator to wrap and an out pointer");
    return lochi_wrapper_create(wrapped, name, ops, self, LOCHI_ACCOUNT_LEDGER, out);
}

loch_allocator *loch_allocator_retain(loch_allocator *allocator)
{
    /* Relaxed: the caller has a reference already, so it sees the object. */
    if (allocator) atomic_fetch_add_explicit(&allocator->references, 1, memory_order_relaxed);
    return allocator;
}

/* Returns whether a closing allocator is empty and the caller must destroy it. Exactly one caller gets true: the one
 * that resets is_closing. The caller is marked as inside, and removes its mark before it destroys, so no thread
 * waits for a thread that waits. */
static bool life_is_over(loch_allocator *allocator)
{
    while (!lochi_allocator_count_live(allocator)) {
        bool is_closing = true;
        if (!atomic_compare_exchange_strong_explicit(&allocator->is_closing, &is_closing, false, memory_order_acq_rel,
                                                     memory_order_relaxed))
            return false;
        lochi_hazard_wait(allocator); /* no thread can enter any more, because there is no block left to free */
        if (!lochi_allocator_count_live(allocator)) return true;
        /* A free that was inside has failed, so its block is live again. */
        atomic_store_explicit(&allocator->is_closing, true, memory_order_relaxed);
        lochi_fence_heavy();
    }
    return false;
}

void loch_allocator_release(loch_allocator *allocator)
{
    if (!allocator) return;
    lochi_allocator_free_abandoned(allocator);
    /* Acquire-release: everything that other owners did happens before the destruction. */
    if (atomic_fetch_sub_explicit(&allocator->references, 1, memory_order_acq_rel) != 1) return;
    const uint32_t mark = lochi_hazard_enter(allocator);
    /* For good: from now on every free checks whether its block is the last. */
    if (allocator->pool) lochi_pool_shut(allocator->pool);
    atomic_store_explicit(&allocator->is_closing, true, memory_order_relaxed);
    lochi_fence_heavy(); /* a running free sees the flag, or this thread sees that its block is gone */
    const bool is_over = life_is_over(allocator);
    if (!is_over && allocator->pool) lochi_pool_retire(allocator->pool); /* the mark keeps the allocator */
    lochi_hazard_leave(mark);
    if (is_over) life_destroy(allocator);
}

/* --- one attempt --- */

/* Calls the alloc slot, or the wrapped allocator if the slot is empty. */
static loch_status life_call_alloc(loch_allocator *allocator, const loch_request *request, void **out)
{
    loch_allocator *inner = allocator->ops.alloc ? NULL : allocator->wrapped;
    if (LOCHI_UNLIKELY(inner != NULL)) return lochi_allocator_try(inner, request, out);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): only wrappers leave a slot out */
    return allocator->ops.alloc(allocator->self, request, out);
}

static loch_status life_call_free(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    loch_allocator *inner = allocator->ops.free ? NULL : allocator->wrapped;
    /* A wrapper with an alloc slot may have asked for another size than its ledger has: the inner one knows it. */
    if (LOCHI_UNLIKELY(inner != NULL))
        return lochi_allocator_give_back(inner, address, allocator->ops.alloc ? 0 : bytes, stream);
    lochi_live_block block;
    const bool is_live = lochi_live_remove(allocator, address, &block);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): only wrappers leave a slot out */
    const loch_status status = allocator->ops.free(allocator->self, address, bytes, stream);
    if (is_live && !lochi_is_freed(status)) lochi_live_put_back(&block);
    return status;
}

/* Counts a failure in the ledger of an allocator. A wrapper's failures are counted by the wrapped allocator. */
static void life_count_failure(loch_allocator *allocator)
{
    if (!allocator->wrapped) lochi_ledger_count_failure(allocator->ledger);
}

/* Frees a block that could not be added to the ledger, and keeps the error of that failure. */
static LOCHI_RARE void life_undo(loch_allocator *allocator, const loch_request *request, void **out)
{
    life_count_failure(allocator);
    const loch_error saved = lochi_error_save();
    const loch_status freed = life_call_free(allocator, *out, request->bytes, request->stream);
    (void)freed;
    lochi_error_restore(&saved);
    *out = NULL;
}

/* Allocates the rounded size from an allocator that keeps no account. The ledger remembers both sizes, so the
 * allocator need not support rounding. */
static LOCHI_RARE loch_status life_try_rounded(loch_allocator *allocator, const loch_request *request, void **out)
{
    loch_request rounded = *request;
    rounded.bytes = lochi_request_round(request);
    rounded.round_bytes = 0;
    loch_status status = life_call_alloc(allocator, &rounded, out);
    if (status != LOCH_OK) lochi_ledger_count_failure(allocator->ledger);
    if (status != LOCH_OK || !*out) return status;
    const lochi_entry entry = {.address = (uintptr_t)*out,
                               .requested = request->bytes,
                               .allocated = rounded.bytes,
                               .tag = (uint16_t)request->tag};
    status = lochi_ledger_add(allocator->ledger, &entry, NULL);
    if (status != LOCH_OK) life_undo(allocator, &rounded, out);
    return status;
}

/* Adds a block at an address where the wrapper's ledger still has one. The old block was freed past the wrapper. */
static LOCHI_RARE loch_status life_replace(loch_allocator *allocator, const loch_request *request, const void *address)
{
    lochi_entry stale;
    LOCH_TRY_RETURN(lochi_ledger_take(allocator->ledger, address, 0, &stale));
    return lochi_ledger_add_simple(allocator->ledger, address, request->bytes, request->tag);
}

static loch_status life_try(loch_allocator *allocator, const loch_request *request, void **out)
{
    if (!allocator->ledger) return life_call_alloc(allocator, request, out);
    if (LOCHI_UNLIKELY(request->round_bytes > 1) && !allocator->wrapped)
        return life_try_rounded(allocator, request, out);
    loch_status status = life_call_alloc(allocator, request, out);
    if (status != LOCH_OK) {
        life_count_failure(allocator);
        return status;
    }
    if (!*out) return LOCH_OK;
    status = lochi_ledger_add_simple(allocator->ledger, *out, request->bytes, request->tag);
    if (status == LOCH_E_DRIVER && allocator->wrapped) status = life_replace(allocator, request, *out);
    if (status != LOCH_OK) life_undo(allocator, request, out);
    return status;
}

loch_status lochi_allocator_try(loch_allocator *allocator, const loch_request *request, void **out)
{
    lochi_allocator_note_user(allocator);
    const loch_status status = life_try(allocator, request, out);
    if (LOCHI_UNLIKELY(!allocator->pool) && !allocator->wrapped && status == LOCH_OK && *out)
        lochi_room_count_freed(-1);
    const uint32_t recorded = lochi_recorder_of(allocator);
    if (LOCHI_UNLIKELY(recorded && status == LOCH_OK && *out)) lochi_recorder_note_alloc(recorded, *out, request);
    if (lochi_live_is_kept() && status == LOCH_OK && *out && !allocator->wrapped)
        lochi_live_add(allocator, *out, request->bytes, request->tag);
    return status;
}

/* --- taking back --- */

/* Frees a block of an allocator with a ledger. The ledger is checked first, so the free slot never sees a wrong
 * address, or a block that another caller got from the wrapped allocator. */
static loch_status life_free_ledgered(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    lochi_entry entry;
    loch_status status = lochi_ledger_take(allocator->ledger, address, bytes, &entry);
    if (status != LOCH_OK) {
        if (allocator->hear_refused) allocator->hear_refused(allocator->self, address, stream, status);
        return status;
    }
    if (entry.note == LOCHI_NOTE_HAS_USES) status = loch_device_sync(allocator->device);
    if (lochi_is_gone(status)) status = LOCH_OK; /* no work runs on a lost device */
    if (status == LOCH_OK) status = life_call_free(allocator, address, entry.allocated, stream);
    if (!lochi_is_freed(status)) lochi_ledger_put_back(allocator->ledger, &entry);
    return status;
}

static loch_status life_take_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    lochi_allocator_note_user(allocator);
    const uint32_t recorded = lochi_recorder_of(allocator);
    if (LOCHI_UNLIKELY(recorded)) lochi_recorder_note_free(recorded, address, stream);
    const loch_status status = allocator->ledger ? life_free_ledgered(allocator, address, bytes, stream)
                                                 : life_call_free(allocator, address, bytes, stream);
    if (LOCHI_UNLIKELY(recorded && !lochi_is_freed(status))) lochi_recorder_note_undo(recorded, address);
    if (!allocator->pool && !allocator->wrapped && lochi_is_freed(status)) lochi_room_count_freed(1);
    /* Orders the free before the reads of the flags; pairs with the heavy fence after the flags are set. */
    lochi_fence_light();
    if (__builtin_expect(atomic_load_explicit(&allocator->waiters, memory_order_relaxed) != 0, 0)) lochi_retry_wake();
    return status;
}

/* Leaves an allocator. Destroys it if it is closing and has no block left. */
static void life_leave(loch_allocator *allocator, uint32_t mark)
{
    const bool is_closing = atomic_load_explicit(&allocator->is_closing, memory_order_relaxed);
    const bool is_over = __builtin_expect(is_closing, 0) && life_is_over(allocator);
    lochi_hazard_leave(mark);
    if (__builtin_expect(is_over, 0)) life_destroy(allocator);
}

void lochi_allocator_count_out(loch_allocator *wrapper)
{
    const uint32_t mark = lochi_hazard_enter(wrapper);
    atomic_fetch_sub_explicit(&wrapper->live, 1, memory_order_relaxed);
    lochi_fence_light(); /* pairs with the same heavy fence as a free */
    life_leave(wrapper, mark);
}

/* Does not mark the allocator: the caller's reference keeps it alive. */
loch_status lochi_allocator_give_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    lochi_session_block *noted = lochi_session_take(allocator, address);
    const loch_status status = life_take_back(allocator, address, bytes, stream);
    if (LOCHI_UNLIKELY(noted != NULL)) lochi_session_settle(noted, lochi_session_is_gone(status));
    return status;
}

loch_status lochi_allocator_free_inside(loch_allocator *allocator, uint32_t mark, void *address, size_t bytes,
                                        loch_stream *stream)
{
    struct allocator_latency *latency = atomic_load_explicit(&allocator->latency, memory_order_acquire);
    const uint64_t start_ns = latency ? loch_host_now_ns() : 0;
    lochi_session_block *noted = lochi_session_take(allocator, address);
    const loch_status status = life_take_back(allocator, address, bytes, stream);
    if (latency) lochi_latency_note_free(latency, start_ns);
    life_leave(allocator, mark);
    if (LOCHI_UNLIKELY(noted != NULL)) /* last, because it may destroy the allocator too */
        lochi_session_settle(noted, lochi_session_is_gone(status));
    return status;
}

/* --- blocks without an owner --- */

typedef struct life_abandoned {
    struct life_abandoned *next;
    void *address;
    size_t bytes;
} life_abandoned;

static void life_keep(loch_allocator *allocator, life_abandoned *kept)
{
    lochi_lock_take(&allocator->lock);
    kept->next = allocator->abandoned;
    allocator->abandoned = kept;
    lochi_lock_drop(&allocator->lock);
}

void lochi_allocator_abandon(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    const loch_error saved = lochi_error_save();
    const loch_status status = lochi_allocator_give_back(allocator, address, bytes, stream);
    if (!lochi_is_freed(status)) {
        life_abandoned *kept = lochi_alloc(sizeof *kept);
        if (kept) {
            *kept = (life_abandoned){.address = address, .bytes = bytes};
            life_keep(allocator, kept);
        } else {
            LOCHI_LOG(ERROR, "the block at %p is lost: %s", address, loch_error_get()->sentence);
        }
    }
    lochi_error_restore(&saved);
}

void lochi_allocator_free_abandoned(loch_allocator *allocator)
{
    lochi_lock_take(&allocator->lock);
    life_abandoned *list = allocator->abandoned;
    allocator->abandoned = NULL;
    lochi_lock_drop(&allocator->lock);
    if (!list) return;
    const loch_error saved = lochi_error_save();
    while (list) {
        life_abandoned *kept = list;
        list = kept->next;
        if (lochi_is_freed(lochi_allocator_give_back(allocator, kept->address, kept->bytes, NULL)))
            lochi_free(kept);
        else
            life_keep(allocator, kept);
    }
    lochi_error_restore(&saved);
}
