/* SPDX-License-Identifier: MIT */
/* The pool: creates and ends it, has the table of its operations, and sets and reads its options. structs.h describes
 * how it works. */
#include "base/fail.h"
#include "base/fence.h"
#include "base/heap.h"
#include "base/logging.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "memory/live/live.h"
#include "memory/owner.h"
#include "memory/pool/pool.h"
#include "memory/pool/serve/serve.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/child.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/sleeping/sleeping.h"
#include "memory/pool/state/state.h"
#include "memory/pool/report/report.h"
#include "memory/recorder/recorder.h"
#include <string.h>

#define POOL_CELL_MIN ((size_t)64 << 10)
#define POOL_RAW_CELL ((size_t)2 << 20)
#define POOL_EXACT_MIN ((size_t)1 << 20) /* smallest segment of pinned memory: an arena */
#define POOL_HOST_UNIT 16
#define POOL_WHOLE_IDLE ((size_t)1 << 30)

/* --- making and ending --- */

/* Refuses options of handles without a size: the pool would ignore them. */
static loch_status pool_check_handle(const loch_pool_options *options)
{
    if (options->handle.size || (!options->handle.share && options->handle.rdma == LOCH_RDMA_OFF)) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the options of handles need their size: set handle.size to sizeof(loch_handle_options)");
}

static loch_status pool_read_options(lochi_pool *pool, const loch_pool_options *given)
{
    loch_pool_options *options = &pool->options;
    options->size = sizeof *options;
    LOCH_TRY_RETURN(lochi_sized_read("a struct of pool options", given, options, sizeof *options));
    loch_allocator_retain(options->source); /* released by pool_destroy */
    if (options->kind != LOCH_MEMORY_DEVICE && options->kind != LOCH_MEMORY_PINNED &&
        options->kind != LOCH_MEMORY_MANAGED)
        return LOCH_FAIL(INVALID, "a pool cannot hand out %s memory", loch_memory_kind_name(options->kind));
    if ((unsigned)options->waits > LOCH_POOL_WAITS_NONE)
        return LOCH_FAIL(INVALID, "waits %d of a pool is unknown", (int)options->waits);
    if ((unsigned)options->preset > LOCH_POOL_NO_SPLIT || (unsigned)options->captures > LOCH_POOL_CAPTURES_ELSEWHERE ||
        (unsigned)options->wipe > LOCH_POOL_WIPE_FREED)
        return LOCH_FAIL(INVALID, "preset %d, captures %d or wipe %d is unknown", (int)options->preset,
                         (int)options->captures, (int)options->wipe);
    if (options->round_bytes > POOL_ALIGNMENT_MAX || options->handle_bytes > POOL_ALIGNMENT_MAX)
        return LOCH_FAIL(OVERFLOW, "sizes cannot be rounded up to %zu bytes, or handles cannot have %zu bytes",
                         options->round_bytes, options->handle_bytes);
    LOCH_TRY_RETURN(pool_check_handle(options));
    pool->kind = options->kind;
    pool->limit = options->limit_bytes;
    pool->cap.bytes = options->idle_bytes;
    pool->is_of_graphs = options->captures == LOCH_POOL_CAPTURES_SHARED;
    pool->policy.is_whole = options->preset != LOCH_POOL_STANDARD;
    pool->policy.is_unsplit = options->preset == LOCH_POOL_NO_SPLIT;
    pool->policy.is_unwaiting = options->waits == LOCH_POOL_WAITS_NONE;
    pool->policy.is_wiped = options->wipe == LOCH_POOL_WIPE_FREED;
    pool->cap.is_for_small = options->preset == LOCH_POOL_WHOLE_BLOCKS && !pool->cap.bytes;
    if (pool->cap.is_for_small) pool->cap.bytes = POOL_WHOLE_IDLE;
    pool->is_capped = pool->cap.bytes != 0;
    pool->cap.is_obedient = pool->cap.is_listed = pool->cap.bytes || pool->limit;
    return LOCH_OK;
}

