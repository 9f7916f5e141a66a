/* SPDX-License-Identifier: MIT */
/* The state of a ledger, and how it works.
 *
 *   address -> directory (hash table of chunks, read without a lock) -> group (spin lock) -> word
 *
 * Statistics are in the threads' own slots. A thread changes its slot only while it is marked as inside. A thread
 * that needs a consistent picture stops the ledger: it keeps other threads from entering and waits until no thread
 * is inside. The mark is a plain store in the slot and the light fence (base/fence.h); a stop crosses the heavy
 * fence. While the ledger is stopped, the directory grows, or drops the groups whose blocks have all been freed if
 * they are the majority.
 *
 * So a call costs one atomic exchange, on a cache line that is shared only by threads that work in the same chunk.
 * It touches one line of the directory, one of the group, one of its words and two of the slot. Order of locks: the
 * lock of walks, then (not from inside) a stop, then one group, then one tag. With these held, only the host
 * allocator is called, and in a walk its visitor. */
#ifndef LOCHI_LEDGER_STATE_H
#define LOCHI_LEDGER_STATE_H

#include "base/fork.h"
#include "base/lock.h"
#include "base/thread.h"
#include "memory/ledger/group.h"
#include <loch/tag.h>

#define LOCHI_LEDGER_LINE 64
#define LOCHI_LEDGER_TAG_CHUNK 64   /* tags whose statistics are allocated together */
#define LOCHI_LEDGER_SLAB_GROUPS 31 /* groups that are allocated together */

/* Bits of the state. */
enum {
    LOCHI_LEDGER_STOPPED = 1, /* threads that want to enter wait */
    LOCHI_LEDGER_SLACK = 2    /* some allocated size was not the requested size; until then one figure serves both */
};

enum { LOCHI_LEDGER_BLOCKS, LOCHI_LEDGER_REQUESTED, LOCHI_LEDGER_ALLOCATED, LOCHI_LEDGER_METRICS };

/* The changes of one thread. The owner writes a slot while it is inside; other threads read or write it while the
 * ledger is stopped. The shared slot has one owner at a time, under its spin lock. */
typedef struct lochi_ledger_slot {
    _Alignas(LOCHI_LEDGER_LINE) atomic_bool inside;
    atomic_flag is_locked;
    bool is_shared;
    _Atomic int64_t blocks;                    /* added minus taken out; also read while the ledger runs */
    uint64_t frees;                            /* blocks taken out */
    uint64_t largest;                          /* largest request of the present segment */
    int64_t published_blocks;                  /* part of `blocks` that is published */
    int64_t unpublished[LOCHI_LEDGER_METRICS]; /* bytes; the place for blocks is scratch space */
    int64_t peak[LOCHI_LEDGER_METRICS];        /* highest estimates of the present segment */
    void *memory;                              /* allocation that contains this aligned struct */
} lochi_ledger_slot;

/* Statistics of one tag, under their own spin lock. */
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
    lochi_ledger_place *directory; /* replaced while stopped; places are filled with the lock held */
    unsigned directory_shift;      /* 64 minus log2 of the number of places */
    atomic_uint state;
    atomic_uint kept_out;   /* threads that a stop kept waiting and that have not entered since */
    atomic_uint slot_count; /* slots from this index on were never used; does not count the shared slot */
    /* Created at a thread's first call; NULL: the thread uses the shared slot. */
    _Atomic(lochi_ledger_slot *) slots[LOCHI_SLOT_COUNT];
    _Atomic(lochi_ledger_tag *) tags[LOCH_TAG_COUNT_MAX / LOCHI_LEDGER_TAG_CHUNK];
    _Alignas(LOCHI_LEDGER_LINE) _Atomic int64_t published[LOCHI_LEDGER_METRICS];
    /* LOCHI_RANK_NONE: held to stop, to walk or to add a group; guards the members below */
    _Alignas(LOCHI_LEDGER_LINE) lochi_lock lock;
    size_t groups;            /* number of groups in the directory */
    lochi_ledger_slab *slabs; /* memory of the groups */
    lochi_group *spare;
    int64_t start[LOCHI_LEDGER_METRICS]; /* in use when the present segment began */
    _Atomic uint64_t failures, last_id;
    lochi_ledger_slot shared; /* for threads without a slot, or without memory for a slot */
    const void *owner;        /* allocator of the blocks, for searches by address; NULL: its blocks are not searched */
    lochi_fork_item in_forks;
    void *memory;
} lochi_ledger;

#endif
