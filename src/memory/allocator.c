/* SPDX-License-Identifier: MIT */
/* Public functions of allocators: allocate, free, query. All arguments are checked here, in one place.
 *
 * A simple request to a pool, or a simple free, first takes the fast path, without a lock. If the thread's cache
 * cannot serve it, the call takes the pool's lock. Every other call takes the slow path, with sessions, measuring
 * and retries. A recorded allocator has no `fast_pool`: its calls go to the slow path, which records, by way of a
 * fast path of their own. */
#include "kit/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/hint.h"
#include "base/hazard.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/device.h"
#include "memory/account.h"
#include "memory/bump.h"
#include "memory/failure.h"
#include "memory/latency.h"
#include "memory/life.h"
#include "memory/owner.h"
#include "memory/pool/pool.h"
#include "memory/recorder/recorder.h"
#include "memory/retry.h"
#include "memory/session/session.h"
#include <loch/copy.h>
#include <loch/host.h>
#include <string.h>

#define ALLOCATOR_ZERO_SHORT 256 /* bytes that are zeroed without a call */
#define ALLOCATOR_FLAGS (LOCH_ALLOC_NO_RETRY | LOCH_ALLOC_LOGGED | LOCH_ALLOC_ZEROED | LOCH_ALLOC_ONE_HANDLE)

/* Returns the pool of an allocator for the fast paths; NULL if it has none or is recorded. Relaxed: a call that misses
 * the start of a recording is not recorded. */
static inline lochi_pool *allocator_fast_pool(const loch_allocator *allocator)
{
    return atomic_load_explicit(&allocator->fast_pool, memory_order_relaxed);
}

/* --- handing out ---
 *
 * Which function serves which request. A request is *simple* if it asks for aligned bytes on a stream, zeroed or not,
 * and *simplest* if it asks for bytes on a stream and nothing else. Small are up to POOL_SMALL_MAX.
 *
 *   request                                    function                  takes the block from
 *   loch_alloc: small                          loch_alloc                the thread's first cache
 *   loch_alloc: all others, or none there      allocator_alloc_bytes     the rows below; small of a recorded pool: the
 *                                                                        first cache
 *   simplest: small                            loch_allocator_alloc      the first cache
 *   simplest: larger                           allocator_alloc_large     the first cache
 *   simple                                     allocator_alloc_any       the thread's caches
 *   simple: none in the caches                 allocator_alloc_locked    the pool, with its lock held
 *   simple: of a recorded pool                 allocator_alloc_recorded  the thread's caches
 *   all others, or none there                  allocator_alloc_slow      any allocator: checks, sessions, retries */

static bool allocator_can_round(const loch_request *request)
{
    return request->round_bytes < LOCHI_ALLOCATOR_BYTES_MAX &&
           /* The sum of two numbers below 2^47 does not overflow. */
           lochi_request_round(request) < LOCHI_ALLOCATOR_BYTES_MAX;
}

/* Completes and checks a request for a growable block. One on one handle is a growable block that is as large as it can
 * get. */
static LOCHI_RARE loch_status allocator_read_growable(const loch_allocator *allocator, loch_request *request)
{
    const lochi_pool *pool = lochi_pool_of(allocator);
    const bool is_one = request->flags & LOCH_ALLOC_ONE_HANDLE;
    if (!pool || !pool->policy.is_virtual)
        return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" has no %s: it is not a pool of virtual memory", allocator->name,
                         is_one ? "blocks on handles of their own" : "growable blocks");
    if (is_one && request->max_bytes > request->bytes)
        return LOCH_FAIL(INVALID, "a block on one handle cannot grow: %s of at most %s", LOCHI_SIZE(request->bytes),
                         LOCHI_SIZE(request->max_bytes));
    if (is_one) request->max_bytes = lochi_request_round(request);
    if (request->bytes > request->max_bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "%s are more than the %s to be reserved", LOCHI_SIZE(request->bytes),
                         LOCHI_SIZE(request->max_bytes));
    return LOCH_OK;
}

/* Checks a request for a block at an address. */
static LOCHI_RARE loch_status allocator_check_address(const loch_allocator *allocator, const loch_request *request)
{
    if (!lochi_pool_of(allocator))
        return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" cannot place a block at an address: it is not a pool",
                         allocator->name);
    if (request->max_bytes) return LOCH_FAIL(INVALID, "a growable block cannot be placed at an address");
    return LOCH_OK;
}

