/* SPDX-License-Identifier: MIT */
/* A pool of streams and events for reuse.
 *
 * A kept object is linked into a shelf through a member of its own, so giving it back needs no memory. Only the pool
 * has a kept object, so it stays idle once its work has ended. A take asks the driver about one object after the other,
 * without the lock, and puts busy ones back. An object that cannot be queried (its device is lost) is destroyed.
 * Streams are taken newest first, so that few streams are in use. Events are taken oldest first, because the oldest has
 * most likely passed; after a few busy events, creating a new one is cheaper.
 *
 * A stream that further owners retain (loch_stream_retain) when it comes back is not kept: the pool releases its
 * reference, and the last owner ends the stream.
 *
 * An object in use carries the mark of its pool: a number, not an address. The mark is removed when the object comes
 * back. So an object that is given back twice, or to another pool, is refused as foreign. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/device.h"
#include "engine/stream_pool.h"

#define STREAM_POOL_STREAMS 16
#define STREAM_POOL_EVENTS 64
#define STREAM_POOL_EVENTS_ASKED 4 /* queried before a new event is created */

/* The kept objects of one kind. */
typedef struct stream_shelf {
    loch_status (*ask)(lochi_kept *it); /* returns E_BUSY while the object has work */
    void (*end)(lochi_kept *it);
    size_t max;       /* most objects that are kept */
    size_t asked_max; /* most objects that one take queries */
    bool is_stack;    /* the newest is taken first; otherwise the oldest */
    /* guarded by the pool's lock: */
    lochi_kept *first, *last;
    size_t kept; /* includes objects that a take is querying */
    size_t out;
    uint64_t made, again;
} stream_shelf;

struct loch_stream_pool {
    loch_device *device;
    loch_stream_options options;
    uint64_t mark;
    lochi_lock lock; /* LOCHI_RANK_STREAM_POOL: guards the shelves and the marks of objects in use */
    stream_shelf streams, events[2];
};

static _Atomic uint64_t stream_pool_last_mark; /* relaxed: only uniqueness matters */

static loch_stream *stream_pool_stream(lochi_kept *it)
{
    return (loch_stream *)((char *)it - offsetof(loch_stream, kept));
}

static loch_event *stream_pool_event(lochi_kept *it)
{
    return (loch_event *)((char *)it - offsetof(loch_event, kept));
}

static loch_status stream_pool_ask_stream(lochi_kept *it)
{
    return loch_stream_query(stream_pool_stream(it));
}

static loch_status stream_pool_ask_event(lochi_kept *it)
{
    return loch_event_query(stream_pool_event(it));
}

static void stream_pool_end_stream(lochi_kept *it)
{
    loch_stream_release(stream_pool_stream(it)); /* closes it, unless further owners retain it */
}

static void stream_pool_end_event(lochi_kept *it)
{
    loch_event_destroy(stream_pool_event(it));
}

/* --- shelves --- */

static void shelf_push_front(const loch_stream_pool *pool, stream_shelf *shelf, lochi_kept *it)
{
    lochi_lock_assert_held(&pool->lock);
    it->next = shelf->first;
    shelf->first = it;
    if (!shelf->last) shelf->last = it;
}

static void shelf_push_back(const loch_stream_pool *pool, stream_shelf *shelf, lochi_kept *it)
{
    lochi_lock_assert_held(&pool->lock);
    it->next = NULL;
    *(shelf->last ? &shelf->last->next : &shelf->first) = it;
    shelf->last = it;
}

/* Takes the first object off. The lock is held, or no other thread uses the pool. */
static lochi_kept *shelf_pop(stream_shelf *shelf)
{
    lochi_kept *it = shelf->first;
    if (!it) return NULL;
    shelf->first = it->next;
    if (!shelf->first) shelf->last = NULL;
    return it;
}

/* Takes the next object off to query it. The object still counts as kept. */
static lochi_kept *shelf_next(loch_stream_pool *pool, stream_shelf *shelf)
{
    lochi_lock_take(&pool->lock);
    lochi_kept *it = shelf_pop(shelf);
    lochi_lock_drop(&pool->lock);
    return it;
}

/* Puts busy objects back. The chain begins with the object taken last: so a stack keeps its order. On a queue they go
 * to the end. */
static void shelf_return(loch_stream_pool *pool, stream_shelf *shelf, lochi_kept *busy)
{
    lochi_lock_take(&pool->lock);
    while (busy) {
        lochi_kept *next = busy->next;
        if (shelf->is_stack)
            shelf_push_front(pool, shelf, busy);
        else
            shelf_push_back(pool, shelf, busy);
        busy = next;
    }
    lochi_lock_drop(&pool->lock);
}

/* Destroys an object that cannot be queried. */
static void shelf_drop(loch_stream_pool *pool, stream_shelf *shelf, lochi_kept *it)
{
    lochi_lock_take(&pool->lock);
    shelf->kept--;
    lochi_lock_drop(&pool->lock);
    shelf->end(it);
}

