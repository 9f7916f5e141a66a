/* SPDX-License-Identifier: MIT */
/* The red-zone wrapper: every block lies between two red zones, inside a larger block of the wrapped allocator.
 *
 * The wrapper keeps account of its blocks itself, because their addresses and sizes differ from those of the wrapped
 * allocator. A free waits for every stream that used the block, checks the zones, poisons the block, waits for the
 * poison, and only then frees the memory. So no work of the wrapper is queued when another caller gets the memory,
 * in whatever order that happens. */
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "kit/text.h"
#include "device/device.h"
#include "memory/pool/pool.h"
#include "memory/block_table.h"
#include "memory/red_zone.h"
#include "memory/owner.h"
#include "memory/wrap/wrap.h"
#include <loch/wrapper.h>
#include <stddef.h>

#define GUARD_ZONE_BYTES 64
#define GUARD_POISON_NEW 0xcd
#define GUARD_POISON_FREED 0xdd

typedef struct redzone {
    loch_allocator *wrapped; /* borrowed; the allocator around this struct retains it */
    loch_redzone_options options;
    lochi_block_table table;
} redzone;

/* --- handing out --- */

static loch_status redzone_take(const redzone *self, const loch_request *request, lochi_held *held)
{
    const size_t alignment =
        request->alignment ? request->alignment : self->wrapped->device->properties.alignment_bytes;
    const size_t step = alignment < _Alignof(max_align_t) ? _Alignof(max_align_t) : alignment;
    lochi_zones zones;
    LOCH_TRY_RETURN(lochi_red_zone_lay_out(self->options.red_zone_bytes, step, lochi_request_round(request), &zones));
    loch_request inner = *request;
    inner.bytes = zones.total;
    inner.round_bytes = 0;
    inner.flags &= ~(uint32_t)LOCH_ALLOC_ZEROED; /* the caller zeroes the block after the fill */
    void *base = NULL;
    LOCH_TRY_RETURN(lochi_allocator_try(self->wrapped, &inner, &base));
    held->base = base;
    held->taken = zones.total;
    held->node.key = (uintptr_t)base + zones.front;
    return LOCH_OK;
}

static loch_status redzone_prepare(const redzone *self, const loch_request *request, const lochi_held *held)
{
    LOCH_TRY_RETURN(lochi_red_zone_fill(request->stream, held));
    if (request->flags & LOCH_ALLOC_ZEROED) return LOCH_OK;
    return lochi_red_zone_poison(request->stream, held, self->options.poison_new);
}

/* Frees a block after a failure. The wrapped allocator orders the free after the fills, on their stream. */
static void redzone_undo(const redzone *self, const lochi_held *held)
{
    lochi_allocator_abandon(self->wrapped, held->base, held->taken, held->stream);
}

static loch_status redzone_make(redzone *self, const loch_request *request, void **out)
{
    lochi_held *held = lochi_held_create(request);
    if (!held)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block of %s with red zones",
                         LOCHI_SIZE(request->bytes));
    loch_status status = redzone_take(self, request, held);
    if (status == LOCH_OK) {
        status = redzone_prepare(self, request, held);
        if (status == LOCH_OK) status = lochi_block_table_add(&self->table, held);
        if (status != LOCH_OK) redzone_undo(self, held);
    }
    if (status == LOCH_OK)
        *out = lochi_held_address(held);
    else
        lochi_held_destroy(held);
    return status;
}

static loch_status redzone_alloc(void *user, const loch_request *request, void **out)
{
    redzone *self = user;
    if (request->max_bytes)
        return LOCH_FAIL(UNSUPPORTED, "a growable block has no red zone: its end moves. Allocate it from \"%s\"",
                         self->wrapped->name);
    if (request->address)
        return LOCH_FAIL(UNSUPPORTED, "a block with red zones has no place at an address: allocate it from \"%s\"",
                         self->wrapped->name);
    const loch_status status = redzone_make(self, request, out);
    if (status != LOCH_OK) lochi_ledger_count_failure(self->table.ledger);
    return status;
}

/* --- taking back --- */

static loch_status redzone_give_back(redzone *self, lochi_held *held, loch_stream *given)
{
    lochi_lock_take(&self->table.lock);
    lochi_block_table_take(&self->table, held);
    lochi_lock_drop(&self->table.lock);
    const loch_status status = lochi_allocator_give_back(self->wrapped, held->base, held->taken, given);
    if (lochi_is_freed(status)) {
        lochi_held_destroy(held);
        return status;
    }
    lochi_lock_take(&self->table.lock);
    lochi_block_table_put_back(&self->table, held);
    lochi_lock_drop(&self->table.lock);
    return status;
}

static loch_status redzone_free(void *user, void *address, size_t bytes, loch_stream *given)
{
    redzone *self = user;
    lochi_held *held;
    LOCH_TRY_RETURN(lochi_block_table_begin_free(&self->table, address, bytes, &held));
    lochi_waits waits = {.device = self->wrapped->device};
    loch_status status = given ? lochi_waits_for(&waits, given) : LOCH_OK;
    if (status == LOCH_OK) status = lochi_waits_for_block(&waits, held);
    /* So that the poison can be written. */
    if (status == LOCH_OK) status = lochi_pool_unprotect(self->wrapped, held->base);
    if (status != LOCH_OK) {
        lochi_block_table_cancel_free(&self->table, held);
        return status;
    }
    uint32_t mark;
    loch_stream *stream = lochi_held_enter_stream(held, given, &mark);
    const loch_status found = lochi_red_zone_settle(lochi_red_zone_check(stream, held), held);
    const loch_error error = lochi_error_save();
    lochi_red_zone_poison_freed(stream, held, self->options.poison_freed);
    lochi_stream_leave(mark);
    status = redzone_give_back(self, held, given);
    if (status != LOCH_OK || found == LOCH_OK) return status;
    lochi_error_restore(&error);
    return found;
}