/* Checks that a block is where the request wants it. A wrapper of the user may have passed on another request. */
static LOCHI_RARE loch_status allocator_check_place(loch_allocator *allocator, const loch_request *request, void **out)
{
    if (*out == request->address) return LOCH_OK;
    lochi_allocator_abandon(allocator, *out, 0, NULL);
    *out = NULL;
    return LOCH_FAIL(UNSUPPORTED, "a wrapper of allocator \"%s\" did not place the block at %p", allocator->name,
                     request->address);
}

/* Copies a caller's request to `out`, completes it and checks it. */
static loch_status allocator_read_request(const loch_allocator *allocator, const loch_request *given, loch_request *out)
{
    if (given->size == sizeof *given) {
        *out = *given;
    } else {
        memset(out, 0, sizeof *out);
        LOCH_TRY_RETURN(lochi_sized_read("a request", given, out, sizeof *out));
    }
    if (out->alignment & (out->alignment - 1))
        return LOCH_FAIL(INVALID, "an alignment of %zu is not a power of two", out->alignment);
    if (out->flags & ~(uint32_t)ALLOCATOR_FLAGS || out->tag >= LOCH_TAG_COUNT_MAX)
        return LOCH_FAIL(INVALID, "the request has an unknown flag or tag: flags 0x%x, tag %u", (unsigned)out->flags,
                         (unsigned)out->tag);
    if (out->bytes >= LOCHI_ALLOCATOR_BYTES_MAX || out->alignment >= LOCHI_ALLOCATOR_BYTES_MAX ||
        (out->round_bytes > 1 && !allocator_can_round(out)))
        return LOCH_FAIL(OVERFLOW, "a block of %s with an alignment of %s does not fit the address space",
                         LOCHI_SIZE(out->bytes), LOCHI_SIZE(out->alignment));
    if (out->max_bytes || out->flags & LOCH_ALLOC_ONE_HANDLE) LOCH_TRY_RETURN(allocator_read_growable(allocator, out));
    if (out->address) LOCH_TRY_RETURN(allocator_check_address(allocator, out));
    if (!out->stream)
        out->stream = &allocator->device->default_stream;
    else
        LOCH_TRY_RETURN(lochi_stream_check(out->stream, allocator->device));
    return LOCH_OK;
}

/* Zeroes a new block in stream order. Frees the block if that fails. */
static loch_status allocator_zero(loch_allocator *allocator, const loch_request *request, void **out)
{
    const loch_status status = loch_fill_on(*out, request->bytes, "", 1, request->stream);
    if (status == LOCH_OK) return LOCH_OK;
    lochi_allocator_abandon(allocator, *out, 0, NULL);
    *out = NULL;
    return status;
}

/* Tries a complete request, and retries it if that can help. `refused` is the status of an attempt that the pool has
 * already made; LOCH_OK for none. */
static loch_status allocator_try(loch_allocator *allocator, const loch_request *request, loch_status refused,
                                 void **out)
{
    const bool is_inner = lochi_failure_is_inner();
    const uint32_t mark = lochi_failure_begin();
    loch_status status = refused == LOCH_OK ? lochi_allocator_try(allocator, request, out)
                                            : lochi_pool_alloc_again(allocator->pool, request, refused, out);
    if (LOCHI_UNLIKELY(status != LOCH_OK))
        status = lochi_retry(allocator, lochi_allocator_try, request, mark, status, is_inner, out);
    lochi_failure_end(mark, is_inner);
    return status;
}

/* Serves a request that is complete, and measures that. */
static loch_status allocator_serve(loch_allocator *allocator, const loch_request *request, void **out)
{
    struct allocator_latency *latency = atomic_load_explicit(&allocator->latency, memory_order_acquire);
    const uint64_t start_ns = latency ? loch_host_now_ns() : 0;
    const loch_status status = allocator_try(allocator, request, LOCH_OK, out);
    if (LOCHI_UNLIKELY(status != LOCH_OK) && !lochi_failure_is_inner())
        lochi_recorder_note_failure(allocator, request->bytes, status);
    if (latency) lochi_latency_note_alloc(latency, request->bytes, start_ns);
    if (status != LOCH_OK) return status;
    if (LOCHI_UNLIKELY(request->address != NULL)) LOCH_TRY_RETURN(allocator_check_place(allocator, request, out));
    if (request->flags & LOCH_ALLOC_ZEROED && request->bytes && !(allocator->traits & LOCH_TRAIT_ZEROES))
        return allocator_zero(allocator, request, out);
    return LOCH_OK;
}

