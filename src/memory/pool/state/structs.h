/* SPDX-License-Identifier: MIT */
/* The state of a pool: structs, accessors and invariants. docs/inside/pool.md draws the parts of this room and
 * their dependencies.
 *
 * Addresses. A pool has one large reservation (or raw segments, without virtual memory), its range; large growable
 * blocks have reservations of their own (annex.c). Addresses are divided into cells of one granule. A cell points to
 * the handle that is mapped there. A table has an entry for each page of 8 KiB: the block that starts in the page and
 * where, or the slab around the page. Large blocks are longer than a page, so at most one starts in a page: the start
 * of a block leads to it with one load, addresses inside it with a few more (bounds.c). Blocks tile the addresses and
 * point to their neighbours. Block records are on the host and never move.
 *
 *   | used | free | used |  unmapped  | free | slab |  unmapped ...
 *   |<---- handle A ---->|        |<- handle B ->|
 *
 * Invariants, with both locks of the pool held (lochi_pool_check tests them):
 *  1. Blocks tile each region without gaps. An unmapped range lies on cell boundaries and its cells have no handle.
 *     Every cell that another block touches has a handle.
 *  2. No two free neighbours have the same lane, and no two unmapped ranges are neighbours.
 *  3. A free block is in the bin of its size in its lane; an unmapped range is in the pool's bins.
 *  4. The page of a used block's start, and every page of a slab, have an entry for it.
 *  5. reserved = sum of the handles, each counted once. A handle that was remapped on a device that maps twice has a
 *     stale mapping at each old address. Its addresses are unmapped when the driver has taken it away, after its event
 *     has passed, unless the handle returns there first.
 *  6. While handles sleep, the gate is closed, their cells still point to them, no free block touches them (free
 *     memory there is dormant, in as few blocks as lanes and arenas allow), and no slab that touches them is in a
 *     lane's list.
 *  7. Only a special block has an owner, a freeze, protected pages or a child pool; all other records, and those of no
 *     block, have zeros there. So requests and frees of ordinary blocks need not touch the second line of a record.
 *
 * Locks. A pool has two. The pool's lock is held for a short time and never during a driver call about memory. The
 * supply lock is taken first, and held around everything that gets memory from the device, maps it or gives it back.
 * Handles, their lists and cells, unmapped and stale mappings, growable blocks and sleeps change with both locks held,
 * so each of the two is enough to read them. Everything else needs the pool's lock alone. A thread with both locks
 * drops the pool's lock for a driver call (outside.h): the memory and the addresses of the call are *detached*
 * meanwhile, in no list, and no search, merge or walk of another thread takes them. A call that drops the lock makes
 * every block pointer that the caller holds stale. Functions that rely on a lock assert that it is held.
 *
 * Three things need no lock. A thread's caches belong to the thread while `busy` is set and the gate is 0, and to the
 * lock holder after it has closed the gate (lochi_pool_stop). A batch in a transfer cache belongs to the thread that
 * has changed its state to POOL_BATCH_HELD (transfer.c). The state, size and tag of a block that is handed out or
 * cached belong to its holder. The tables from an address to its block are read without the lock: chunks of cells,
 * block records, words of slabs and tables of pages are never freed before the pool ends, so a wrong address is
 * harmless. */
#ifndef LOCHI_POOL_STRUCTS_H
#define LOCHI_POOL_STRUCTS_H

#include "kit/hint.h"
#include "base/lock.h"
#include "base/regions.h"
#include "base/sanitize.h"
#include "base/thread.h"
#include "base/tree.h"
#include "device/ranges.h"
#include "memory/allocator.h"
#include "memory/pool/state/annexes.h"
#include "memory/pool/state/features.h"
#include "memory/pool/state/idle_list.h"
#include <loch/child.h>
#include <loch/moving.h>
#include <loch/pool.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct lochi_pool lochi_pool;

