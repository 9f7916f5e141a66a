/* SPDX-License-Identifier: MIT */
/* Pools of buffers: released buffers are kept for reuse.
 *
 * Kept buffers are in a list, least recently used first. An entry stores the number of a stream, not the stream, and an
 * event that was recorded when the buffer came back. So streams may be closed meanwhile. A take for another stream
 * makes that stream wait for the event on the device, unless the event has passed. Every stream that uses a block is
 * recorded in the allocator. So the allocator frees the block after all of them, whether the buffer is kept, released
 * by the user, or dropped by the pool.
 *
 * The lock guards the list and the figures. Entries are taken out with the lock held; allocating, freeing and waiting
 * are done without it. Devices whose work is done when it is queued need no events, and treat all streams as one. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/device.h"
#include "memory/buffer/buffer.h"
#include <loch/scratch.h>

#define BUFFER_POOL_IDLE_BYTES ((size_t)256 << 20)
#define BUFFER_POOL_IDLE_COUNT 64
#define BUFFER_POOL_WASTE_PERCENT 25

/* A kept buffer. In the list of spare records: a record without a buffer, whose event can be reused. */
typedef struct kept {
    struct kept *older, *newer; /* spare records use `older` only */
    loch_buffer *buffer;        /* holds the only reference */
    size_t bytes;               /* capacity of its block */
    /* recorded after the work of the stream that it came back on; NULL if the device works synchronously */
    loch_event *event;
    uint64_t stream_id; /* number of that stream */
    bool has_passed;    /* the event has passed; stays true until it is recorded again */
    bool is_used;       /* work of another device uses it, whose order with the streams of this device is not known */
} kept;

struct loch_buffer_pool {
    loch_allocator *allocator;
    loch_device *device; /* device of the allocator */
    loch_buffer_pool_options options;
    uint64_t mark;   /* mark on buffers in use: a number that is unique in the process */
    lochi_lock lock; /* LOCHI_RANK_SCRATCH: guards the members below */
    kept *oldest, *newest;
    kept *spare;
    size_t spare_count;
    uint64_t acquired, reused;
    size_t out, idle, idle_bytes;
};

static _Atomic uint64_t buffer_pool_last_mark; /* relaxed: only uniqueness matters */

/* --- the list --- */

static void buffer_pool_link(loch_buffer_pool *pool, kept *it)
{
    lochi_lock_assert_held(&pool->lock);
    it->older = pool->newest;
    it->newer = NULL;
    *(pool->newest ? &pool->newest->newer : &pool->oldest) = it;
    pool->newest = it;
    pool->idle++;
    pool->idle_bytes += it->bytes;
}

static void buffer_pool_unlink(loch_buffer_pool *pool, kept *it)
{
    lochi_lock_assert_held(&pool->lock);
    *(it->older ? &it->older->newer : &pool->oldest) = it->newer;
    *(it->newer ? &it->newer->older : &pool->newest) = it->older;
    pool->idle--;
    pool->idle_bytes -= it->bytes;
}

/* Tells whether a buffer of `bytes` is not too large for a request of `wanted` bytes. */
static bool buffer_pool_fits(const loch_buffer_pool *pool, size_t bytes, size_t wanted)
{
    size_t hundredfold, allowed;
    if (bytes < wanted) return false;
    if (!lochi_mul(bytes - wanted, 100, &hundredfold))
        return (bytes - wanted) / pool->options.waste_percent <= wanted / 100;
    return !lochi_mul(wanted, pool->options.waste_percent, &allowed) || hundredfold <= allowed;
}

/* How soon a kept buffer can be used on a stream. Smaller is better. */
typedef enum readiness {
    READY_IN_ORDER,    /* it came back on this stream */
    READY_PASSED,      /* its work has ended */
    READY_BEHIND_WAIT, /* after a wait of the stream on the device */
    READY_LATER        /* not yet usable */
} readiness;

