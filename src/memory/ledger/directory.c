/* SPDX-License-Identifier: MIT */
/* The directory of a ledger: groups, found by the chunk of an address. */
#include "memory/ledger/directory.h"
#include "base/heap.h"
#include "memory/ledger/slot.h"
#include "memory/ledger/stop.h"

#define DIRECTORY_BITS 6 /* of the directory's first size */

__attribute__((noinline)) lochi_group *lochi_ledger_seek_group(const lochi_ledger *ledger, uint64_t chunk)
{
    const size_t mask = lochi_ledger_directory_size(ledger) - 1;
    for (size_t at = lochi_ledger_home(chunk, ledger->directory_shift);; at = (at + 1) & mask) {
        const uint64_t key = atomic_load_explicit(&ledger->directory[at].key, memory_order_acquire);
        if (key == chunk + 1) return ledger->directory[at].group;
        if (!key) return NULL;
    }
}

/* Inserts a group. The group is not in the directory yet, and the directory has room. */
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
    lochi_lock_assert_held(&ledger->lock);
    group->next = ledger->spare;
    ledger->spare = group;
}

static lochi_group *directory_take_spare(lochi_ledger *ledger)
{
    lochi_lock_assert_held(&ledger->lock);
    if (!ledger->spare) {
        void *memory;
        lochi_ledger_slab *slab = lochi_ledger_alloc_aligned(sizeof *slab, &memory);
        if (!slab) return NULL;
        slab->memory = memory;
        slab->next = ledger->slabs;
        ledger->slabs = slab;
        for (size_t i = 0; i < LOCHI_LEDGER_SLAB_GROUPS; i++)
            directory_give_spare(ledger, &slab->groups[i]);
    }
    lochi_group *group = ledger->spare;
    ledger->spare = group->next;
    return group;
}

/* Returns the number of groups with live blocks. The ledger is stopped. */
static size_t directory_count_live(const lochi_ledger *ledger)
{
    lochi_lock_assert_held(&ledger->lock);
    size_t live = 0;
    for (size_t at = 0; at < lochi_ledger_directory_size(ledger); at++)
        live += ledger->directory[at].group && lochi_group_is_live(ledger->directory[at].group);
    return live;
}

/* Makes room for another group. Drops the groups without live blocks if they are the majority, else doubles the
 * directory. Returns false, and changes nothing, without memory. The ledger is stopped. */
static bool directory_grow(lochi_ledger *ledger)
{
    lochi_lock_assert_held(&ledger->lock);
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
        lochi_region_remove(&group->region);
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
    lochi_lock_assert_held(&ledger->lock);
    if ((ledger->groups + 1) * 2 > lochi_ledger_directory_size(ledger)) {
        lochi_ledger_halt(ledger);
        const bool is_grown = directory_grow(ledger);
        lochi_ledger_go_on(ledger);
        if (!is_grown) return false;
    }
    lochi_group *group = directory_take_spare(ledger);
    if (!group) return false;
    lochi_group_init(group, chunk, tag);
    if (ledger->owner) lochi_region_add(&group->region, chunk << LOCHI_CHUNK_BITS, LOCHI_CHUNK_BITS, ledger->owner);
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

/* --- creating and destroying --- */

bool lochi_ledger_directory_init(lochi_ledger *ledger)
{
    ledger->directory_shift = 64 - DIRECTORY_BITS;
    ledger->directory = lochi_zalloc(sizeof *ledger->directory << DIRECTORY_BITS);
    return ledger->directory != NULL;
}

void lochi_ledger_directory_fini(lochi_ledger *ledger)
{
    for (size_t at = 0; ledger->directory && at < lochi_ledger_directory_size(ledger); at++)
        if (ledger->directory[at].group) {
            lochi_region_remove(&ledger->directory[at].group->region);
            lochi_group_fini(ledger->directory[at].group);
        }
    for (lochi_ledger_slab *slab = ledger->slabs, *next; slab; slab = next) {
        next = slab->next;
        lochi_free(slab->memory);
    }
    lochi_free(ledger->directory);
}
