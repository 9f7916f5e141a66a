/* SPDX-License-Identifier: MIT */
/* The state of timelines. The door of this room is the public header, loch/timeline.h.
 *
 *      timeline ── slots by thread slot ──► track ──► chunk ──► chunk ──►      records, in the order in which they began
 *                                             │ open: the stack of spans that have not ended, through `outer`
 *                                             │ pending: spans that have ended and wait for the device's times
 *                                             └► clock ──► clock                one for each device: an anchor and free pairs of events
 *
 * A track is what one thread at a time records in: that of its slot, taken over by the slot's next owner, or one of its own
 * for threads beyond the slots. Its owner alone begins, ends and adds; a spin lock, its own but while somebody walks or
 * clears, is held for a few stores at each end of a span. A record in use is never moved, and freed only by who clears, when
 * nobody walks. Locks: `times`, then `lock`, then a track's `is_resolving`, then its spin lock, under which nothing is
 * called.
 *
 * Device times: a pair of timed events around the work. Where a span lies in the device's time is measured from the anchor of
 * its clock, an event that was recorded when the thread first timed something on that device. */
#ifndef LOCHI_TIMELINE_STATE_H
#define LOCHI_TIMELINE_STATE_H

#include "base/fork.h"
#include "base/hint.h"
#include "base/lock.h"
#include "base/thread.h"
#include <loch/host.h>
#include <loch/timeline.h>
#include <stdatomic.h>
#include <stdbool.h>

#define TIMELINE_NAME_SHORT 40 /* names that a record holds itself, with their final zero */
#define TIMELINE_PENDING 128   /* pending spans beyond which the thread itself looks for times that have come */
#define TIMELINE_COUNT_BITS 40 /* of a span's number: the span within the thread; above them the thread + 1 */

/* Two timed events of one device, kept and used again. */
typedef struct timeline_pair {
    struct timeline_pair *next;
    loch_event *start, *end;
} timeline_pair;

/* A device, as one track sees it. Lives as long as the track. */
typedef struct timeline_clock {
    struct timeline_clock *next;
    loch_device *device;   /* retained */
    loch_event *anchor;    /* NULL when it could not be had */
    int64_t anchor_ns;     /* where the anchor lies: host time since the timeline was made */
    timeline_pair *unused; /* under the track's lock */
} timeline_clock;

/* The name of an allocator whose bytes were noted. Lives as long as the track. */
typedef struct timeline_memory {
    struct timeline_memory *next;
    char name[];
} timeline_memory;

typedef enum timeline_state {
    TIMELINE_RESERVED, /* the owner fills it; nobody else looks */
    TIMELINE_OPEN,
    TIMELINE_ENDED,
    TIMELINE_FORGOTTEN
} timeline_state;

typedef struct timeline_record {
    _Atomic(timeline_state) state; /* opened by release without the lock, changed under it afterwards */
    bool has_device, has_place;    /* device_ns is known; device_at is, too */
    int level;
    unsigned thread, depth;
    uint64_t number;
    uint64_t start_ns, end_ns; /* since the timeline was made */
    uint64_t device_ns;
    int64_t device_at_ns; /* where the device began it, as anchor_ns; before that is known, when it was told to */
    uint64_t stream_id;
    double flops;
    uint64_t bytes, used_begin, used_end;
    timeline_memory *memory; /* NULL: nothing was noted */
    timeline_clock *clock;   /* NULL: not timed on a device */
    timeline_pair *pair;     /* while it is open or pending; then who has `is_resolving` may take it */
    struct timeline_record *next_pending;
    struct timeline_record *outer; /* the owner's: the open span around it */
    loch_stream *stream;           /* the owner's, while open; retained */
    loch_allocator *allocator;     /* the same */
    char *name;                    /* `text`, or memory of its own */
    char text[TIMELINE_NAME_SHORT];
} timeline_record;

typedef struct timeline_chunk {
    struct timeline_chunk *next;
    size_t capacity, used;
    size_t live; /* not forgotten */
    timeline_record records[];
} timeline_chunk;

typedef struct timeline_track {
    struct timeline_track *next;        /* constant once it is set; under the timeline's lock before */
    struct timeline_track *next_shared; /* of threads without a slot: under the timeline's lock */
    uint64_t owner;  /* lochi_thread_number; read and written by the slot's thread alone; constant without a slot */
    unsigned thread; /* the owner's, changed under the spin lock */
    /* the owner's alone */
    unsigned depth;
    uint64_t count; /* spans begun by this owner */
    timeline_record *open;
    timeline_memory *memories;
    size_t memories_count;
    size_t look_at; /* pending spans at which the owner looks for times next */
    /* under the spin lock */
    _Alignas(64) atomic_flag is_locked;
    timeline_chunk *first, *last;
    size_t kept;  /* records of the present owner that are not forgotten: at most the capacity */
    size_t ended; /* of all owners, kept */
    uint64_t lost;
    timeline_record *pending_first, *pending_last;
    size_t pending;
    timeline_clock *clocks;   /* the owner's */
    atomic_bool is_resolving; /* one at a time asks for device times */
} timeline_track;

struct loch_timeline {
    atomic_int level;
    size_t capacity;
    uint64_t origin_ns;
    _Atomic(timeline_track *) slots[LOCHI_SLOT_COUNT]; /* the last: unused */
    atomic_uint_fast64_t lost;                         /* by threads that got no track */
    lochi_lock times;                                  /* LOCHI_RANK_TIMELINE_TIMES */
    lochi_lock lock;                                   /* LOCHI_RANK_TIMELINE: the members below */
    timeline_track *first, *last;
    timeline_track *shared[LOCHI_SLOT_COUNT]; /* of threads without a slot of their own, by owner modulo count */
    unsigned threads;
    unsigned walkers;   /* while there are any, no record is freed */
    bool needs_reclaim; /* something was forgotten meanwhile */
    lochi_fork_item in_forks;
};

/* Returns the time since the timeline was made. */
static inline uint64_t lochi_timeline_now(const loch_timeline *timeline)
{
    const uint64_t now_ns = loch_host_now_ns();
    return now_ns > timeline->origin_ns ? now_ns - timeline->origin_ns : 0;
}

/* Takes a spin lock that somebody holds. */
void lochi_timeline_spin(atomic_flag *is_locked);

/* Take and drop the spin lock of a track, under which nothing is called. */
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