static readiness buffer_pool_rate(const loch_buffer_pool *pool, kept *it, uint64_t stream_id)
{
    lochi_lock_assert_held(&pool->lock);
    if (it->is_used) it->is_used = lochi_buffer_is_used(it->buffer);
    if (it->is_used) return READY_LATER;
    if (!it->event || it->stream_id == stream_id) return READY_IN_ORDER;
    if (!it->has_passed) {
        const loch_error saved = lochi_error_save(); /* a busy event is not a failure of the caller's call */
        it->has_passed = loch_event_query(it->event) == LOCH_OK;
        lochi_error_restore(&saved);
    }
    return it->has_passed ? READY_PASSED : READY_BEHIND_WAIT;
}

/* Takes out the best buffer for a stream: first by readiness, then the smallest, then the most recently used. */
static kept *buffer_pool_take(loch_buffer_pool *pool, size_t bytes, uint64_t stream_id)
{
    kept *best = NULL;
    readiness best_rate = READY_LATER;
    lochi_lock_take(&pool->lock);
    for (kept *it = pool->newest; it; it = it->older) {
        if (!buffer_pool_fits(pool, it->bytes, bytes)) continue;
        const bool is_smaller = !best || it->bytes < best->bytes;
        const bool is_own = !it->event || it->stream_id == stream_id;
        /* skips buffers that cannot be better: querying an event is a driver call */
        if (best_rate == READY_IN_ORDER && !(is_smaller && is_own)) continue;
        const readiness rate = buffer_pool_rate(pool, it, stream_id);
        if (rate > best_rate || rate == READY_LATER || (rate == best_rate && !is_smaller)) continue;
        best = it;
        best_rate = rate;
    }
    if (best) buffer_pool_unlink(pool, best);
    lochi_lock_drop(&pool->lock);
    return best;
}

/* --- records --- */

static void buffer_pool_free_record(kept *it)
{
    loch_event_destroy(it->event);
    lochi_free(it);
}

/* Makes a record without a buffer, with an event if the device needs one. Returns NULL if there is no memory. */
static kept *buffer_pool_make_record(loch_buffer_pool *pool)
{
    kept *it = lochi_zalloc(sizeof *it);
    if (!it || lochi_device_is_at_once(pool->device)) return it;
    if (loch_event_create(pool->device, LOCH_EVENT_PLAIN, &it->event) == LOCH_OK) return it;
    lochi_free(it);
    return NULL;
}

/* Keeps a record for reuse. Returns false if enough records are kept. */
static bool buffer_pool_put_spare(loch_buffer_pool *pool, kept *it)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->spare_count >= pool->options.idle_count_max) return false;
    it->older = pool->spare;
    pool->spare = it;
    pool->spare_count++;
    return true;
}

/* Takes a spare record. Returns NULL if the list is empty. */
static kept *buffer_pool_take_spare(loch_buffer_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    kept *it = pool->spare;
    if (!it) return NULL;
    pool->spare = it->older;
    pool->spare_count--;
    return it;
}

static void buffer_pool_put_record(loch_buffer_pool *pool, kept *it)
{
    lochi_lock_take(&pool->lock);
    const bool is_taken = buffer_pool_put_spare(pool, it);
    lochi_lock_drop(&pool->lock);
    if (!is_taken) buffer_pool_free_record(it);
}

/* Drops least recently used buffers while more is kept than the limits say, and sums up what was dropped. Any thread
 * may call this; the lock is not held. */
static void buffer_pool_shrink(loch_buffer_pool *pool, size_t bytes_max, size_t count_max, size_t enough,
                               size_t *released)
{
    while (*released < enough) {
        lochi_lock_take(&pool->lock);
        kept *it = pool->idle_bytes > bytes_max || pool->idle > count_max ? pool->oldest : NULL;
        if (it) buffer_pool_unlink(pool, it);
        lochi_lock_drop(&pool->lock);
        if (!it) return;
        *released += it->bytes;
        loch_buffer_release(it->buffer);
        buffer_pool_put_record(pool, it);
    }
}

/* Called when the allocator is short of memory. Drops kept buffers. */
static size_t buffer_pool_press(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    size_t released = 0;
    buffer_pool_shrink(user, 0, 0, bytes, &released);
    return released;
}

/* --- create and destroy --- */

