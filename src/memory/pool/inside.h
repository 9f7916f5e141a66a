/* SPDX-License-Identifier: MIT */
/* The inside of the pool, for its own files.
 *
 *   pool.c         making and ending, the table of operations, figures
 *   quick.h   the ways in and out without a lock, through what single threads keep
 *   cache.c   what they keep, seen from under the lock
 *   bounds.c  the table of pages; from any address to its block, for copies to be checked
 *   slab.c    small blocks, by class
 *   heap.c    large blocks: cut from free runs by best fit, merged when they are freed
 *   handle.c  addresses and physical memory: cells, handles, mapping, moving, giving back
 *   place.c   where memory is put when none that is mapped fits
 *   lane.c    streams: lanes, epochs, events, uses on further streams, captures
 *   ladder.c  what is tried when a request does not fit; trimming
 *   idle.c    the cap on free memory: what is above it goes back as streams pass
 *   move.c    blocks that may move: pins, one move, one slide; move_small.c: small ones
 *   compact.c which moves are made, and carrying them out; the plan: plan.h, plan.c, vacate.c, slide.c
 *   freeze.c  blocks that stay, together
 *   child.c   pools inside pools: ranges, quotas, what a family holds
 *   sleep.c   memory that goes and comes back under its blocks; keep.c: where contents are meanwhile
 *   wipe.c    contents that nobody else is to see
 *   poison.c  free memory, for AddressSanitizer and valgrind
 *   growable.c, report.c
 *
 * Addresses. A pool has one large reservation (or raw segments, where there is no virtual memory). It is divided into
 * cells of a granule each; a cell knows the handle that is mapped there. A table says for each page of 8 KiB which block
 * starts in it and where, or which slab it belongs to. Large blocks are longer than a page, so at most one starts in a page, and
 * the start of a block leads to it by one load; addresses inside by a few more (bounds.c). Blocks tile the addresses and know their neighbours; their records are on the host and never move.
 *
 *   | used | free | used |  bare  | free | slab |  bare ...
 *   |<---- handle A ---->|        |<- handle B ->|
 *
 * Invariants, under the pool's lock (lochi_pool_check walks them):
 *  1. Blocks tile each region without gaps; a bare block lies on cell boundaries and no cell of it has a handle; every
 *     cell that another block touches has one.
 *  2. Two free neighbours of one lane do not exist, nor two bare ones.
 *  3. A free block is in the bin of its size in its lane; a bare one in the pool's.
 *  4. The page of a used block's start, and every page of a slab, lead to it.
 *  5. reserved = sum of the handles, each once; a handle that was moved on a device that maps twice has a fading block at
 *     each old address. It becomes bare when it is unmapped, after its event has passed; or the handle goes back there.
 *  6. While handles sleep the gate is closed, their cells still know them, no free block touches one (what is free there
 *     is dormant, and no neighbour of another dormant one), and no slab that touches one is in a lane's list.
 *
 * Who may touch what. Everything is under the pool's lock, but for: a thread's caches, which are its own while `busy` is
 * set and the gate is 0, or whoever's who holds the lock and has closed the gate (lochi_pool_stop); the state, size
 * and tag of a block that is out or in a cache, which belong to who has it; and what leads from an address to
 * its block, which is read without the lock. Chunks of cells, block records, slabs' words and tables of pages are never
 * given back before the pool ends, so a wrong address is harmless. */
#ifndef LOCHI_POOL_INSIDE_H
#define LOCHI_POOL_INSIDE_H

#include "base/hint.h"
#include "base/lock.h"
#include "base/sanitize.h"
#include "base/tree.h"
#include "base/thread.h"
#include "device/ranges.h"
#include "memory/pool/pool.h"
#include <loch/moving.h>
#include <loch/child.h>
#include <stdatomic.h>
#include <stdbool.h>

#define POOL_UNIT ((size_t)512) /* large blocks are multiples of it */
#define POOL_UNIT_SHIFT 9
#define POOL_PAGE_SHIFT 13
#define POOL_PAGE ((size_t)1 << POOL_PAGE_SHIFT)
#define POOL_SMALL_MAX POOL_PAGE /* blocks up to this size come from slabs */
#define POOL_STEP_SHIFT 6        /* of the table from sizes to classes */
#define POOL_CLASS_MAX 48
#define POOL_NEST ((size_t)1 << 20) /* smaller blocks keep together, so that they do not pin handles everywhere: */
#define POOL_NEST_MAX ((size_t)256 << 10) /* up to this size they come from nests, which are cut from free blocks */
#define POOL_BINS 1152                    /* 32 a power of two */
#define POOL_START_LEVELS 6               /* of 64 bits a word each: enough for 2^36 pages */
#define POOL_CHUNK_SHIFT 10
#define POOL_DROPS 32 /* counters of sleeps that dropped contents, which tags share */
#define POOL_CHUNK_CELLS ((size_t)1 << POOL_CHUNK_SHIFT)

typedef struct pool_lane pool_lane;
typedef struct pool_slab pool_slab;
typedef struct pool_cache pool_cache;

/* What a block is. */
typedef enum pool_state {
    POOL_FREE,   /* memory that nobody uses, in its lane's bins */
    POOL_BARE,   /* addresses without memory, in the pool's bins */
    POOL_FADING, /* a handle's old address, until its event has passed */
    POOL_USED,   /* handed out */
    POOL_SPECIAL, /* the same, and not taken back the short way: it has a tag, further streams or a session, or is a piece */
    POOL_CACHED,   /* freed, kept by a thread */
    POOL_WAITING,  /* freed, but other streams than its own still use it */
    POOL_SLAB,     /* cut into small blocks */
    POOL_GROWABLE, /* handed out; memory at its beginning, addresses behind */
    POOL_DORMANT   /* free, but its memory sleeps, at least in part: in no list, used by nobody */
} pool_state;

/* A tool that looks for wrong uses of memory, which is told what is free. */
typedef enum pool_checker {
    POOL_CHECKER_NONE,
    POOL_CHECKER_ASAN,    /* AddressSanitizer: the program is built with it, the library may be */
    POOL_CHECKER_VALGRIND /* memcheck */
} pool_checker;

/* One use of a block on a further stream; after the free, the epoch that has to pass. */
typedef struct pool_use {
    struct pool_use *next;
    pool_lane *lane;
    uint64_t epoch;
} pool_use;

/* The uses of a block: while it is out in a tree by address, after the free in the list of those that wait. */
typedef struct pool_elsewhere {
    lochi_tree_node node;
    pool_use *uses;
    struct pool_elsewhere *next; /* the rest: while it waits */
    struct pool_block *block;
    _Atomic uint64_t *word; /* of a small block, whose slab is in `block` */
    uint64_t epoch;         /* of its own lane when it was freed */
} pool_elsewhere;

/* Whether a handle's memory is there. */
typedef enum pool_rest {
    POOL_AWAKE,
    POOL_CHOSEN, /* by a sleep under way */
    POOL_ASLEEP, /* its contents are elsewhere: its record is among those asleep, or mapped by a wake under way */
    POOL_WANTED  /* the same, and a block is still there: by a wake under way */
} pool_rest;