/* Checks the source of a pool, which is retained. A child without one has that of its parent. */
static loch_status pool_read_source(lochi_pool *pool, const pool_descent *descent)
{
    const bool is_range = descent && descent->options.kind == LOCH_CHILD_RANGE;
    loch_allocator *source = pool->options.source;
    if (is_range && (source || pool->policy.is_unsplit))
        return LOCH_FAIL(INVALID, "a child with a range has the memory of its parent: it has no source, and is split");
    if (!source && descent && !is_range)
        source = pool->options.source = loch_allocator_retain(descent->parent->options.source);
    if (!source) return LOCH_OK;
    if (loch_allocator_get_device(source) != pool->device)
        return LOCH_FAIL(INVALID, "the source \"%s\" of a pool of %s is an allocator of %s",
                         loch_allocator_get_name(source), pool->device->name, loch_allocator_get_device(source)->name);
    if (!(loch_allocator_get_traits(source) & LOCH_TRAIT_THREAD_SAFE))
        return LOCH_FAIL(INVALID, "the source \"%s\" of a pool is not thread safe: wrap it by loch_locked_create",
                         loch_allocator_get_name(source));
    for (const lochi_pool *above = descent ? descent->parent : NULL; above; above = above->family.parent)
        if (above == lochi_pool_of(source))
            return LOCH_FAIL(INVALID, "the source \"%s\" is a parent of the pool: its memory would count twice",
                             loch_allocator_get_name(source));
    return LOCH_OK;
}

/* Reads the properties of the device. */
static loch_status pool_read_device(lochi_pool *pool, bool is_range)
{
    const loch_device_properties *properties = &pool->device->properties;
    static const uint32_t needed[] = {
        [LOCH_MEMORY_DEVICE] = 0, [LOCH_MEMORY_PINNED] = LOCH_CAN_PINNED, [LOCH_MEMORY_MANAGED] = LOCH_CAN_MANAGED};
    if (!loch_device_can(pool->device, needed[pool->kind]))
        return LOCH_FAIL(UNSUPPORTED, "%s has no %s memory", pool->device->name, loch_memory_kind_name(pool->kind));
    const bool is_fine = pool->options.source || pool->policy.is_unsplit; /* segments of any size */
    pool->policy.is_virtual =
        pool->kind == LOCH_MEMORY_DEVICE && loch_device_can(pool->device, LOCH_CAN_VIRTUAL) && !is_range && !is_fine;
    pool->cell_bytes = pool->policy.is_virtual ? properties->granule_bytes : is_fine ? POOL_CELL_MIN : POOL_RAW_CELL;
    if (pool->cell_bytes < POOL_CELL_MIN) pool->cell_bytes = POOL_CELL_MIN;
    pool->is_exact = pool->kind == LOCH_MEMORY_PINNED && !is_range && !is_fine;
    pool->step_bytes = pool->is_exact || pool->policy.is_unsplit ? POOL_PAGE : pool->cell_bytes;
    pool->smallest = pool->is_exact ? POOL_EXACT_MIN : pool->step_bytes;
    pool->policy.cell_shift = 63u - (unsigned)__builtin_clzll(pool->cell_bytes);
    pool->policy.is_watched =
        pool->options.captures != LOCH_POOL_CAPTURES_NONE && loch_device_can(pool->device, LOCH_CAN_CAPTURE);
    pool->policy.is_asking = pool->policy.is_watched && pool->options.captures == LOCH_POOL_CAPTURES_WATCHED;
    pool->policy.is_at_once = lochi_device_is_at_once(pool->device);
    pool->policy.is_host = pool->policy.is_at_once && /* otherwise queued work may use the memory after the free */
                           (pool->kind != LOCH_MEMORY_DEVICE || loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS));
    pool->policy.checker = (uint8_t)lochi_pool_find_checker(pool->policy.is_host);
    pool->default_stream = &pool->device->default_stream;
    /* No device reads small blocks of the host: they are aligned for every type of C, as malloc aligns them. */
    pool->unit = pool->policy.is_host && properties->alignment_bytes <= 64 ? POOL_HOST_UNIT
                 : properties->alignment_bytes <= 64                       ? 64
                 : properties->alignment_bytes <= 256                      ? 256
                                                                           : POOL_UNIT;
    if (properties->alignment_bytes > POOL_UNIT)
        return LOCH_FAIL(UNSUPPORTED, "%s aligns memory to %zu bytes, which a pool does not support",
                         pool->device->name, properties->alignment_bytes);
    const size_t handle = pool->options.handle_bytes;
    if (handle) pool->options.handle_bytes = (handle + pool->cell_bytes - 1) / pool->cell_bytes * pool->cell_bytes;
    return LOCH_OK;
}

