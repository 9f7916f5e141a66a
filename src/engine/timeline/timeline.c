/* SPDX-License-Identifier: MIT */
/* Timelines: begin and end of spans. state.h describes the data structures. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/stream_life.h"
#include "engine/timeline/chunk.h"
#include "engine/timeline/device.h"
#include "memory/allocator.h"
#include <loch/host.h>
#include <pthread.h>

#define TIMELINE_CAPACITY 65536
#define TIMELINE_CHUNK_FIRST 32
#define TIMELINE_CHUNK_MOST 512
#define TIMELINE_WITH_LEVEL (offsetof(loch_span_options, level) + sizeof(int)) /* size of options that have `level` */
#define TIMELINE_MEMORIES_MOST 64 /* different allocator names that a track stores */

/* --- forks --- */

static lochi_fork_part timeline_part;

static loch_timeline *timeline_of(lochi_fork_item *item)
{
    return (loch_timeline *)((char *)item - offsetof(loch_timeline, in_forks));
}

static void timeline_stop_all(void)
{
    for (lochi_fork_item *item = timeline_part.items; item; item = item->next)
        for (timeline_track *track = timeline_of(item)->first; track; track = track->next)
            lochi_track_lock(track);
}

static void timeline_go_on_all(void)
{
    for (lochi_fork_item *item = timeline_part.items; item; item = item->next)
        for (timeline_track *track = timeline_of(item)->first; track; track = track->next)
            lochi_track_unlock(track);
}

/* Resets the state in the child: no other thread reads device times. Walks of other threads stay counted, so no record
 * is freed before the timeline is destroyed. */
static void timeline_forked(void)
{
    for (lochi_fork_item *item = timeline_part.items; item; item = item->next)
        for (timeline_track *track = timeline_of(item)->first; track; track = track->next) {
            atomic_store_explicit(&track->is_resolving, false, memory_order_relaxed);
            lochi_track_unlock(track);
        }
}

static lochi_fork_part timeline_part = {
    .prepare = timeline_stop_all, .parent = timeline_go_on_all, .child = timeline_forked};

/* --- life --- */

loch_status loch_timeline_create(const loch_timeline_options *options, loch_timeline **out)
{
    if (out) *out = NULL;
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the timeline is NULL");
    loch_timeline_options how = {.size = sizeof how};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of timeline options", options, &how, sizeof how));
    loch_timeline *timeline = lochi_zalloc(sizeof *timeline);
    if (!timeline) return LOCH_FAIL(HOST_MEMORY, "no host memory for a timeline");
    atomic_init(&timeline->level, how.level);
    timeline->capacity = how.capacity ? how.capacity : TIMELINE_CAPACITY;
    lochi_lock_init(&timeline->times, LOCHI_RANK_TIMELINE_TIMES);
    lochi_lock_init(&timeline->lock, LOCHI_RANK_TIMELINE);
    timeline->origin_ns = loch_host_now_ns();
    lochi_fork_enter(&timeline_part, &timeline->in_forks);
    *out = timeline;
    return LOCH_OK;
}

/* Releases the objects that an open record holds. Such records exist if a span was never ended. */
static void timeline_let_go(timeline_record *record)
{
    if (record->stream) lochi_stream_release(record->stream);
    if (record->allocator) loch_allocator_release(record->allocator);
    record->stream = NULL;
    record->allocator = NULL;
}

static void track_destroy(timeline_track *track)
{
    for (timeline_chunk *chunk = track->first, *next; chunk; chunk = next) {
        next = chunk->next;
        for (size_t i = 0; i < chunk->used; i++) {
            timeline_let_go(&chunk->records[i]);
            if (chunk->records[i].pair) lochi_timeline_pair_return(&chunk->records[i]);
        }
        lochi_timeline_chunk_free(chunk);
    }
    for (timeline_memory *memory = track->memories, *next; memory; memory = next) {
        next = memory->next;
        lochi_free(memory);
    }
    for (timeline_thread *thread = track->threads, *next; thread; thread = next) {
        next = thread->next;
        lochi_free(thread);
    }
    lochi_timeline_clocks_destroy(track);
    lochi_free_aligned(track);
}

