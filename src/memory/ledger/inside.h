/* SPDX-License-Identifier: MIT */
/* The inside of the ledger, for its own files.
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
#ifndef LOCHI_LEDGER_INSIDE_H
#define LOCHI_LEDGER_INSIDE_H

#include "base/fence.h"
#include "base/fork.h"
#include "base/lock.h"
#include "base/hint.h"
#include "base/thread.h"
#include "memory/ledger/ledger.h"
#include "memory/ledger/group.h"

#define LOCHI_LEDGER_LINE 64
#define LOCHI_LEDGER_TAG_CHUNK 64

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

struct lochi_ledger {
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
    struct lochi_ledger_slab *slabs;             /* where groups lie */
    lochi_group *spare;
    int64_t start[LOCHI_LEDGER_METRICS]; /* in use when the present segment began */
    _Atomic uint64_t failures, last_id;
    lochi_ledger_slot shared; /* of threads that have no slot of their own, or no memory for it */
    lochi_fork_item in_forks;
    void *memory;
};

/* Has forks stop the ledger. */
void lochi_ledger_enter_forks(lochi_ledger *ledger);

/* --- locks --- */

void lochi_ledger_spin(atomic_flag *is_locked);

static inline void lochi_ledger_lock(atomic_flag *is_locked)
{
    if (LOCHI_UNLIKELY(atomic_flag_test_and_set_explicit(is_locked, memory_order_acquire)))
        lochi_ledger_spin(is_locked);
}

static inline void lochi_ledger_unlock(atomic_flag *is_locked)
{
    atomic_flag_clear_explicit(is_locked, memory_order_release);
}

lochi_ledger_slot *lochi_ledger_enter_slowly(lochi_ledger *ledger);

static inline void lochi_ledger_leave(lochi_ledger_slot *slot)
{
    atomic_store_explicit(&slot->inside, false, memory_order_release);
    if (LOCHI_UNLIKELY(slot->is_shared)) lochi_ledger_unlock(&slot->is_locked);
}

/* Marks the calling thread as inside; waits while the ledger is stopped. */
static inline lochi_ledger_slot *lochi_ledger_enter(lochi_ledger *ledger)
{
    lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[lochi_thread_slot()], memory_order_relaxed);
    if (LOCHI_UNLIKELY(!slot)) return lochi_ledger_enter_slowly(ledger);
    atomic_store_explicit(&slot->inside, true, memory_order_relaxed);
    lochi_fence_light();
    if (LOCHI_LIKELY(!(atomic_load_explicit(&ledger->state, memory_order_acquire) & LOCHI_LEDGER_STOPPED))) return slot;
    lochi_ledger_leave(slot);
    return lochi_ledger_enter_slowly(ledger);
}

/* Not from inside: takes the lock, and returns when nobody is inside and nobody can enter. */
void lochi_ledger_stop(lochi_ledger *ledger);
void lochi_ledger_resume(lochi_ledger *ledger);

/* The next slot that is in use, from *index on, which starts at 0; NULL behind the last. */
lochi_ledger_slot *lochi_ledger_next_slot(lochi_ledger *ledger, uint32_t *index);

/* --- the directory --- */

static inline uint64_t lochi_ledger_chunk(uintptr_t address)
{
    return (uint64_t)address >> LOCHI_CHUNK_BITS;
}

static inline size_t lochi_ledger_home(uint64_t chunk, unsigned shift)
{
    return (size_t)((chunk * 0x9e3779b97f4a7c15u) >> shift);
}

static inline size_t lochi_ledger_directory_size(const lochi_ledger *ledger)
{
    return (size_t)1 << (64 - ledger->directory_shift);
}

lochi_group *lochi_ledger_seek_group(const lochi_ledger *ledger, uint64_t chunk);

/* The group of an address, or NULL. From inside, or under the lock. */
static inline lochi_group *lochi_ledger_group_of(const lochi_ledger *ledger, uintptr_t address)
{
    const uint64_t chunk = lochi_ledger_chunk(address);
    const lochi_ledger_place *place = &ledger->directory[lochi_ledger_home(chunk, ledger->directory_shift)];
    if (LOCHI_LIKELY(atomic_load_explicit(&place->key, memory_order_acquire) == chunk + 1)) return place->group;
    return lochi_ledger_seek_group(ledger, chunk);
}