/* A handle, or a raw segment. */
typedef struct pool_handle {
    loch_handle *handle; /* NULL for a raw segment */
    void *raw;           /* a raw segment, as the driver gave it */
    size_t raw_bytes;    /* of which `bytes` from `at` on are used */
    uintptr_t at;
    size_t bytes;
    unsigned mappings;        /* 1, and 1 for each fading block */
    struct pool_block *first; /* of a raw segment: its record stays with the lowest addresses */
    uint64_t plan;            /* the last plan that found it idle, in the free block `home` */
    struct pool_block *home;
    pool_lane *freed_lane; /* where a part of it was freed last, and when: no part of it was freed there later */
    uint64_t freed_epoch;
    pool_rest rest;
    struct pool_nap *nap;            /* that it sleeps in; NULL: awake */
    struct pool_handle *prev, *next; /* all handles; unmapped and sleeping ones are in lists of their own */
} pool_handle;

typedef struct pool_block {
    _Alignas(
        128) uintptr_t start; /* two lines, fetched together: threads write to the first ones of their own blocks */
    size_t bytes;
    _Atomic uint8_t state; /* pool_state; relaxed: who may change it is said above */
    bool is_elsewhere;     /* further streams use it: the pool's tree knows which */
    uint16_t tag;
    bool is_captured;                   /* belongs to a capture's lane */
    bool is_nest;                       /* free memory that blocks up to POOL_NEST_MAX come from */
    bool is_piece;                      /* LOCH_POOL_WHOLE_BLOCKS: handed out once, and neither cut nor merged since */
    _Atomic size_t requested;           /* relaxed: copies look at it without the lock */
    pool_lane *lane;                    /* in whose order it is used or free */
    struct pool_block *list_next;       /* bin, cache or list of waiting blocks */
    uint64_t id;                        /* 0 until somebody asks; up to here is what the short ways touch: one line */
    struct pool_block **list_link;      /* what points at it in its list */
    struct pool_block *before, *behind; /* neighbours by address; NULL at the ends of a region */
    union {
        uint64_t epoch;   /* POOL_FREE: of its lane when the last part was freed; POOL_FADING: that has to pass */
        size_t committed; /* POOL_GROWABLE: bytes with memory */
    };
    union {
        pool_slab *slab;         /* POOL_SLAB */
        pool_handle *handle;     /* POOL_FADING */
        struct pool_block *kept; /* POOL_GROWABLE: a record for its end, so that a free needs no memory */
    };
    uint64_t shrink_epoch;              /* POOL_GROWABLE: has to pass before memory that it no longer needs goes */
    struct lochi_movable *owner;        /* of a block that may move; NULL for others */
    uint32_t frozen;                    /* which freeze has made it stay; 0: none */
    bool is_protected;                  /* its whole pages are read-only for the host */
    _Atomic(struct lochi_pool *) child; /* that lives in it, as its range; NULL: none */
} pool_block;

_Static_assert(sizeof(pool_block) == 128, "a block's record is two lines");

/* One granule of addresses. */
typedef struct pool_cell {
    pool_handle *handle;                /* mapped here */
    _Atomic(_Atomic uintptr_t *) pages; /* of a raw segment: its part of the table of pages */
} pool_cell;

/* What the table of pages holds for a page: 0; a block that starts in it, with the units before its start in the low bits; a
 * slab, marked, on each of its pages; or a mark that a block which started here was freed. */
#define POOL_IS_FREED 1u
#define POOL_IS_SLAB 2u
#define POOL_OFFSET_SHIFT 2
#define POOL_OFFSET_BITS ((uintptr_t)(POOL_PAGE / POOL_UNIT - 1) << POOL_OFFSET_SHIFT)
#define POOL_MARK(start) ((uintptr_t)(((start) & (POOL_PAGE - 1)) << 2 | POOL_IS_FREED))

static inline struct pool_slab *lochi_pool_page_slab(uintptr_t page)
{
    return page & POOL_IS_SLAB ? (struct pool_slab *)(page - POOL_IS_SLAB) : NULL;
}

static inline struct pool_block *lochi_pool_page_block(uintptr_t page)
{
    return page & (POOL_IS_SLAB | POOL_IS_FREED) ? NULL : (struct pool_block *)(page & ~POOL_OFFSET_BITS);
}

/* The entry for the page of a block's start. */
static inline uintptr_t lochi_pool_page_of(const pool_block *block)
{
    return (uintptr_t)block | (block->start & (POOL_PAGE - 1)) >> POOL_UNIT_SHIFT << POOL_OFFSET_SHIFT;
}

/* Bytes between the start of the page and that of its block. */
static inline size_t lochi_pool_page_offset(uintptr_t page)
{
    return (page & POOL_OFFSET_BITS) >> POOL_OFFSET_SHIFT << POOL_UNIT_SHIFT;
}

_Static_assert(POOL_OFFSET_BITS < _Alignof(pool_block), "a block's record has low bits to spare");

typedef struct pool_chunk {
    pool_cell cells[POOL_CHUNK_CELLS];
} pool_chunk;

/* Free blocks by size: 32 bins a power of two. */
typedef struct pool_bins {
    uint64_t summary;
    uint64_t words[POOL_BINS / 64];
    pool_block *bins[POOL_BINS];
} pool_bins;

/* A word of a small block. */
#define POOL_WORD_LIVE ((uint64_t)1 << 63)
#define POOL_WORD_ELSEWHERE ((uint64_t)1 << 62) /* further streams use it */
#define POOL_WORD_FREED ((uint64_t)1 << 61)     /* was handed out and freed; below it the next free one */
#define POOL_WORD_NAMED ((uint64_t)1 << 60)     /* somebody has asked for its id */
#define POOL_WORD_KEPT_OFF ((uint64_t)1 << 59)  /* not taken back the short way */
#define POOL_WORD_FROZEN ((uint64_t)1 << 58)
#define POOL_WORD_DIRTY ((uint64_t)1 << 57) /* freed, but not wiped yet: in no list */
#define POOL_WORD_TAG_SHIFT 32
#define POOL_WORD_BYTES UINT32_MAX
#define POOL_WORD_NONE UINT32_MAX

typedef _Atomic uint64_t pool_word;

/* A block cut into small ones of one class. */
struct pool_slab {
    uintptr_t start; /* of its block, whose lane it has, too */
    pool_lane *lane;
    uint32_t class, object_bytes, count;
    uint32_t reciprocal; /* (offset * reciprocal) >> 32 is offset / object_bytes for every offset in a slab */
    pool_block *block;
    uint32_t free_count, free_head;
    uint32_t fresh; /* objects from here on were never handed out */
    bool is_asleep; /* in no list, whatever is free */
    bool is_closed; /* made by a freeze for blocks that it moves: in no list, and ends when the last has been freed */
    uint64_t *ids;  /* NULL until somebody asks for one */
    struct lochi_movable **owners; /* of blocks that may move; NULL until one of them does */
    pool_slab *all_next;
    pool_slab *next, **link; /* in its lane's list for the class while it has a free object */
    pool_word words[];
};