/* Tells whether a shelf that queries only a few objects is full. Some of its objects may stay busy forever, for example
 * events that were recorded into a graph. These must not block new objects. */
static bool shelf_is_full_queue(loch_stream_pool *pool, const stream_shelf *shelf)
{
    lochi_lock_take(&pool->lock);
    const bool is_full = !shelf->is_stack && shelf->kept >= shelf->max;
    lochi_lock_drop(&pool->lock);
    return is_full;
}

/* Finds an idle object. Returns NULL if none of the queried objects is idle. */
static lochi_kept *shelf_find(loch_stream_pool *pool, stream_shelf *shelf)
{
    const loch_error saved = lochi_error_save(); /* a busy object is not a failure of the caller's call */
    lochi_kept *found = NULL, *busy = NULL;
    for (size_t asked = 0; !found && asked < shelf->asked_max; asked++) {
        lochi_kept *it = shelf_next(pool, shelf);
        if (!it) break;
        const loch_status status = shelf->ask(it);
        if (status == LOCH_OK) {
            found = it;
        } else if (status == LOCH_E_BUSY) {
            it->next = busy;
            busy = it;
        } else {
            shelf_drop(pool, shelf, it);
        }
    }
    if (!found && busy && shelf_is_full_queue(pool, shelf)) {
        lochi_kept *excess = busy;
        busy = busy->next;
        shelf_drop(pool, shelf, excess);
    }
    if (busy) shelf_return(pool, shelf, busy);
    lochi_error_restore(&saved);
    return found;
}

/* Marks and counts an object that is handed out. */
static void shelf_hand_out(loch_stream_pool *pool, stream_shelf *shelf, lochi_kept *it, bool is_new)
{
    lochi_lock_take(&pool->lock);
    it->mark = pool->mark;
    shelf->out++;
    shelf->kept -= !is_new;
    *(is_new ? &shelf->made : &shelf->again) += 1;
    lochi_lock_drop(&pool->lock);
}

/* Takes an object back. Returns false if it was not handed out by this pool. If the object is not to be kept, or the
 * shelf is full, the object is ended; its queued work still runs. */
static bool shelf_give(loch_stream_pool *pool, stream_shelf *shelf, lochi_kept *it, bool may_keep)
{
    lochi_lock_take(&pool->lock);
    const bool is_ours = it->mark == pool->mark, is_kept = is_ours && may_keep && shelf->kept < shelf->max;
    if (is_ours) {
        it->mark = 0;
        shelf->out--;
    }
    if (is_kept) {
        shelf->kept++;
        if (shelf->is_stack)
            shelf_push_front(pool, shelf, it);
        else
            shelf_push_back(pool, shelf, it);
    }
    lochi_lock_drop(&pool->lock);
    if (is_ours && !is_kept) shelf->end(it);
    return is_ours;
}

static void shelf_clear(stream_shelf *shelf)
{
    for (lochi_kept *it; (it = shelf_pop(shelf));)
        shelf->end(it);
}

/* --- pools --- */

static loch_status stream_pool_read_options(const loch_stream_pool_options *given, loch_stream_pool_options *out)
{
    *out = (loch_stream_pool_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("loch_stream_pool_options", given, out, sizeof *out));
    if (!out->kept_streams) out->kept_streams = STREAM_POOL_STREAMS;
    if (!out->kept_events) out->kept_events = STREAM_POOL_EVENTS;
    const loch_stream_options stream = out->stream;
    out->stream = (loch_stream_options){.size = sizeof stream};
    if (!stream.size && !stream.order && !stream.priority) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_sized_read("loch_stream_options", &stream, &out->stream, sizeof stream));
    if ((unsigned)out->stream.order > LOCH_STREAM_WITH_DEFAULT)
        return LOCH_FAIL(INVALID, "stream order %d is not known", (int)out->stream.order);
    return LOCH_OK;
}

loch_status loch_stream_pool_create(loch_device *device, const loch_stream_pool_options *options,
                                    loch_stream_pool **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_stream_pool_create needs a device and an out pointer");
    loch_stream_pool_options read;
    LOCH_TRY_RETURN(stream_pool_read_options(options, &read));
    loch_stream_pool *pool = lochi_zalloc(sizeof *pool);
    if (!pool) return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool of streams");
    pool->device = loch_device_retain(device);
    pool->options = read.stream;
    pool->mark = atomic_fetch_add_explicit(&stream_pool_last_mark, 1, memory_order_relaxed) + 1;
    lochi_lock_init(&pool->lock, LOCHI_RANK_STREAM_POOL);
    pool->streams = (stream_shelf){.ask = stream_pool_ask_stream,
                                   .end = stream_pool_end_stream,
                                   .max = read.kept_streams,
                                   .asked_max = SIZE_MAX,
                                   .is_stack = true};
    pool->events[LOCH_EVENT_PLAIN] = (stream_shelf){.ask = stream_pool_ask_event,
                                                    .end = stream_pool_end_event,
                                                    .max = read.kept_events,
                                                    .asked_max = STREAM_POOL_EVENTS_ASKED};
    pool->events[LOCH_EVENT_TIMED] = pool->events[LOCH_EVENT_PLAIN];
    *out = pool;
    return LOCH_OK;
}