/* Sees to it that there is a group for an address. Not from inside. False without memory. */
bool lochi_ledger_make_group(lochi_ledger *ledger, uintptr_t address, uint16_t tag);

/* An empty directory for a new ledger, false without memory; gives everything back at the end. */
bool lochi_ledger_directory_init(lochi_ledger *ledger);
void lochi_ledger_directory_fini(lochi_ledger *ledger);

/* Zeroed memory that starts a line. What goes back to lochi_free is in *memory. */
void *lochi_ledger_alloc_aligned(size_t bytes, void **memory);

/* --- figures, from inside --- */

/* Makes known to the other threads what the slot has not published yet. */
void lochi_ledger_publish(lochi_ledger *ledger, lochi_ledger_slot *slot);

void lochi_ledger_count_allocated(lochi_ledger *ledger, lochi_ledger_slot *slot, int64_t bytes);

/* Counts a block of a tag in (+1) or out (-1). `is_new` as below. */
void lochi_ledger_count_tag(lochi_ledger *ledger, const lochi_entry *entry, int sign, bool is_new);

/* Prepares for a block whose allocated size is not the requested one. Not from inside. */
void lochi_ledger_begin_slack(lochi_ledger *ledger);

static inline bool lochi_ledger_has_slack(const lochi_ledger *ledger)
{
    return (atomic_load_explicit(&ledger->state, memory_order_relaxed) & LOCHI_LEDGER_SLACK) != 0;
}

/* A peak is what is in use before something goes: so only those look for one who take a block out, or ask. */
static inline void lochi_ledger_raise(const lochi_ledger *ledger, lochi_ledger_slot *slot, int metric,
                                      int64_t unpublished)
{
    const int64_t now = atomic_load_explicit(&ledger->published[metric], memory_order_relaxed) + unpublished;
    if (now > slot->peak[metric]) slot->peak[metric] = now;
}

/* `is_new`: it was not out for a moment only. */
static inline void lochi_ledger_count_in(lochi_ledger *ledger, lochi_ledger_slot *slot, size_t requested,
                                         size_t allocated, bool is_new)
{
    const int64_t blocks = atomic_load_explicit(&slot->blocks, memory_order_relaxed) + 1;
    const int64_t unpublished = slot->unpublished[LOCHI_LEDGER_REQUESTED] + (int64_t)requested;
    atomic_store_explicit(&slot->blocks, blocks, memory_order_relaxed);
    slot->unpublished[LOCHI_LEDGER_REQUESTED] = unpublished;
    if (!is_new)
        slot->frees--;
    else if (requested > slot->largest)
        slot->largest = requested;
    if (LOCHI_UNLIKELY(lochi_ledger_has_slack(ledger))) lochi_ledger_count_allocated(ledger, slot, (int64_t)allocated);
    if (LOCHI_UNLIKELY(blocks - slot->published_blocks >= LOCHI_LEDGER_BATCH_BLOCKS ||
                       unpublished >= LOCHI_LEDGER_BATCH_BYTES))
        lochi_ledger_publish(ledger, slot);
}

static inline void lochi_ledger_count_out(lochi_ledger *ledger, lochi_ledger_slot *slot, size_t requested,
                                          size_t allocated)
{
    const int64_t blocks = atomic_load_explicit(&slot->blocks, memory_order_relaxed);
    const int64_t unpublished_blocks = blocks - slot->published_blocks;
    const int64_t unpublished = slot->unpublished[LOCHI_LEDGER_REQUESTED];
    lochi_ledger_raise(ledger, slot, LOCHI_LEDGER_BLOCKS, unpublished_blocks);
    lochi_ledger_raise(ledger, slot, LOCHI_LEDGER_REQUESTED, unpublished);
    atomic_store_explicit(&slot->blocks, blocks - 1, memory_order_relaxed);
    slot->unpublished[LOCHI_LEDGER_REQUESTED] = unpublished - (int64_t)requested;
    slot->frees++;
    if (LOCHI_UNLIKELY(lochi_ledger_has_slack(ledger))) lochi_ledger_count_allocated(ledger, slot, -(int64_t)allocated);
    if (LOCHI_UNLIKELY(unpublished_blocks - 1 <= -LOCHI_LEDGER_BATCH_BLOCKS ||
                       unpublished - (int64_t)requested <= -LOCHI_LEDGER_BATCH_BYTES))
        lochi_ledger_publish(ledger, slot);
}

#endif
