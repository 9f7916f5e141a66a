/* SPDX-License-Identifier: MIT */
/* The direct allocator: every block is a raw block of the driver and is given back as soon as possible.
 *
 * A free marks its block as going, waits without the lock for the streams that used the block and for nothing else,
 * checks the red zones, and gives the block to the driver. A deferred free does not wait: it poisons the block in
 * stream order, if poison is on, and keeps the block in a map until loch_direct_free_deferred.
 *
 * The limit counts requested bytes, from before the call of the driver until the driver has taken them back. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/copy.h"
#include "device/device.h"
#include "memory/allocator.h"
#include "memory/block_table.h"
#include "memory/owner.h"
#include "memory/pool/pool.h"
#include "memory/red_zone.h"
#include <loch/direct.h>
#include <stddef.h>

/* The largest alignment for which the allocator helps a driver that aligns less. */
#define DIRECT_ALIGNMENT_MAX ((size_t)1 << 30)

typedef struct direct {
    loch_device *device; /* borrowed; the allocator around this struct retains it */
    loch_direct_options options;
    lochi_block_table table;
    /* Under the table's lock: */
    lochi_tree deferred;
    /* Requested bytes that are in use, deferred or being allocated; the limit counts these. */
    size_t held;
    size_t reserved, peak_reserved; /* bytes from the driver, and their peak in this segment */
    size_t cached;                  /* the reserved bytes of deferred blocks */
} direct;

static bool direct_is_deferred(const direct *self)
{
    return self->options.when == LOCH_DIRECT_FREE_DEFERRED;
}

/* --- handing out --- */

static loch_status direct_admit(direct *self, size_t bytes)
{
    const size_t limit = self->options.limit_bytes;
    lochi_lock_take(&self->table.lock);
    const size_t held = self->held;
    const bool fits = !limit || (bytes <= limit && held <= limit - bytes);
    if (fits) self->held += bytes;
    lochi_lock_drop(&self->table.lock);
    if (fits) return LOCH_OK;
    (void)LOCH_FAIL(LIMIT, "%s more do not fit: the direct allocator is at its limit of %s (%s in use or deferred)",
                    LOCHI_SIZE(bytes), LOCHI_SIZE(limit), LOCHI_SIZE(held));
    lochi_error_note_short("direct", bytes > limit ? bytes - limit : bytes + (held < limit ? held : limit) - limit,
                           bytes > limit ? LOCH_REMEDY_NONE : LOCH_REMEDY_FREE);
    return LOCH_E_LIMIT;
}

/* Returns what the device has left; SIZE_MAX if that is not known. */
static size_t direct_read_left(const direct *self)
{
    loch_memory_info info = {.size = sizeof info};
    const bool is_known =
        self->options.kind == LOCH_MEMORY_DEVICE && !loch_device_can(self->device, LOCH_CAN_HOST_ACCESS);
    const loch_error saved = lochi_error_save();
    if (is_known && loch_device_calculate_memory(self->device, &info) == LOCH_OK) return info.free_bytes;
    lochi_error_restore(&saved);
    return SIZE_MAX;
}

/* Notes what a request lacks that the driver refused, and whether it can ever be served. */
static void direct_refuse(const direct *self, size_t bytes)
{
    const size_t total = self->options.kind == LOCH_MEMORY_DEVICE ? self->device->properties.total_bytes : 0;
    const size_t left = direct_read_left(self), missing = left == SIZE_MAX ? bytes : left < bytes ? bytes - left : 1;
    const bool is_final = total && bytes > total;
    lochi_error_note_short(self->device->name, is_final ? bytes - total : missing,
                           is_final ? LOCH_REMEDY_NONE : LOCH_REMEDY_FREE);
}

/* Gets raw memory from the driver. If it has none, pools of the device give unused memory back. */
static loch_status direct_get(const direct *self, const loch_request *request, size_t bytes, size_t alignment,
                              void **out)
{
    const loch_error before = lochi_error_save();
    loch_status status = loch_raw_alloc(self->device, self->options.kind, bytes, alignment, out);
    if (status != LOCH_E_DEVICE_MEMORY) return status;
    direct_refuse(self, bytes);
    if (request->flags & LOCH_ALLOC_NO_RETRY || lochi_error_is_final(status)) return status;
    const loch_error refusal = lochi_error_save();
    if (!lochi_pool_ask_device(self->device, self->options.kind, bytes, direct_read_left(self))) {
        lochi_error_restore(&refusal);
        return status;
    }
    status = loch_raw_alloc(self->device, self->options.kind, bytes, alignment, out);
    if (status == LOCH_OK) lochi_error_restore(&before);
    if (status == LOCH_E_DEVICE_MEMORY) direct_refuse(self, bytes);
    return status;
}