/* Allocates for any request, with all checks, sessions and retries. */
static LOCHI_RARE loch_status allocator_alloc_slow(loch_allocator *allocator, const loch_request *request, void **out)
{
    if (out) *out = NULL;
    if (!allocator || !request || !out)
        return LOCH_FAIL(INVALID, "an allocation needs an allocator, a request and an out pointer");
    loch_request read;
    LOCH_TRY_RETURN(allocator_read_request(allocator, request, &read));
    if (!read.bytes && !read.max_bytes && !(allocator->traits & LOCH_TRAIT_ALLOCATES_EMPTY)) return LOCH_OK;
    if (LOCHI_LIKELY(!lochi_session_concerns(allocator))) return allocator_serve(allocator, &read, out);
    lochi_session_alloc alloc;
    LOCH_TRY_RETURN(lochi_session_begin_alloc(allocator, &alloc));
    return lochi_session_end_alloc(&alloc, allocator_serve(allocator, &read, out), read.bytes, out);
}

/* Joins the bits of one more member of a request. On x86-64 that is one instruction with an operand in memory, unless
 * the compiler sorts the members into two sums first. */
static inline uint64_t allocator_join(uint64_t seen, uint64_t more)
{
    seen |= more;
#if defined(__x86_64__)
    __asm__("" : "+r"(seen));
#endif
    return seen;
}

/* Joins the members of a request that are 0 in a simple one, beside `seen`. */
static inline uint64_t allocator_join_rare(uint64_t seen, const loch_request *request)
{
    seen = allocator_join(seen, request->round_bytes);
    seen = allocator_join(seen, request->max_bytes);
    return seen | (uintptr_t)request->address;
}

/* Returns whether a request of full size asks for bytes on a stream and nothing else. The bytes may be 0. */
static inline bool allocator_is_simplest(const loch_request *request)
{
    const uint64_t seen = allocator_join(request->tag | request->flags, request->alignment);
    return !allocator_join_rare(seen, request);
}

/* Returns whether a request of full size is valid and asks for aligned bytes on a stream, zeroed or not, and nothing
 * else. The bytes may be 0. */
static inline bool allocator_is_simple(const loch_request *request)
{
    const uint64_t seen = request->tag | (request->flags & ~(uint32_t)LOCH_ALLOC_ZEROED);
    return !allocator_join_rare(seen | (request->alignment & (request->alignment - 1)), request);
}

/* Continues a simple request that a pool has tried and refused. Measuring is off, because the gate was open. */
static LOCHI_RARE loch_status allocator_retry(loch_allocator *allocator, const loch_request *request,
                                              loch_status refused, void **out)
{
    loch_request complete = *request;
    if (!complete.stream) complete.stream = &allocator->device->default_stream;
    return allocator_try(allocator, &complete, refused, out);
}

/* Zeroes a new block of a device for a request that may have no stream. */
static LOCHI_RARE loch_status allocator_zero_device(loch_allocator *allocator, const loch_request *request, void **out)
{
    loch_request complete = *request;
    if (!complete.stream) complete.stream = &allocator->device->default_stream;
    return allocator_zero(allocator, &complete, out);
}

/* Zeroes a block of the host that is not empty. Short blocks end at a multiple of 16 bytes, and start at one. */
static inline void allocator_zero_host(void *block, size_t bytes)
{
    typedef long long allocator_lane __attribute__((vector_size(16), may_alias));
    if (LOCHI_ASAN || bytes > ALLOCATOR_ZERO_SHORT) { /* AddressSanitizer watches the bytes behind a block */
        memset(block, 0, bytes);
        return;
    }
    allocator_lane *lane = block, *const end = (allocator_lane *)((char *)block + bytes);
    do {
        *lane++ = (allocator_lane){0};
        __asm__ volatile(""); /* keeps the compiler from making a call of memset out of the loop */
    } while (lane < end);
}