void loch_stream_pool_destroy(loch_stream_pool *pool)
{
    if (!pool) return;
    shelf_clear(&pool->streams);
    shelf_clear(&pool->events[LOCH_EVENT_PLAIN]);
    shelf_clear(&pool->events[LOCH_EVENT_TIMED]);
    lochi_lock_fini(&pool->lock);
    loch_device_release(pool->device);
    lochi_free(pool);
}

loch_status loch_stream_pool_acquire(loch_stream_pool *pool, loch_stream **out)
{
    if (out) *out = NULL;
    if (!pool || !out) return LOCH_FAIL(INVALID, "taking a stream needs a pool of streams and an out pointer");
    lochi_kept *it = shelf_find(pool, &pool->streams);
    const bool is_new = !it;
    if (is_new) {
        LOCH_TRY_RETURN(loch_stream_create(pool->device, &pool->options, out));
        it = &(*out)->kept;
    }
    shelf_hand_out(pool, &pool->streams, it, is_new);
    *out = stream_pool_stream(it);
    return LOCH_OK;
}

/* Checks that a stream can be kept: it was created on this device, and it is not under capture. Otherwise work of its
 * next user would become part of the graph. */
static loch_status stream_pool_check(loch_stream_pool *pool, loch_stream *stream)
{
    LOCH_TRY_RETURN(lochi_stream_check(stream, pool->device));
    if (stream->kind != LOCHI_STREAM_OWNED)
        return LOCH_FAIL(INVALID, "default and wrapped streams cannot be given to a pool of streams");
    if (!loch_device_can(pool->device, LOCH_CAN_CAPTURE)) return LOCH_OK;
    loch_capture_info capture = {.size = sizeof capture};
    LOCH_TRY_RETURN(loch_stream_query_capture(stream, &capture));
    return capture.active ? LOCH_FAIL(INVALID, "stream %llu is under capture", (unsigned long long)stream->id)
                          : LOCH_OK;
}

loch_status loch_stream_pool_release(loch_stream_pool *pool, loch_stream *stream)
{
    if (!pool) return LOCH_FAIL(INVALID, "the pool of streams is NULL");
    if (!stream) return LOCH_OK;
    LOCH_TRY_RETURN(stream_pool_check(pool, stream));
    /* Acquire: what another owner did before its release comes before the next use of the stream. */
    const bool is_alone = atomic_load_explicit(&stream->owners, memory_order_acquire) == 1;
    return shelf_give(pool, &pool->streams, &stream->kept, is_alone)
               ? LOCH_OK
               : LOCH_FAIL(FOREIGN, "the stream was not taken from this pool of streams");
}

loch_status lochi_stream_pool_acquire_event(loch_stream_pool *pool, loch_event_kind kind, loch_event **out)
{
    if (out) *out = NULL;
    if (!pool || !out) return LOCH_FAIL(INVALID, "taking an event needs a pool of streams and an out pointer");
    if ((unsigned)kind > LOCH_EVENT_TIMED) return LOCH_FAIL(INVALID, "event kind %d is not known", (int)kind);
    stream_shelf *shelf = &pool->events[kind];
    lochi_kept *it = shelf_find(pool, shelf);
    const bool is_new = !it;
    if (is_new) {
        LOCH_TRY_RETURN(loch_event_create(pool->device, kind, out));
        it = &(*out)->kept;
    }
    shelf_hand_out(pool, shelf, it, is_new);
    *out = stream_pool_event(it);
    (*out)->recorded = false; /* the next user must not read the time of an earlier record */
    return LOCH_OK;
}

void lochi_stream_pool_release_event(loch_stream_pool *pool, loch_event *event)
{
    if (pool && event) (void)shelf_give(pool, &pool->events[event->kind], &event->kept, true);
}

loch_status loch_stream_pool_get_info(loch_stream_pool *pool, loch_stream_pool_info *out)
{
    if (!pool || !out)
        return LOCH_FAIL(INVALID, "loch_stream_pool_get_info needs a pool of streams and an output struct");
    if (out->size < sizeof out->size) return LOCH_FAIL(INVALID, "loch_stream_pool_info without its size set");
    lochi_lock_take(&pool->lock);
    const stream_shelf streams = pool->streams, plain = pool->events[LOCH_EVENT_PLAIN],
                       timed = pool->events[LOCH_EVENT_TIMED];
    lochi_lock_drop(&pool->lock);
    const loch_stream_pool_info info = {
        .size = out->size < sizeof info ? out->size : sizeof info,
        .streams_kept = streams.kept,
        .streams_out = streams.out,
        .events_kept = plain.kept + timed.kept,
        .events_out = plain.out + timed.out,
        .streams_made = streams.made,
        .streams_again = streams.again,
        .events_made = plain.made + timed.made,
        .events_again = plain.again + timed.again,
    };
    memcpy(out, &info, info.size);
    return LOCH_OK;
}
