/* SPDX-License-Identifier: MIT */
/* The ledger's slots, stops and directory: what happens once a thread, once a chunk, or when all is asked for. */
#include "base/heap.h"
#include "memory/ledger/inside.h"
#include <sched.h>
#include <string.h>

#define DIRECTORY_BITS 6 /* at the start */
#define DIRECTORY_SLAB_GROUPS 31
#define DIRECTORY_TURNS 1000 /* how often a stop steps back for those whom the last one kept out */

typedef struct lochi_ledger_slab {
    lochi_group groups[DIRECTORY_SLAB_GROUPS];
    struct lochi_ledger_slab *next;
    void *memory;
} lochi_ledger_slab;

void *lochi_ledger_alloc_aligned(size_t bytes, void **memory)
{
    *memory = lochi_zalloc(bytes + LOCHI_LEDGER_LINE);
    const uintptr_t end = (uintptr_t)*memory + LOCHI_LEDGER_LINE - 1;
    return *memory ? (void *)(end & ~(uintptr_t)(LOCHI_LEDGER_LINE - 1)) : NULL;
}

/* --- slots --- */

LOCHI_RARE void lochi_ledger_spin(atomic_flag *is_locked)
{
    for (unsigned spins = 1; atomic_flag_test_and_set_explicit(is_locked, memory_order_acquire); spins++)
        if (spins % 64 == 0) sched_yield(); /* the holder may have been put to sleep */
}

/* The slot at `index`, made by its owner; the shared one without memory. */
static lochi_ledger_slot *directory_make_slot(lochi_ledger *ledger, uint32_t index)
{
    void *memory;
    lochi_ledger_slot *slot = lochi_ledger_alloc_aligned(sizeof *slot, &memory);
    if (!slot) return &ledger->shared;
    slot->memory = memory;
    atomic_store_explicit(&ledger->slots[index], slot, memory_order_release);
    unsigned count = atomic_load_explicit(&ledger->slot_count, memory_order_relaxed);
    while (count <= index && !atomic_compare_exchange_weak_explicit(&ledger->slot_count, &count, index + 1,
                                                                    memory_order_seq_cst, memory_order_relaxed)) {}
    return slot;
}

lochi_ledger_slot *lochi_ledger_next_slot(lochi_ledger *ledger, uint32_t *index)
{
    const uint32_t count = atomic_load_explicit(&ledger->slot_count, memory_order_acquire);
    while (*index < count) {
        lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[(*index)++], memory_order_acquire);
        if (slot) return slot;
    }
    if (*index == LOCHI_SLOT_COUNT) return NULL;
    *index = LOCHI_SLOT_COUNT;
    return &ledger->shared;
}

/* The whole of entering: for a thread's first call, for the shared slot, and while the ledger is stopped. */
LOCHI_RARE lochi_ledger_slot *lochi_ledger_enter_slowly(lochi_ledger *ledger)
{
    const uint32_t index = lochi_thread_slot();
    lochi_ledger_slot *slot = &ledger->shared;
    if (index != LOCHI_SLOT_SHARED) {
        slot = atomic_load_explicit(&ledger->slots[index], memory_order_relaxed);
        if (!slot) slot = directory_make_slot(ledger, index);
    }
    bool is_kept_out = false;
    for (;;) {
        if (slot->is_shared) lochi_ledger_lock(&slot->is_locked);
        atomic_store_explicit(&slot->inside, true, memory_order_relaxed);
        lochi_fence_light();
        if (!(atomic_load_explicit(&ledger->state, memory_order_acquire) & LOCHI_LEDGER_STOPPED)) break;
        lochi_ledger_leave(slot);
        if (!is_kept_out) atomic_fetch_add_explicit(&ledger->kept_out, 1, memory_order_relaxed);
        is_kept_out = true;
        while (atomic_load_explicit(&ledger->state, memory_order_relaxed) & LOCHI_LEDGER_STOPPED)
            sched_yield();
    }
    if (is_kept_out) atomic_fetch_sub_explicit(&ledger->kept_out, 1, memory_order_relaxed);
    return slot;
}

/* --- stops --- */

/* Under the lock, and not from inside. */
static void directory_halt(lochi_ledger *ledger)
{
    atomic_fetch_or_explicit(&ledger->state, LOCHI_LEDGER_STOPPED, memory_order_relaxed);
    lochi_fence_heavy(); /* who is inside is seen to be, or sees the stop */
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
        while (atomic_load_explicit(&slot->inside, memory_order_acquire))
            sched_yield();
}