#define POOL_UNIT ((size_t)512) /* large blocks are multiples of it */
#define POOL_UNIT_SHIFT 9
#define POOL_PAGE_SHIFT 13
#define POOL_PAGE ((size_t)1 << POOL_PAGE_SHIFT)
#define POOL_SMALL_MAX POOL_PAGE /* blocks up to this size come from slabs */
#define POOL_STEP_SHIFT 4        /* of the table from sizes to classes */
#define POOL_CLASS_MAX 56
/* Arenas keep smaller blocks together, so that they do not occupy handles everywhere. */
#define POOL_ARENA ((size_t)1 << 20)
#define POOL_ARENA_BLOCK_MAX ((size_t)64 << 10) /* larger blocks are cut from free blocks directly */
#define POOL_BINS 1152                          /* 32 for each power of two */
#define POOL_START_LEVELS 6                     /* of 64 bits a word: enough for 2^36 pages */
#define POOL_CHUNK_SHIFT 10
#define POOL_CHUNK_CELLS ((size_t)1 << POOL_CHUNK_SHIFT)
#define POOL_WHOLE_BIG ((size_t)1 << 20) /* LOCH_POOL_WHOLE_BLOCKS: larger blocks are big */
#define POOL_ALIGNMENT_MAX ((size_t)1 << 40)
#define POOL_CAPTURE_SHARED (UINT64_MAX - 1) /* LOCH_POOL_CAPTURES_SHARED: the one capture of all lanes */
#define POOL_TRANSFER_MIN ((size_t)4 << 20)  /* of bytes in transfer caches: an 8th of what the pool holds, bounded */
#define POOL_TRANSFER_MAX ((size_t)64 << 20)

typedef _Atomic uint64_t pool_id; /* of a block; 0 until it is asked for. Relaxed: the number is all there is to read */
typedef struct pool_lane pool_lane;
typedef struct pool_slab pool_slab;
typedef struct pool_cache pool_cache;
typedef struct pool_transfer pool_transfer;

/* The state of a block. */
typedef enum pool_state {
    POOL_FREE,     /* free memory, in its lane's bins */
    POOL_UNMAPPED, /* addresses without memory, in the pool's bins */
    POOL_STALE,    /* old address of a handle, until its event has passed */
    POOL_USED,     /* handed out */
    /* Handed out, and not freed on the fast path: it has a tag, further streams or a session, or is a piece. */
    POOL_SPECIAL,
    POOL_CACHED,   /* freed, cached by a thread */
    POOL_WAITING,  /* freed, but streams other than its own still use it */
    POOL_SLAB,     /* cut into small blocks */
    POOL_GROWABLE, /* handed out; memory at its start, unmapped addresses behind */
    POOL_DORMANT,  /* free, but its memory is asleep at least in part; in no list */
    POOL_DETACHED  /* free or unmapped, held by the thread with the supply lock for a driver call */
} pool_state;

/* The tool that checks memory accesses. The pool tells it which memory is free. */
typedef enum pool_checker {
    POOL_CHECKER_NONE,
    POOL_CHECKER_ASAN,    /* AddressSanitizer: the program is built with it, and maybe the library */
    POOL_CHECKER_VALGRIND /* memcheck */
} pool_checker;

/* One use of a block on a further stream; after the free, the epoch that has to pass. */
typedef struct pool_use {
    struct pool_use *next;
    pool_lane *lane;
    uint64_t epoch;
} pool_use;

/* The uses of a block: in a tree by address while the block is live, in the list of waiting blocks after its free. */
typedef struct pool_recorded_uses {
    lochi_tree_node node;
    pool_use *uses;
    struct pool_recorded_uses *next; /* the members from here on are valid while it waits */
    struct pool_block *block;
    _Atomic uint32_t *word; /* of a small block, whose slab is in `block` */
    uint64_t epoch;         /* of its own lane when it was freed */
} pool_recorded_uses;

/* Whether a handle has memory. */
typedef enum pool_rest {
    POOL_AWAKE,
    POOL_CHOSEN, /* by a sleep in progress */
    POOL_ASLEEP, /* its contents are saved: its record is in `asleep`, or mapped by a wake in progress */
    POOL_WANTED  /* asleep, and a wake in progress found a live block on it */
} pool_rest;

