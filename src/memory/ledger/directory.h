/* SPDX-License-Identifier: MIT */
/* The directory of a ledger: a hash table of chunks that is read without a lock. */
#ifndef LOCHI_LEDGER_DIRECTORY_H
#define LOCHI_LEDGER_DIRECTORY_H

#include "kit/hint.h"
#include "memory/ledger/state.h"

/* Returns the chunk that contains an address. */
static inline uint64_t lochi_ledger_chunk(uintptr_t address)
{
    return (uint64_t)address >> LOCHI_CHUNK_BITS;
}

/* Returns the place where the search for a chunk begins. */
static inline size_t lochi_ledger_home(uint64_t chunk, unsigned shift)
{
    return (size_t)((chunk * 0x9e3779b97f4a7c15u) >> shift);
}

/* Returns the number of places in the directory. */
static inline size_t lochi_ledger_directory_size(const lochi_ledger *ledger)
{
    return (size_t)1 << (64 - ledger->directory_shift);
}

/* Finds a group that is not at its home place; NULL if the chunk has no group. Helper of lochi_ledger_group_of. */
lochi_group *lochi_ledger_seek_group(const lochi_ledger *ledger, uint64_t chunk);

/* Returns the group of an address, or NULL. The caller is inside the ledger, or holds the lock. */
static inline lochi_group *lochi_ledger_group_of(const lochi_ledger *ledger, uintptr_t address)
{
    const uint64_t chunk = lochi_ledger_chunk(address);
    const lochi_ledger_place *place = &ledger->directory[lochi_ledger_home(chunk, ledger->directory_shift)];
    if (LOCHI_LIKELY(atomic_load_explicit(&place->key, memory_order_acquire) == chunk + 1)) return place->group;
    return lochi_ledger_seek_group(ledger, chunk);
}

/* Creates the group of an address if it does not exist. Returns false without memory. The caller must not be inside
 * the ledger. */
bool lochi_ledger_make_group(lochi_ledger *ledger, uintptr_t address, uint16_t tag);

/* Creates the empty directory of a new ledger. Returns false without memory. */
bool lochi_ledger_directory_init(lochi_ledger *ledger);

/* Frees the directory and its groups. */
void lochi_ledger_directory_fini(lochi_ledger *ledger);

#endif