static loch_status buffer_pool_read_options(const loch_buffer_pool_options *given, loch_buffer_pool_options *out)
{
    *out = (loch_buffer_pool_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("loch_buffer_pool_options", given, out, sizeof *out));
    if (out->alignment && !lochi_is_power_of_two(out->alignment))
        return LOCH_FAIL(INVALID, "alignment %zu is not a power of two", out->alignment);
    if (!out->idle_bytes_max) out->idle_bytes_max = BUFFER_POOL_IDLE_BYTES;
    if (!out->idle_count_max) out->idle_count_max = BUFFER_POOL_IDLE_COUNT;
    if (!out->waste_percent) out->waste_percent = BUFFER_POOL_WASTE_PERCENT;
    return LOCH_OK;
}

loch_status loch_buffer_pool_create(loch_allocator *allocator, const loch_buffer_pool_options *options,
                                    loch_buffer_pool **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a pool of buffers needs an allocator and an out pointer");
    loch_buffer_pool_options read;
    LOCH_TRY_RETURN(buffer_pool_read_options(options, &read));
    loch_buffer_pool *pool = lochi_zalloc(sizeof *pool);
    if (!pool) return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool of buffers");
    pool->options = read;
    pool->device = loch_allocator_get_device(allocator);
    pool->mark = atomic_fetch_add_explicit(&buffer_pool_last_mark, 1, memory_order_relaxed) + 1;
    const loch_status status = loch_allocator_add_pressure(allocator, buffer_pool_press, pool);
    if (status != LOCH_OK) {
        lochi_free(pool);
        return status;
    }
    pool->allocator = loch_allocator_retain(allocator);
    lochi_lock_init(&pool->lock, LOCHI_RANK_SCRATCH);
    *out = pool;
    return LOCH_OK;
}

static void buffer_pool_free_spare(loch_buffer_pool *pool)
{
    lochi_lock_take(&pool->lock);
    kept *spare = pool->spare;
    pool->spare = NULL;
    pool->spare_count = 0;
    lochi_lock_drop(&pool->lock);
    while (spare) {
        kept *next = spare->older;
        buffer_pool_free_record(spare);
        spare = next;
    }
}

void loch_buffer_pool_destroy(loch_buffer_pool *pool)
{
    if (!pool) return;
    /* cannot fail: it was added when the pool was created */
    (void)!loch_allocator_remove_pressure(pool->allocator, buffer_pool_press, pool);
    size_t released = 0;
    buffer_pool_shrink(pool, 0, 0, SIZE_MAX, &released);
    buffer_pool_free_spare(pool);
    lochi_lock_fini(&pool->lock);
    loch_allocator_release(pool->allocator);
    lochi_free(pool);
}

/* --- handing out --- */

/* Finds out whether a stream is under capture. Captured work uses its addresses each time the graph runs. It cannot
 * wait for events outside of the graph, and cannot record events for others. So it gets separate buffers, which are not
 * kept. */
static loch_status buffer_pool_ask_capture(loch_buffer_pool *pool, loch_stream *stream, bool *out)
{
    *out = false;
    if (!loch_device_can(pool->device, LOCH_CAN_CAPTURE)) return LOCH_OK;
    loch_capture_info info = {.size = sizeof info};
    LOCH_TRY_RETURN(loch_stream_query_capture(stream, &info));
    *out = info.active;
    return LOCH_OK;
}

/* Checks a stream. Replaces NULL by the default stream. */
static loch_status buffer_pool_read_stream(loch_buffer_pool *pool, loch_stream **stream, bool *is_captured)
{
    if (!*stream) *stream = loch_stream_get_default(pool->device);
    LOCH_TRY_RETURN(lochi_stream_check(*stream, pool->device));
    return buffer_pool_ask_capture(pool, *stream, is_captured);
}

static loch_status buffer_pool_make(loch_buffer_pool *pool, size_t bytes, loch_stream *stream, loch_buffer **out)
{
    const loch_request request = {
        .size = sizeof request, .alignment = pool->options.alignment, .stream = stream, .tag = pool->options.tag};
    return loch_buffer_create(pool->allocator, bytes, &request, out);
}

