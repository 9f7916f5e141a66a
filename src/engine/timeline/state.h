/* SPDX-License-Identifier: MIT */
/* The state of timelines. The door of this room is the public header, loch/timeline.h.
 *
 *   timeline ── slots by thread slot ──► track ──► chunk ──► chunk ──►  records, in the order of their begin
 *                                          │ open: stack of spans that have not ended, through `outer`
 *                                          │ pending: spans that have ended and wait for device times
 *                                          └► clock ──► clock           one per device: anchor, free pairs
 *
 * One thread at a time records in a track: the thread of its slot; the slot's next owner takes the track over. Threads
 * without a slot have tracks of their own. Only the owner begins, ends and adds spans. It holds the track's spin lock
 * for a few stores at each end of a span; the lock is contended only while another thread walks or clears. A record in
 * use never moves. Only a clear frees records, while there is no walk. Lock order: `times`, `lock`, a track's
 * `is_resolving`, its spin lock. Nothing is called with a spin lock held.
 *
 * Device times: a pair of timed events around the work. The position of a span in device time is measured from the
 * anchor of its clock: an event that was recorded when the thread first timed something on that device, on a stream of
 * its own, so that it passes at once although the stream of the span may be busy. A clock maps device time to host time
 * by adding its offset. The offset is a lower bound and rises when a span would begin before it was queued. A span is
 * shown with the offset of the outermost span around it on the same device, so all spans of a nest move together. */
#ifndef LOCHI_TIMELINE_STATE_H
#define LOCHI_TIMELINE_STATE_H

#include "base/fork.h"
#include "kit/hint.h"
#include "base/lock.h"
#include "base/thread.h"
#include <loch/host.h>
#include <loch/timeline.h>
#include <stdatomic.h>
#include <stdbool.h>

#define TIMELINE_NAME_SHORT 40 /* names up to this size, with the final zero, are stored in the record */
#define TIMELINE_PENDING 128   /* above so many pending spans the owner thread itself reads available times */
/* low bits of a span's number: the span within the thread; the bits above: the thread + 1 */
#define TIMELINE_COUNT_BITS 40

/* Two timed events of one device, reused. */
typedef struct timeline_pair {
    struct timeline_pair *next;
    loch_event *start, *end;
} timeline_pair;

/* A device as one track uses it. Exists as long as the track. */
typedef struct timeline_clock {
    struct timeline_clock *next;
    loch_device *device;   /* retained */
    loch_event *anchor;    /* NULL if it could not be created */
    int64_t anchor_ns;     /* position of the anchor in device time; 0 for the first one */
    int64_t offset_ns;     /* added to a device time: the host time since the timeline was created */
    timeline_pair *unused; /* guarded by the track's lock */
} timeline_clock;

/* A thread that records in a track. Exists as long as the track. */
typedef struct timeline_thread {
    struct timeline_thread *next;
    unsigned number;
    char name[16]; /* at its first span; "" if unknown */
} timeline_thread;

/* The name of an allocator whose bytes were recorded. Exists as long as the track. */
typedef struct timeline_memory {
    struct timeline_memory *next;
    char name[];
} timeline_memory;

typedef enum timeline_state {
    TIMELINE_RESERVED, /* the owner fills it; other threads skip it */
    TIMELINE_OPEN,
    TIMELINE_ENDED,
    TIMELINE_FORGOTTEN
} timeline_state;

