/* SPDX-License-Identifier: MIT */
/* The limit wrapper: limits the requested bytes, exactly, with any number of threads.
 *
 * The counter `admitted` is raised by compare-and-exchange before the wrapped allocator is called, so it never
 * passes the hard limit. The counter `in_use` is raised after the allocation, so that exactly one allocation sees it
 * cross the soft limit. The size of a freed block comes from the ledger that the library keeps for every wrapper. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "memory/failure.h"
#include "memory/pool/pool.h"
#include "memory/wrap/wrap.h"
#include <loch/wrapper.h>

typedef struct limit {
    loch_allocator *wrapped;   /* borrowed; the allocator around this struct retains it */
    loch_allocator *allocator; /* the allocator around this struct */
    loch_limit_function *above;
    void *user;
    _Atomic uint64_t hard, soft; /* UINT64_MAX: no limit */
    _Atomic uint64_t admitted;   /* bytes in use or being allocated */
    _Atomic uint64_t in_use;
    _Atomic uint64_t refused; /* number of refused allocations */
} limit;

/* --- handing out --- */

static loch_status limit_refuse(limit *self, size_t bytes, uint64_t admitted, uint64_t hard)
{
    lochi_failure_count(&self->refused);
    lochi_failure_note_refusal(self->allocator);
    if (bytes > hard)
        (void)LOCH_FAIL(LIMIT, "%s can never fit: the limit of allocator \"%s\" is %s", LOCHI_SIZE(bytes),
                        self->allocator->name, LOCHI_SIZE(hard));
    else
        (void)LOCH_FAIL(LIMIT, "%s more do not fit: allocator \"%s\" is at its limit of %s (%s in use)",
                        LOCHI_SIZE(bytes), self->allocator->name, LOCHI_SIZE(hard), LOCHI_SIZE(admitted));
    const uint64_t in_use = bytes > hard ? 0 : admitted < hard ? admitted : hard; /* frees do not help above it */
    lochi_error_note_short(self->allocator->name, bytes + in_use - hard,
                           bytes > hard ? LOCH_REMEDY_NONE : LOCH_REMEDY_FREE);
    return LOCH_E_LIMIT;
}

static loch_status limit_admit(limit *self, size_t bytes)
{
    uint64_t admitted = atomic_load_explicit(&self->admitted, memory_order_relaxed);
    do {
        const uint64_t hard = atomic_load_explicit(&self->hard, memory_order_relaxed);
        if (bytes && (bytes > hard || admitted > hard - bytes)) return limit_refuse(self, bytes, admitted, hard);
    } while (!atomic_compare_exchange_weak_explicit(&self->admitted, &admitted, admitted + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return LOCH_OK;
}

static void limit_count_in(limit *self, size_t bytes)
{
    const uint64_t before = atomic_fetch_add_explicit(&self->in_use, bytes, memory_order_relaxed);
    const uint64_t soft = atomic_load_explicit(&self->soft, memory_order_relaxed);
    if (!self->above || before > soft || bytes <= soft - before) return;
    LOCHI_NOT_CANCELLED;
    self->above(self->allocator, before + bytes, self->user);
}

static loch_status limit_alloc(void *user, const loch_request *request, void **out);

/* Refuses a request that is larger than a limit below, of which this limit has kept it away. */
static LOCHI_RARE loch_status limit_check_below(const limit *self, const loch_request *request)
{
    loch_allocator *below = self->wrapped;
    for (; below->ops.alloc == limit_alloc; below = below->wrapped) {
        limit *inner = below->self;
        const uint64_t hard = atomic_load_explicit(&inner->hard, memory_order_relaxed);
        if (request->bytes > hard) return limit_refuse(inner, request->bytes, 0, hard);
    }
    return below->pool ? lochi_pool_check_request(below->pool, request) : LOCH_OK;
}

static loch_status limit_alloc(void *user, const loch_request *request, void **out)
{
    limit *self = user;
    const loch_status admitted = limit_admit(self, request->bytes);
    if (LOCHI_UNLIKELY(admitted != LOCH_OK)) {
        if (!lochi_error_is_final(admitted)) LOCH_TRY_RETURN(limit_check_below(self, request));
        return admitted;
    }
    const loch_status status = lochi_allocator_try(self->wrapped, request, out);
    if (status == LOCH_OK)
        limit_count_in(self, request->bytes);
    else
        atomic_fetch_sub_explicit(&self->admitted, request->bytes, memory_order_relaxed);
    return status;
}

/* --- taking back --- */

static loch_status limit_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    limit *self = user;
    const loch_status status = lochi_allocator_give_back(self->wrapped, address, bytes, stream);
    if (!lochi_is_freed(status)) return status;
    atomic_fetch_sub_explicit(&self->in_use, bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&self->admitted, bytes, memory_order_relaxed);
    return status;
}

/* Counts the growth of a block, which is in the wrapper's ledger with its old size. */
static loch_status limit_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    limit *self = user;
    lochi_entry entry;
    LOCH_TRY_RETURN(lochi_ledger_find(self->allocator->ledger, address, &entry));
    const size_t more = bytes > entry.requested ? bytes - entry.requested : 0;
    const size_t less = more ? 0 : entry.requested - bytes;
    LOCH_TRY_RETURN(limit_admit(self, more));
    const loch_status status = lochi_grow_pass(self->wrapped, address, bytes, allocated);
    if (status != LOCH_OK) {
        atomic_fetch_sub_explicit(&self->admitted, more, memory_order_relaxed);
        return status;
    }
    limit_count_in(self, more);
    atomic_fetch_sub_explicit(&self->in_use, less, memory_order_relaxed);
    atomic_fetch_sub_explicit(&self->admitted, less, memory_order_relaxed);
    return LOCH_OK;
}

