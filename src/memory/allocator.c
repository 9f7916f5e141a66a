/* SPDX-License-Identifier: MIT */
/* Allocators: making them, handing blocks out and taking them back. Arguments are checked here, in one place; what an
 * implementation leaves out is done here: a wrapper's empty slots go to the allocator that it wraps, and a ledger keeps
 * account for an allocator that keeps none.
 *
 * An allocator ends when its last reference and its last block are gone. A free may therefore be the end of the very
 * allocator that it runs in: frees mark themselves (base/inside.h), and whoever ends the allocator waits for the
 * others. */
#include "memory/allocator.h"
#include <loch/wrapper.h>
#include "base/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/hint.h"
#include "base/sized.h"
#include "base/inside.h"
#include "base/logging.h"
#include "memory/failure.h"
#include "memory/owner.h"
#include "memory/pool/pool.h"
#include "memory/session.h"
#include "device/device.h"
#include <loch/copy.h>
#include <loch/host.h>
#include <string.h>

#define ALLOCATOR_FLAGS (LOCH_ALLOC_NO_RETRY | LOCH_ALLOC_LOGGED | LOCH_ALLOC_ZEROED)
#define ALLOCATOR_NOTE_USED_ELSEWHERE 1 /* in the ledger: further streams use the block */

/* --- making and ending --- */

static unsigned allocator_depth(const loch_allocator *allocator)
{
    unsigned depth = 0;
    for (; allocator->wrapped; allocator = allocator->wrapped)
        depth++;
    return depth;
}

/* A wrapper may leave out every slot, others need two. */
static loch_status allocator_check_ops(const char *name, const loch_allocator_ops *ops, bool is_wrapper)
{
    const size_t needed = offsetof(loch_allocator_ops, destroy) + sizeof ops->destroy;
    if (!name || !*name || strlen(name) >= LOCHI_ALLOCATOR_NAME_MAX)
        return LOCH_FAIL(INVALID, "an allocator's name has 1 to %d characters", LOCHI_ALLOCATOR_NAME_MAX - 1);
    if (!ops || ops->size < needed || !ops->kind || (!is_wrapper && (!ops->alloc || !ops->free)))
        return LOCH_FAIL(INVALID, "allocator \"%s\" needs a table with its size%s", name,
                         is_wrapper ? " and kind" : ", kind, alloc and free");
    return LOCH_OK;
}

static void allocator_destroy(loch_allocator *allocator)
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

static loch_status allocator_make(loch_device *device, loch_allocator *wrapped, const char *name,
                                  const loch_allocator_ops *ops, void *self, lochi_account account,
                                  loch_allocator **out)
{
    LOCH_TRY_RETURN(allocator_check_ops(name, ops, wrapped != NULL));
    const unsigned depth = wrapped ? allocator_depth(wrapped) + 1 : 0;
    if (depth >= LOCHI_ALLOCATOR_DEPTH_MAX)
        return LOCH_FAIL(LIMIT, "allocator \"%s\" would be the %uth wrapper around another", name, depth);
    lochi_fence_prepare();
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
    /* An outer allocator's lock is taken before an inner one's. */
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
    if (account != LOCHI_ACCOUNT_NOTES) lochi_owner_add(allocator); /* its blocks go back by what it wraps */
    return LOCH_OK;
}

loch_status loch_allocator_create(loch_device *device, const char *name, const loch_allocator_ops *ops, void *self,
                                  loch_allocator **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "an allocator needs a device and a place");
    return allocator_make(device, NULL, name, ops, self, LOCHI_ACCOUNT_OWN, out);
}

loch_status lochi_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                 lochi_account account, loch_allocator **out)
{
    return allocator_make(wrapped->device, wrapped, name ? name : wrapped->name, ops, self, account, out);
}

loch_status loch_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "a wrapper needs an allocator to wrap, and a place");
    return lochi_wrapper_create(wrapped, name, ops, self, LOCHI_ACCOUNT_LEDGER, out);
}

loch_allocator *loch_allocator_retain(loch_allocator *allocator)
{
    /* Relaxed: the caller has a reference already, so the object is visible to it. */
    if (allocator) atomic_fetch_add_explicit(&allocator->references, 1, memory_order_relaxed);
    return allocator;
}