static void direct_unadmit(direct *self, size_t bytes)
{
    lochi_lock_take(&self->table.lock);
    self->held -= bytes;
    lochi_lock_drop(&self->table.lock);
}

/* Gets raw memory with one driver call. If the driver cannot align that much, a second call takes more memory, and
 * the block lies aligned inside. */
static loch_status direct_take(const direct *self, const loch_request *request, lochi_held *held)
{
    const size_t own = self->device->properties.alignment_bytes;
    const size_t alignment = request->alignment ? request->alignment : own;
    const size_t step = alignment < _Alignof(max_align_t) ? _Alignof(max_align_t) : alignment;
    lochi_zones zones;
    LOCH_TRY_RETURN(lochi_red_zone_lay_out(self->options.red_zone_bytes, step, lochi_request_round(request), &zones));
    void *base;
    size_t taken = zones.total;
    loch_status status = direct_get(self, request, taken, request->alignment, &base);
    size_t shift = 0;
    if (status == LOCH_E_UNSUPPORTED && alignment > own && alignment <= DIRECT_ALIGNMENT_MAX) {
        taken += alignment; /* both numbers are far below the overflow */
        status = direct_get(self, request, taken, 0, &base);
        if (status == LOCH_OK) shift = (size_t)(-(uintptr_t)base & (alignment - 1));
    }
    if (status != LOCH_OK) return status;
    held->base = base;
    held->taken = taken;
    held->node.key = (uintptr_t)base + shift + zones.front;
    return LOCH_OK;
}

static loch_status direct_prepare(const direct *self, const loch_request *request, const lochi_held *held)
{
    const bool is_zeroed = (request->flags & LOCH_ALLOC_ZEROED) != 0; /* the caller zeroes the block after this */
    if (self->options.red_zone_bytes) LOCH_TRY_RETURN(lochi_red_zone_fill(request->stream, held));
    if (!self->options.poison || is_zeroed) return LOCH_OK;
    return lochi_red_zone_poison(request->stream, held, self->options.poison);
}

/* Counts reserved bytes. Called before the block is counted, so that in no snapshot more bytes are in use than
 * reserved. */
static void direct_reserve(direct *self, size_t taken)
{
    lochi_lock_take(&self->table.lock);
    self->reserved += taken;
    if (self->reserved > self->peak_reserved) self->peak_reserved = self->reserved;
    lochi_lock_drop(&self->table.lock);
}

/* Gives raw memory back after a failure, after the fills that were queued on it. */
static void direct_undo(direct *self, const lochi_held *held)
{
    const loch_error saved = lochi_error_save();
    lochi_waits waits = {.device = self->device};
    const loch_status waited = lochi_waits_for(&waits, held->stream);
    (void)waited; /* the memory is freed even if waiting failed, because no later call will free it */
    const loch_status status = loch_raw_free(held->base);
    if (status != LOCH_OK)
        LOCHI_LOG(ERROR, "%s at %p are lost: %s", LOCHI_SIZE(held->taken), (void *)held->base,
                  loch_error_get()->sentence);
    lochi_error_restore(&saved);
    if (status != LOCH_OK) return; /* the bytes stay counted as reserved */
    lochi_lock_take(&self->table.lock);
    self->reserved -= held->taken;
    lochi_lock_drop(&self->table.lock);
}

static loch_status direct_make(direct *self, const loch_request *request, void **out)
{
    lochi_held *held = lochi_held_create(request);
    if (!held)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block of %s", LOCHI_SIZE(request->bytes));
    loch_status status = direct_take(self, request, held);
    if (status == LOCH_OK) {
        direct_reserve(self, held->taken);
        status = direct_prepare(self, request, held);
        if (status == LOCH_OK) status = lochi_block_table_add(&self->table, held);
        if (status != LOCH_OK) direct_undo(self, held);
    }
    if (status == LOCH_OK)
        *out = lochi_held_address(held);
    else
        lochi_held_destroy(held);
    return status;
}

