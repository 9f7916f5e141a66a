/* SPDX-License-Identifier: MIT */
/* The tracking wrapper: a ledger of its own around any allocator, and, if asked for, a ring of the latest changes.
 *
 * A free looks the block up before it calls the wrapped allocator, so that a wrong free never reaches it. The ring
 * has one lock, and each record reads the clock under it, so records are in the order of their times. Without a
 * ring, neither costs anything.
 *
 * Blocks and bytes in the statistics are the wrapper's own, with requested sizes. Reserved, cached and limited bytes
 * come from the wrapped allocator. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/owner.h"
#include "memory/wrap/wrap.h"
#include <loch/host.h>
#include <loch/wrapper.h>
#include <string.h>

typedef struct tracking {
    loch_allocator *wrapped; /* borrowed; the allocator around this struct retains it */
    lochi_ledger *ledger;
    lochi_lock lock;  /* LOCHI_RANK_MEMORY: guards the ring; only the clock is called under it */
    size_t capacity;  /* of the ring; 0: no records */
    uint64_t written; /* records since creation; the newest is at (written - 1) % capacity */
    loch_tracking_record ring[];
} tracking;

/* --- records --- */

static void tracking_record(tracking *self, const lochi_entry *entry, int64_t bytes)
{
    lochi_lock_take(&self->lock);
    self->ring[self->written++ % self->capacity] =
        (loch_tracking_record){.bytes = bytes, .id = entry->id, .time_ns = loch_host_now_ns(), .tag = entry->tag};
    lochi_lock_drop(&self->lock);
}

/* Returns the time when a live block was allocated; 0 if its record was overwritten. The first record and those of its
 * growth add up to the size of the block. */
static uint64_t tracking_time(tracking *self, const lochi_entry *entry)
{
    uint64_t time_ns = 0;
    int64_t bytes = 0;
    lochi_lock_take(&self->lock);
    const uint64_t kept = self->written < self->capacity ? self->written : self->capacity;
    for (uint64_t back = 1; back <= kept && (!time_ns || bytes != (int64_t)entry->requested); back++) {
        const loch_tracking_record *record = &self->ring[(self->written - back) % self->capacity];
        if (record->id != entry->id) continue;
        time_ns = record->time_ns;
        bytes += record->bytes;
    }
    lochi_lock_drop(&self->lock);
    return bytes == (int64_t)entry->requested ? time_ns : 0;
}

/* --- the slots --- */

/* Frees a block that could not be added to the ledger, and returns the error of that failure. */
static __attribute__((cold, noinline)) loch_status tracking_undo(tracking *self, const loch_request *request,
                                                                 void **out, loch_status status)
{
    lochi_allocator_abandon(self->wrapped, *out, request->bytes, request->stream);
    lochi_ledger_count_failure(self->ledger);
    *out = NULL;
    return status;
}

/* Adds a block and records it. With records, every block has an id from the start. */
static __attribute__((noinline)) loch_status tracking_add_recorded(tracking *self, const loch_request *request,
                                                                   const void *address)
{
    lochi_entry entry = {.address = (uintptr_t)address,
                         .requested = request->bytes,
                         .allocated = request->bytes,
                         .tag = (uint16_t)request->tag};
    const loch_status status = lochi_ledger_add(self->ledger, &entry, &entry.id);
    if (status == LOCH_OK) tracking_record(self, &entry, (int64_t)entry.requested);
    return status;
}

static loch_status tracking_alloc(void *user, const loch_request *request, void **out)
{
    tracking *self = user;
    loch_status status = lochi_allocator_try(self->wrapped, request, out);
    if (__builtin_expect(status != LOCH_OK, 0)) {
        lochi_ledger_count_failure(self->ledger);
        return status;
    }
    if (!*out) return LOCH_OK;
    status = self->capacity ? tracking_add_recorded(self, request, *out)
                            : lochi_ledger_add_simple(self->ledger, *out, request->bytes, request->tag);
    return __builtin_expect(status == LOCH_OK, 1) ? LOCH_OK : tracking_undo(self, request, out, status);
}

static loch_status tracking_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    tracking *self = user;
    lochi_entry entry;
    LOCH_TRY_RETURN(lochi_ledger_take(self->ledger, address, bytes, &entry));
    const loch_status status = lochi_allocator_give_back(self->wrapped, address, entry.requested, stream);
    if (__builtin_expect(!lochi_is_freed(status), 0))
        lochi_ledger_put_back(self->ledger, &entry);
    else if (self->capacity)
        tracking_record(self, &entry, -(int64_t)entry.requested);
    return status;
}

static loch_status tracking_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    tracking *self = user;
    lochi_entry entry;
    if (!lochi_grow_concerns(self->wrapped, address)) return LOCH_E_UNSUPPORTED;
    LOCH_TRY_RETURN(lochi_ledger_find(self->ledger, address, &entry));
    const loch_status status = lochi_grow_pass(self->wrapped, address, bytes, allocated);
    if (status == LOCH_OK) {
        lochi_ledger_resize(self->ledger, address, bytes);
        if (self->capacity) tracking_record(self, &entry, (int64_t)bytes - (int64_t)entry.requested);
    } else {
        lochi_ledger_count_failure(self->ledger);
    }
    return status;
}