/* A handle, or a raw segment. */
typedef struct pool_handle {
    loch_handle *handle; /* NULL for a raw segment */
    void *raw;           /* address of a raw segment, as the driver or the source returned it */
    size_t raw_bytes;    /* of which `bytes` from `at` on are used */
    uint64_t age;        /* of a segment from a source: how many came before it */
    uintptr_t at;
    size_t bytes;
    unsigned mappings;        /* 1, and 1 for each stale mapping */
    struct pool_block *first; /* at its start; of a raw segment always, of others maybe out of date */
    uint64_t plan;            /* last plan that found it idle, in the free block `home` */
    struct pool_block *home;
    pool_lane *freed_lane; /* lane and epoch of the last free of a part of it */
    uint64_t freed_epoch;
    pool_idle idle; /* address of a live block in it, or its place in a list of idle handles */
    pool_rest rest;
    struct pool_nap *nap;            /* its sleep; NULL if it is awake */
    loch_allocator *source;          /* retained for a segment in `returned` */
    struct pool_handle *prev, *next; /* list of mapped, unmapped or sleeping handles */
    lochi_span span;                 /* of a segment: its memory in the index of all allocators */
} pool_handle;

/* A block. Its record has two cache lines. Requests and frees of ordinary blocks touch only the first line of a record;
 * records are two lines apart because processors fetch lines in pairs and threads write to their own blocks. */
typedef struct pool_block {
    _Alignas(128) uintptr_t start;
    size_t bytes;
    _Atomic uint8_t state; /* pool_state; relaxed: see Locks above for its owner */
    union {
        uint8_t flags; /* all of these, to be copied and reset at once */
        struct {
            bool has_uses : 1;    /* further streams use it: listed in the pool's tree */
            bool is_captured : 1; /* belongs to the lane of a capture */
            bool is_arena : 1;    /* free memory for blocks up to POOL_ARENA_BLOCK_MAX */
            bool is_piece : 1;    /* LOCH_POOL_WHOLE_BLOCKS: handed out once, and neither cut nor merged since */
            bool is_annex : 1;    /* lies in an annex (annex.c) */
        };
    };
    uint16_t tag;
    union {
        uint32_t epoch;         /* not handed out: low half of the epoch (lochi_pool_epoch) */
        _Atomic uint32_t slack; /* handed out: bytes that were not requested (lochi_pool_requested) */
    };
    union {
        pool_id id;                    /* in no list; 0 until it is asked for */
        struct pool_block **list_link; /* in a bin or another list with two links: the pointer to it, never NULL */
    };
    pool_lane *lane;                    /* in whose order it is used or free */
    struct pool_block *list_next;       /* bin, cache or list of waiting blocks */
    struct pool_block *before, *behind; /* neighbours by address; NULL at the ends of a region */

    /* The second line. Members without a state here are 0 unless the block's state is POOL_SPECIAL. */
    _Atomic(struct lochi_pool *) child; /* child pool that uses it as its range; NULL for none */
    struct lochi_movable *owner;        /* of a movable block; NULL for others */
    uint32_t frozen;                    /* number of the freeze that froze it; 0 if not frozen */
    bool is_protected;                  /* its whole pages are read-only for the host */
    union {
        pool_slab *slab;         /* POOL_SLAB */
        pool_handle *handle;     /* POOL_STALE */
        struct pool_block *kept; /* POOL_GROWABLE: a record for its end, so that a free needs no host memory */
    };
    _Atomic size_t wide;            /* handed out, with slack POOL_SLACK_WIDE: requested bytes; relaxed */
    size_t committed;               /* POOL_GROWABLE: bytes with memory */
    uint64_t shrink_epoch;          /* POOL_GROWABLE: has to pass before excess memory is unmapped */
    struct pool_block **grown_link; /* POOL_GROWABLE: the pointer to it in the list of growable blocks */
} pool_block;

_Static_assert(sizeof(pool_block) == 128, "a block's record is two lines");
_Static_assert(offsetof(pool_block, child) == 64, "what every block needs is in the first line");

/* One granule of addresses. */
typedef struct pool_cell {
    pool_handle *handle;                /* mapped here; NULL for none */
    _Atomic(_Atomic uintptr_t *) pages; /* of a raw segment: its part of the table of pages */
} pool_cell;

/* Entries of the table of pages: 0; the block that starts in the page, with the units before its start in the low
 * bits; a slab, marked, on each of its pages; or a mark of a block or slab that was here (slab.h). */
#define POOL_IS_FREED 1u
#define POOL_IS_SLAB 2u
#define POOL_OFFSET_SHIFT 2
#define POOL_OFFSET_BITS ((uintptr_t)(POOL_PAGE / POOL_UNIT - 1) << POOL_OFFSET_SHIFT)
#define POOL_MARK(start) ((uintptr_t)(((start) & (POOL_PAGE - 1)) << 2 | POOL_IS_FREED))