/* One event, and the epoch that has passed with it. */
typedef struct pool_mark {
    loch_event *event;
    uint64_t epoch;
} pool_mark;

/* A stream's memory. Freed blocks carry the epoch in which they were freed; an event ends the epoch, and when it has
 * passed, so has everything freed up to then. */
struct pool_lane {
    pool_lane *next;
    loch_stream *stream;   /* retained */
    uint64_t capture;      /* 0, or the capture that this memory belongs to */
    bool is_closed;        /* its stream has gone: no driver call through it */
    uint64_t followed;     /* the last compaction whose lane waits for all that was queued here */
    bool is_out_of_reach;  /* as of the last compaction: nothing can be put behind its work, which is captured */
    bool is_spare;         /* of a released capture, beside the stream's own: for the next capture once it is empty */
    uint64_t epoch;        /* the present one */
    uint64_t done;         /* up to this all has passed */
    uint64_t freed;        /* the last epoch that something was freed in, or waits for */
    size_t unmarked_bytes; /* of blocks that wait for the present epoch, or were freed in it while streams share */
    pool_mark *marks;      /* events under way, oldest first: a ring */
    size_t marks_first, marks_count, marks_capacity;
    pool_slab *partial[POOL_CLASS_MAX]; /* slabs with free objects */
    size_t empty_slabs;
    pool_bins bins, nests;
};

/* --- what threads keep --- */

#define POOL_METRICS 3 /* blocks, requested bytes, allocated bytes */
enum { POOL_BLOCKS, POOL_REQUESTED, POOL_ALLOCATED };

/* One figure of a thread, since it was last published: the highest that was in use, and how far that is from what is in
 * use now. The two are together so that the figures' rooms are apart: were they neighbours, compilers would write two at
 * once, and the next read of one would have to wait for both. */
typedef struct pool_metric {
    int64_t top, room;
} pool_metric;

typedef struct pool_entry {
    void *address;
    pool_word *word;
} pool_entry;

typedef struct pool_stack {
    uint32_t count, capacity;
    size_t bytes; /* of each block */
    pool_entry *entries;
} pool_stack;

/* Freed blocks above slabs' sizes that a thread keeps: up to POOL_QUICK_MAX by size, and the last larger one. */
#define POOL_QUICK_MAX ((size_t)1 << 20)
#define POOL_QUICK_DIRECT 129 /* bins of single sizes, up to 64 KiB */
#define POOL_QUICK_HASHED 64  /* bins that several sizes share */
#define POOL_QUICK_BINS (POOL_QUICK_DIRECT + POOL_QUICK_HASHED)
#define POOL_QUICK_LOOKS 4
#define POOL_QUICK_BYTES ((size_t)4 << 20) /* in bins */

struct pool_cache {
    _Alignas(64) atomic_bool busy; /* its thread is inside: set in the first of the thread's caches */
    const loch_stream *stream;     /* whose allocations it serves without the lock; NULL: every call takes the lock */
    pool_lane *lane;
    pool_cache *next;          /* of the same thread, for another stream */
    pool_block *last;          /* the larger block that was freed last */
    _Atomic size_t last_bytes; /* its size or 0, for others to see */
    size_t quick_bytes;
    uint64_t allocs, largest;
    pool_metric metrics[POOL_METRICS];
    pool_stack stacks[POOL_CLASS_MAX];
    pool_block *quick[POOL_QUICK_BINS];
};

/* --- families --- */

/* What is counted for a pool and all below it; a child's part in its parent's sum is not less than its minimum. */
enum { POOL_HELD, POOL_PROMISED, POOL_SUMS }; /* memory from the device; minima alone */

/* A pool's place among parents and children. Under the family lock (child.c) but for what never changes. */
typedef struct pool_family {
    struct lochi_pool *parent; /* its allocator is retained until the end; NULL for none. Never changes */
    bool is_counted;           /* LOCH_CHILD_QUOTA: its parent counts what it holds. Never changes */
    bool is_linked;            /* among its parent's children */
    size_t limit, minimum;     /* limit: a copy of the pool's, for other pools to see */
    size_t sums[POOL_SUMS];    /* kept once the pool is related */
    uint64_t number;           /* in order of making */
    struct lochi_pool *children, *next_child;
} pool_family;

/* --- the pool --- */

struct lochi_pool {
    /* read by every call */
    uintptr_t base; /* of the reservation; 0 with raw segments */
    size_t span;
    unsigned cell_shift;
    bool is_virtual;
    uint8_t checker;     /* pool_checker */
    bool is_watched;     /* streams are asked whether they are captured */
    bool is_at_once;     /* work is done when it is queued: all streams are one lane */
    bool is_whole;       /* blocks are handed out whole */
    bool is_capped;      /* free memory has a cap: threads keep no large blocks */
    bool is_shared;      /* several threads have used it */
    uint32_t cache_slot; /* of the first, plus 1 */
    loch_stream *default_stream;
    _Atomic uintptr_t *pages;                    /* of a reservation: the table of pages */
    _Atomic uint64_t *starts[POOL_START_LEVELS]; /* and which of them lead somewhere, level by level (bounds.c) */
    size_t start_levels;
    lochi_tenant tenant;                        /* of the reservation and of raw segments: checks copies */
    _Atomic(pool_chunk *) *chunks;              /* and of cells */
    _Atomic(struct pool_directory *) directory; /* of raw segments */
    uint8_t class_of[(POOL_SMALL_MAX >> POOL_STEP_SHIFT) + 1];
    uint32_t class_bytes[POOL_CLASS_MAX];
    uint32_t slab_bytes[POOL_CLASS_MAX];
    uint32_t classes;
    uint32_t unit; /* small blocks are multiples of it: what blocks are aligned to at least */
    int64_t batch; /* bytes that a thread may keep unpublished */
    _Atomic(pool_cache *) caches[LOCHI_SLOT_COUNT + 1]; /* by slot plus 1; the first and the last stay NULL: threads
                                                         * without a slot, and those that share one */

    _Alignas(64) atomic_uint gate; /* not 0: nobody enters a cache */

