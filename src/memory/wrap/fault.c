/* SPDX-License-Identifier: MIT */
/* The fault wrapper: makes chosen allocations fail. Attempts are numbered under a lock, so each attempt is decided
 * once. Equal seeds give equal runs of failures. Frees never fail. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "memory/failure.h"
#include "memory/wrap/wrap.h"
#include <loch/wrapper.h>
#include <stdbool.h>

typedef struct fault {
    loch_allocator *wrapped;   /* borrowed; the allocator around this struct retains it */
    loch_allocator *allocator; /* the allocator around this struct */
    lochi_lock lock;           /* LOCHI_RANK_MEMORY: guards the members below; nothing is called under it */
    bool is_set;
    loch_fault_options options;
    uint64_t attempts; /* attempts that the options apply to, since the options were set */
    uint64_t luck;
    _Atomic uint64_t failures; /* since creation */
} fault;

/* Maps consecutive numbers to numbers without a visible order. */
static uint64_t fault_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Numbers an attempt, and returns whether it fails. */
static bool fault_decide(fault *self, size_t bytes)
{
    lochi_lock_assert_held(&self->lock);
    const loch_fault_options *options = &self->options;
    if (!self->is_set || bytes <= options->above_bytes) return false;
    const uint64_t number = self->attempts++;
    if (options->one_in) return fault_mix(self->luck += 0x9e3779b97f4a7c15u) % options->one_in == 0;
    return number >= options->after && (!options->count || number - options->after < options->count);
}

/* Fails an attempt to get `bytes`, if it was chosen. */
static loch_status fault_check(fault *self, size_t bytes)
{
    lochi_lock_take(&self->lock);
    const bool fails = fault_decide(self, bytes);
    const uint64_t number = self->attempts;
    loch_status status = self->options.status;
    lochi_lock_drop(&self->lock);
    if (!fails) return LOCH_OK;
    lochi_failure_count(&self->failures);
    if (status == LOCH_OK) status = LOCH_E_DEVICE_MEMORY;
    return loch_error_set(status, NULL, 0, "allocation %llu, of %s, fails by fault injection",
                          (unsigned long long)number, LOCHI_SIZE(bytes));
}

static loch_status fault_alloc(void *user, const loch_request *request, void **out)
{
    fault *self = user;
    LOCH_TRY_RETURN(fault_check(self, request->bytes));
    return lochi_allocator_try(self->wrapped, request, out);
}

/* A growth is an attempt to get the added bytes. */
static loch_status fault_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    fault *self = user;
    lochi_entry entry;
    LOCH_TRY_RETURN(lochi_ledger_find(self->allocator->ledger, address, &entry));
    if (bytes > entry.requested) LOCH_TRY_RETURN(fault_check(self, bytes - entry.requested));
    return lochi_grow_pass(self->wrapped, address, bytes, allocated);
}

static void fault_destroy(void *user)
{
    fault *self = user;
    lochi_lock_fini(&self->lock);
    lochi_free(self);
}

static loch_status fault_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    fault *self = user;
    LOCH_TRY_RETURN(lochi_allocator_read_stats(self->wrapped, tag, out));
    if (tag) return LOCH_OK;
    out->failures += atomic_load_explicit(&self->failures, memory_order_relaxed);
    return LOCH_OK;
}

static void fault_new_segment(void *user)
{
    lochi_wrapper_new_segment(((fault *)user)->wrapped);
}

static const loch_allocator_ops fault_ops = {
    .size = sizeof fault_ops,
    .kind = "fault",
    .alloc = fault_alloc,
    .destroy = fault_destroy,
    .get_stats = fault_get_stats,
    .new_segment = fault_new_segment,
    .resize = fault_resize,
};

static loch_status fault_read(const loch_fault_options *given, loch_fault_options *out)
{
    *out = (loch_fault_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of fault options", given, out, sizeof *out));
    if ((unsigned)out->status >= LOCH_STATUS_COUNT)
        return LOCH_FAIL(INVALID, "%d is not a status to fail with", (int)out->status);
    return LOCH_OK;
}

loch_status loch_fault_create(loch_allocator *wrapped, const char *name, const loch_fault_options *options,
                              loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "fault injection needs an allocator to wrap and an out pointer");
    loch_fault_options read;
    LOCH_TRY_RETURN(fault_read(options, &read));
    fault *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for fault injection");
    self->wrapped = wrapped;
    self->is_set = options != NULL;
    self->options = read;
    self->luck = read.seed;
    lochi_lock_init(&self->lock, LOCHI_RANK_MEMORY);
    const loch_status status = loch_wrapper_create(wrapped, name, &fault_ops, self, out);
    if (status != LOCH_OK) {
        fault_destroy(self);
        return status;
    }
    self->allocator = *out;
    lochi_account_forward(*out, LOCHI_FORWARDS_ALL);
    return LOCH_OK;
}

loch_status loch_fault_set(loch_allocator *allocator, const loch_fault_options *options)
{
    if (!allocator || allocator->ops.alloc != fault_alloc)
        return LOCH_FAIL(INVALID, "the allocator is not a fault wrapper");
    loch_fault_options read;
    LOCH_TRY_RETURN(fault_read(options, &read));
    fault *self = allocator->self;
    lochi_lock_take(&self->lock);
    self->is_set = options != NULL;
    self->options = read;
    self->attempts = 0;
    self->luck = read.seed;
    lochi_lock_drop(&self->lock);
    return LOCH_OK;
}
