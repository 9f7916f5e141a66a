/* SPDX-License-Identifier: MIT */
/* The parts of a pool's struct by feature. Both locks guard those of memory from the device, the pool's lock the others
 * (structs.h); the policy never changes. */
#ifndef LOCHI_POOL_FEATURES_H
#define LOCHI_POOL_FEATURES_H

#include "memory/pool/state/idle_list.h"
#include <loch/moving.h>
#include <loch/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_DROPS 32 /* counters of sleeps that dropped contents; tags share them */

/* What a pool does, as its options and its device say. It never changes after the pool was created. */
typedef struct pool_policy {
    unsigned cell_shift;
    bool is_virtual;
    uint8_t checker;           /* pool_checker */
    bool is_watched;           /* the driver is asked whether streams are captured */
    bool is_asking;            /* at every allocation, too */
    bool is_at_once;           /* queued work is done at once: all streams share one lane */
    bool is_host;              /* and the memory is the host's: memset and memcpy do for fills and copies */
    bool is_whole, is_unsplit; /* blocks are handed out whole; and each is a segment of its own */
    bool is_unwaiting;         /* no stream waits for another one on the device */
    bool is_wiped;             /* LOCH_POOL_WIPE_FREED */
    bool can_ask_room;         /* the device can be asked how much memory it has left */
} pool_policy;

/* The cap on free memory (idle.c). */
typedef struct pool_cap {
    size_t bytes;        /* the cap; 0 for none */
    size_t pieces_bytes; /* LOCH_POOL_WHOLE_BLOCKS: bytes of free pieces above 1 MiB */
    bool is_for_small;   /* LOCH_POOL_WHOLE_BLOCKS: the preset's cap, which ignores free pieces above 1 MiB */
    bool is_obedient;    /* has or had a cap, a limit, relatives or too little headroom: handles record when freed */
    bool has_freed;      /* since the cap was last obeyed */
    bool is_put_off;     /* memory was freed above the cap while another thread had the supply lock */
    bool is_over;        /* above the cap, and a further look can help even without a free */
    bool is_gate_held;   /* one count of `gate`: the next call gives back memory above the cap */
    bool is_listed;      /* the lists have all handles that were idle before the pool became obedient */
    pool_idle_list handles, kept;      /* candidates for going back; those under free pieces above 1 MiB */
    size_t joined_bytes, pieces_freed; /* larger freed pieces stay pieces: 0 below the cap; those since the last join */
    uint64_t visits;                   /* blocks visited to find idle handles, for tests */
} pool_cap;

/* Room on the device (headroom.c). */
typedef struct pool_room {
    size_t headroom; /* bytes of the device that idle memory of the pool leaves to others */
    size_t total;    /* bytes of the pool's kind of memory in all; 0: unknown, or from a source. Never changes */
    size_t bytes;    /* bytes that the device has left, estimated; SIZE_MAX if that is unknown */
    unsigned looks;  /* times that the estimate may still be used */
} pool_room;

/* The price of mapping a handle (price.c). */
typedef struct pool_price {
    uint64_t spent_ns, since_ns; /* time of driver calls, and the start of that count */
    uint64_t handle_ns;          /* time for mapping one handle, averaged; 0 if it was never measured */
    double passed_ns;            /* time since `since_ns`, when the price was last computed */
    double bytes;                /* the price */
    double extra;
    size_t dear_bytes; /* while handles have fewer bytes on average, the price is too high for a search; 0: unknown */
    unsigned looks;    /* times that the price may still be used */
} pool_price;

/* Searches for a better place (place.h). */
typedef struct pool_search {
    uint64_t map;          /* changes of mappings at the last search */
    unsigned misses, rest; /* searches since then that changed none; requests that search no more */
} pool_search;

/* Segments of another allocator (source.c). */
typedef struct pool_supplier {
    struct pool_handle *returned; /* segments that go back to the source when the locks are dropped */
    loch_status dry;              /* why the source has no segment, while a request tries to do without one */
    uint64_t dry_missing;         /* bytes that the source lacks then; 0: not known */
    uint32_t fetches;             /* threads that are getting a segment from the source */
    uint64_t fetched;             /* segments that came from the source */
    pthread_cond_t has_fetched;   /* signalled when a thread has got a segment, or was refused one */
} pool_supplier;

/* Handles that sleep. */
typedef struct pool_asleep {
    struct pool_handle *handles; /* without memory */
    struct pool_nap *naps;       /* sleeps that were not woken, newest first */
    bool is_asleep;              /* the pool as a whole: nothing is handed out */
    size_t bytes;                /* of handles without memory */
    size_t dormant_bytes;        /* of dormant blocks */
    /* Sleeps that dropped contents, by tag. Written with the lock held; release and acquire. */
    _Atomic uint32_t drops[POOL_DROPS];
} pool_asleep;

/* Moves, compactions and freezes. */
typedef struct pool_movement {
    size_t bytes;              /* in large movable blocks, pinned or not */
    size_t small;              /* number of small blocks that a freeze may move */
    size_t lanes_out_of_reach; /* lanes that are out of reach, as of the last compaction */
    size_t torn_count;         /* blocks whose contents lie in two places (move.c) */
    unsigned forbidden;        /* loch_pool_forbid_moving calls not undone yet */
    loch_move_function *hook;
    void *hook_user;
    uint64_t orders;             /* begins anew with each compaction, and when the pool's lock was dropped */
    uint64_t moves, moved_bytes; /* blocks moved so far, and the bytes in them */
    uint32_t freezes;            /* number of the last freeze */
    atomic_size_t guarded;       /* number of protected blocks */
} pool_movement;

/* Old addresses of handles, oldest first. */
typedef struct pool_stale_mappings {
    struct pool_block *first, **end;
    size_t count, bytes;
} pool_stale_mappings;

/* Lists of a plan in progress (lochi_pool_settle), and the number of plans so far. */
typedef struct pool_detached {
    struct pool_block *filled, *vacated, *held;
    uint64_t plans;
} pool_detached;

/* Records of blocks (records.c). */
typedef struct pool_stock {
    struct pool_block *spare; /* unused records */
    struct pool_records *batches;
    size_t count;
} pool_stock;

/* What a pool has done. */
typedef struct pool_counts {
    _Atomic uint64_t failures; /* failed requests; relaxed */
    uint64_t retries;          /* after other pools gave memory back */
    uint64_t allocs, largest;  /* of threads that share a slot */
    uint64_t handles_created, handles_moved, handles_revived, handles_released;
    uint64_t events_recorded, waits_on_device, waits_on_host;
} pool_counts;

#endif