typedef struct lochi_abandoned {
    struct lochi_abandoned *next;
    void *address;
    size_t bytes;
} lochi_abandoned;

static void allocator_keep(loch_allocator *allocator, lochi_abandoned *kept)
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
        lochi_abandoned *kept = lochi_alloc(sizeof *kept);
        if (kept) {
            *kept = (lochi_abandoned){.address = address, .bytes = bytes};
            allocator_keep(allocator, kept);
        } else {
            LOCHI_LOG(ERROR, "the block at %p is lost: %s", address, loch_error_get()->sentence);
        }
    }
    lochi_error_restore(&saved);
}

/* Tries again to free them. The caller has a reference. */
static void allocator_free_abandoned(loch_allocator *allocator)
{
    lochi_lock_take(&allocator->lock);
    lochi_abandoned *list = allocator->abandoned;
    allocator->abandoned = NULL;
    lochi_lock_drop(&allocator->lock);
    if (!list) return;
    const loch_error saved = lochi_error_save();
    while (list) {
        lochi_abandoned *kept = list;
        list = kept->next;
        if (lochi_is_freed(lochi_allocator_give_back(allocator, kept->address, kept->bytes, NULL)))
            lochi_free(kept);
        else
            allocator_keep(allocator, kept);
    }
    lochi_error_restore(&saved);
}

/* Whether a closing allocator is empty, and the caller's to destroy. One caller wins: it alone turns is_closing off.
 * It is marked, and unmarks itself before it destroys: nobody waits for a thread that waits. */
static bool allocator_is_over(loch_allocator *allocator)
{
    while (!lochi_allocator_count_live(allocator)) {
        bool is_closing = true;
        if (!atomic_compare_exchange_strong_explicit(&allocator->is_closing, &is_closing, false, memory_order_acq_rel,
                                                     memory_order_relaxed))
            return false;
        lochi_inside_wait(allocator); /* there are no newcomers: no blocks are left to free */
        if (!lochi_allocator_count_live(allocator)) return true;
        /* One of those that were inside could not free its block after all, and it is live again. */
        atomic_store_explicit(&allocator->is_closing, true, memory_order_relaxed);
        lochi_fence_heavy();
    }
    return false;
}

void loch_allocator_release(loch_allocator *allocator)
{
    if (!allocator) return;
    allocator_free_abandoned(allocator);
    /* Acquire-release: what every owner did is done before the end. */
    if (atomic_fetch_sub_explicit(&allocator->references, 1, memory_order_acq_rel) != 1) return;
    const uint32_t mark = lochi_inside_enter(allocator);
    if (allocator->pool) lochi_pool_shut(allocator->pool); /* for good: every free looks whether it is the last */
    atomic_store_explicit(&allocator->is_closing, true, memory_order_relaxed);
    lochi_fence_heavy(); /* a free that is under way sees the flag, or its block is seen as gone here */
    const bool is_over = allocator_is_over(allocator);
    lochi_inside_leave(mark);
    if (is_over) allocator_destroy(allocator);
}

/* --- handing out --- */

static void allocator_note_user(loch_allocator *allocator)
{
    const uint64_t own = lochi_thread_number();
    uint64_t seen = atomic_load_explicit(&allocator->user, memory_order_relaxed);
    if (__builtin_expect(seen == own || seen == LOCHI_USERS_SEVERAL, 1)) return;
    /* Release: who sees that it is used sees it wholly made (owner.c). */
    if (!seen && atomic_compare_exchange_strong_explicit(&allocator->user, &seen, own, memory_order_release,
                                                         memory_order_relaxed))
        return;
    atomic_store_explicit(&allocator->user, LOCHI_USERS_SEVERAL, memory_order_release);
}

/* The two slots, or what a wrapper that leaves them out forwards to. */
static loch_status allocator_call_alloc(loch_allocator *allocator, const loch_request *request, void **out)
{
    loch_allocator *inner = allocator->ops.alloc ? NULL : allocator->wrapped;
    if (LOCHI_UNLIKELY(inner != NULL)) return lochi_allocator_try(inner, request, out);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): only wrappers leave a slot out */
    return allocator->ops.alloc(allocator->self, request, out);
}