void loch_timeline_destroy(loch_timeline *timeline)
{
    if (!timeline) return;
    const loch_error saved = lochi_error_save();
    lochi_fork_leave(&timeline->in_forks);
    for (timeline_track *track = timeline->first, *next; track; track = next) {
        next = track->next;
        track_destroy(track);
    }
    lochi_lock_fini(&timeline->lock);
    lochi_lock_fini(&timeline->times);
    lochi_free(timeline);
    lochi_error_restore(&saved);
}

void loch_timeline_set_level(loch_timeline *timeline, int level)
{
    if (timeline) atomic_store_explicit(&timeline->level, level, memory_order_relaxed);
}

/* --- the calling thread's track --- */

static timeline_track *track_create(loch_timeline *timeline)
{
    timeline_track *track = lochi_zalloc_aligned(_Alignof(timeline_track), sizeof *track);
    if (!track) return NULL;
    atomic_flag_clear(&track->is_locked);
    atomic_init(&track->is_resolving, false);
    lochi_lock_take(&timeline->lock);
    if (timeline->last)
        timeline->last->next = track;
    else
        timeline->first = track;
    timeline->last = track;
    lochi_lock_drop(&timeline->lock);
    return track;
}

/* Begins to record in a track. Spans that the slot's last owner left open stay open. */
static bool track_take_over(loch_timeline *timeline, timeline_track *track, uint64_t owner)
{
    timeline_thread *thread = lochi_zalloc(sizeof *thread);
    if (!thread) return false;
    lochi_lock_take(&timeline->lock);
    const bool has_number = timeline->threads < ((unsigned)1 << (63 - TIMELINE_COUNT_BITS)) - 1;
    thread->number = timeline->threads;
    if (has_number) timeline->threads++;
    lochi_lock_drop(&timeline->lock);
    if (!has_number) {
        lochi_free(thread);
        return false;
    }
    if (pthread_getname_np(pthread_self(), thread->name, sizeof thread->name)) *thread->name = '\0';
    thread->next = track->threads;
    track->threads = thread;
    track->owner = owner;
    track->depth = 0;
    track->count = 0;
    track->open = NULL;
    lochi_track_lock(track);
    track->thread = thread;
    track->kept = 0;
    lochi_track_unlock(track);
    return true;
}

static timeline_track *track_find_shared(loch_timeline *timeline, uint64_t owner)
{
    lochi_lock_take(&timeline->lock);
    timeline_track *track = timeline->shared[owner % LOCHI_SLOT_COUNT];
    while (track && track->owner != owner)
        track = track->next_shared;
    lochi_lock_drop(&timeline->lock);
    return track;
}

/* Makes a track for a thread without a slot. It is found by a search. */
static timeline_track *track_make_shared(loch_timeline *timeline, uint64_t owner)
{
    timeline_track *track = track_create(timeline);
    if (!track || !track_take_over(timeline, track, owner)) return NULL;
    lochi_lock_take(&timeline->lock);
    track->next_shared = timeline->shared[owner % LOCHI_SLOT_COUNT];
    timeline->shared[owner % LOCHI_SLOT_COUNT] = track;
    lochi_lock_drop(&timeline->lock);
    return track;
}

static LOCHI_RARE timeline_track *track_get_slow(loch_timeline *timeline, uint32_t slot, uint64_t owner)
{
    if (slot == LOCHI_SLOT_SHARED) {
        timeline_track *track = track_find_shared(timeline, owner);
        return track ? track : track_make_shared(timeline, owner);
    }
    timeline_track *track = atomic_load_explicit(&timeline->slots[slot], memory_order_relaxed);
    if (!track) {
        track = track_create(timeline);
        if (!track) return NULL;
        atomic_store_explicit(&timeline->slots[slot], track, memory_order_relaxed);
    }
    return track_take_over(timeline, track, owner) ? track : NULL;
}

/* Returns the track of the calling thread. Returns NULL if the thread never recorded. */
static inline timeline_track *track_find(loch_timeline *timeline)
{
    const uint32_t slot = lochi_thread_slot();
    const uint64_t owner = lochi_thread_number();
    if (LOCHI_UNLIKELY(slot == LOCHI_SLOT_SHARED)) return track_find_shared(timeline, owner);
    timeline_track *track = atomic_load_explicit(&timeline->slots[slot], memory_order_relaxed);
    return LOCHI_LIKELY(track && track->owner == owner) ? track : NULL;
}