static loch_status direct_alloc(void *user, const loch_request *request, void **out)
{
    direct *self = user;
    loch_status status = direct_admit(self, request->bytes);
    if (status == LOCH_OK) {
        status = direct_make(self, request, out);
        if (status != LOCH_OK) direct_unadmit(self, request->bytes);
    }
    if (status != LOCH_OK) lochi_ledger_count_failure(self->table.ledger);
    return status;
}

/* --- taking back --- */

/* Gives a block to the driver. No stream uses the block any more, and it is in no map. */
static loch_status direct_release(direct *self, lochi_held *held)
{
    LOCH_TRY_RETURN(loch_raw_free(held->base));
    lochi_lock_take(&self->table.lock);
    self->held -= held->requested;
    self->reserved -= held->taken;
    if (direct_is_deferred(self)) self->cached -= held->taken;
    lochi_lock_drop(&self->table.lock);
    lochi_held_destroy(held);
    return LOCH_OK;
}

/* Checks the red zones and the poison of a block whose streams have been waited for. */
static loch_status direct_check(const direct *self, const lochi_held *held, loch_stream *stream)
{
    loch_status status = LOCH_OK;
    if (self->options.red_zone_bytes) status = lochi_red_zone_settle(lochi_red_zone_check(stream, held), held);
    if (status == LOCH_OK && held->is_poisoned)
        status = lochi_red_zone_settle(lochi_red_zone_check_poison(stream, held, self->options.poison), held);
    return status;
}

static loch_status direct_free_now(direct *self, lochi_held *held, loch_stream *given)
{
    lochi_waits waits = {.device = self->device};
    loch_status status = given ? lochi_waits_for(&waits, given) : LOCH_OK;
    if (status == LOCH_OK) status = lochi_waits_for_block(&waits, held);
    if (status != LOCH_OK) {
        lochi_block_table_cancel_free(&self->table, held);
        return status;
    }
    uint32_t mark;
    loch_stream *stream = lochi_held_enter_stream(held, given, &mark);
    const loch_status found = direct_check(self, held, stream);
    if (self->options.poison) lochi_red_zone_poison_freed(stream, held, self->options.poison);
    lochi_stream_leave(mark);
    lochi_lock_take(&self->table.lock);
    lochi_block_table_take(&self->table, held);
    lochi_lock_drop(&self->table.lock);
    status = direct_release(self, held);
    if (status == LOCH_OK) return found;
    lochi_lock_take(&self->table.lock);
    lochi_block_table_put_back(&self->table, held);
    lochi_lock_drop(&self->table.lock);
    return status;
}

/* Queues the poison of a deferred block after all its uses, without waiting. Returns false, and leaves the block as
 * it is, if its stream was destroyed or there is no host memory to order the streams. */
static bool direct_poison_later(const direct *self, const lochi_held *held, loch_stream *given)
{
    loch_stream *stream = given ? given : held->stream;
    uint32_t mark;
    if (!lochi_stream_enter(stream, &mark)) return false;
    const loch_error saved = lochi_error_save();
    loch_status status = LOCH_OK;
    for (size_t i = 0; status == LOCH_OK && i < held->other_count; i++)
        status = lochi_copy_order_remembered(held->others[i], stream);
    if (status == LOCH_OK) status = lochi_red_zone_poison(stream, held, self->options.poison);
    lochi_error_restore(&saved);
    lochi_stream_leave(mark);
    return status == LOCH_OK;
}

static void direct_defer(direct *self, lochi_held *held, loch_stream *given)
{
    if (self->options.poison) held->is_poisoned = direct_poison_later(self, held, given);
    if (given && given != held->stream) held->freed_on = lochi_stream_retain(given);
    lochi_lock_take(&self->table.lock);
    lochi_block_table_take(&self->table, held);
    lochi_tree_insert(&self->deferred, &held->node);
    self->cached += held->taken;
    lochi_lock_drop(&self->table.lock);
}

/* Turns E_FOREIGN into E_DOUBLE_FREE for a deferred block. The ledger forgets old frees; the map of deferred blocks
 * does not. */