static loch_status allocator_call_free(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    loch_allocator *inner = allocator->ops.free ? NULL : allocator->wrapped;
    if (LOCHI_UNLIKELY(inner != NULL)) return lochi_allocator_give_back(inner, address, bytes, stream);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): only wrappers leave a slot out */
    return allocator->ops.free(allocator->self, address, bytes, stream);
}

/* Of an allocator with a ledger. A wrapper's figures are others', and so are its failures. */
static void allocator_count_failure(loch_allocator *allocator)
{
    if (!allocator->wrapped) lochi_ledger_count_failure(allocator->ledger);
}

/* Gives a block back that could not be entered; the failure to do so is the one to report. */
static LOCHI_RARE void allocator_undo(loch_allocator *allocator, const loch_request *request, void **out)
{
    allocator_count_failure(allocator);
    const loch_error saved = lochi_error_save();
    const loch_status freed = allocator_call_free(allocator, *out, request->bytes, request->stream);
    (void)freed;
    lochi_error_restore(&saved);
    *out = NULL;
}

/* An allocator that keeps no account need not know of rounding: it is asked for the rounded size, and gets that back. */
static LOCHI_RARE loch_status allocator_try_rounded(loch_allocator *allocator, const loch_request *request, void **out)
{
    loch_request rounded = *request;
    rounded.bytes = lochi_request_round(request);
    rounded.round_bytes = 0;
    loch_status status = allocator_call_alloc(allocator, &rounded, out);
    if (status != LOCH_OK) lochi_ledger_count_failure(allocator->ledger);
    if (status != LOCH_OK || !*out) return status;
    const lochi_entry entry = {.address = (uintptr_t)*out,
                               .requested = request->bytes,
                               .allocated = rounded.bytes,
                               .tag = (uint16_t)request->tag};
    status = lochi_ledger_add(allocator->ledger, &entry, NULL);
    if (status != LOCH_OK) allocator_undo(allocator, &rounded, out);
    return status;
}

/* Enters a block of a wrapper at the address of one that is still noted: that was freed behind the wrapper's back. */
static LOCHI_RARE loch_status allocator_replace(loch_allocator *allocator, const loch_request *request,
                                                const void *address)
{
    lochi_entry stale;
    LOCH_TRY_RETURN(lochi_ledger_take(allocator->ledger, address, 0, &stale));
    return lochi_ledger_add_plain(allocator->ledger, address, request->bytes, request->tag);
}

loch_status lochi_allocator_try(loch_allocator *allocator, const loch_request *request, void **out)
{
    allocator_note_user(allocator);
    if (!allocator->ledger) return allocator_call_alloc(allocator, request, out);
    if (LOCHI_UNLIKELY(request->round_bytes > 1) && !allocator->wrapped)
        return allocator_try_rounded(allocator, request, out);
    loch_status status = allocator_call_alloc(allocator, request, out);
    if (status != LOCH_OK) {
        allocator_count_failure(allocator);
        return status;
    }
    if (!*out) return LOCH_OK;
    status = lochi_ledger_add_plain(allocator->ledger, *out, request->bytes, request->tag);
    if (status == LOCH_E_DRIVER && allocator->wrapped) status = allocator_replace(allocator, request, *out);
    if (status != LOCH_OK) allocator_undo(allocator, request, out);
    return status;
}

static bool allocator_can_round(const loch_request *request)
{
    return request->round_bytes < LOCHI_ALLOCATOR_BYTES_MAX &&
           lochi_request_round(request) < LOCHI_ALLOCATOR_BYTES_MAX; /* the sum of two below 2^47 */
}