/* Prepares a kept buffer for use on a stream. */
static loch_status buffer_pool_ready(loch_buffer_pool *pool, const kept *it, size_t bytes, loch_stream *stream)
{
    if (it->event && it->stream_id != loch_stream_get_id(stream)) {
        if (!it->has_passed) LOCH_TRY_RETURN(loch_stream_wait(stream, it->event));
        LOCH_TRY_RETURN(loch_allocator_record_use(pool->allocator, loch_buffer_get_address(it->buffer), stream));
    }
    return lochi_buffer_set_bytes(it->buffer, bytes);
}

static loch_status buffer_pool_reuse(loch_buffer_pool *pool, kept *it, size_t bytes, loch_stream *stream,
                                     loch_buffer **out)
{
    const loch_status status = buffer_pool_ready(pool, it, bytes, stream);
    if (status != LOCH_OK) { /* put back unchanged, for the stream that it came back on */
        lochi_lock_take(&pool->lock);
        buffer_pool_link(pool, it);
        lochi_lock_drop(&pool->lock);
        return status;
    }
    *out = it->buffer;
    return LOCH_OK;
}

loch_status loch_buffer_pool_acquire(loch_buffer_pool *pool, size_t bytes, loch_stream *stream, loch_buffer **out)
{
    if (out) *out = NULL;
    if (!pool || !out) return LOCH_FAIL(INVALID, "taking a buffer needs a pool of buffers and an out pointer");
    bool is_captured;
    LOCH_TRY_RETURN(buffer_pool_read_stream(pool, &stream, &is_captured));
    kept *it = bytes && !is_captured ? buffer_pool_take(pool, bytes, loch_stream_get_id(stream)) : NULL;
    LOCH_TRY_RETURN(it ? buffer_pool_reuse(pool, it, bytes, stream, out) : buffer_pool_make(pool, bytes, stream, out));
    lochi_buffer_set_mark(*out, pool->mark);
    lochi_lock_take(&pool->lock);
    pool->acquired++;
    pool->reused += it != NULL;
    pool->out++;
    const bool is_left = it && !buffer_pool_put_spare(pool, it);
    lochi_lock_drop(&pool->lock);
    if (is_left) buffer_pool_free_record(it);
    return LOCH_OK;
}

/* --- taking back --- */

/* Removes the pool's mark from a buffer, so that a second release of it is refused as foreign. Takes a spare record if
 * there is one. */
static loch_status buffer_pool_claim(loch_buffer_pool *pool, loch_buffer *buffer, kept **record)
{
    lochi_lock_take(&pool->lock);
    const bool is_ours = lochi_buffer_get_mark(buffer) == pool->mark;
    if (is_ours) {
        lochi_buffer_set_mark(buffer, 0);
        pool->out--;
        *record = buffer_pool_take_spare(pool);
    }
    lochi_lock_drop(&pool->lock);
    return is_ours ? LOCH_OK : LOCH_FAIL(FOREIGN, "the buffer was not taken from this pool of buffers");
}

/* Restores the mark: the caller keeps the buffer. */
static void buffer_pool_unclaim(loch_buffer_pool *pool, loch_buffer *buffer, kept *record)
{
    lochi_lock_take(&pool->lock);
    lochi_buffer_set_mark(buffer, pool->mark);
    pool->out++;
    lochi_lock_drop(&pool->lock);
    if (record) buffer_pool_put_record(pool, record);
}

/* Records the stream of the latest work in the allocator. If there is no memory for the record, waits for that work;
 * captured work is not waited for, since it does not run. */
static loch_status buffer_pool_note(loch_buffer_pool *pool, loch_buffer *buffer, loch_stream *stream, bool is_captured)
{
    void *address = loch_buffer_get_address(buffer);
    if (!address || lochi_device_is_at_once(pool->device)) return LOCH_OK;
    if (loch_allocator_record_use(pool->allocator, address, stream) == LOCH_OK || is_captured) return LOCH_OK;
    return loch_stream_sync(stream);
}

/* Tells whether to keep a buffer: the pool has the only reference, the buffer has no deleters, it has memory, and
 * keeping it would not drop all other buffers. */