static loch_status direct_explain(direct *self, const void *address, loch_status status)
{
    if (status != LOCH_E_FOREIGN) return status;
    lochi_lock_take(&self->table.lock);
    const lochi_tree_node *node = lochi_tree_at_or_below(&self->deferred, (uintptr_t)address);
    const bool is_deferred = node && node->key == (uintptr_t)address;
    lochi_lock_drop(&self->table.lock);
    return is_deferred ? LOCH_FAIL(DOUBLE_FREE, "the block at %p was freed before", address) : status;
}

static loch_status direct_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    direct *self = user;
    lochi_held *held;
    const loch_status status = lochi_block_table_begin_free(&self->table, address, bytes, &held);
    if (status != LOCH_OK) return direct_explain(self, address, status);
    if (!direct_is_deferred(self)) return direct_free_now(self, held, stream);
    direct_defer(self, held, stream);
    return LOCH_OK;
}

/* --- deferred frees --- */

/* State and result of the freeing of all deferred blocks. */
typedef struct direct_ending {
    lochi_waits waits;
    size_t released;
    loch_status status;
    loch_error error; /* belongs to `status` */
    bool is_final;    /* the allocator ends: memory goes back even if waiting fails */
} direct_ending;

/* Keeps the first failure for the report. A failure of the driver replaces corrupt memory. */
static void direct_note(direct_ending *ending, loch_status status)
{
    const bool is_new = ending->status == LOCH_OK || (ending->status == LOCH_E_CORRUPT && status != LOCH_E_CORRUPT);
    if (status == LOCH_OK || !is_new) return;
    ending->status = status;
    ending->error = lochi_error_save();
}

static loch_status direct_check_deferred(const direct *self, const lochi_held *held)
{
    uint32_t mark;
    loch_stream *stream = lochi_held_enter_stream(held, held->freed_on, &mark);
    const loch_status status = direct_check(self, held, stream);
    lochi_stream_leave(mark);
    return status;
}

static void direct_end_block(direct *self, lochi_held *held, direct_ending *ending)
{
    const size_t requested = held->requested;
    loch_status status = lochi_waits_for_block(&ending->waits, held);
    if (status == LOCH_OK) direct_note(ending, direct_check_deferred(self, held));
    if (status == LOCH_OK || ending->is_final) status = direct_release(self, held);
    direct_note(ending, status);
    if (status == LOCH_OK) {
        ending->released += requested;
        return;
    }
    lochi_lock_take(&self->table.lock);
    lochi_tree_insert(&self->deferred, &held->node);
    lochi_lock_drop(&self->table.lock);
}

static void direct_end(direct *self, direct_ending *ending)
{
    lochi_lock_take(&self->table.lock);
    lochi_tree deferred = self->deferred;
    self->deferred = (lochi_tree){NULL, 0};
    lochi_lock_drop(&self->table.lock);
    lochi_tree_node *node;
    while ((node = lochi_tree_at_or_above(&deferred, 0))) {
        lochi_tree_remove(&deferred, node);
        direct_end_block(self, LOCHI_CONTAINER(node, lochi_held, node), ending);
    }
    if (ending->status != LOCH_OK) lochi_error_restore(&ending->error);
}

static void direct_destroy(void *user)
{
    direct *self = user;
    if (!self) return;
    direct_ending ending = {.waits.device = self->device, .is_final = true};
    direct_end(self, &ending);
    if (ending.status != LOCH_OK) LOCHI_LOG(ERROR, "a direct allocator ended with an error: %s", ending.error.sentence);
    lochi_held_forget_all(&self->deferred); /* the driver keeps the memory that it refuses to take back */
    lochi_block_table_fini(&self->table);
    lochi_free(self);
}

/* --- questions --- */

static loch_status direct_find(void *user, const void *address, loch_block *out)
{
    direct *self = user;
    return direct_explain(self, address, lochi_block_table_find(&self->table, address, out));
}

static loch_status direct_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    return lochi_block_table_walk(&((direct *)user)->table, visitor, visitor_user);
}

static loch_status direct_record_use(void *user, void *address, loch_stream *stream)
{
    direct *self = user;
    return direct_explain(self, address, lochi_block_table_record_use(&self->table, address, stream));
}