static void pool_close_peers(lochi_pool *pool)
{
    if (pool->family.parent) return; /* a child shares the list of its parent */
    for (size_t i = 0; i < pool->peers_count; i++)
        loch_device_release(pool->peers[i]);
    lochi_free(pool->peers);
}

/* Waits for graphs of captures that were not released, and wipes their memory. */
static void pool_end_graphs(lochi_pool *pool)
{
    lochi_pool_wait_for_graphs(pool);
    if (!pool->policy.is_wiped) return;
    if (lochi_pool_wipe_capture(pool, 0) != LOCH_OK)
        LOCHI_LOG(WARNING, "memory of captures goes back with its contents: %s", loch_error_get()->sentence);
    lochi_pool_wait_for_graphs(pool);
}

static void pool_destroy(void *self)
{
    lochi_pool *pool = self;
    if (!pool) return;
    const bool was_open = pool->listener.closing != NULL;
    if (was_open) {
        lochi_stream_unlisten(&pool->listener);
        lochi_pool_leave(pool);
    }
    lochi_pool_take_locks(pool); /* no other thread uses the pool now; the locks are for functions that assert them */
    if (was_open) lochi_pool_wipe_again(pool);
    if (was_open && !pool->range) lochi_pool_wait_for_all(pool);
    lochi_pool_drop_locks(pool);
    if (was_open && pool->range) lochi_child_note_uses(pool);
    lochi_pool_take_locks(pool);
    if (was_open) pool_end_graphs(pool);
    lochi_pool_drop_all(pool);
    lochi_pool_drop_locks(pool);
    lochi_pool_close_naps(pool);
    lochi_pool_close_caches(pool);
    lochi_pool_close_uses(pool);
    lochi_pool_close_lanes(pool);
    lochi_pool_close_annexes(pool);
    lochi_pool_close_addresses(pool);
    lochi_pool_close_slabs(pool);
    lochi_pool_close_records(pool);
    lochi_ledger_destroy(pool->tags);
    pool_close_peers(pool);
    loch_allocator_release(pool->options.source);
    lochi_child_close(pool);
    pthread_cond_destroy(&pool->source.has_fetched);
    lochi_lock_fini(&pool->lock);
    lochi_lock_fini(&pool->supply);
    lochi_free_aligned(pool);
}

/* --- the table of operations --- */

static loch_status pool_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    lochi_pool *pool = self;
    if (tag) {
        lochi_ledger_get_stats(pool->tags, tag, out);
        return LOCH_OK;
    }
    lochi_lock_take(&pool->lock);
    lochi_pool_try_obey(pool, true);
    lochi_pool_read_stats(pool, out);
    lochi_pool_drop_locks(pool);
    return LOCH_OK;
}

static void pool_new_segment(void *self)
{
    lochi_pool *pool = self;
    lochi_ledger_new_segment(pool->tags);
    lochi_lock_take(&pool->lock);
    lochi_pool_begin_segment(pool);
    lochi_lock_drop(&pool->lock);
}

static loch_status pool_trim(void *self, size_t keep_bytes, size_t *released)
{
    lochi_pool *pool = self;
    lochi_pool_take_locks(pool);
    const size_t keep = lochi_pool_cap_keep(pool, keep_bytes);
    *released = lochi_pool_trim(pool, keep);
    if (lochi_pool_free_bytes(pool) > keep) lochi_pool_discard(pool, lochi_pool_free_bytes(pool) - keep);
    if (pool->is_exact) lochi_pool_forget_peak(pool, keep_bytes);
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    return LOCH_OK;
}

static loch_attributes pool_get_attributes(void *self)
{
    const lochi_pool *pool = self;
    if (pool->options.source) return loch_allocator_get_attributes(pool->options.source);
    static const uint32_t bits[] = {[LOCH_MEMORY_PINNED] = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE |
                                                           LOCH_ATTRIBUTE_NIC_COMPATIBLE,
                                    [LOCH_MEMORY_MANAGED] = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    if (pool->kind != LOCH_MEMORY_DEVICE) return (loch_attributes){bits[pool->kind], 0};
    uint32_t own =
        loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) ? LOCH_ATTRIBUTE_ON_HOST : LOCH_ATTRIBUTE_GPU_COMPATIBLE;
    if (pool->options.handle.rdma == LOCH_RDMA_ON) own |= LOCH_ATTRIBUTE_NIC_COMPATIBLE;
    return (loch_attributes){own, 0};
}