static inline timeline_track *track_get(loch_timeline *timeline)
{
    timeline_track *track = track_find(timeline);
    return LOCHI_LIKELY(track != NULL) ? track : track_get_slow(timeline, lochi_thread_slot(), lochi_thread_number());
}

/* --- records --- */

static LOCHI_RARE bool track_grow(timeline_track *track)
{
    size_t capacity = track->last ? track->last->capacity * 2 : TIMELINE_CHUNK_FIRST; /* set by the owner only */
    if (capacity > TIMELINE_CHUNK_MOST) capacity = TIMELINE_CHUNK_MOST;
    timeline_chunk *chunk = lochi_alloc(sizeof *chunk + capacity * sizeof *chunk->records);
    if (!chunk) return false;
    memset(chunk, 0, sizeof *chunk); /* records are cleared when they are reserved */
    chunk->capacity = capacity;
    lochi_track_lock(track);
    if (track->last)
        track->last->next = chunk;
    else
        track->first = chunk;
    track->last = chunk;
    lochi_track_unlock(track);
    return true;
}

/* Reserves a record to be filled. Returns NULL and counts a lost span if there is no room. */
static timeline_record *track_reserve(loch_timeline *timeline, timeline_track *track)
{
    for (;;) {
        lochi_track_lock(track);
        timeline_chunk *chunk = track->last;
        const bool is_full = track->kept >= timeline->capacity;
        if (LOCHI_LIKELY(!is_full && chunk && chunk->used < chunk->capacity)) {
            timeline_record *record = &chunk->records[chunk->used++];
            chunk->live++;
            track->kept++;
            memset(record, 0, offsetof(timeline_record, text));
            atomic_store_explicit(&record->state, TIMELINE_RESERVED, memory_order_relaxed);
            lochi_track_unlock(track);
            return record;
        }
        lochi_track_unlock(track);
        if (!is_full && track_grow(track)) continue;
        lochi_track_lock(track);
        track->lost++;
        lochi_track_unlock(track);
        return NULL;
    }
}

/* Finds the track's entry for an allocator name. When the list is full, its last entry serves all further names. */
static timeline_memory *track_find_memory(timeline_track *track, const char *name)
{
    timeline_memory *memory = track->memories;
    for (; memory; memory = memory->next)
        if (!strcmp(memory->name, name)) return memory;
    if (track->memories_count > TIMELINE_MEMORIES_MOST) return track->memories;
    if (track->memories_count == TIMELINE_MEMORIES_MOST) name = "other allocators";
    memory = lochi_alloc(sizeof *memory + strlen(name) + 1);
    if (!memory) return NULL;
    strcpy(memory->name, name);
    memory->next = track->memories;
    track->memories = memory;
    track->memories_count++;
    return memory;
}

/* Reads the bytes in use as requested, directly from the source of the figures. Skips the extra work of
 * loch_allocator_get_stats. */
static bool timeline_read_used(loch_allocator *allocator, uint64_t *out)
{
    loch_stats stats = {.size = sizeof stats};
    const loch_error saved = lochi_error_save();
    const loch_status status = lochi_allocator_read_stats(allocator, 0, &stats);
    if (status == LOCH_OK)
        *out = stats.requested_bytes;
    else
        lochi_error_restore(&saved);
    return status == LOCH_OK;
}

/* --- begin --- */

/* Reads options. Returns the defaults if they cannot be read. */
static loch_span_options span_read_options(const loch_span_options *given)
{
    loch_span_options how = {.size = sizeof how};
    if (given && given->size >= sizeof given->size) (void)lochi_sized_read("", given, &how, sizeof how);
    return how;
}

/* Copies a name into the record, or into memory of its own. Returns NULL if there is no memory. */
static char *span_copy_name(timeline_record *record, const char *name)
{
    const size_t bytes = strlen(name) + 1;
    char *to = bytes <= sizeof record->text ? record->text : lochi_alloc(bytes);
    return to ? memcpy(to, name, bytes) : NULL;
}

static void span_drop_record(timeline_track *track, timeline_record *record)
{
    lochi_track_lock(track);
    track->last->used--; /* the owner's latest record: no other has come after it */
    track->last->live--;
    track->kept--;
    track->lost++;
    lochi_track_unlock(track);
    record->name = NULL;
}

static LOCHI_RARE void span_note_memory(timeline_track *track, timeline_record *record, loch_allocator *allocator)
{
    timeline_memory *memory = track_find_memory(track, loch_allocator_get_name(allocator));
    if (!memory || !timeline_read_used(allocator, &record->used_begin)) return;
    record->memory = memory;
    record->allocator = loch_allocator_retain(allocator);
}