static loch_status direct_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    direct *self = user;
    lochi_lock_take(&self->table.lock);
    lochi_ledger_get_stats(self->table.ledger, tag, out);
    if (!tag) {
        out->limit_bytes = self->options.limit_bytes;
        out->reserved_bytes = self->reserved;
        out->peak_reserved_bytes = self->peak_reserved;
        out->cached_bytes = self->cached;
    }
    lochi_lock_drop(&self->table.lock);
    return LOCH_OK;
}

static void direct_new_segment(void *user)
{
    direct *self = user;
    lochi_lock_take(&self->table.lock);
    self->peak_reserved = self->reserved;
    lochi_ledger_new_segment(self->table.ledger);
    lochi_lock_drop(&self->table.lock);
}

static loch_attributes direct_get_attributes(void *user)
{
    const direct *self = user;
    const bool is_host = loch_device_can(self->device, LOCH_CAN_HOST_ACCESS);
    loch_attributes attributes = {is_host ? LOCH_ATTRIBUTE_ON_HOST : LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0};
    if (self->options.kind == LOCH_MEMORY_PINNED)
        attributes.bits |= LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE | LOCH_ATTRIBUTE_NIC_COMPATIBLE;
    return attributes;
}

static const loch_allocator_ops direct_ops = {
    .size = sizeof direct_ops,
    .kind = "direct",
    .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES,
    .alloc = direct_alloc,
    .free = direct_free,
    .destroy = direct_destroy,
    .find = direct_find,
    .walk = direct_walk,
    .record_use = direct_record_use,
    .get_stats = direct_get_stats,
    .new_segment = direct_new_segment,
    .get_attributes = direct_get_attributes,
};

/* --- public functions --- */

static loch_status direct_read_options(loch_device *device, const loch_direct_options *given, loch_direct_options *out)
{
    *out = (loch_direct_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of direct options", given, out, sizeof *out));
    if ((unsigned)out->when > LOCH_DIRECT_FREE_DEFERRED || (unsigned)out->kind > LOCH_MEMORY_MANAGED)
        return LOCH_FAIL(INVALID, "the direct options have an unknown time of free %d or kind of memory %d",
                         (int)out->when, (int)out->kind);
    if (out->red_zone_bytes > LOCHI_RED_ZONE_MAX)
        return LOCH_FAIL(INVALID, "a red zone of %zu bytes is longer than the maximum of %s", out->red_zone_bytes,
                         LOCHI_SIZE(LOCHI_RED_ZONE_MAX));
    const uint32_t needed = out->kind == LOCH_MEMORY_PINNED    ? LOCH_CAN_PINNED
                            : out->kind == LOCH_MEMORY_MANAGED ? LOCH_CAN_MANAGED
                                                               : 0;
    if (!loch_device_can(device, needed))
        return LOCH_FAIL(UNSUPPORTED, "%s has no %s memory", device->name, loch_memory_kind_name(out->kind));
    return LOCH_OK;
}

loch_status loch_direct_create(loch_device *device, const char *name, const loch_direct_options *options,
                               loch_allocator **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "a direct allocator needs a device and an out pointer");
    loch_direct_options read;
    LOCH_TRY_RETURN(direct_read_options(device, options, &read));
    direct *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for a direct allocator");
    self->device = device;
    self->options = read;
    loch_allocator_ops ops = direct_ops;
    if (direct_is_deferred(self)) ops.traits |= LOCH_TRAIT_STREAM_ORDERED;
    loch_status status = lochi_block_table_init(&self->table);
    if (status == LOCH_OK) status = loch_allocator_create(device, name ? name : "direct", &ops, self, out);
    if (status == LOCH_OK)
        lochi_owner_index(*out, self->table.ledger);
    else
        direct_destroy(self);
    return status;
}

loch_status loch_direct_free_deferred(loch_allocator *allocator, size_t *released)
{
    if (released) *released = 0;
    if (!allocator || allocator->ops.alloc != direct_alloc)
        return LOCH_FAIL(INVALID, "deferred frees need a direct allocator");
    direct_ending ending = {.waits.device = allocator->device};
    direct_end(allocator->self, &ending);
    if (released) *released = ending.released;
    if (ending.released) lochi_retry_wake();
    return ending.status;
}