_Static_assert(POOL_OFFSET_BITS < _Alignof(pool_block), "a block's record has low bits to spare");

typedef struct pool_chunk {
    pool_cell cells[POOL_CHUNK_CELLS];
} pool_chunk;

/* Free blocks by size: 32 bins for each power of two. */
typedef struct pool_bins {
    uint64_t summary;
    uint64_t words[POOL_BINS / 64];
    pool_block *bins[POOL_BINS];
} pool_bins;

/* The word of a small block: flags, the tag, and the requested bytes. A free block has the index of the next free one
 * in place of the bytes. */
#define POOL_WORD_LIVE ((uint32_t)1 << 31)
#define POOL_WORD_HAS_USES ((uint32_t)1 << 30) /* further streams use it; freed: it waits for them */
#define POOL_WORD_FREED ((uint32_t)1 << 29)    /* was handed out and freed */
#define POOL_WORD_NAMED ((uint32_t)1 << 28)    /* live: its id was asked for */
#define POOL_WORD_DIRTY POOL_WORD_NAMED        /* freed: not wiped yet, and in no list */
#define POOL_WORD_KEPT_OFF ((uint32_t)1 << 27) /* not freed on the fast path */
#define POOL_WORD_FROZEN ((uint32_t)1 << 26)
#define POOL_WORD_TAG_SHIFT 14
#define POOL_WORD_TAGS (LOCH_TAG_COUNT_MAX - 1)
#define POOL_WORD_BYTES (((uint32_t)1 << POOL_WORD_TAG_SHIFT) - 1)
#define POOL_WORD_NONE POOL_WORD_BYTES

_Static_assert(POOL_SMALL_MAX < POOL_WORD_BYTES && (uint64_t)POOL_WORD_TAGS << POOL_WORD_TAG_SHIFT < POOL_WORD_FROZEN,
               "sizes and tags fit the word of a small block");

typedef _Atomic uint32_t pool_word;

/* A block that is cut into small blocks of one class. The first line is read by every free of a small block; the second
 * one is written with the lock held. The words are aligned, so that threads that fill their caches share few lines. */
struct pool_slab {
    _Alignas(64) uintptr_t start; /* of its block, whose lane is also the slab's lane */
    pool_lane *lane;
    uint32_t class, object_bytes, count;
    uint32_t reciprocal; /* (offset * reciprocal) >> 32 equals offset / object_bytes for every offset in a slab */
    pool_block *block;
    _Atomic(pool_id *) ids;        /* 0 for a block without POOL_WORD_NAMED. NULL until an id is asked for */
    struct lochi_movable **owners; /* of movable blocks; NULL until there is one */
    _Alignas(64) uint32_t free_count;
    uint32_t free_head;
    uint32_t fresh; /* objects from this index on were never handed out */
    bool is_asleep; /* in no list, even if it has free objects */
    bool is_closed; /* made by a freeze for moved blocks: in no list, ends with its last block */
    pool_slab *all_next;
    pool_slab *next, **link; /* in a list of its lane while it has a free object: of its class, or of empty slabs */
    _Alignas(64) pool_word words[];
};

/* One event, and the epoch that it ends. */
typedef struct pool_mark {
    loch_event *event;
    uint64_t epoch;
} pool_mark;

/* The memory of a stream. A freed block carries the epoch in which it was freed. An event ends the epoch. When the
 * event has passed, so has everything freed up to then. */
struct pool_lane {
    pool_lane *next;
    loch_stream *stream;  /* retained */
    uint64_t capture;     /* capture that this memory belongs to; POOL_CAPTURE_SHARED: the pool's graphs; or 0 */
    bool is_closed;       /* its stream was destroyed: no driver call on it */
    uint64_t followed;    /* `orders` when the lane of a compaction was ordered after the work queued here */
    bool is_out_of_reach; /* as of the last compaction: its work is captured, so nothing can be ordered after it */
    bool is_spare;  /* of a released capture, beside the stream's own lane: for the next capture once it is empty */
    uint64_t epoch; /* present epoch */
    uint64_t done;  /* all epochs up to this one have passed */
    uint64_t freed; /* last epoch in which something was freed, or for which a block waits */
    size_t unmarked_bytes; /* bytes that wait for the present epoch, or were freed in it while streams share memory */
    pool_mark *marks;      /* ring of pending events, oldest first */
    size_t marks_first, marks_count, marks_capacity;
    pool_slab *partial[POOL_CLASS_MAX]; /* slabs with objects in use and free ones */
    pool_slab *empty;                   /* slabs of all classes without an object in use */
    size_t empty_slabs;                 /* length of that list */
    pool_transfer *transfer; /* batches that threads leave to each other; NULL until a cache was full (transfer.c) */
    pool_bins bins, arenas;
};