/* Zeroes a block that a pool has handed out for a simple request. Memory of the host is written here, without the
 * checks of a fill. */
static inline loch_status allocator_zero_taken(loch_allocator *allocator, const lochi_pool *pool,
                                               const loch_request *request, void **out)
{
    if (LOCHI_LIKELY(pool->policy.is_host)) {
        allocator_zero_host(*out, request->bytes);
        return LOCH_OK;
    }
    return allocator_zero_device(allocator, request, out);
}

/* Allocates for a simple request that the thread's caches cannot serve: from the pool, with its lock held. If another
 * thread has left a batch, takes that and begins again. */
static __attribute__((noinline)) loch_status allocator_alloc_locked(loch_allocator *allocator,
                                                                    const loch_request *request, void **out)
{
    loch_status status;
    *out = NULL;
    if (LOCHI_UNLIKELY(lochi_session_top || !request->bytes)) return allocator_alloc_slow(allocator, request, out);
    if (lochi_pool_take_batch(allocator->pool, request)) return loch_allocator_alloc(allocator, request, out);
    lochi_allocator_note_user(allocator);
    if (!lochi_pool_alloc_locked(allocator->pool, request, &status, out))
        return allocator_alloc_slow(allocator, request, out);
    if (LOCHI_UNLIKELY(status != LOCH_OK)) status = allocator_retry(allocator, request, status, out);
    return status == LOCH_OK && request->flags ? allocator_zero_taken(allocator, allocator->pool, request, out)
                                               : status;
}

/* Allocates for a simple request from the thread's caches. Passes on a request that is not simple. */
static __attribute__((noinline)) loch_status allocator_alloc_any(loch_allocator *allocator, const loch_request *request,
                                                                 void **out)
{
    if (LOCHI_UNLIKELY(!allocator_is_simple(request))) return allocator_alloc_slow(allocator, request, out);
    lochi_pool *pool = allocator->pool;
    bool is_peak = false;
    if (LOCHI_UNLIKELY(!lochi_pool_alloc_fast(pool, request, &is_peak, out)))
        return allocator_alloc_locked(allocator, request, out);
    if (LOCHI_UNLIKELY(is_peak)) lochi_pool_raise_late(pool, request->bytes);
    return LOCHI_LIKELY(!request->flags) ? LOCH_OK : allocator_zero_taken(allocator, pool, request, out);
}

/* Continues the simplest request after the thread's first cache did not serve it, or served a peak. */
static inline loch_status allocator_continue(loch_allocator *allocator, const loch_request *request, pool_answer first,
                                             void **out)
{
    if (first == POOL_ANSWER_PEAK) return lochi_pool_raise_late(allocator->pool, request->bytes);
    return first == POOL_ANSWER_OTHER ? allocator_alloc_any(allocator, request, out)
                                      : allocator_alloc_locked(allocator, request, out);
}

/* Allocates for the simplest request above POOL_SMALL_MAX from the thread's first cache. Passes on one of 0 bytes. */
static __attribute__((noinline)) loch_status allocator_alloc_large(loch_allocator *allocator,
                                                                   const loch_request *request, void **out)
{
    pool_answer first = POOL_ANSWER_EMPTY;
    if (LOCHI_LIKELY(request->bytes))
        first = lochi_pool_alloc_here(allocator->pool, request->bytes, request->stream, false, out);
    if (LOCHI_LIKELY(first == POOL_ANSWER_SERVED)) return LOCH_OK;
    return allocator_continue(allocator, request, first, out);
}

/* Serves a request for bytes from the present piece of an arena, unless something listens: a recording, a measurement,
 * a session that the thread is in. Returns false if the slow path has to serve it. */
static inline bool allocator_take_arena(loch_allocator *allocator, size_t bytes, void **out)
{
    if (LOCHI_LIKELY(!allocator->arena) || lochi_session_top || lochi_recorder_of(allocator) ||
        atomic_load_explicit(&allocator->latency, memory_order_relaxed) ||
        !lochi_bump_take(allocator->arena, bytes, out))
        return false;
    const size_t live = atomic_load_explicit(&allocator->live, memory_order_relaxed);
    atomic_store_explicit(&allocator->live, live + 1, memory_order_relaxed); /* one thread at a time uses an arena */
    return true;
}