static const loch_allocator_ops pool_ops = {
    .size = sizeof pool_ops,
    .kind = "pool",
    .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES | LOCH_TRAIT_STREAM_ORDERED,
    .alloc = lochi_pool_alloc,
    .free = lochi_pool_free,
    .destroy = pool_destroy,
    .find = lochi_pool_find,
    .walk = lochi_pool_walk,
    .record_use = lochi_pool_record_use,
    .get_stats = pool_get_stats,
    .new_segment = pool_new_segment,
    .trim = pool_trim,
    .get_attributes = pool_get_attributes,
    .resize = lochi_pool_resize,
};

/* --- making --- */

static loch_status pool_open_addresses(lochi_pool *pool)
{
    lochi_pool_take_locks(pool);
    const loch_status status = lochi_pool_open_addresses(pool);
    lochi_pool_drop_locks(pool);
    return status;
}

static void pool_stream_closing(lochi_stream_listener *listener, loch_stream *stream)
{
    lochi_pool *pool = LOCHI_CONTAINER(listener, lochi_pool, listener);
    lochi_lock_take(&pool->lock);
    lochi_pool_forget_stream(pool, stream);
    lochi_pool_end_stream(pool, stream);
    lochi_pool_return_rests(pool);
    lochi_lock_drop(&pool->lock);
}

/* Enters the memory that the pool took before it had an allocator: a child its range, others their addresses. */
static void pool_enter_index(lochi_pool *pool)
{
    lochi_owner_index(pool->allocator, NULL);
    if (pool->span) lochi_span_add(&pool->in_index, pool->base, pool->span, pool->allocator);
    if (pool->range) lochi_span_add(&pool->handles->span, pool->handles->at, pool->handles->bytes, pool->allocator);
}

static loch_status pool_make(loch_device *device, const char *name, const loch_pool_options *options,
                             const pool_descent *descent, loch_allocator **out)
{
    lochi_pool *pool = lochi_zalloc_aligned(_Alignof(lochi_pool), sizeof *pool);
    if (!pool) return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool");
    loch_status status;
    lochi_lock_init(&pool->supply, LOCHI_RANK_SUPPLY);
    lochi_lock_init(&pool->lock, LOCHI_RANK_MEMORY);
    lochi_lock_init_condition(&pool->source.has_fetched);
    lochi_pool_open_bounds(pool);
    pool->tenant.describe = lochi_pool_describe;
    pool->annexes.tenant.describe = lochi_pool_describe_annex;
    lochi_fence_prepare();
    pool->device = device;
    pool->waiting_end = &pool->waiting;
    pool->stale.end = &pool->stale.first;
    LOCH_TRY(lochi_live_prepare(), fail);
    LOCH_TRY(pool_read_options(pool, options), fail);
    LOCH_TRY(pool_read_source(pool, descent), fail);
    LOCH_TRY(pool_read_device(pool, descent && descent->options.kind == LOCH_CHILD_RANGE), fail);
    if (descent) LOCH_TRY(lochi_child_open(pool, descent), fail);
    pool->family.limit = pool->family.ceiling = pool->limit;
    LOCH_TRY(lochi_pool_read_headroom(pool), fail);
    /* Closed for the pool's whole life: the fast path does not round sizes, does not wipe, does not notify tools,
     * needs a fence that not every system has, and does not list live blocks. */
    if (lochi_live_is_kept() || pool->options.round_bytes > 1 || pool->policy.is_wiped || !lochi_fence_has_lightest() ||
        (pool->policy.checker && !LOCHI_POOL_IS_CHECKED_HERE))
        atomic_store(&pool->gate, 1);
    atomic_init(&pool->figures.is_locked, false);
    lochi_pool_lay_out_classes(pool);
    LOCH_TRY(lochi_ledger_create(&pool->tags), fail);
    if (!descent) LOCH_TRY(pool_open_addresses(pool), fail); /* a child reserves with its first block */
    LOCH_TRY(loch_allocator_create(device, name ? name : "pool", &pool_ops, pool, &pool->allocator), fail);
    pool_enter_index(pool);
    pool->listener = (lochi_stream_listener){.device = device, .closing = pool_stream_closing};
    lochi_stream_listen(&pool->listener);
    lochi_pool_join(pool);
    lochi_recorder_apply(pool->allocator, pool);
    if (descent) lochi_family_link(pool);
    *out = pool->allocator;
    return LOCH_OK;
fail:
    pool_destroy(pool);
    return status;
}