/* A complete copy of a caller's request, checked. */
static loch_status allocator_read_request(const loch_allocator *allocator, const loch_request *given, loch_request *out)
{
    if (given->size == sizeof *given) {
        *out = *given;
    } else {
        memset(out, 0, sizeof *out);
        LOCH_TRY_RETURN(lochi_sized_read("a request", given, out, sizeof *out));
    }
    if (out->alignment & (out->alignment - 1))
        return LOCH_FAIL(INVALID, "an alignment of %zu is no power of two", out->alignment);
    if (out->flags & ~(uint32_t)ALLOCATOR_FLAGS || out->tag >= LOCH_TAG_COUNT_MAX)
        return LOCH_FAIL(INVALID, "the request holds flags or a tag that are not known");
    if (out->bytes >= LOCHI_ALLOCATOR_BYTES_MAX || out->alignment >= LOCHI_ALLOCATOR_BYTES_MAX ||
        (out->round_bytes > 1 && !allocator_can_round(out)))
        return LOCH_FAIL(OVERFLOW, "%zu bytes aligned to %zu do not fit the address space", out->bytes, out->alignment);
    if (!out->stream)
        out->stream = &allocator->device->default_stream;
    else
        LOCH_TRY_RETURN(lochi_stream_check(out->stream, allocator->device));
    return LOCH_OK;
}

/* Zeroes a new block in the order of its stream; gives it back when that fails. */
static loch_status allocator_zero(loch_allocator *allocator, const loch_request *request, void **out)
{
    const loch_status status = loch_fill_on(*out, request->bytes, "", 1, request->stream);
    if (status == LOCH_OK) return LOCH_OK;
    lochi_allocator_abandon(allocator, *out, 0, NULL);
    *out = NULL;
    return status;
}

/* With the retries. The request is complete. */
static loch_status allocator_alloc_read(loch_allocator *allocator, const loch_request *request, void **out)
{
    struct lochi_latency *latency = atomic_load_explicit(&allocator->latency, memory_order_acquire);
    const uint64_t start_ns = latency ? loch_host_now_ns() : 0;
    const uint32_t mark = lochi_failure_begin();
    loch_status status = lochi_allocator_try(allocator, request, out);
    if (__builtin_expect(status != LOCH_OK, 0)) status = lochi_retry(allocator, request, mark, status, out);
    lochi_failure_end(mark, request->flags & LOCH_ALLOC_NO_RETRY);
    if (latency) lochi_latency_note_alloc(latency, request->bytes, start_ns);
    if (status == LOCH_OK && request->flags & LOCH_ALLOC_ZEROED && request->bytes &&
        !(allocator->traits & LOCH_TRAIT_ZEROES))
        status = allocator_zero(allocator, request, out);
    return status;
}

static LOCHI_RARE loch_status allocator_alloc_in_session(loch_allocator *allocator, const loch_request *request,
                                                         void **out)
{
    lochi_session_alloc alloc;
    LOCH_TRY_RETURN(lochi_session_begin_alloc(allocator, &alloc));
    const loch_status status = allocator_alloc_read(allocator, request, out);
    return lochi_session_end_alloc(&alloc, status, request->bytes, out);
}

/* Everything that may be asked for; the checks. */
static LOCHI_RARE loch_status allocator_alloc_slowly(loch_allocator *allocator, const loch_request *request, void **out)
{
    if (out) *out = NULL;
    if (!allocator || !request || !out)
        return LOCH_FAIL(INVALID, "an allocation needs an allocator, a request, a place");
    loch_request read;
    LOCH_TRY_RETURN(allocator_read_request(allocator, request, &read));
    if (!read.bytes && !(allocator->traits & LOCH_TRAIT_ALLOCATES_EMPTY)) return LOCH_OK;
    if (LOCHI_UNLIKELY(lochi_session_concerns(allocator))) return allocator_alloc_in_session(allocator, &read, out);
    return allocator_alloc_read(allocator, &read, out);
}

/* Whether a request is right, and wants aligned bytes on a stream and nothing else. */
static inline bool allocator_is_plain(const loch_request *request)
{
    return request->size == sizeof *request && request->bytes &&
           !(request->tag | request->flags | request->round_bytes) &&
           (!request->alignment || !(request->alignment & (request->alignment - 1)));
}

/* Goes on with a plain request that a pool has tried and refused. The gate was open, so nothing is measured. */
static LOCHI_RARE loch_status allocator_alloc_again(loch_allocator *allocator, const loch_request *request,
                                                    loch_status status, void **out)
{
    loch_request complete = *request;
    if (!complete.stream) complete.stream = &allocator->device->default_stream;
    const uint32_t mark = lochi_failure_begin();
    status = lochi_pool_alloc_again(allocator->pool, &complete, status, out);
    if (status != LOCH_OK) status = lochi_retry(allocator, &complete, mark, status, out);
    lochi_failure_end(mark, false);
    return status;
}