static bool buffer_pool_wants(const loch_buffer_pool *pool, loch_buffer *buffer)
{
    const size_t bytes = lochi_buffer_get_capacity(buffer);
    return bytes && bytes <= pool->options.idle_bytes_max && lochi_buffer_is_sole(buffer) &&
           !lochi_buffer_has_deleters(buffer);
}

/* Keeps a buffer, ordered after the work of `stream`. Makes a record if `*record` is NULL. Returns false if there is no
 * memory for it. */
static bool buffer_pool_keep(loch_buffer_pool *pool, loch_buffer *buffer, loch_stream *stream, kept **record)
{
    if (!*record) *record = buffer_pool_make_record(pool);
    kept *it = *record;
    if (!it || (it->event && loch_event_record(it->event, stream) != LOCH_OK)) return false;
    lochi_buffer_touch(buffer); /* caches of the old contents must not be used for the next user's contents */
    it->buffer = buffer;
    it->bytes = lochi_buffer_get_capacity(buffer);
    it->stream_id = loch_stream_get_id(stream);
    it->has_passed = false;
    it->is_used = buffer->uses && lochi_buffer_is_used(buffer); /* no lock needed: only this thread has the buffer */
    const size_t bytes_max = pool->options.idle_bytes_max, count_max = pool->options.idle_count_max;
    lochi_lock_take(&pool->lock);
    buffer_pool_link(pool, it);
    const bool is_full = pool->idle_bytes > bytes_max || pool->idle > count_max;
    lochi_lock_drop(&pool->lock);
    size_t released = 0;
    if (is_full) buffer_pool_shrink(pool, bytes_max, count_max, SIZE_MAX, &released);
    return true;
}

loch_status loch_buffer_pool_release(loch_buffer_pool *pool, loch_buffer *buffer, loch_stream *stream)
{
    if (!pool) return LOCH_FAIL(INVALID, "the pool of buffers is NULL");
    if (!buffer) return LOCH_OK;
    bool is_captured;
    LOCH_TRY_RETURN(buffer_pool_read_stream(pool, &stream, &is_captured));
    kept *record = NULL;
    LOCH_TRY_RETURN(buffer_pool_claim(pool, buffer, &record));
    const loch_status status = buffer_pool_note(pool, buffer, stream, is_captured);
    if (status != LOCH_OK) {
        buffer_pool_unclaim(pool, buffer, record);
        return status;
    }
    const bool is_wanted = !is_captured && buffer_pool_wants(pool, buffer);
    if (is_wanted && buffer_pool_keep(pool, buffer, stream, &record)) return LOCH_OK;
    if (record) buffer_pool_put_record(pool, record);
    loch_buffer_release(buffer);
    return LOCH_OK;
}

loch_status loch_buffer_pool_trim(loch_buffer_pool *pool, size_t keep_bytes, size_t *released)
{
    if (released) *released = 0;
    if (!pool) return LOCH_FAIL(INVALID, "the pool of buffers to trim is NULL");
    size_t went = 0;
    buffer_pool_shrink(pool, keep_bytes, SIZE_MAX, SIZE_MAX, &went);
    buffer_pool_free_spare(pool);
    if (released) *released = went;
    return LOCH_OK;
}

loch_status loch_buffer_pool_get_stats(loch_buffer_pool *pool, loch_buffer_pool_stats *out)
{
    if (!pool || !out) return LOCH_FAIL(INVALID, "figures of a pool of buffers need the pool and an output struct");
    loch_buffer_pool_stats stats = {.size = sizeof stats};
    if (out->size < sizeof out->size) return LOCH_FAIL(INVALID, "the loch_buffer_pool_stats has no size set");
    lochi_lock_take(&pool->lock);
    stats.acquired = pool->acquired;
    stats.reused = pool->reused;
    stats.out = pool->out;
    stats.idle = pool->idle;
    stats.idle_bytes = pool->idle_bytes;
    lochi_lock_drop(&pool->lock);
    stats.size = out->size < sizeof stats ? out->size : sizeof stats;
    memcpy(out, &stats, stats.size);
    return LOCH_OK;
}