/* Takes the initial bytes of a new pool from the device: as one block, whose memory stays when it is freed. A pool that
 * does not get them ends. */
static loch_status pool_take_initial(size_t bytes, loch_allocator **out)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes};
    lochi_session_frame frame;
    void *block;
    lochi_session_hush(&frame); /* the block belongs to no session that the thread is in */
    loch_status status = loch_allocator_alloc(*out, &request, &block);
    if (status == LOCH_OK) status = loch_free(*out, block);
    if (status == LOCH_OK) status = loch_allocator_trim(*out, SIZE_MAX, NULL); /* out of the thread's cache */
    lochi_session_unhush(&frame);
    if (status == LOCH_OK) return loch_allocator_reset_stats(*out);
    const loch_error saved = lochi_error_save();
    loch_allocator_release(*out);
    lochi_error_restore(&saved);
    *out = NULL;
    return status;
}

static loch_status pool_build(loch_device *device, const char *name, const loch_pool_options *options,
                              const pool_descent *descent, loch_allocator **out)
{
    loch_pool_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of pool options", options, &read, sizeof read));
    if (read.idle_bytes && read.initial_bytes > read.idle_bytes)
        return LOCH_FAIL(INVALID, "a pool that keeps %s of free memory cannot take %s at creation",
                         LOCHI_SIZE(read.idle_bytes), LOCHI_SIZE(read.initial_bytes));
    LOCH_TRY_RETURN(pool_make(device, name, &read, descent, out));
    return read.initial_bytes ? pool_take_initial(read.initial_bytes, out) : LOCH_OK;
}

loch_status loch_pool_create(loch_device *device, const char *name, const loch_pool_options *options,
                             loch_allocator **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "a pool needs a device, and an out pointer");
    return pool_build(device, name, options, NULL, out);
}

loch_status loch_pool_create_child(loch_allocator *parent, const char *name, const loch_child_options *options,
                                   loch_allocator **out)
{
    if (out) *out = NULL;
    pool_descent descent = {.parent = lochi_pool_of(parent), .options = {.size = sizeof descent.options}};
    if (!descent.parent || !out) return LOCH_FAIL(INVALID, "a child needs a pool as its parent, and an out pointer");
    LOCH_TRY_RETURN(lochi_sized_read("a struct of child options", options, &descent.options, sizeof descent.options));
    if ((unsigned)descent.options.kind > LOCH_CHILD_RANGE)
        return LOCH_FAIL(INVALID, "kind %d of a child is unknown", (int)descent.options.kind);
    loch_pool_options pool = {.size = sizeof pool};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of pool options", descent.options.pool, &pool, sizeof pool));
    if (pool.kind != LOCH_MEMORY_DEVICE && pool.kind != descent.parent->kind)
        return LOCH_FAIL(INVALID, "the parent has %s memory, not %s", loch_memory_kind_name(descent.parent->kind),
                         loch_memory_kind_name(pool.kind));
    pool.kind = descent.parent->kind;
    pool.limit_bytes = 0;
    if (pool.wipe < descent.parent->options.wipe) pool.wipe = descent.parent->options.wipe;
    LOCH_TRY_RETURN(pool_check_handle(&pool));
    if (!pool.handle.size) pool.handle = descent.parent->options.handle;
    return pool_build(descent.parent->device, name ? name : "child", &pool, &descent, out);
}

/* --- calls for pools only --- */

#define POOL_NEEDED(pool, allocator)                                                                                   \
    lochi_pool *pool = lochi_pool_of(allocator);                                                                       \
    if (!(pool)) return LOCH_FAIL(INVALID, "\"%s\" is not a pool", loch_allocator_get_name(allocator))