    _Alignas(64) lochi_lock lock; /* LOCHI_RANK_MEMORY: everything below, and all blocks, lanes, handles */
    unsigned waiters;             /* of the gate's count: threads that wait for memory */
    bool is_forked;               /* its device did not survive a fork: nothing is handed out */
    loch_device *device;
    loch_allocator *allocator;
    loch_memory_kind kind;
    loch_pool_options options;
    loch_device **peers; /* that mappings are opened for; a child has its parent's */
    size_t peers_count;
    size_t cell_bytes;
    pool_lane *lanes;
    pool_bins bare;
    pool_block *fading, **fading_end; /* oldest first */
    size_t fading_count, fading_bytes;
    uint64_t plans;                         /* made so far */
    pool_elsewhere *waiting, **waiting_end; /* oldest first */
    pool_block *filled, *vacated;           /* by a plan under way: lochi_pool_settle */
    pool_block *first;                      /* of the reservation: its record stays with the lowest addresses */
    pool_block *growables;                  /* list */
    bool has_shrunk;                        /* some of them hold more than they need */
    size_t big_idle;                        /* LOCH_POOL_WHOLE_BLOCKS: bytes of free pieces above 1 MiB */
    pool_block *spare;                      /* records to use again */
    struct pool_records *records;
    pool_handle *handles, *loose; /* mapped; unmapped */
    size_t handles_count, loose_bytes;
    pool_handle *asleep;   /* handles without memory */
    struct pool_nap *naps; /* sleeps that were not woken, newest first */
    bool is_asleep;        /* as a whole: nothing is handed out */
    size_t asleep_bytes;   /* of handles without memory */
    _Atomic uint32_t
        drops[POOL_DROPS]; /* sleeps that dropped contents, by tag; written under the lock, release and acquire */
    size_t dormant_bytes;  /* of dormant blocks */
    lochi_tree elsewhere;  /* pool_elsewhere, by address */
    pool_mark *events;     /* to use again */
    size_t events_count, events_capacity;
    size_t limit, idle;
    bool
        is_small_capped; /* LOCH_POOL_WHOLE_BLOCKS: the cap is the preset's, which leaves free pieces above 1 MiB alone */
    bool is_obedient;    /* has or had a cap, a limit or relatives: handles note when they were freed */
    bool has_freed;      /* since the cap was looked at */
    bool is_over;        /* the cap, as far as it is worth looking again without a free */
    bool is_gate_held;   /* one count of `gate`: what is above the cap goes at the next call */
    size_t idle_walk;    /* blocks that the last walk of idle.c met */
    size_t idle_credit; /* blocks that the next one may meet */
    size_t reserved, peak_reserved;
    size_t used;                  /* in blocks that are out, cached by threads, or slabs */
    size_t peak_used;             /* the most of that, ever, but for what waits for streams */
    size_t freed_bytes;           /* in large blocks, since the pool was made */
    bool is_timed;                /* the host's clock says what moving costs */
    uint64_t supply_ns, since_ns; /* time spent on it, and when that count began */
    size_t waiting_bytes, captured_bytes;
    bool is_wiped;      /* LOCH_POOL_WIPE_FREED */
    pool_block *dirty;  /* freed, but not wiped yet: list */
    size_t dirty_words; /* small ones */
    uint64_t last_id;
    _Atomic uint64_t failures; /* requests; relaxed */
    uint64_t retries;          /* after other pools gave something back */
    uint64_t allocs, largest;  /* of threads that share a slot */
    int64_t published[POOL_METRICS], top[POOL_METRICS];
    uint64_t handles_created, handles_moved, handles_revived, handles_released, events_recorded, waits_on_device,
        waits_on_host;
    lochi_ledger *tags; /* figures of tags alone */
    lochi_stream_listener listener;
    struct lochi_pool *next_pool; /* of the process: siblings help each other */
    void *range;                  /* LOCH_CHILD_RANGE: the parent's block, all the memory there is; else NULL */
    bool is_related;              /* counted with parents or children; written under the family lock, too */
    pool_family family;
    bool is_hungry;       /* streams have wanted each other's memory */
    size_t crossed_bytes; /* of blocks that went from one lane to another since free ones were joined */
    pool_slab *slabs, *spare_slabs[POOL_CLASS_MAX]; /* all records; those not in use */
    size_t movable_bytes;                           /* of blocks that may move, pinned or not; large ones */
    size_t movable_small;                           /* small blocks that may be moved by a freeze */
    unsigned moving_forbidden;                      /* times */
    loch_move_function *move_hook;
    void *move_hook_user;
    uint64_t compactions;  /* so far: the number of the last one */
    uint64_t moves;        /* blocks moved so far */
    uint64_t moved_bytes;  /* in them */
    uint32_t freezes;      /* so far: the last one's number */
    atomic_size_t guarded; /* blocks that are protected */
};

/* What a request comes to. */
typedef struct pool_want {
    size_t bytes;     /* rounded */
    size_t alignment; /* at least POOL_UNIT */
    pool_lane *lane;
    size_t paged_bytes; /* whose pages lead to the block: 1, or all of a slab */
} pool_want;

/* --- handle.c, place.c --- */

pool_chunk *lochi_pool_find_raw_chunk(const lochi_pool *pool, uintptr_t address);

/* The cell of an address; NULL when none of the pool's memory was ever there. Without the lock. */
static inline pool_cell *lochi_pool_find_cell(const lochi_pool *pool, uintptr_t address)
{
    pool_chunk *chunk;
    if (LOCHI_LIKELY(pool->is_virtual)) {
        const size_t offset = address - pool->base;
        if (offset >= pool->span) return NULL;
        chunk =
            atomic_load_explicit(&pool->chunks[offset >> (pool->cell_shift + POOL_CHUNK_SHIFT)], memory_order_acquire);
    } else {
        chunk = lochi_pool_find_raw_chunk(pool, address);
    }
    return chunk ? &chunk->cells[(address >> pool->cell_shift) & (POOL_CHUNK_CELLS - 1)] : NULL;
}

uintptr_t lochi_pool_find_raw_page(const lochi_pool *pool, uintptr_t address);

/* What the table of pages says of an address. Without the lock. */
static inline uintptr_t lochi_pool_find_page(const lochi_pool *pool, uintptr_t address)
{
    const size_t offset = address - pool->base;
    if (LOCHI_UNLIKELY(offset >= pool->span)) return pool->is_virtual ? 0 : lochi_pool_find_raw_page(pool, address);
    return atomic_load_explicit(&pool->pages[offset >> POOL_PAGE_SHIFT], memory_order_acquire);
}

loch_status lochi_pool_open_place(lochi_pool *pool);
void lochi_pool_close_place(lochi_pool *pool);

/* Makes sure that the pages of [start, start + bytes) can be entered. E_HOST_MEMORY. */
loch_status lochi_pool_prepare_pages(lochi_pool *pool, uintptr_t start, size_t bytes);
/* Puts memory where it is missing so that a free block of `want->bytes` can be cut out of the addresses of the pool;
 * looks for the place that lacks least. How the memory may come: */
typedef enum pool_source {
    POOL_MOVED,   /* free handles of the lane, and others' that have passed, mapped elsewhere */
    POOL_CREATED, /* the same, and new ones for what is left */
    POOL_EXTRA    /* new ones alone, where little more than the most in use is held */
} pool_source;

/* LOCH_OK when such a block exists now. E_FRAGMENTED: not from that source. */
loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source);

/* How large new handles are, for a request. */
size_t lochi_pool_choose_handle(const lochi_pool *pool, size_t request);

/* Gives free handles back to the device until `bytes` have gone or none is left that has passed. */
size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes);

/* Handles that lie wholly in free blocks, or are unmapped. */
size_t lochi_pool_count_idle(lochi_pool *pool);
/* Whether one lies wholly in free memory from `start` to `end`. */
bool lochi_pool_holds_handle(lochi_pool *pool, uintptr_t start, uintptr_t end);
/* Whether there is one that streams may still use: it can go back when they have passed. */
bool lochi_pool_has_unfinished(lochi_pool *pool);