static void redzone_destroy(void *user)
{
    redzone *self = user;
    if (!self) return;
    lochi_block_table_fini(&self->table);
    lochi_free(self);
}

/* --- questions --- */

static loch_status redzone_find(void *user, const void *address, loch_block *out)
{
    return lochi_block_table_find(&((redzone *)user)->table, address, out);
}

static loch_status redzone_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    return lochi_block_table_walk(&((redzone *)user)->table, visitor, visitor_user);
}

/* Records the stream here for the check, and in the wrapped allocator for the reuse. */
static loch_status redzone_record_use(void *user, void *address, loch_stream *stream)
{
    redzone *self = user;
    LOCH_TRY_RETURN(lochi_block_table_record_use(&self->table, address, stream));
    lochi_held *held = lochi_block_table_pin(&self->table, (uintptr_t)address);
    const bool is_it = held && held->node.key == (uintptr_t)address;
    loch_status status = LOCH_OK;
    if (is_it) status = loch_allocator_record_use(self->wrapped, held->base, stream);
    if (held) lochi_block_table_unpin(&self->table, held);
    return status;
}

static loch_status redzone_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    redzone *self = user;
    loch_stats inner = {.size = sizeof inner};
    if (!tag && lochi_allocator_read_stats(self->wrapped, 0, &inner) == LOCH_OK) *out = inner;
    lochi_ledger_get_stats(self->table.ledger, tag, out);
    return LOCH_OK;
}

static void redzone_new_segment(void *user)
{
    redzone *self = user;
    lochi_ledger_new_segment(self->table.ledger);
    lochi_wrapper_new_segment(self->wrapped);
}

static const loch_allocator_ops redzone_ops = {
    .size = sizeof redzone_ops,
    .kind = "redzone",
    .traits = LOCH_TRAIT_TRACKS_SIZES,
    .lost_traits = LOCH_TRAIT_STREAM_ORDERED | LOCH_TRAIT_ZEROES,
    .alloc = redzone_alloc,
    .free = redzone_free,
    .destroy = redzone_destroy,
    .find = redzone_find,
    .walk = redzone_walk,
    .record_use = redzone_record_use,
    .get_stats = redzone_get_stats,
    .new_segment = redzone_new_segment,
};

/* --- public functions --- */

static loch_status redzone_read_options(const loch_redzone_options *given, loch_redzone_options *out)
{
    *out = (loch_redzone_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of red-zone options", given, out, sizeof *out));
    if (out->red_zone_bytes > LOCHI_RED_ZONE_MAX)
        return LOCH_FAIL(INVALID, "a red zone of %zu bytes is longer than the maximum of %s", out->red_zone_bytes,
                         LOCHI_SIZE(LOCHI_RED_ZONE_MAX));
    if (!out->red_zone_bytes) out->red_zone_bytes = GUARD_ZONE_BYTES;
    if (!out->poison_new) out->poison_new = GUARD_POISON_NEW;
    if (!out->poison_freed) out->poison_freed = GUARD_POISON_FREED;
    return LOCH_OK;
}

loch_status loch_redzone_create(loch_allocator *wrapped, const char *name, const loch_redzone_options *options,
                                loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "a red-zone wrapper needs an allocator to wrap and an out pointer");
    loch_redzone_options read;
    LOCH_TRY_RETURN(redzone_read_options(options, &read));
    redzone *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for a red-zone wrapper");
    self->wrapped = wrapped;
    self->options = read;
    loch_status status = lochi_block_table_init(&self->table);
    if (status == LOCH_OK) status = lochi_wrapper_create(wrapped, name, &redzone_ops, self, LOCHI_ACCOUNT_OWN, out);
    if (status == LOCH_OK) lochi_owner_index(*out, self->table.ledger);
    if (status == LOCH_OK)
        lochi_account_forward(*out, LOCHI_FORWARDS_RESERVED);
    else
        redzone_destroy(self);
    return status;
}

/* Checks one live block, after waiting for its streams. */
static loch_status redzone_check_block(const redzone *self, const lochi_held *held)
{
    lochi_waits waits = {.device = self->wrapped->device};
    LOCH_TRY_RETURN(lochi_waits_for_block(&waits, held));
    uint32_t mark;
    loch_stream *stream = lochi_held_enter_stream(held, NULL, &mark);
    const loch_status status = lochi_red_zone_check(stream, held);
    lochi_stream_leave(mark);
    return status;
}

loch_status loch_redzone_check(loch_allocator *allocator)
{
    if (!allocator || allocator->ops.alloc != redzone_alloc)
        return LOCH_FAIL(INVALID, "the allocator is not a red-zone wrapper");
    redzone *self = allocator->self;
    loch_error first = {.status = LOCH_OK};
    lochi_held *held;
    for (uintptr_t key = 0; (held = lochi_block_table_pin(&self->table, key)); key++) {
        key = held->node.key;
        const loch_status status = redzone_check_block(self, held);
        lochi_block_table_unpin(&self->table, held);
        if (status == LOCH_OK) continue;
        if (first.status == LOCH_OK || status != LOCH_E_CORRUPT) first = lochi_error_save();
        if (status != LOCH_E_CORRUPT) break; /* the check of the next block would fail as well */
    }
    if (first.status != LOCH_OK) lochi_error_restore(&first);
    return first.status;
}