size_t lochi_pool_align_buffers(const loch_allocator *allocator)
{
    const lochi_pool *pool = lochi_pool_of(allocator);
    const size_t own = pool ? pool->device->properties.alignment_bytes : 0;
    return pool && pool->unit < own ? own : 0;
}

loch_status lochi_pool_open_to(loch_allocator *allocator, loch_device *const *peers, size_t count)
{
    POOL_NEEDED(pool, allocator);
    if (!count || !pool->policy.is_virtual)
        return LOCH_OK; /* raw memory can be used by every device that enabled the peer */
    pool->peers = lochi_alloc_array(count, sizeof(loch_device *));
    if (!pool->peers) return LOCH_FAIL(HOST_MEMORY, "no host memory for a list of %zu devices", count);
    for (size_t i = 0; i < count; i++)
        pool->peers[i] = loch_device_retain(peers[i]);
    pool->peers_count = count;
    return LOCH_OK;
}

/* Sets the limit of a pool, and the ceiling, which is higher if the limit is a grant; 0 for none. */
static loch_status pool_set_limit(lochi_pool *self, size_t limit_bytes, size_t ceiling)
{
    if (self->range) return LOCH_FAIL(UNSUPPORTED, "the size of a child's range cannot change");
    lochi_pool_take_locks(self);
    const loch_status status = lochi_family_set_limit(self, limit_bytes, ceiling);
    if (status == LOCH_OK) {
        self->limit = limit_bytes;
        self->cap.is_obedient |= limit_bytes != 0;
    }
    if (status == LOCH_OK && limit_bytes && self->reserved > limit_bytes) {
        const size_t excess = self->reserved - limit_bytes, free = lochi_pool_free_bytes(self);
        lochi_pool_trim(self, free > excess ? free - excess : 0);
    }
    lochi_pool_drop_locks(self);
    if (status == LOCH_OK) (void)lochi_pool_ask_family(self, 0, true);
    return status;
}

loch_status loch_pool_set_limit(loch_allocator *pool, size_t limit_bytes)
{
    POOL_NEEDED(self, pool);
    return pool_set_limit(self, limit_bytes, limit_bytes);
}

loch_status loch_pool_set_grant(loch_allocator *pool, size_t granted_bytes, size_t limit_bytes)
{
    POOL_NEEDED(self, pool);
    if (limit_bytes && granted_bytes > limit_bytes)
        return LOCH_FAIL(INVALID, "a grant of %s is more than the limit of %s", LOCHI_SIZE(granted_bytes),
                         LOCHI_SIZE(limit_bytes));
    return pool_set_limit(self, granted_bytes ? granted_bytes : 1, limit_bytes); /* a limit of 0 would be none */
}

loch_status loch_pool_set_idle(loch_allocator *pool, size_t idle_bytes)
{
    POOL_NEEDED(self, pool);
    if (self->range) return LOCH_FAIL(UNSUPPORTED, "a child keeps its range until it ends");
    lochi_pool_take_locks(self);
    self->cap.bytes = idle_bytes;
    self->cap.is_for_small = false;
    self->cap.is_obedient |= idle_bytes != 0;
    lochi_pool_stop(self);
    self->is_capped = idle_bytes != 0;
    lochi_pool_go(self);
    if (idle_bytes) lochi_pool_trim(self, idle_bytes);
    lochi_pool_drop_locks(self);
    return LOCH_OK;
}

loch_status lochi_pool_check_awake(loch_allocator *allocator, const void *address, size_t bytes)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_OK;
    lochi_lock_take(&pool->lock);
    const bool is_asleep = lochi_pool_sleeps_at(pool, (uintptr_t)address, bytes);
    lochi_lock_drop(&pool->lock);
    return is_asleep ? lochi_pool_refuse_at(address) : LOCH_OK;
}

loch_status loch_pool_get_info(loch_allocator *pool, loch_pool_info *out)
{
    POOL_NEEDED(self, pool);
    if (!lochi_sized_is_set(out)) return LOCH_FAIL(INVALID, "the figures of a pool need a place whose `size` is set");
    loch_pool_info info = {.size = sizeof info};
    lochi_lock_take(&self->lock);
    lochi_pool_try_obey(self, true);
    lochi_pool_read_info(self, &info);
    lochi_pool_drop_locks(self);
    lochi_sized_write(out, &info, sizeof info);
    return LOCH_OK;
}