/* Tells whether the present piece of an arena may serve a request: only its bytes matter, and its tag does not. */
static inline bool allocator_suits_arena(const loch_allocator *allocator, const loch_request *request, void **out)
{
    return request && out && request->size == sizeof *request && !request->flags && !request->stream &&
           request->alignment <= allocator->arena->unit && !(request->alignment & (request->alignment - 1)) &&
           !allocator_join_rare(0, request);
}

/* Allocates for a simple request to a recorded pool from the thread's caches. Passes on every other request, also one
 * without an allocator. The block is recorded before it is zeroed: if that fails, the free is recorded. */
static __attribute__((noinline)) loch_status allocator_alloc_recorded(loch_allocator *allocator,
                                                                      const loch_request *request, void **out)
{
    const uint32_t recorded = allocator && request && out ? lochi_recorder_of(allocator) : 0;
    lochi_pool *pool = recorded ? allocator->pool : NULL;
    bool is_peak = false;
    if (allocator && allocator->arena && allocator_suits_arena(allocator, request, out) &&
        allocator_take_arena(allocator, request->bytes, out))
        return LOCH_OK;
    if (!pool || request->size != sizeof *request || !allocator_is_simple(request) || !request->bytes ||
        lochi_session_top)
        return allocator_alloc_slow(allocator, request, out);
    while (LOCHI_UNLIKELY(!lochi_pool_alloc_fast(pool, request, &is_peak, out))) {
        *out = NULL;
        if (!lochi_pool_take_batch(pool, request)) return allocator_alloc_slow(allocator, request, out);
        lochi_recorder_await(); /* other threads freed these blocks */
    }
    if (LOCHI_UNLIKELY(is_peak)) lochi_pool_raise_late(pool, request->bytes);
    if (LOCHI_LIKELY(!request->stream && request->alignment < 2)) {
        lochi_recorder_note_simple(recorded, *out, request->bytes);
    } else {
        lochi_recorder_note_alloc(recorded, *out, request);
    }
    return LOCHI_LIKELY(!request->flags) ? LOCH_OK : allocator_zero_taken(allocator, pool, request, out);
}

loch_status loch_allocator_alloc(loch_allocator *allocator, const loch_request *request, void **out)
{
    if (LOCHI_UNLIKELY(!allocator)) return allocator_alloc_recorded(allocator, request, out);
    lochi_pool *pool = allocator_fast_pool(allocator);
    if (LOCHI_UNLIKELY(!pool)) return allocator_alloc_recorded(allocator, request, out);
    if (LOCHI_UNLIKELY(!request || request->size != sizeof *request || !out))
        return allocator_alloc_recorded(allocator, request, out);
    if (LOCHI_UNLIKELY(!allocator_is_simplest(request))) return allocator_alloc_any(allocator, request, out);
    if (LOCHI_UNLIKELY(request->bytes - 1 >= POOL_SMALL_MAX)) return allocator_alloc_large(allocator, request, out);
    const pool_answer first = lochi_pool_alloc_here(pool, request->bytes, request->stream, true, out);
    if (LOCHI_LIKELY(first == POOL_ANSWER_SERVED)) return LOCH_OK;
    return allocator_continue(allocator, request, first, out);
}

/* Allocates for loch_alloc what it does not find itself: a small block of a recorded pool from the thread's first
 * cache, and every other block as a request. */
static __attribute__((noinline)) loch_status allocator_alloc_bytes(loch_allocator *allocator, size_t bytes, void **out)
{
    if (LOCHI_UNLIKELY(allocator && out && allocator_take_arena(allocator, bytes, out))) return LOCH_OK;
    const uint32_t recorded = allocator && out && bytes - 1 < POOL_SMALL_MAX ? lochi_recorder_of(allocator) : 0;
    lochi_pool *pool = recorded ? allocator->pool : NULL;
    const pool_answer first = pool ? lochi_pool_alloc_here(pool, bytes, NULL, true, out) : POOL_ANSWER_EMPTY;
    if (LOCHI_UNLIKELY(first == POOL_ANSWER_EMPTY || first == POOL_ANSWER_OTHER)) {
        const loch_request request = {.size = sizeof request, .bytes = bytes};
        return loch_allocator_alloc(allocator, &request, out);
    }
    lochi_recorder_note_simple(recorded, *out, bytes);
    return LOCHI_LIKELY(first == POOL_ANSWER_SERVED) ? LOCH_OK : lochi_pool_raise_late(pool, bytes);
}