static __attribute__((noinline)) loch_status allocator_alloc_plainly(loch_allocator *allocator,
                                                                     const loch_request *request, void **out)
{
    loch_status status;
    if (LOCHI_UNLIKELY(lochi_session_top)) return allocator_alloc_slowly(allocator, request, out);
    allocator_note_user(allocator);
    if (!lochi_pool_alloc_plainly(allocator->pool, request, &status, out))
        return allocator_alloc_slowly(allocator, request, out);
    return LOCHI_LIKELY(status == LOCH_OK) ? LOCH_OK : allocator_alloc_again(allocator, request, status, out);
}

loch_status loch_allocator_alloc(loch_allocator *allocator, const loch_request *request, void **out)
{
    if (LOCHI_LIKELY(allocator && allocator->pool && request && out && allocator_is_plain(request))) {
        *out = lochi_pool_alloc_quickly(allocator->pool, request);
        if (LOCHI_LIKELY(*out != NULL)) return LOCH_OK;
        return allocator_alloc_plainly(allocator, request, out);
    }
    return allocator_alloc_slowly(allocator, request, out);
}

loch_status loch_alloc(loch_allocator *allocator, size_t bytes, void **out)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes};
    return loch_allocator_alloc(allocator, &request, out);
}

loch_status loch_alloc_array(loch_allocator *allocator, size_t count, size_t bytes, const loch_request *request,
                             void **out)
{
    if (out) *out = NULL;
    loch_request whole = {.size = sizeof whole};
    LOCH_TRY_RETURN(lochi_sized_read("a request", request, &whole, sizeof whole));
    if (!lochi_mul(count, bytes, &whole.bytes))
        return LOCH_FAIL(OVERFLOW, "%zu elements of %zu bytes do not fit the address space", count, bytes);
    return loch_allocator_alloc(allocator, &whole, out);
}

/* --- taking back --- */

/* The account of an allocator that keeps none: checks first, so that a wrong address never reaches it, nor a block that
 * somebody else got from what a wrapper wraps. */
static loch_status allocator_free_ledgered(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    lochi_entry entry;
    loch_status status = lochi_ledger_take(allocator->ledger, address, bytes, &entry);
    if (status != LOCH_OK) {
        if (allocator->hear_refused) allocator->hear_refused(allocator->self, address, stream, status);
        return status;
    }
    if (entry.note == ALLOCATOR_NOTE_USED_ELSEWHERE) status = loch_device_sync(allocator->device);
    if (lochi_is_gone(status)) status = LOCH_OK; /* nothing runs there any more */
    if (status == LOCH_OK) status = allocator_call_free(allocator, address, entry.allocated, stream);
    if (!lochi_is_freed(status)) lochi_ledger_put_back(allocator->ledger, &entry);
    return status;
}

static loch_status allocator_take_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    allocator_note_user(allocator);
    const loch_status status = allocator->ledger ? allocator_free_ledgered(allocator, address, bytes, stream)
                                                 : allocator_call_free(allocator, address, bytes, stream);
    lochi_fence_light(); /* the free before the looks, against the flags before the heavy fence of the other side */
    if (__builtin_expect(atomic_load_explicit(&allocator->waiters, memory_order_relaxed) != 0, 0)) lochi_retry_wake();
    return status;
}

/* For wrappers, which hold a reference on what they wrap: it cannot end meanwhile, so there is nothing to mark. */
loch_status lochi_allocator_give_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream)
{
    lochi_session_block *noted = lochi_session_take(allocator, address);
    const loch_status status = allocator_take_back(allocator, address, bytes, stream);
    if (LOCHI_UNLIKELY(noted != NULL)) lochi_session_settle(noted, lochi_session_is_gone(status));
    return status;
}

/* What was there may have been the last block of a closing allocator, which ends then. */
static void allocator_leave(loch_allocator *allocator, uint32_t mark)
{
    const bool is_closing = atomic_load_explicit(&allocator->is_closing, memory_order_relaxed);
    const bool is_over = __builtin_expect(is_closing, 0) && allocator_is_over(allocator);
    lochi_inside_leave(mark);
    if (__builtin_expect(is_over, 0)) allocator_destroy(allocator);
}