/* Unmaps the oldest fading blocks whose event has passed, until `keep` are left or they hold no more than a quarter of the
 * addresses. They cost nothing else, and memory that goes back to an old address needs no driver call: programs that do
 * the same again and again need none after a while. */
#define POOL_FADING_MAX 256
void lochi_pool_drop_faded(lochi_pool *pool, size_t keep);

/* A handle of at most `max_bytes` that lies wholly in a free block of a lane and that nobody uses; NULL when there is
 * none. */
pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out);

/* All blocks in order: the first with NULL; NULL at the end. */
pool_block *lochi_pool_next_block(const lochi_pool *pool, const pool_block *block);

/* Gives all handles and addresses back, whatever lies in them. */
void lochi_pool_drop_all(lochi_pool *pool);

/* Bytes that could be handed out without more memory. */
static inline size_t lochi_pool_free_bytes(const lochi_pool *pool)
{
    const size_t held = pool->reserved + pool->asleep_bytes, taken = pool->used + pool->dormant_bytes;
    return held > taken ? held - taken : 0;
}

/* --- heap.c --- */

/* Records; taking one may fail, giving back cannot. */
bool lochi_pool_stock_records(lochi_pool *pool, size_t count);
pool_block *lochi_pool_take_record(lochi_pool *pool);
void lochi_pool_drop_record(lochi_pool *pool, pool_block *block);

void lochi_pool_bins_add(pool_bins *bins, pool_block *block);
void lochi_pool_bins_remove(pool_bins *bins, pool_block *block);
pool_block *lochi_pool_bins_fit(const pool_bins *bins, size_t bytes, size_t alignment, bool is_piece);
/* The block with the largest size of a bin at or below `*bin`, which it lowers; NULL when there is none. For walks from
 * large to small: start with POOL_BINS - 1, follow list_next, then call with the bin less 1. */
pool_block *lochi_pool_bins_below(const pool_bins *bins, int *bin);

/* Cuts a block of `bytes` at `start` out of a free one; the parts before and behind stay free. E_HOST_MEMORY. */
loch_status lochi_pool_cut(lochi_pool *pool, pool_block *block, uintptr_t start, size_t bytes);

/* Best fit among the free blocks of a lane; NULL when none fits, or *status is not LOCH_OK. */
pool_block *lochi_pool_fit(lochi_pool *pool, pool_lane *lane, const pool_want *want, loch_status *status);

/* The same among its nests; and a cut block becomes one. */
pool_block *lochi_pool_fit_nest(lochi_pool *pool, pool_lane *lane, const pool_want *want, loch_status *status);
void lochi_pool_make_nest(lochi_pool *pool, pool_block *block);

/* Makes a block free in the order of its lane, at `epoch`, and merges it with its neighbours; returns what it is part of. */
pool_block *lochi_pool_make_free(lochi_pool *pool, pool_block *block, uint64_t epoch);

/* The same for addresses whose memory has gone. */
pool_block *lochi_pool_make_bare(lochi_pool *pool, pool_block *block);

/* The same for free memory that sleeps, which is in no list; and a free block leaves its bin, or goes there. */
pool_block *lochi_pool_make_dormant(lochi_pool *pool, pool_block *block);
void lochi_pool_unbin(lochi_pool *pool, pool_block *block);
void lochi_pool_rebin(lochi_pool *pool, pool_block *block);

/* Gives a free block to another lane, at an epoch of that one, which is behind all uses; returns what it is part of. */
pool_block *lochi_pool_adopt(lochi_pool *pool, pool_block *block, pool_lane *lane, uint64_t epoch);
/* The same for one that nobody uses. */
pool_block *lochi_pool_hand_over(lochi_pool *pool, pool_block *block, pool_lane *lane);

/* Merges free pieces again: all, or those up to 1 MiB. Returns how many blocks it met. */
size_t lochi_pool_join_pieces(lochi_pool *pool, size_t max_bytes);
/* Free memory of nests becomes like any other, and free neighbours of different lanes are merged where nobody uses them any
 * more: a handle that lies under several of them can move or go back then. */
void lochi_pool_join_lanes(lochi_pool *pool);
/* Does so only where a whole handle lies under free neighbours that nobody uses. Returns how many blocks it met. */
size_t lochi_pool_join_handles(lochi_pool *pool);
void lochi_pool_close_records(lochi_pool *pool);

/* Cuts a block in two at an address inside; takes a record, which the caller has stocked. */
pool_block *lochi_pool_split(lochi_pool *pool, pool_block *block, uintptr_t at);

static inline void lochi_pool_unlist(pool_block *block)
{
    *block->list_link = block->list_next;
    if (block->list_next) block->list_next->list_link = block->list_link;
}

static inline void lochi_pool_enlist(pool_block **list, pool_block *block)
{
    block->list_next = *list;
    block->list_link = list;
    if (*list) (*list)->list_link = &block->list_next;
    *list = block;
}

/* --- poison.c: memory that the host could touch, for tools that look for wrong uses of it --- */