loch_status loch_alloc(loch_allocator *allocator, size_t bytes, void **out)
{
    lochi_pool *pool = LOCHI_LIKELY(allocator != NULL) ? allocator_fast_pool(allocator) : NULL;
    if (LOCHI_LIKELY(pool && out && bytes - 1 < POOL_SMALL_MAX)) {
        const pool_answer first = lochi_pool_alloc_here(pool, bytes, NULL, true, out);
        if (LOCHI_LIKELY(first == POOL_ANSWER_SERVED)) return LOCH_OK;
        if (first == POOL_ANSWER_PEAK) return lochi_pool_raise_late(pool, bytes);
    }
    return allocator_alloc_bytes(allocator, bytes, out);
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

/* Frees a block. The block may be the last thing that keeps the allocator alive. */
static LOCHI_RARE loch_status allocator_free_any(loch_allocator *allocator, void *address, size_t bytes,
                                                 loch_stream *stream)
{
    if (!address) return LOCH_OK;
    if (!allocator) return LOCH_FAIL(INVALID, "a free needs the allocator of the block");
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    return lochi_allocator_free_inside(allocator, lochi_hazard_enter(allocator), address, bytes, stream);
}

static __attribute__((noinline)) loch_status allocator_free_locked(loch_allocator *allocator, void *address)
{
    if (LOCHI_UNLIKELY(atomic_load_explicit(&allocator->session_count, memory_order_relaxed) != 0))
        return allocator_free_any(allocator, address, 0, NULL);
    if (lochi_pool_is_cacheable(allocator->pool, address) &&
        (lochi_pool_unname_fast(allocator->pool, address) ||
         lochi_pool_leave_batch(allocator->pool, (uintptr_t)address))) /* the cache is not full any more */
        return loch_free(allocator, address);                          /* begin again */
    lochi_allocator_note_user(allocator);
    if (lochi_pool_free_locked(allocator->pool, address)) return LOCH_OK;
    return allocator_free_any(allocator, address, 0, NULL);
}

/* Frees a block of a recorded pool: to the thread's cache, or on the slow path, which records too. */
static __attribute__((noinline)) loch_status allocator_free_recorded(loch_allocator *allocator, void *address)
{
    const uint32_t recorded = allocator && address ? lochi_recorder_of(allocator) : 0;
    lochi_pool *pool = recorded ? allocator->pool : NULL;
    if (!pool || LOCHI_UNLIKELY(atomic_load_explicit(&allocator->session_count, memory_order_relaxed) != 0))
        return allocator_free_any(allocator, address, 0, NULL);
    bool is_freed;
    do {
        recorder_thread *thread = lochi_recorder_begin();
        is_freed = lochi_pool_free_recorded(pool, address, thread, recorded);
        lochi_recorder_end(thread);
    } while (LOCHI_UNLIKELY(!is_freed) &&
             (lochi_pool_unname_fast(pool, address) || lochi_pool_leave_batch(pool, (uintptr_t)address)));
    return LOCHI_LIKELY(is_freed) ? LOCH_OK : allocator_free_any(allocator, address, 0, NULL);
}

loch_status loch_free(loch_allocator *allocator, void *address)
{
    lochi_pool *pool = LOCHI_LIKELY(allocator != NULL) ? allocator_fast_pool(allocator) : NULL;
    if (LOCHI_UNLIKELY(!pool || !address)) return allocator_free_recorded(allocator, address);
    if (LOCHI_LIKELY(lochi_pool_free_fast(pool, address))) return LOCH_OK;
    return allocator_free_locked(allocator, address);
}

loch_status loch_allocator_free_on(loch_allocator *allocator, void *address, loch_stream *stream)
{
    if (allocator && !stream) stream = &allocator->device->default_stream;
    return allocator_free_any(allocator, address, 0, stream);
}

loch_status loch_allocator_free_sized(loch_allocator *allocator, void *address, size_t bytes)
{
    if (address && !bytes && allocator) { /* for the slots, 0 means that the size is not known */
        loch_block block = {.size = sizeof block, .requested_bytes = 1};
        if (allocator->traits & LOCH_TRAIT_ALLOCATES_EMPTY)
            LOCH_TRY_RETURN(loch_allocator_find(allocator, address, &block));
        if (block.requested_bytes)
            return LOCH_FAIL(INVALID, "the block at %p is not empty, but the free says that it has 0 bytes", address);
    }
    return allocator_free_any(allocator, address, bytes, NULL);
}

loch_status loch_address_free(void *address)
{
    if (!address) return LOCH_OK;
    loch_allocator *allocator;
    uint32_t mark;
    LOCH_TRY_RETURN(lochi_owner_enter(address, &allocator, &mark));
    return lochi_allocator_free_inside(allocator, mark, address, 0, NULL);
}

static loch_status allocator_record_use(loch_allocator *allocator, void *address, loch_stream *stream)
{
    if (allocator->ops.record_use) return allocator->ops.record_use(allocator->self, address, stream);
    if (allocator->wrapped) return loch_allocator_record_use(allocator->wrapped, address, stream);
    if (allocator->ledger) return lochi_ledger_set_note(allocator->ledger, address, LOCHI_NOTE_HAS_USES);
    return LOCH_FAIL(UNSUPPORTED, "allocator \"%s\" cannot record further streams", allocator->name);
}

loch_status loch_allocator_record_use(loch_allocator *allocator, void *address, loch_stream *stream)
{
    if (!allocator || !address) return LOCH_FAIL(INVALID, "recording a use needs an allocator and a block");
    if (!stream) stream = &allocator->device->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    const loch_status status = allocator_record_use(allocator, address, stream);
    const uint32_t recorded = lochi_recorder_of(allocator);
    if (LOCHI_UNLIKELY(recorded && status == LOCH_OK)) lochi_recorder_note_use(recorded, address, stream);
    return status;
}

/* --- questions --- */

const char *loch_allocator_get_name(const loch_allocator *allocator)
{
    return allocator ? allocator->name : "";
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

/* Finds a block in the outermost allocator that keeps account of its blocks. */
static loch_status allocator_find(const loch_allocator *allocator, const void *address, loch_block *out)
{
    while (!allocator->ops.find && allocator->wrapped)
        allocator = allocator->wrapped;
    if (allocator->ops.find) return allocator->ops.find(allocator->self, address, out);
    lochi_entry entry;
    LOCH_TRY_RETURN(lochi_ledger_find(allocator->ledger, address, &entry));
    lochi_ledger_to_block(&entry, out);
    return LOCH_OK;
}

static LOCHI_RARE loch_status allocator_find_slow(loch_allocator *allocator, const void *address, loch_block *out)
{
    loch_block sizes = {.size = offsetof(loch_block, id)};
    if (allocator && allocator->pool && address && out && out->size >= sizeof *out &&
        loch_allocator_find(allocator, address, &sizes) == LOCH_OK &&
        lochi_pool_describe_fast(allocator->pool, (uintptr_t)address, out)) {
        out->address = sizes.address;
        out->requested_bytes = sizes.requested_bytes;
        out->allocated_bytes = sizes.allocated_bytes;
        return LOCH_OK;
    }
    if (!allocator || !address || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "finding a block needs an allocator, an address and a struct whose size is set");
    loch_block block = {.size = sizeof block};
    const loch_status status = allocator_find(allocator, address, &block);
    lochi_sized_write(out, &block, sizeof block);
    return status;
}

loch_status loch_allocator_find(loch_allocator *allocator, const void *address, loch_block *out)
{
    if (LOCHI_LIKELY(allocator && allocator->pool && out) && LOCHI_LIKELY(out->size == offsetof(loch_block, id)) &&
        LOCHI_LIKELY(lochi_pool_measure_fast(allocator->pool, address, out)))
        return LOCH_OK;
    return allocator_find_slow(allocator, address, out);
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
    lochi_allocator_free_abandoned(allocator);
    loch_status status = LOCH_OK;
    if (allocator->ops.trim)
        status = allocator->ops.trim(allocator->self, keep_bytes, &bytes);
    else if (allocator->wrapped)
        status = loch_allocator_trim(allocator->wrapped, keep_bytes, &bytes);
    if (released) *released = bytes;
    return status;
}