void lochi_allocator_count_out(loch_allocator *wrapper)
{
    const uint32_t mark = lochi_inside_enter(wrapper);
    atomic_fetch_sub_explicit(&wrapper->live, 1, memory_order_relaxed);
    lochi_fence_light(); /* as for a free */
    allocator_leave(wrapper, mark);
}

loch_status lochi_allocator_free_inside(loch_allocator *allocator, uint32_t mark, void *address, size_t bytes,
                                        loch_stream *stream)
{
    struct lochi_latency *latency = atomic_load_explicit(&allocator->latency, memory_order_acquire);
    const uint64_t start_ns = latency ? loch_host_now_ns() : 0;
    lochi_session_block *noted = lochi_session_take(allocator, address);
    const loch_status status = allocator_take_back(allocator, address, bytes, stream);
    if (latency) lochi_latency_note_free(latency, start_ns);
    allocator_leave(allocator, mark);
    if (LOCHI_UNLIKELY(noted != NULL))
        lochi_session_settle(noted, lochi_session_is_gone(status)); /* last: it may end it, too */
    return status;
}

/* Takes a block back that may be all that keeps the allocator alive. */
static LOCHI_RARE loch_status allocator_free_any(loch_allocator *allocator, void *address, size_t bytes,
                                                 loch_stream *stream)
{
    if (!address) return LOCH_OK;
    if (!allocator) return LOCH_FAIL(INVALID, "there is no allocator to give a block back to");
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    return lochi_allocator_free_inside(allocator, lochi_inside_enter(allocator), address, bytes, stream);
}

static __attribute__((noinline)) loch_status allocator_free_plainly(loch_allocator *allocator, void *address)
{
    if (LOCHI_UNLIKELY(atomic_load_explicit(&allocator->session_count, memory_order_relaxed) != 0))
        return allocator_free_any(allocator, address, 0, NULL);
    allocator_note_user(allocator);
    if (lochi_pool_free_plainly(allocator->pool, address)) return LOCH_OK;
    return allocator_free_any(allocator, address, 0, NULL);
}

loch_status loch_allocator_free(loch_allocator *allocator, void *address)
{
    if (LOCHI_LIKELY(allocator && allocator->pool && address)) {
        if (LOCHI_LIKELY(lochi_pool_free_quickly(allocator->pool, address))) return LOCH_OK;
        return allocator_free_plainly(allocator, address);
    }
    return allocator_free_any(allocator, address, 0, NULL);
}

loch_status loch_free(loch_allocator *allocator, void *address)
{
    return loch_allocator_free(allocator, address);
}

loch_status loch_allocator_free_on(loch_allocator *allocator, void *address, loch_stream *stream)
{
    if (allocator && !stream) stream = &allocator->device->default_stream;
    return allocator_free_any(allocator, address, 0, stream);
}

loch_status loch_allocator_free_sized(loch_allocator *allocator, void *address, size_t bytes)
{
    if (address && !bytes && allocator) { /* to the slots 0 means an unknown size */
        loch_block block = {.size = sizeof block, .requested_bytes = 1};
        if (allocator->traits & LOCH_TRAIT_ALLOCATES_EMPTY)
            LOCH_TRY_RETURN(loch_allocator_find(allocator, address, &block));
        if (block.requested_bytes) return LOCH_FAIL(INVALID, "the block at %p has not 0 bytes", address);
    }
    return allocator_free_any(allocator, address, bytes, NULL);
}

loch_status loch_allocator_record_use(loch_allocator *allocator, void *address, loch_stream *stream)
{
    if (!allocator || !address) return LOCH_FAIL(INVALID, "recording a use needs an allocator and a block");
    if (!stream) stream = &allocator->device->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    if (allocator->ops.record_use) return allocator->ops.record_use(allocator->self, address, stream);
    if (allocator->wrapped) return loch_allocator_record_use(allocator->wrapped, address, stream);
    if (allocator->ledger) return lochi_ledger_set_note(allocator->ledger, address, ALLOCATOR_NOTE_USED_ELSEWHERE);
    return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" does not know further streams", allocator->name);
}