static void limit_destroy(void *user)
{
    lochi_free(user);
}

/* --- statistics --- */

static loch_status limit_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    limit *self = user;
    LOCH_TRY_RETURN(lochi_allocator_read_stats(self->wrapped, tag, out));
    if (tag) return LOCH_OK;
    const uint64_t hard = atomic_load_explicit(&self->hard, memory_order_relaxed);
    if (hard != UINT64_MAX && (!out->limit_bytes || hard < out->limit_bytes)) out->limit_bytes = hard;
    out->failures += atomic_load_explicit(&self->refused, memory_order_relaxed);
    return LOCH_OK;
}

static void limit_new_segment(void *user)
{
    lochi_wrapper_new_segment(((limit *)user)->wrapped);
}

static const loch_allocator_ops limit_ops = {
    .size = sizeof limit_ops,
    .kind = "limit",
    .alloc = limit_alloc,
    .free = limit_free,
    .destroy = limit_destroy,
    .get_stats = limit_get_stats,
    .new_segment = limit_new_segment,
    .resize = limit_resize,
};

/* --- public functions --- */

static void limit_store(limit *self, size_t hard_bytes, size_t soft_bytes)
{
    atomic_store_explicit(&self->hard, hard_bytes ? hard_bytes : UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&self->soft, soft_bytes ? soft_bytes : UINT64_MAX, memory_order_relaxed);
}

loch_status loch_limit_create(loch_allocator *wrapped, const char *name, const loch_limit_options *options,
                              loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "a limit needs an allocator to wrap and an out pointer");
    loch_limit_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of limit options", options, &read, sizeof read));
    limit *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for a limit");
    self->wrapped = wrapped;
    self->above = read.above;
    self->user = read.user;
    limit_store(self, read.hard_bytes, read.soft_bytes);
    const loch_status status = loch_wrapper_create(wrapped, name, &limit_ops, self, out);
    if (status != LOCH_OK) {
        limit_destroy(self);
        return status;
    }
    self->allocator = *out;
    lochi_account_forward(*out, LOCHI_FORWARDS_ALL);
    return status;
}

loch_status loch_limit_set(loch_allocator *allocator, size_t hard_bytes, size_t soft_bytes)
{
    if (!allocator || allocator->ops.alloc != limit_alloc)
        return LOCH_FAIL(INVALID, "the allocator is not a limit wrapper");
    limit_store(allocator->self, hard_bytes, soft_bytes);
    return LOCH_OK;
}