static void span_fill(loch_timeline *timeline, timeline_track *track, timeline_record *record,
                      const loch_span_options *how)
{
    record->level = how->level;
    record->thread = track->thread;
    record->depth = track->depth++;
    record->number = ((uint64_t)(track->thread->number + 1) << TIMELINE_COUNT_BITS) | ++track->count;
    record->flops = how->flops;
    record->bytes = how->bytes;
    record->outer = track->open;
    track->open = record;
    if (how->allocator) span_note_memory(track, record, how->allocator);
    if (how->stream) lochi_timeline_device_begin(timeline, track, record, how->stream);
    record->start_ns = lochi_timeline_now(timeline);
    record->end_ns = record->start_ns;
    atomic_store_explicit(&record->state, TIMELINE_OPEN, memory_order_release);
}

loch_span loch_span_begin(loch_timeline *timeline, const char *name, const loch_span_options *options)
{
    loch_span span = {0};
    if (!timeline) return span;
    const int level = atomic_load_explicit(&timeline->level, memory_order_relaxed);
    if (level < 0) return span;
    if (options && options->size >= TIMELINE_WITH_LEVEL && options->level > level) return span;
    const loch_span_options how = span_read_options(options);
    timeline_track *track = track_get(timeline);
    if (LOCHI_UNLIKELY(!track)) {
        atomic_fetch_add_explicit(&timeline->lost, 1, memory_order_relaxed);
        return span;
    }
    timeline_record *record = track_reserve(timeline, track);
    if (LOCHI_UNLIKELY(!record)) return span;
    char *copy = span_copy_name(record, name ? name : "");
    if (LOCHI_UNLIKELY(!copy)) {
        span_drop_record(track, record);
        return span;
    }
    record->name = copy;
    span_fill(timeline, track, record, &how);
    span.timeline = timeline;
    span.number = record->number;
    return span;
}

/* --- end --- */

/* Finds the thread's open record with that number. Returns NULL if the span belongs to another thread or has ended. */
static timeline_record *span_find(const timeline_track *track, uint64_t number)
{
    timeline_record *record = track->open;
    while (record && record->number > number) /* inner spans have larger numbers */
        record = record->outer;
    return record && record->number == number ? record : NULL;
}

/* Ends the innermost open span. */
static void span_finish(timeline_track *track, uint64_t now_ns)
{
    timeline_record *record = track->open;
    const bool is_timed = record->pair && lochi_timeline_device_end(record);
    uint64_t used = record->used_begin;
    if (record->allocator) (void)timeline_read_used(record->allocator, &used);
    track->open = record->outer;
    track->depth = record->depth;
    lochi_track_lock(track);
    record->end_ns = now_ns > record->start_ns ? now_ns : record->start_ns;
    record->used_end = used;
    if (is_timed) {
        record->next_pending = NULL;
        if (track->pending++)
            track->pending_last->next_pending = record;
        else
            track->pending_first = record;
        track->pending_last = record;
    } else if (record->pair) {
        lochi_timeline_pair_return(record);
    }
    track->ended++;
    loch_stream *stream = record->stream;
    loch_allocator *allocator = record->allocator;
    record->stream = NULL;
    record->allocator = NULL;
    atomic_store_explicit(&record->state, TIMELINE_ENDED, memory_order_relaxed);
    lochi_track_unlock(track); /* from here on the record may be forgotten */
    if (stream) lochi_stream_release(stream);
    if (allocator) {
        const loch_error saved = lochi_error_save();
        loch_allocator_release(allocator); /* may drop the last reference and free memory */
        lochi_error_restore(&saved);
    }
    if (is_timed) lochi_timeline_device_look(track);
}

void loch_span_end(loch_span *span)
{
    if (!span || !span->timeline) return;
    const uint64_t now_ns = lochi_timeline_now(span->timeline);
    const uint64_t number = span->number;
    timeline_track *track = track_find(span->timeline);
    if (!track || number >> TIMELINE_COUNT_BITS != (uint64_t)track->thread->number + 1) return;
    *span = (loch_span){0};
    if (!span_find(track, number)) return;
    while (track->open && track->open->number >= number)
        span_finish(track, now_ns);
}
