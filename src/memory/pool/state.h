/* SPDX-License-Identifier: MIT */
/* The state of a pool: its structs, the accessors of their fields, and the invariants. What the parts of the room do, and who uses
 * whom, is drawn in docs/architecture.md.
 *
 * Addresses. A pool has one large reservation (or raw segments, where there is no virtual memory). It is divided into
 * cells of a granule each; a cell knows the handle that is mapped there. A table says for each page of 8 KiB which block
 * starts in it and where, or which slab it belongs to. Large blocks are longer than a page, so at most one starts in a page, and
 * the start of a block leads to it by one load; addresses inside by a few more (bounds.c). Blocks tile the addresses and know
 * their neighbours; their records are on the host and never move.
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
 * Locks. Everything is under the pool's lock, but for: a thread's caches, which are its own while `busy` is set and the gate is 0,
 * or belong to whoever holds the lock and has closed the gate (lochi_pool_stop); the state, size and tag of a block that is out
 * or in a cache, which belong to who has it; and what leads from an address to its block, which is read without the lock.
 * Chunks of cells, block records, slabs' words and tables of pages are never given back before the pool ends, so a wrong
 * address is harmless. Functions that rely on the lock assert that it is held. */
#ifndef LOCHI_POOL_STATE_H
#define LOCHI_POOL_STATE_H

#include "base/hint.h"
#include "base/lock.h"
#include "base/sanitize.h"
#include "base/thread.h"
#include "base/tree.h"
#include "device/ranges.h"
#include "memory/allocator.h"
#include <loch/child.h>
#include <loch/moving.h>
#include <loch/pool.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct lochi_pool lochi_pool;

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
#define POOL_WHOLE_BIG ((size_t)1 << 20) /* LOCH_POOL_WHOLE_BLOCKS: larger blocks are big */
#define POOL_ALIGNMENT_MAX ((size_t)1 << 40)

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

/* A pool's place among parents and children. Under the family lock (family.c) but for what never changes. */
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

/* --- fields --- */

/* Returns the state of a block. */
static inline pool_state lochi_pool_state(const pool_block *block)
{
    return (pool_state)atomic_load_explicit(&block->state, memory_order_relaxed);
}

/* Sets the state of a block. */
static inline void lochi_pool_set_state(pool_block *block, pool_state state)
{
    atomic_store_explicit(&block->state, (uint8_t)state, memory_order_relaxed);
}

/* Returns the bytes that were asked for. */
static inline size_t lochi_pool_requested(const pool_block *block)
{
    return atomic_load_explicit(&block->requested, memory_order_relaxed);
}

/* Sets the bytes that were asked for. */
static inline void lochi_pool_set_requested(pool_block *block, size_t bytes)
{
    atomic_store_explicit(&block->requested, bytes, memory_order_relaxed);
}

/* Tells whether a child pool lives in the block. */
static inline bool lochi_pool_is_range(const pool_block *block)
{
    return atomic_load_explicit(&block->child, memory_order_relaxed) != NULL;
}

/* Tells whether somebody has a block of that state, apart from slabs. */
static inline bool lochi_pool_is_out(pool_state state)
{
    return state == POOL_USED || state == POOL_SPECIAL || state == POOL_GROWABLE;
}

/* Takes a block out of its list. */
static inline void lochi_pool_unlist(pool_block *block)
{
    *block->list_link = block->list_next;
    if (block->list_next) block->list_next->list_link = block->list_link;
}

/* Enters a block in front of a list. */
static inline void lochi_pool_enlist(pool_block **list, pool_block *block)
{
    block->list_next = *list;
    block->list_link = list;
    if (*list) (*list)->list_link = &block->list_next;
    *list = block;
}

/* Returns the word of a small block; NULL when `address` is not the start of one. */
static inline pool_word *lochi_pool_slab_word(pool_slab *slab, uintptr_t address)
{
    const uint64_t offset = address - slab->start;
    const uint32_t index = (uint32_t)((offset * slab->reciprocal) >> 32);
    if (offset != (uint64_t)index * slab->object_bytes || index >= slab->count) return NULL;
    return &slab->words[index];
}

/* Tells whether what was freed in an epoch of a lane may be used by anybody. */
static inline bool lochi_pool_has_passed(const pool_lane *lane, uint64_t epoch)
{
    return epoch <= lane->done;
}

/* Tells whether nobody uses a handle any more that lies wholly in a free block. */
static inline bool lochi_pool_is_past(const pool_block *block, const pool_handle *handle)
{
    return lochi_pool_has_passed(block->lane, block->epoch) ||
           (handle->freed_lane == block->lane && lochi_pool_has_passed(block->lane, handle->freed_epoch));
}

/* Returns the bytes that could be handed out without more memory. */
static inline size_t lochi_pool_free_bytes(const lochi_pool *pool)
{
    const size_t held = pool->reserved + pool->asleep_bytes, taken = pool->used + pool->dormant_bytes;
    return held > taken ? held - taken : 0;
}

/* Tells whether a pool hands nothing out: it sleeps as a whole, or its device did not survive a fork. */
static inline bool lochi_pool_is_out_of_use(const lochi_pool *pool)
{
    return pool->is_asleep || pool->is_forked;
}

/* Rounds a size, or an address, up to whole cells. */
static inline size_t lochi_pool_round(const lochi_pool *pool, size_t bytes)
{
    return (bytes + pool->cell_bytes - 1) & ~(pool->cell_bytes - 1);
}

/* Returns the pool behind an allocator, through wrappers; NULL when it is none. */
static inline lochi_pool *lochi_pool_of(const loch_allocator *allocator)
{
    while (allocator && allocator->wrapped)
        allocator = allocator->wrapped;
    return allocator ? allocator->pool : NULL;
}

#endif