/* --- what threads keep --- */

#define POOL_METRICS 3 /* blocks, requested bytes, allocated bytes */
enum { POOL_BLOCKS, POOL_REQUESTED, POOL_ALLOCATED };

/* One figure of a thread: what it may still allocate before it looks at the sums of all threads, and what that was at
 * first. The difference is the thread's part of what is in use (figures.c). Other threads read both. */
typedef struct pool_metric {
    _Atomic int64_t room, top;
} pool_metric;

/* The sums of all threads, and their peaks. Guarded by a spin lock. */
typedef struct pool_figures {
    atomic_bool is_locked;
    atomic_uint slots; /* caches from this index on were never used */
    uint32_t threads;  /* with a cache */
    int64_t published[POOL_METRICS];
    int64_t granted[POOL_METRICS]; /* `top` of all threads that were not told to look at the sums */
    int64_t peak[POOL_METRICS];
    int64_t ceiling[POOL_METRICS]; /* what is in use cannot rise above it before a thread looks at the sums */
} pool_figures;

typedef struct pool_entry {
    void *address;
    pool_word *word;
} pool_entry;

typedef struct pool_stack {
    uint32_t count, capacity;
    size_t bytes; /* of each block */
    pool_entry *entries;
} pool_stack;

/* Freed blocks above slab sizes that a thread caches: by size up to POOL_LARGE_MAX, and the last larger one. */
#define POOL_LARGE_MAX ((size_t)1 << 20)
#define POOL_LARGE_DIRECT 129 /* bins of one size each, up to 64 KiB */
#define POOL_LARGE_HASHED 64  /* bins that several sizes share */
#define POOL_LARGE_BINS (POOL_LARGE_DIRECT + POOL_LARGE_HASHED)
#define POOL_LARGE_LOOKS 4
#define POOL_LARGE_BYTES ((size_t)4 << 20) /* in bins */

struct pool_cache {
    _Alignas(128) atomic_bool busy; /* its thread is on the fast path: set in the first of the thread's caches */
    const loch_stream *stream;      /* stream that it serves without the lock; NULL: every call takes the lock */
    pool_lane *lane;
    pool_cache *next;          /* of this thread, for another stream */
    pool_transfer *transfer;   /* of the lane; NULL if it has none, or if one thread uses the pool */
    pool_block *last;          /* larger block that was freed last */
    _Atomic size_t last_bytes; /* its size or 0, for other threads to read */
    size_t large_bytes;
    _Atomic uint64_t largest_limit; /* a larger request looks at the figures: `largest`, or 0 if it has to anyway */
    bool is_told;                   /* its thread has to look at the figures; guarded by their spin lock */
    uint64_t allocs, largest;
    pool_metric metrics[POOL_METRICS];
    uint64_t next_id, end_id; /* ids that the thread may assign without the lock: set in its first cache */
    pool_stack stacks[POOL_CLASS_MAX];
    pool_block *large[POOL_LARGE_BINS];
    uint64_t granted_allocs; /* `allocs` when its thread was given room; guarded by the spin lock of the figures */
    int64_t gathered_blocks; /* part of POOL_BLOCKS that is published; guarded by the spin lock of the figures */
    int64_t marked_blocks;   /* blocks that its thread had when it called lochi_pool_mark_own_blocks */
};

/* --- families --- */

/* Sums over a pool and all pools below it. A child adds at least its minimum to its parent's sum. */
enum { POOL_HELD, POOL_PROMISED, POOL_SUMS }; /* memory from the device; minima alone */

/* The place of a pool among parents and children. Guarded by the family lock (family.c), except for members that
 * never change. */