typedef struct timeline_record {
    /* set to open with release and without the lock; changed with the lock held afterwards */
    _Atomic(timeline_state) state;
    bool has_device, has_place; /* device_ns is known; device_at_ns is known */
    int level;
    unsigned depth;
    const timeline_thread *thread;
    uint64_t number;
    uint64_t start_ns, end_ns; /* since the timeline was created */
    uint64_t device_ns;
    int64_t device_at_ns; /* position in device time; until that is known, the host time when the work was queued */
    int64_t offset_ns;    /* of the clock when the position was measured */
    uint64_t stream_id;
    double flops;
    uint64_t bytes, used_begin, used_end;
    timeline_memory *memory; /* NULL: no bytes were recorded */
    timeline_clock *clock;   /* NULL: not timed on a device */
    timeline_pair *pair;     /* while open or pending; the holder of `is_resolving` may take it when pending */
    struct timeline_record *next_pending;
    struct timeline_record *outer;  /* used by the owner only: the open span around it */
    struct timeline_record *inside; /* the innermost span around it that is timed on the same device; NULL if none */
    loch_stream *stream;            /* used by the owner only, while open; retained */
    loch_allocator *allocator;      /* used by the owner only, while open; retained */
    char *name;                     /* `text`, or separately allocated */
    char text[TIMELINE_NAME_SHORT];
} timeline_record;

typedef struct timeline_chunk {
    struct timeline_chunk *next;
    size_t capacity, used;
    size_t live; /* records that are not forgotten */
    timeline_record records[];
} timeline_chunk;

typedef struct timeline_track {
    struct timeline_track *next;        /* constant once set; set with the timeline's lock held */
    struct timeline_track *next_shared; /* for threads without a slot; guarded by the timeline's lock */
    uint64_t owner;                /* lochi_thread_number; used by the slot's thread only; constant without a slot */
    const timeline_thread *thread; /* the present owner; written by the owner with the spin lock held */
    /* used by the owner only */
    unsigned depth;
    uint64_t count; /* spans begun by this owner */
    timeline_record *open;
    timeline_memory *memories;
    size_t memories_count;
    size_t look_at; /* number of pending spans at which the owner reads times next */
    /* guards the members below */
    _Alignas(64) atomic_flag is_locked;
    timeline_chunk *first, *last;
    size_t kept;  /* records of the present owner that are not forgotten; at most the capacity */
    size_t ended; /* ended spans of all owners that are kept */
    uint64_t lost;
    timeline_record *pending_first, *pending_last;
    size_t pending;
    timeline_clock *clocks;   /* used by the owner only */
    timeline_thread *threads; /* all owners; used by the owner only */
    atomic_bool is_resolving; /* one thread at a time reads device times */
} timeline_track;

struct loch_timeline {
    atomic_int level;
    size_t capacity;
    uint64_t origin_ns;
    _Atomic(timeline_track *) slots[LOCHI_SLOT_COUNT]; /* the last entry is unused */
    atomic_uint_fast64_t lost;                         /* spans of threads that got no track */
    lochi_lock times;                                  /* LOCHI_RANK_TIMELINE_TIMES */
    lochi_lock lock;                                   /* LOCHI_RANK_TIMELINE: guards the members below */
    timeline_track *first, *last;
    timeline_track *shared[LOCHI_SLOT_COUNT]; /* for threads without a slot; index: owner modulo count */
    unsigned threads;
    unsigned walkers;   /* walks in progress; no record is freed while there is one */
    bool needs_reclaim; /* spans were forgotten during a walk */
    lochi_fork_item in_forks;
};

/* Returns the time since the timeline was created. */
static inline uint64_t lochi_timeline_now(const loch_timeline *timeline)
{
    const uint64_t now_ns = loch_host_now_ns();
    return now_ns > timeline->origin_ns ? now_ns - timeline->origin_ns : 0;
}

/* Takes a spin lock that another thread holds. */
void lochi_timeline_spin(atomic_flag *is_locked);

/* Take and drop the spin lock of a track. Nothing may be called while it is held. */
static inline void lochi_track_lock(timeline_track *track)
{
    if (LOCHI_UNLIKELY(atomic_flag_test_and_set_explicit(&track->is_locked, memory_order_acquire)))
        lochi_timeline_spin(&track->is_locked);
}

static inline void lochi_track_unlock(timeline_track *track)
{
    atomic_flag_clear_explicit(&track->is_locked, memory_order_release);
}

#endif