static void tracking_destroy(void *user)
{
    tracking *self = user;
    if (!self) return;
    lochi_ledger_destroy(self->ledger);
    lochi_lock_fini(&self->lock);
    lochi_free(self);
}

static loch_status tracking_find(void *user, const void *address, loch_block *out)
{
    tracking *self = user;
    lochi_entry entry;
    LOCH_TRY_RETURN(lochi_ledger_find(self->ledger, address, &entry));
    lochi_ledger_to_block(&entry, out);
    loch_block inner = {.size = sizeof inner};
    if (self->wrapped->traits & LOCH_TRAIT_TRACKS_SIZES &&
        loch_allocator_find(self->wrapped, address, &inner) == LOCH_OK) {
        if (inner.allocated_bytes > out->allocated_bytes) out->allocated_bytes = inner.allocated_bytes;
        out->stream_id = inner.stream_id;
        out->time_ns = inner.time_ns;
    }
    if (self->capacity) out->time_ns = tracking_time(self, &entry);
    return LOCH_OK;
}

static loch_status tracking_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    tracking *self = user;
    return lochi_ledger_walk_blocks(self->ledger, visitor, visitor_user);
}

static loch_status tracking_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    tracking *self = user;
    loch_stats inner = {.size = sizeof inner};
    if (!tag && lochi_allocator_read_stats(self->wrapped, 0, &inner) == LOCH_OK) *out = inner;
    lochi_ledger_get_stats(self->ledger, tag, out);
    return LOCH_OK;
}

static void tracking_new_segment(void *user)
{
    tracking *self = user;
    lochi_ledger_new_segment(self->ledger);
    lochi_wrapper_new_segment(self->wrapped); /* the reserved bytes have peaks too */
}

static const loch_allocator_ops tracking_ops = {
    .size = sizeof tracking_ops,
    .kind = "tracking",
    .traits = LOCH_TRAIT_TRACKS_SIZES,
    .alloc = tracking_alloc,
    .free = tracking_free,
    .destroy = tracking_destroy,
    .find = tracking_find,
    .walk = tracking_walk,
    .get_stats = tracking_get_stats,
    .new_segment = tracking_new_segment,
    .resize = tracking_resize,
};

/* --- public functions --- */

static loch_status tracking_make(size_t records, tracking **out)
{
    const size_t records_max = (SIZE_MAX - sizeof(tracking)) / sizeof(loch_tracking_record);
    *out = NULL;
    tracking *self = records <= records_max ? lochi_alloc(sizeof *self + records * sizeof *self->ring) : NULL;
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu records of a tracking wrapper", records);
    memset(self, 0, sizeof *self);
    self->capacity = records;
    lochi_lock_init(&self->lock, LOCHI_RANK_MEMORY);
    const loch_status status = lochi_ledger_create(&self->ledger);
    if (status == LOCH_OK)
        *out = self;
    else
        tracking_destroy(self);
    return status;
}

loch_status loch_tracking_create(loch_allocator *wrapped, const char *name, const loch_tracking_options *options,
                                 loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "a tracking wrapper needs an allocator to wrap and an out pointer");
    loch_tracking_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of tracking options", options, &read, sizeof read));
    tracking *self;
    LOCH_TRY_RETURN(tracking_make(read.records, &self));
    self->wrapped = wrapped;
    const loch_status status = lochi_wrapper_create(wrapped, name, &tracking_ops, self, LOCHI_ACCOUNT_OWN, out);
    if (status == LOCH_OK) lochi_owner_index(*out, self->ledger);
    if (status == LOCH_OK)
        lochi_account_forward(*out, LOCHI_FORWARDS_RESERVED);
    else
        tracking_destroy(self);
    return status;
}

/* Copies the first record from number `*next` on that the ring still holds, and sets `*next` to the number after it.
 * Returns false at `end`. */
static bool tracking_read(tracking *self, uint64_t *next, uint64_t end, loch_tracking_record *out)
{
    lochi_lock_take(&self->lock);
    const uint64_t oldest = self->written < self->capacity ? 0 : self->written - self->capacity;
    if (*next < oldest) *next = oldest;
    const bool is_there = *next < end;
    if (is_there) *out = self->ring[(*next)++ % self->capacity];
    lochi_lock_drop(&self->lock);
    return is_there;
}

loch_status loch_tracking_walk(loch_allocator *allocator, loch_tracking_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!allocator || !visitor || allocator->ops.alloc != tracking_alloc)
        return LOCH_FAIL(INVALID, "a walk over records needs a tracking wrapper and a visitor");
    tracking *self = allocator->self;
    lochi_lock_take(&self->lock);
    const uint64_t end = self->written;
    lochi_lock_drop(&self->lock);
    loch_tracking_record record;
    for (uint64_t next = 0; tracking_read(self, &next, end, &record);)
        LOCH_TRY_RETURN(visitor(&record, user));
    return LOCH_OK;
}
