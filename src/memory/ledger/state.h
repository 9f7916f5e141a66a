/* SPDX-License-Identifier: MIT */
/* What a ledger is made of, and how it works.
 *
 *     address -> directory (a hash of chunks; read without a lock) -> group (a spin lock) -> word
 *
 * Figures live in the threads' own slots and change while the thread is marked as inside. Whoever wants a picture of
 * everything stops the ledger: keeps newcomers out and waits until nobody is inside. The mark is a plain store in
 * the slot and the light fence (base/fence.h); stopping crosses the heavy one. The directory grows, and drops the
 * groups whose blocks have all been freed when they are the most, while the ledger is stopped.
 *
 * So a call costs one exchange, on a line that only those share who work in the same chunk, and touches a line of
 * the directory, one of the group, one of its words and two of the slot. Locks: that of walks, then (not from inside) a
 * stop, then one group, then one tag; nothing else is taken or called under them but the host allocator and, in a
 * walk, its visitor. */
#ifndef LOCHI_LEDGER_STATE_H
#define LOCHI_LEDGER_STATE_H

#include "base/fork.h"
#include "base/lock.h"
#include "base/thread.h"
#include "memory/ledger/group.h"
#include <loch/tag.h>

#define LOCHI_LEDGER_LINE 64
#define LOCHI_LEDGER_TAG_CHUNK 64   /* tags whose figures are allocated together */
#define LOCHI_LEDGER_SLAB_GROUPS 31 /* groups that are allocated together */

/* The ledger's state: a set. */
enum {
    LOCHI_LEDGER_STOPPED = 1, /* newcomers wait */
    LOCHI_LEDGER_SLACK = 2    /* some allocated size was not the requested one; until then one figure serves both */
};

enum { LOCHI_LEDGER_BLOCKS, LOCHI_LEDGER_REQUESTED, LOCHI_LEDGER_ALLOCATED, LOCHI_LEDGER_METRICS };

/* What one thread has added; written by its owner while it is inside, and read or changed by others while the ledger is
 * stopped. The shared one has one owner at a time, under its lock. */
typedef struct lochi_ledger_slot {
    _Alignas(LOCHI_LEDGER_LINE) atomic_bool inside;
    atomic_flag is_locked;
    bool is_shared;
    _Atomic int64_t blocks;                    /* entered less taken out; read while nothing is stopped, too */
    uint64_t frees;                            /* blocks taken out */
    uint64_t largest;                          /* request in the present segment */
    int64_t published_blocks;                  /* of `blocks` */
    int64_t unpublished[LOCHI_LEDGER_METRICS]; /* bytes; the place for blocks is scratch */
    int64_t peak[LOCHI_LEDGER_METRICS];        /* highest estimate in the present segment */
    void *memory;                              /* what was allocated: this struct is aligned inside it */
} lochi_ledger_slot;

/* One tag's figures, under a lock of their own. */
typedef struct lochi_ledger_tag {
    atomic_flag is_locked;
    uint64_t allocs, largest;
    int64_t requested, peak_requested, blocks, peak_blocks;
} lochi_ledger_tag;

typedef struct lochi_ledger_place {
    _Atomic uint64_t key; /* chunk + 1, written after `group`; 0 when empty */
    lochi_group *group;
} lochi_ledger_place;

/* Memory of groups. */
typedef struct lochi_ledger_slab {
    lochi_group groups[LOCHI_LEDGER_SLAB_GROUPS];
    struct lochi_ledger_slab *next;
    void *memory;
} lochi_ledger_slab;

typedef struct lochi_ledger {
    lochi_ledger_place *directory; /* changes while stopped; places are filled under the lock */
    unsigned directory_shift;      /* 64 less the bits of its size */
    atomic_uint state;
    atomic_uint kept_out;   /* threads that a stop made wait and that have not entered since */
    atomic_uint slot_count; /* slots from here on have never been used, the shared one apart */
    _Atomic(lochi_ledger_slot *) slots[LOCHI_SLOT_COUNT]; /* made at a thread's first call; NULL for the shared one */
    _Atomic(lochi_ledger_tag *) tags[LOCH_TAG_COUNT_MAX / LOCHI_LEDGER_TAG_CHUNK];
    _Alignas(LOCHI_LEDGER_LINE) _Atomic int64_t published[LOCHI_LEDGER_METRICS];
    _Alignas(LOCHI_LEDGER_LINE) lochi_lock lock; /* LOCHI_RANK_NONE: of whoever stops, walks or adds a group: the
                                                  * members below */
    size_t groups;                               /* in the directory */
    lochi_ledger_slab *slabs;                    /* where groups lie */
    lochi_group *spare;
    int64_t start[LOCHI_LEDGER_METRICS]; /* in use when the present segment began */
    _Atomic uint64_t failures, last_id;
    lochi_ledger_slot shared; /* of threads that have no slot of their own, or no memory for it */
    lochi_fork_item in_forks;
    void *memory;
} lochi_ledger;

#endif