/* Which tool runs; POOL_CHECKER_NONE also for memory that the host cannot touch. */
pool_checker lochi_pool_find_checker(bool is_host);
/* Does what the functions below say. */
void lochi_poison_hide(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_show(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_hand_out(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_take_back(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_resize(const lochi_pool *pool, uintptr_t start, size_t old_bytes, size_t bytes, size_t allocated);
void lochi_poison_move(const lochi_pool *pool, uintptr_t from, uintptr_t to, size_t bytes);

/* Says that nobody may touch memory, or that it may be touched and has contents. */
static inline void lochi_pool_hide(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_hide(pool, start, bytes);
}

static inline void lochi_pool_show(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_show(pool, start, bytes);
}

/* Says that a block of `bytes` is handed out, or taken back, with all that belongs to it. */
static inline void lochi_pool_show_block(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_hand_out(pool, start, bytes);
}

static inline void lochi_pool_hide_block(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_take_back(pool, start, bytes);
}

static inline pool_state lochi_pool_state(const pool_block *block)
{
    return (pool_state)atomic_load_explicit(&block->state, memory_order_relaxed);
}

static inline size_t lochi_pool_requested(const pool_block *block)
{
    return atomic_load_explicit(&block->requested, memory_order_relaxed);
}

static inline void lochi_pool_set_requested(pool_block *block, size_t bytes)
{
    atomic_store_explicit(&block->requested, bytes, memory_order_relaxed);
}

/* Whether a child pool lives in the block. */
static inline bool lochi_pool_is_range(const pool_block *block)
{
    return atomic_load_explicit(&block->child, memory_order_relaxed) != NULL;
}

/* Whether somebody has the block, apart from slabs. */
static inline bool lochi_pool_is_out(pool_state state)
{
    return state == POOL_USED || state == POOL_SPECIAL || state == POOL_GROWABLE;
}

static inline void lochi_pool_set_state(pool_block *block, pool_state state)
{
    atomic_store_explicit(&block->state, (uint8_t)state, memory_order_relaxed);
}

/* --- bounds.c --- */

/* Words of the bits for a table of `pages`, and their place; before the first page is entered. */
size_t lochi_pool_count_starts(size_t pages);
void lochi_pool_open_starts(lochi_pool *pool, _Atomic uint64_t *words, size_t pages);
/* The pages of one cell of a raw segment, and their bits: one piece of bookkeeping. NULL: no host memory. */
_Atomic uintptr_t *lochi_pool_make_cell_pages(const lochi_pool *pool);
void lochi_pool_enter_page(lochi_pool *pool, uintptr_t address, uintptr_t value);
/* The entry of the block that starts last at or before `address`, and that start, or of the slab around it; 0 for none.
 * The block may end before the address. Without the lock. */
uintptr_t lochi_pool_find_page_around(const lochi_pool *pool, uintptr_t address, uintptr_t *start);
/* The block that an address lies in; NULL when it is in none. */
pool_block *lochi_pool_find_around(const lochi_pool *pool, uintptr_t address);
/* Makes the pool's tenant, which checks copies. */
void lochi_pool_open_bounds(lochi_pool *pool);

/* --- slab.c --- */

void lochi_pool_lay_out_classes(lochi_pool *pool);

/* Takes up to `count` small blocks of a class, at least one. */
loch_status lochi_pool_slab_take(lochi_pool *pool, pool_lane *lane, uint32_t class, pool_entry *out, size_t count,
                                 size_t *taken);
/* Takes one back into its slab. */
void lochi_pool_slab_give(lochi_pool *pool, pool_slab *slab, pool_word *word);
/* Takes a small block out of a slab that has one free. */
pool_entry lochi_pool_slab_pop(pool_slab *slab);
/* Cuts a block, which is in no list, into small ones for a freeze: a closed slab, with a table of owners. On failure the block is as it
 * was; NULL with the status. */
pool_slab *lochi_pool_slab_make_closed(lochi_pool *pool, pool_lane *lane, uint32_t class, pool_block *block,
                                       loch_status *status);
/* Frees slabs without a block in use; says whether there was one. */
bool lochi_pool_slab_trim(lochi_pool *pool, pool_lane *lane);
/* Nothing is taken out of a slab that sleeps. */
void lochi_pool_slab_sleep(pool_slab *slab);
void lochi_pool_slab_wake(pool_slab *slab);

void lochi_pool_close_slabs(lochi_pool *pool);

/* The word of a small block; NULL when `address` is not the start of one. */
static inline pool_word *lochi_pool_slab_word(pool_slab *slab, uintptr_t address)
{
    const uint64_t offset = address - slab->start;
    const uint32_t index = (uint32_t)((offset * slab->reciprocal) >> 32);
    if (offset != (uint64_t)index * slab->object_bytes || index >= slab->count) return NULL;
    return &slab->words[index];
}

/* --- lane.c --- */

/* The lane of a stream; NULL with the status when it cannot be made. Asks whether the stream is captured. */
pool_lane *lochi_pool_lane(lochi_pool *pool, loch_stream *stream, loch_status *status);

/* Memory of a capture is that of its stream from now on: nobody uses it now. */
void lochi_pool_release_lanes(lochi_pool *pool, uint64_t capture);

/* Ends the present epoch with an event; false when that cannot be done now. */
bool lochi_pool_mark(lochi_pool *pool, pool_lane *lane);

/* Looks at the events under way. */
void lochi_pool_poll(lochi_pool *pool, pool_lane *lane);
/* Whether what was freed in an epoch of a lane may be used by anybody. */
static inline bool lochi_pool_has_passed(const pool_lane *lane, uint64_t epoch)
{
    return epoch <= lane->done;
}
/* Makes the work of `lane` from now on wait, on the device, for an epoch of `other`. */
loch_status lochi_pool_wait_on_device(lochi_pool *pool, pool_lane *lane, pool_lane *other, uint64_t epoch);
/* Waits on the host for an epoch of a lane. E_BUSY when its stream is captured and nothing was recorded before. */
loch_status lochi_pool_wait_for_epoch(lochi_pool *pool, pool_lane *lane, uint64_t epoch);
/* Waits on the host for the oldest event of each lane; false when there is none to wait for. */
bool lochi_pool_wait_on_host(lochi_pool *pool);
/* Waits for all work that may use the pool's memory, but for that of captures; and for graphs of captures that were not
 * released. Says whether the first is certain: E_BUSY when a stream is being captured, or what the driver said. */
loch_status lochi_pool_wait_for_all(lochi_pool *pool);
void lochi_pool_wait_for_graphs(lochi_pool *pool);
/* Whether a lane's stream is under capture: then nothing can be recorded on it, nor the device be waited for. */
bool lochi_pool_is_under_capture(const lochi_pool *pool, const pool_lane *lane);

/* Notes a use on a further stream. E_HOST_MEMORY. */
loch_status lochi_pool_note_use(lochi_pool *pool, uintptr_t address, pool_lane *lane);
/* The same in reverse: nobody uses the block there. */
void lochi_pool_forget_uses(lochi_pool *pool, uintptr_t address);
/* A freed block that others use: it waits for them. `word` for a small one. */
void lochi_pool_wait_for_uses(lochi_pool *pool, uintptr_t address, pool_block *block, pool_word *word);
/* Frees what waits and whose events have passed; returns whether there was anything. */
bool lochi_pool_collect(lochi_pool *pool);
/* Frees the oldest block of `lane` that waits for others, behind waits on the device; false when there is none. */
bool lochi_pool_collect_behind_wait(lochi_pool *pool, pool_lane *lane);
/* Frees memory in the order of its lane; small blocks go to their slab. */
void lochi_pool_note_freed(lochi_pool *pool, pool_lane *lane, size_t bytes);
void lochi_pool_close_lanes(lochi_pool *pool);
void lochi_pool_stream_closing(lochi_stream_listener *listener, loch_stream *stream);

/* --- cache.c --- */

/* The calling thread's cache for a lane; NULL when it has none and none can be made. */
pool_cache *lochi_pool_cache(lochi_pool *pool, pool_lane *lane);
/* Keeps everybody out of the caches until lochi_pool_go. Under the lock. */
void lochi_pool_stop(lochi_pool *pool);
/* Waits until nobody is in a cache; the gate was closed, and the heavy fence crossed. */
void lochi_pool_await(lochi_pool *pool);
/* In the child of a fork: no thread is in a cache. */
void lochi_pool_leave_caches(lochi_pool *pool);
/* Small blocks of a class through the thread's cache, and others; its owner under the lock. */
loch_status lochi_pool_cache_take(lochi_pool *pool, pool_cache *cache, uint32_t class, pool_entry *out);
bool lochi_pool_cache_give(lochi_pool *pool, pool_cache *cache, pool_slab *slab, pool_entry entry);
pool_block *lochi_pool_cache_take_block(pool_cache *cache, size_t bytes);
bool lochi_pool_cache_give_block(lochi_pool *pool, pool_cache *cache, pool_block *block);
/* What a thread keeps goes back: the last large block, those by size, or everything. Its owner under the lock, or stopped. They say
 * whether there was anything. */
bool lochi_pool_flush_last(lochi_pool *pool, pool_cache *cache);
bool lochi_pool_flush_bins(lochi_pool *pool, pool_cache *cache);
bool lochi_pool_flush(lochi_pool *pool, pool_cache *cache);
/* The same for all threads; stopped. */
bool lochi_pool_flush_all(lochi_pool *pool, bool (*flush)(lochi_pool *pool, pool_cache *cache));
/* Bytes that threads keep, in the last large blocks alone, or in all: a hint unless stopped. */
size_t lochi_pool_count_last(lochi_pool *pool);
size_t lochi_pool_count_cached(lochi_pool *pool);
/* No thread serves a stream without the lock any more. */
void lochi_pool_forget_stream(lochi_pool *pool, const loch_stream *stream);
void lochi_pool_close_caches(lochi_pool *pool);
/* Counts one allocation or free; the cache may be NULL. */
void lochi_pool_count_alloc(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated);
void lochi_pool_count_free(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated);
/* A block has changed its size. */
void lochi_pool_count_change(lochi_pool *pool, pool_cache *cache, int64_t requested, int64_t allocated);
/* Adds what a cache has counted to the pool. */
void lochi_pool_publish(lochi_pool *pool, pool_cache *cache);

/* --- ladder.c --- */

/* A block for a request that did not fit: everything is tried that needs no other pool. NULL with the status. */
pool_block *lochi_pool_climb(lochi_pool *pool, const pool_want *want, loch_status *status);
/* The same, but only what is quick: up to new memory, without giving back or waiting on the host. */
pool_block *lochi_pool_climb_some(lochi_pool *pool, const pool_want *want, loch_status *status);
/* Gives memory back until at most `keep` bytes are free; returns what went. */
size_t lochi_pool_trim(lochi_pool *pool, size_t keep);
/* Enters the pool among those of the process, and leaves. Without its lock. */
void lochi_pool_join(lochi_pool *pool);
void lochi_pool_leave(lochi_pool *pool);
/* Asks the other pools of the device and kind to give back what they do not use; says how much. Without the lock. */
size_t lochi_pool_ask_siblings(lochi_pool *pool);
/* The same for `bytes` that limits of the family do not leave: asks all below the topmost pool that is full, but for `pool`
 * itself unless `is_asked`. Nobody is asked below its minimum. */
size_t lochi_pool_ask_family(lochi_pool *pool, size_t bytes, bool is_asked);

/* --- wipe.c: LOCH_POOL_WIPE_FREED; each does nothing, and says yes, in other pools --- */

/* Fills memory that is being freed with zeros, in the order of its lane. The status says why that cannot be done now; memory of
 * a capture is left for its release. */
loch_status lochi_pool_wipe(lochi_pool *pool, pool_lane *lane, uintptr_t start, size_t bytes);
/* Does so for a block that counts as used, or for a small one. False: the block is kept, and tried again. */
bool lochi_pool_wipe_block(lochi_pool *pool, pool_block *block);
bool lochi_pool_wipe_word(lochi_pool *pool, pool_slab *slab, pool_word *word);
/* Tries again what could not be wiped; says whether anything became free. */
bool lochi_pool_wipe_again(lochi_pool *pool);
/* Fills what is free of a capture's lanes, before they are released. */
loch_status lochi_pool_wipe_capture(lochi_pool *pool, uint64_t capture);

/* --- idle.c --- */

/* Notes with its handles that a block was freed at an epoch of its lane. */
void lochi_pool_note_handles(lochi_pool *pool, const pool_block *block, uint64_t epoch);
/* Whether nobody uses a handle any more that lies wholly in a free block. */
static inline bool lochi_pool_is_past(const pool_block *block, const pool_handle *handle)
{
    return lochi_pool_has_passed(block->lane, block->epoch) ||
           (handle->freed_lane == block->lane && lochi_pool_has_passed(block->lane, handle->freed_epoch));
}
/* Gives back what is above the cap on free memory and the limits, as far as nobody has to wait for it. A thorough one does not
 * save walks over all blocks. */
void lochi_pool_obey_idle(lochi_pool *pool, bool is_thorough);
/* Free bytes that a trim may keep: `keep`, or what the cap and the limits leave. */
size_t lochi_pool_cap_keep(const lochi_pool *pool, size_t keep);
/* The end of a call that may have freed something. */
static inline void lochi_pool_look_at_idle(lochi_pool *pool)
{
    if (LOCHI_UNLIKELY(pool->is_obedient) && (pool->has_freed || pool->is_over)) lochi_pool_obey_idle(pool, false);
}

/* --- report.c --- */

/* Says why a request does not fit; `status` is what the last step said. */
loch_status lochi_pool_fail(lochi_pool *pool, const pool_want *want, loch_status status);
/* E_LIMIT: says whose limit does not leave `bytes` more. */
loch_status lochi_pool_fail_limit(lochi_pool *pool, size_t bytes);
void lochi_pool_read_info(lochi_pool *pool, loch_pool_info *out);
void lochi_pool_read_stats(lochi_pool *pool, loch_stats *out);
/* Peaks := now, largest := 0. */
void lochi_pool_begin_segment(lochi_pool *pool);
/* Walks the invariants; NULL when they hold, else what does not. For tests. */
const char *lochi_pool_check(lochi_pool *pool);

/* --- move_small.c --- */

/* Makes the table of owners of a slab; false without host memory. */
bool lochi_pool_small_prepare(pool_slab *slab);
/* Notes the owner of a small block, where it can be moved at all. */
void lochi_pool_small_own(lochi_pool *pool, pool_slab *slab, struct lochi_movable *movable);
/* Forgets the owner of a small block, if it has one. */
void lochi_pool_small_disown(lochi_pool *pool, const pool_slab *slab, const pool_word *word);
/* Finds the small block of an owner, and its slab; NULL when it has none. */
pool_word *lochi_pool_small_find(const lochi_pool *pool, const struct lochi_movable *movable, pool_slab **slab);
/* Tells whether a small block can be moved now, as far as streams go as of the last compaction. */
bool lochi_pool_small_is_movable(const lochi_pool *pool, const pool_slab *slab, const pool_word *word);
/* Moves a small block into a closed slab of its lane and class, which has room and owners, on the stream of `lane`. On failure the
 * block is where it was; the target has ended if it had no other block. The block's slab ends with its last one. */
loch_status lochi_pool_small_move(lochi_pool *pool, pool_slab *slab, pool_word *word, pool_slab *target,
                                  pool_lane *lane);

/* --- move.c, compact.c --- */

/* Puts a lane behind all that is queued on another, once in a compaction. */
loch_status lochi_pool_follow(lochi_pool *pool, pool_lane *lane, pool_lane *other);

/* Whether a block can be moved now, as far as streams go as of the last compaction. */
bool lochi_pool_is_movable(const lochi_pool *pool, const pool_block *block);
/* Moves a block to `target`, which was cut out of a free block and is in no list, on the stream of `lane`. On failure the block
 * is where it was, and the target is free again. */
loch_status lochi_pool_move(lochi_pool *pool, pool_block *block, pool_block *target, pool_lane *lane);
/* Moves a block into the free memory right before it, which is the lane's. On failure it is where it was, or torn (move.c). */
loch_status lochi_pool_slide(lochi_pool *pool, pool_block *block, pool_lane *lane);
/* Copies the rest of a torn block on the stream of `lane`; on failure it stays torn. E_BUSY for the lane of a capture. */
loch_status lochi_pool_mend(lochi_pool *pool, pool_block *block, pool_lane *lane);
/* The same for all that are torn; the first failure. */
loch_status lochi_pool_mend_all(lochi_pool *pool, pool_lane *lane);
/* A block is being freed: it is nobody's. */
void lochi_pool_disown(lochi_pool *pool, pool_block *block);
/* What a compaction is to free. */
typedef enum pool_goal {
    POOL_GOAL_ALL,    /* as much as can be joined */
    POOL_GOAL_PIECE,  /* bytes in one piece */
    POOL_GOAL_HANDLES /* the same in whole handles, which new ones can stand beside */
} pool_goal;

/* Moves blocks until `bytes` (0 for all) can be had on the lane. LOCH_OK when that is so now. E_FRAGMENTED: it cannot be reached. */
loch_status lochi_pool_compact(lochi_pool *pool, pool_lane *lane, pool_goal goal, size_t bytes);

/* --- growable.c --- */

/* Makes a growable block hold `bytes`. */
loch_status lochi_pool_resize_block(lochi_pool *pool, pool_block *block, size_t bytes);
/* Memory that growable blocks no longer need, and whose stream has passed, becomes loose. */
void lochi_pool_drop_shrunk(lochi_pool *pool);
void lochi_pool_free_growable(lochi_pool *pool, pool_block *block);

/* --- freeze.c --- */

/* A block is one like any other again, and may be written. On failure it is as it was. */
loch_status lochi_pool_thaw(lochi_pool *pool, pool_block *block);
/* New memory is under what was protected. */
void lochi_pool_protect_again(lochi_pool *pool);

/* --- child.c --- */

/* How a child comes into a new pool: its options, read. */
typedef struct pool_descent {
    lochi_pool *parent;
    loch_child_options options;
} pool_descent;

/* Takes a child's part of its parent: after the device's facts are known, before anybody else sees the pool. */
loch_status lochi_child_open(lochi_pool *pool, const pool_descent *descent);
/* A child is among its parent's from now on. */
void lochi_child_link(lochi_pool *pool);
/* A range goes back behind all streams that used it: notes them with the parent, or waits. */
void lochi_child_note_uses(lochi_pool *pool);
/* Gives the part back and lets go of the parent; nothing for a pool without. Without locks. */
void lochi_child_close(lochi_pool *pool);

/* Bytes that the limits of a related pool and of those above it leave; SIZE_MAX: there are none. Under its lock. */
size_t lochi_family_room(const lochi_pool *pool);
/* Counts bytes of a related pool in, all the way up, if they fit; and out. Under its lock. */
bool lochi_family_claim(lochi_pool *pool, size_t bytes);
void lochi_family_unclaim(lochi_pool *pool, size_t bytes);
/* By how much it or one above it exceeds a limit that was lowered. Under its lock. */
size_t lochi_family_excess(const lochi_pool *pool);
/* Sets the copy of a limit. E_LIMIT when minima would not fit. Under the pool's lock. */
loch_status lochi_family_set_limit(lochi_pool *pool, size_t limit_bytes);
/* The topmost pool that has not `bytes` more for `pool`, which may be itself; NULL: there is none. */
lochi_pool *lochi_family_find_full(lochi_pool *pool, size_t bytes);
/* Whose limit keeps `pool` from `bytes` more: itself, or the topmost pool above it that is full. Reads the limit, and what counts
 * in it, its own and its children's. */
const lochi_pool *lochi_family_find_limit(lochi_pool *pool, size_t bytes, size_t *limit, size_t *held);
/* Whether what `pool` holds counts in `above`, or is its own. */
bool lochi_family_is_below(const lochi_pool *pool, const lochi_pool *above);
/* Free bytes that it gains nobody to take from a related pool: what its minimum covers. Under its lock. */
size_t lochi_family_get_keep(const lochi_pool *pool);

/* A pool's children, and the bytes that count in its limit for them. */
size_t lochi_family_count(const lochi_pool *pool, size_t *bytes);
/* Whether a related pool's sum is what it and its children hold; while nobody makes or ends one. Under its lock. */
bool lochi_family_check(const lochi_pool *pool);

/* --- sleep.c --- */

/* Whether memory of [start, start + bytes) sleeps; quick when nothing of the pool does. */
bool lochi_pool_sleeps_in(const lochi_pool *pool, uintptr_t start, size_t bytes);
static inline bool lochi_pool_sleeps_at(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    return LOCHI_UNLIKELY(pool->naps != NULL) && lochi_pool_sleeps_in(pool, start, bytes);
}
/* Whether a pool hands nothing out: it sleeps as a whole, or its device did not survive a fork. Under its lock. */
static inline bool lochi_pool_is_out_of_use(const lochi_pool *pool)
{
    return pool->is_asleep || pool->is_forked;
}
/* E_BUSY, for a pool that sleeps as a whole (E_FORKED: one that is out of use for that), or for a block that does. */
loch_status lochi_pool_refuse_asleep(const lochi_pool *pool);
loch_status lochi_pool_refuse_at(const void *address);
/* Forgets what was kept of a pool that ends. */
void lochi_pool_close_naps(lochi_pool *pool);

/* --- pool.c --- */

/* Makes a pool; a child when there is a descent. */
loch_status lochi_pool_make(loch_device *device, const char *name, const loch_pool_options *options,
                            const pool_descent *descent, loch_allocator **out);
/* Marks a block as the range of `child`, or of none: while it is one it cannot be freed or resized. */
void lochi_pool_keep_range(lochi_pool *pool, const void *address, lochi_pool *child);

#define POOL_WHOLE_BIG ((size_t)1 << 20) /* LOCH_POOL_WHOLE_BLOCKS: larger blocks are big */

/* The pool behind an allocator, through wrappers; NULL when it is none. */
lochi_pool *lochi_pool_of(loch_allocator *allocator);

/* Counts a block of a tag in (1) or out (-1); tag 0 is none. */
void lochi_pool_count_tag(lochi_pool *pool, loch_tag tag, size_t requested, int sign);
/* A large block for a lane, entered in the table of pages. Under the lock. */
pool_block *lochi_pool_take_block(lochi_pool *pool, const pool_want *want, loch_status *status);
/* A block is no longer in use as far as the figures go. */
void lochi_pool_uncount(lochi_pool *pool, const pool_block *block);
/* Takes a block that nobody uses any more back to the free ones. */
void lochi_pool_put_block(lochi_pool *pool, pool_block *block);

#endif