typedef struct pool_family {
    struct lochi_pool *parent; /* its allocator is retained until the end; NULL for none. Never changes */
    bool is_counted;           /* LOCH_CHILD_QUOTA: its memory counts in the parent. Never changes */
    bool is_linked;            /* in its parent's list of children */
    size_t limit, minimum;     /* limit: a copy of the pool's limit, for other pools to read */
    size_t ceiling;            /* limit that no grant exceeds: a larger request is never served; 0 for none */
    size_t sums[POOL_SUMS];    /* valid once the pool is related */
    lochi_tree children;       /* by number: in order of creation */
    lochi_tree_node node;      /* in the parent's tree; key: number */
} pool_family;

/* --- the pool --- */

struct lochi_pool {
    /* Read by every call. */
    uintptr_t base; /* of the reservation; 0 with raw segments */
    size_t span;
    pool_policy policy;
    bool is_exact;       /* pinned memory, and the driver aligns: segments have the sizes of requests (supply.c) */
    bool is_capped;      /* free memory has a cap, or the headroom lacks: threads cache no large blocks */
    bool is_shared;      /* several threads have used it; written with the gate stopped */
    uint32_t cache_slot; /* of the first thread, plus 1 */
    loch_stream *default_stream;
    _Atomic uintptr_t *pages;                    /* of a reservation: the table of pages */
    _Atomic uint64_t *starts[POOL_START_LEVELS]; /* bits of the groups of pages with an entry, by level (bounds.c) */
    size_t start_levels;
    _Atomic uintptr_t *leads; /* of a reservation on a device: blocks found without the table (lochi_pool_find_lead) */
    lochi_tenant tenant;      /* of the reservation and of raw segments: checks copies */
    _Atomic(pool_chunk *) *chunks;                       /* of cells, in a reservation */
    _Atomic(struct pool_directory *) directory;          /* of chunks of raw segments */
    uint8_t class_of[POOL_SMALL_MAX >> POOL_STEP_SHIFT]; /* by size minus 1, in steps (lochi_pool_class) */
    uint32_t class_bytes[POOL_CLASS_MAX];
    uint32_t slab_bytes[POOL_CLASS_MAX];
    uint32_t classes;
    uint32_t unit;               /* small blocks are multiples of it: the smallest alignment of blocks, 16 at least */
    atomic_bool has_transfer;    /* some lane has a transfer cache */
    atomic_size_t transfer_most; /* bytes that the transfer caches may have, about */
    _Atomic(pool_cache *) caches[LOCHI_SLOT_COUNT + 1]; /* by slot plus 1; the first and the last stay NULL: threads
                                                         * without a slot, and those that share one */

    _Alignas(64) atomic_uint gate; /* not 0: no thread enters a cache */

    _Alignas(128) atomic_size_t transfer_bytes; /* in the transfer caches of all lanes */
    _Alignas(128) pool_figures figures;

    _Alignas(64) lochi_lock supply; /* LOCHI_RANK_SUPPLY: guards memory from the device: see Locks above */
    _Alignas(64) lochi_lock lock;   /* LOCHI_RANK_MEMORY: guards everything below, and all blocks, lanes and handles */
    bool is_outside;                /* the thread with the supply lock has dropped this lock for a driver call */
    unsigned waiters;               /* threads that wait for memory, counted in the gate */
    bool is_forked;                 /* its device did not survive a fork: nothing is handed out */
    bool is_of_graphs;              /* LOCH_POOL_CAPTURES_SHARED: all lanes have POOL_CAPTURE_SHARED */

    /* These never change. */
    loch_device *device;
    loch_allocator *allocator;
    loch_memory_kind kind;
    loch_pool_options options;
    loch_device **peers; /* devices that mappings are opened for; a child shares its parent's list */
    size_t peers_count;
    size_t cell_bytes;
    size_t step_bytes, smallest; /* handles are multiples of the first (a cell; pinned: a page) and have the second */
    void *range;                 /* LOCH_CHILD_RANGE: the parent's block, all of this pool's memory; otherwise NULL */