static void directory_go_on(lochi_ledger *ledger)
{
    atomic_fetch_and_explicit(&ledger->state, ~(unsigned)LOCHI_LEDGER_STOPPED, memory_order_release);
}

/* Whom the last stop kept out comes first: somebody who asks for figures in a loop would keep the others out for good. */
static void directory_let_in(lochi_ledger *ledger)
{
    for (int turns = DIRECTORY_TURNS; turns && atomic_load_explicit(&ledger->kept_out, memory_order_relaxed); turns--)
        sched_yield();
}

void lochi_ledger_stop(lochi_ledger *ledger)
{
    lochi_lock_take(&ledger->lock);
    directory_let_in(ledger);
    directory_halt(ledger);
}

void lochi_ledger_resume(lochi_ledger *ledger)
{
    directory_go_on(ledger);
    lochi_lock_drop(&ledger->lock);
}

/* --- forks --- */

#define DIRECTORY_FORK_TURNS 10000 /* for threads that wait for a group which the thread that forks is visiting */

static lochi_fork_part directory_part;

static lochi_ledger *directory_of(lochi_fork_item *item)
{
    return (lochi_ledger *)((char *)item - offsetof(lochi_ledger, in_forks));
}

/* A visitor of a walk may fork: others who want its group wait inside then, and have changed nothing yet. */
static void directory_await(lochi_ledger *ledger)
{
    const bool is_own = lochi_lock_is_mine(&ledger->lock);
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
        for (int turns = DIRECTORY_FORK_TURNS; atomic_load_explicit(&slot->inside, memory_order_acquire); turns--) {
            if (is_own && !turns) break;
            sched_yield();
        }
}

static void directory_stop_all(void)
{
    for (lochi_fork_item *item = directory_part.items; item; item = item->next)
        atomic_fetch_or_explicit(&directory_of(item)->state, LOCHI_LEDGER_STOPPED, memory_order_relaxed);
    lochi_fence_heavy();
    for (lochi_fork_item *item = directory_part.items; item; item = item->next)
        directory_await(directory_of(item));
}

static void directory_go_on_all(void)
{
    for (lochi_fork_item *item = directory_part.items; item; item = item->next)
        directory_go_on(directory_of(item));
}

/* In the child, where nobody is inside. */
static void directory_forked(void)
{
    for (lochi_fork_item *item = directory_part.items; item; item = item->next) {
        lochi_ledger *ledger = directory_of(item);
        uint32_t index = 0, count = LOCHI_SLOT_COUNT;
        while (count && !atomic_load_explicit(&ledger->slots[count - 1], memory_order_relaxed))
            count--; /* a thread may have made its slot, and not counted it yet */
        atomic_store_explicit(&ledger->slot_count, count, memory_order_relaxed);
        for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
            atomic_store_explicit(&slot->inside, false, memory_order_relaxed);
        lochi_ledger_unlock(&ledger->shared.is_locked);
        atomic_store_explicit(&ledger->kept_out, 0, memory_order_relaxed);
        directory_go_on(ledger);
    }
}

static lochi_fork_part directory_part = {
    .prepare = directory_stop_all, .parent = directory_go_on_all, .child = directory_forked};

void lochi_ledger_enter_forks(lochi_ledger *ledger)
{
    lochi_fork_enter(&directory_part, &ledger->in_forks);
}

/* --- groups --- */

__attribute__((noinline)) lochi_group *lochi_ledger_seek_group(const lochi_ledger *ledger, uint64_t chunk)
{
    const size_t mask = lochi_ledger_directory_size(ledger) - 1;
    for (size_t at = lochi_ledger_home(chunk, ledger->directory_shift);; at = (at + 1) & mask) {
        const uint64_t key = atomic_load_explicit(&ledger->directory[at].key, memory_order_acquire);
        if (key == chunk + 1) return ledger->directory[at].group;
        if (!key) return NULL;
    }
}