/* --- questions --- */

const char *loch_allocator_get_name(const loch_allocator *allocator)
{
    return allocator ? allocator->name : "";
}

const char *loch_allocator_get_kind(const loch_allocator *allocator)
{
    return allocator ? allocator->ops.kind : "";
}

loch_device *loch_allocator_get_device(const loch_allocator *allocator)
{
    return allocator ? allocator->device : NULL;
}

loch_allocator *loch_allocator_get_wrapped(const loch_allocator *allocator)
{
    return allocator ? allocator->wrapped : NULL;
}

uint32_t loch_allocator_get_traits(const loch_allocator *allocator)
{
    return allocator ? allocator->traits : 0;
}

loch_attributes loch_allocator_get_attributes(const loch_allocator *allocator)
{
    loch_attributes attributes = {0, 0};
    if (!allocator) return attributes;
    if (allocator->ops.get_attributes) {
        attributes = allocator->ops.get_attributes(allocator->self);
    } else if (allocator->wrapped) {
        attributes = loch_allocator_get_attributes(allocator->wrapped);
    } else {
        attributes.bits = loch_device_can(allocator->device, LOCH_CAN_HOST_ACCESS) ? LOCH_ATTRIBUTE_ON_HOST
                                                                                   : LOCH_ATTRIBUTE_GPU_COMPATIBLE;
    }
    if (allocator->traits & LOCH_TRAIT_TRACKS_SIZES) attributes.bits |= LOCH_ATTRIBUTE_TRACK_SIZES;
    return attributes;
}

/* Asks the outermost allocator that keeps account of its blocks. */
static loch_status allocator_find(loch_allocator *allocator, const void *address, loch_block *out)
{
    while (!allocator->ops.find && allocator->wrapped)
        allocator = allocator->wrapped;
    if (allocator->ops.find) return allocator->ops.find(allocator->self, address, out);
    lochi_entry entry;
    LOCH_TRY_RETURN(lochi_ledger_find(allocator->ledger, address, &entry));
    lochi_ledger_to_block(&entry, out);
    return LOCH_OK;
}

loch_status loch_allocator_find(loch_allocator *allocator, const void *address, loch_block *out)
{
    if (!allocator || !address || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "finding a block needs an allocator, an address and a struct whose size is set");
    loch_block block = {.size = sizeof block};
    const loch_status status = allocator_find(allocator, address, &block);
    lochi_sized_write(out, &block, sizeof block);
    return status;
}

typedef struct allocator_walk {
    loch_block_visitor *visitor;
    void *user;
} allocator_walk;

static loch_status allocator_visit(const lochi_entry *entry, void *user)
{
    const allocator_walk *walk = user;
    loch_block block;
    lochi_ledger_to_block(entry, &block);
    return walk->visitor(&block, walk->user);
}

loch_status lochi_ledger_walk_blocks(lochi_ledger *ledger, loch_block_visitor *visitor, void *user)
{
    allocator_walk walk = {visitor, user};
    return lochi_ledger_walk(ledger, allocator_visit, &walk);
}

loch_status loch_allocator_walk(loch_allocator *allocator, loch_block_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!allocator || !visitor) return LOCH_FAIL(INVALID, "walking the blocks needs an allocator and a visitor");
    if (allocator->ops.walk) return allocator->ops.walk(allocator->self, visitor, user);
    if (allocator->wrapped) return loch_allocator_walk(allocator->wrapped, visitor, user);
    return lochi_ledger_walk_blocks(allocator->ledger, visitor, user);
}

loch_status loch_allocator_trim(loch_allocator *allocator, size_t keep_bytes, size_t *released)
{
    size_t bytes = 0;
    if (released) *released = 0;
    if (!allocator) return LOCH_FAIL(INVALID, "there is no allocator to trim");
    allocator_free_abandoned(allocator);
    loch_status status = LOCH_OK;
    if (allocator->ops.trim)
        status = allocator->ops.trim(allocator->self, keep_bytes, &bytes);
    else if (allocator->wrapped)
        status = loch_allocator_trim(allocator->wrapped, keep_bytes, &bytes);
    if (released) *released = bytes;
    return status;
}