    /* Blocks and lanes. */
    pool_lane *lanes;
    pool_bins *unmapped_ranges; /* of the reservation; NULL before it is made, and with raw segments */
    pool_stale_mappings stale;
    pool_recorded_uses *waiting, **waiting_end; /* oldest first */
    pool_detached detached;
    pool_block *first;     /* of the reservation: the record stays with the lowest addresses */
    pool_block *growables; /* list */
    pool_annexes annexes;  /* reservations of growable blocks */
    lochi_span in_index;   /* the reservation in the index of all allocators (base/regions.h) */
    bool has_shrunk;       /* some of them have more memory than they need */
    pool_stock records;
    lochi_tree recorded_uses; /* pool_recorded_uses, by address */
    pool_mark *events;        /* unused events */
    loch_event *awaited;      /* event that a thread waits for outside; NULL for none */
    size_t events_count, events_capacity;
    bool is_hungry;                                 /* streams have used each other's memory */
    size_t crossed_bytes;                           /* bytes that changed lanes since free blocks were last merged */
    pool_slab *slabs, *spare_slabs[POOL_CLASS_MAX]; /* all records; unused records */
    pool_block *dirty;                              /* list of blocks that are freed, but not wiped yet */
    size_t dirty_words;                             /* small blocks that are freed, but not wiped yet */
    uint64_t last_id;

    /* Memory from the device. */
    pool_supplier source;
    pool_handle *handles, *unmapped_handles; /* mapped; unmapped */
    size_t handles_count, unmapped_handle_bytes;
    size_t wide_from; /* `reserved` from which more of the table of pages gets large pages */
    size_t limit;
    pool_room room;
    pool_cap cap;
    size_t reserved, peak_reserved;
    size_t used;      /* in blocks that are handed out, cached by threads, or slabs */
    size_t peak_used; /* the peak of `used`, without bytes that wait for streams */
    size_t waiting_bytes, captured_bytes;
    pool_price price;
    pool_search search;
    pool_asleep sleep;
    pool_movement moving;

    /* Figures, and other pools. */
    pool_counts counts;
    lochi_ledger *tags; /* figures by tag */
    lochi_stream_listener listener;
    struct lochi_pool *next_pool, **pool_link; /* of the process: siblings give memory back for each other */
    bool is_related; /* counted with parents or children; written with the family lock held too */
    pool_family family;
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

/* Takes a block out of its list. It has no id then. */
static inline void lochi_pool_unlist(pool_block *block)
{
    *block->list_link = block->list_next;
    if (block->list_next) block->list_next->list_link = block->list_link;
    block->list_link = NULL; /* the id is 0 */
}

/* Enters a block at the front of a list. */
static inline void lochi_pool_enlist(pool_block **list, pool_block *block)
{
    block->list_next = *list;
    block->list_link = list;
    if (*list) (*list)->list_link = &block->list_next;
    *list = block;
}

/* Returns the class for small blocks of `bytes`, which are at least 1 and at most POOL_SMALL_MAX. */
static inline uint32_t lochi_pool_class(const lochi_pool *pool, size_t bytes)
{
    return pool->class_of[(bytes - 1) >> POOL_STEP_SHIFT];
}

/* Tells whether memory freed in an epoch of a lane may be used by any stream. */
static inline bool lochi_pool_has_passed(const pool_lane *lane, uint64_t epoch)
{
    return epoch <= lane->done;
}

/* Returns the bytes that can be handed out without more memory. */
static inline size_t lochi_pool_free_bytes(const lochi_pool *pool)
{
    const size_t held = pool->reserved + pool->sleep.bytes, taken = pool->used + pool->sleep.dormant_bytes;
    return held > taken ? held - taken : 0;
}

/* Tells whether a pool hands nothing out: it is asleep as a whole, or its device did not survive a fork. */
static inline bool lochi_pool_is_out_of_use(const lochi_pool *pool)
{
    return pool->sleep.is_asleep || pool->is_forked;
}

/* Rounds a size or an address up to whole cells. */
static inline size_t lochi_pool_round(const lochi_pool *pool, size_t bytes)
{
    return (bytes + pool->cell_bytes - 1) & ~(pool->cell_bytes - 1);
}

/* Returns the pool of an allocator, through wrappers; NULL if the allocator is not a pool. */
static inline lochi_pool *lochi_pool_of(const loch_allocator *allocator)
{
    while (allocator && allocator->wrapped)
        allocator = allocator->wrapped;
    return allocator ? allocator->pool : NULL;
}

#endif