/* Puts in a group that is not there yet. The directory has room. */
static void directory_put(lochi_ledger_place *directory, unsigned shift, lochi_group *group)
{
    const size_t mask = ((size_t)1 << (64 - shift)) - 1;
    size_t at = lochi_ledger_home(group->chunk, shift);
    while (directory[at].group)
        at = (at + 1) & mask;
    directory[at].group = group;
    atomic_store_explicit(&directory[at].key, group->chunk + 1, memory_order_release);
}

static void directory_give_spare(lochi_ledger *ledger, lochi_group *group)
{
    group->next = ledger->spare;
    ledger->spare = group;
}

static lochi_group *directory_take_spare(lochi_ledger *ledger)
{
    if (!ledger->spare) {
        void *memory;
        lochi_ledger_slab *slab = lochi_ledger_alloc_aligned(sizeof *slab, &memory);
        if (!slab) return NULL;
        slab->memory = memory;
        slab->next = ledger->slabs;
        ledger->slabs = slab;
        for (size_t i = 0; i < DIRECTORY_SLAB_GROUPS; i++)
            directory_give_spare(ledger, &slab->groups[i]);
    }
    lochi_group *group = ledger->spare;
    ledger->spare = group->next;
    return group;
}

/* While stopped: how many groups have live blocks. */
static size_t directory_count_live(const lochi_ledger *ledger)
{
    size_t live = 0;
    for (size_t at = 0; at < lochi_ledger_directory_size(ledger); at++)
        live += ledger->directory[at].group && lochi_group_is_live(ledger->directory[at].group);
    return live;
}

/* While stopped: makes room for another group, by dropping those without live blocks when they are the most, else by
 * doubling. Nothing changes without memory. */
static bool directory_grow(lochi_ledger *ledger)
{
    const size_t live = directory_count_live(ledger);
    const bool keep_dead = ledger->groups - live <= live;
    const unsigned shift = ledger->directory_shift - keep_dead;
    lochi_ledger_place *directory = lochi_zalloc(sizeof *directory << (64 - shift));
    if (!directory) return false;
    for (size_t at = 0; at < lochi_ledger_directory_size(ledger); at++) {
        lochi_group *group = ledger->directory[at].group;
        if (!group) continue;
        if (keep_dead || lochi_group_is_live(group)) {
            directory_put(directory, shift, group);
            continue;
        }
        lochi_group_fini(group);
        directory_give_spare(ledger, group);
        ledger->groups--;
    }
    lochi_free(ledger->directory);
    ledger->directory = directory;
    ledger->directory_shift = shift;
    return true;
}

static bool directory_add(lochi_ledger *ledger, uint64_t chunk, uint16_t tag)
{
    if ((ledger->groups + 1) * 2 > lochi_ledger_directory_size(ledger)) {
        directory_halt(ledger);
        const bool is_grown = directory_grow(ledger);
        directory_go_on(ledger);
        if (!is_grown) return false;
    }
    lochi_group *group = directory_take_spare(ledger);
    if (!group) return false;
    lochi_group_init(group, chunk, tag);
    directory_put(ledger->directory, ledger->directory_shift, group);
    ledger->groups++;
    return true;
}

LOCHI_RARE bool lochi_ledger_make_group(lochi_ledger *ledger, uintptr_t address, uint16_t tag)
{
    lochi_lock_take(&ledger->lock);
    const bool is_there =
        lochi_ledger_group_of(ledger, address) || directory_add(ledger, lochi_ledger_chunk(address), tag);
    lochi_lock_drop(&ledger->lock);
    return is_there;
}

/* --- making and ending --- */

bool lochi_ledger_directory_init(lochi_ledger *ledger)
{
    ledger->directory_shift = 64 - DIRECTORY_BITS;
    ledger->directory = lochi_zalloc(sizeof *ledger->directory << DIRECTORY_BITS);
    return ledger->directory != NULL;
}

void lochi_ledger_directory_fini(lochi_ledger *ledger)
{
    for (size_t at = 0; ledger->directory && at < lochi_ledger_directory_size(ledger); at++)
        if (ledger->directory[at].group) lochi_group_fini(ledger->directory[at].group);
    for (lochi_ledger_slab *slab = ledger->slabs, *next; slab; slab = next) {
        next = slab->next;
        lochi_free(slab->memory);
    }
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++) {
        lochi_ledger_slot *slot = atomic_load_explicit(&ledger->slots[i], memory_order_relaxed);
        if (slot) lochi_free(slot->memory);
    }
    lochi_free(ledger->directory);
}
