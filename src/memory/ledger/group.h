/* SPDX-License-Identifier: MIT */
/* A group: what the ledger stores about the blocks that start in one chunk of addresses.
 *
 * Each block has a word of 32 bits, so that the words of a million blocks stay in the cache:
 *
 *   used 1 | offset in the chunk 16 | freed 1 | named 1 | requested size 13
 *
 * The home place of a word is its offset, scaled to the size of the array. If that place is taken, the word goes to
 * the next empty place after it. So neighbours in memory are neighbours here, and blocks of similar sizes do not
 * collide. The array grows when a word would lie too far from its home place.
 *
 * A cell holds what a word cannot: larger sizes, a tag that is not the group's tag, an allocated size that is not
 * the requested size, a note. The word is then called wide. Ids are in cells too. A block gets an id when the id is
 * first asked for; the word is then called named. Cells are allocated when the first one is needed. */
#ifndef LOCHI_LEDGER_GROUP_H
#define LOCHI_LEDGER_GROUP_H

#include "base/regions.h"
#include "memory/ledger/entry.h"
#include <stdatomic.h>
#include <stdbool.h>

#define LOCHI_CHUNK_BITS 16
#define LOCHI_GROUP_FEW 2   /* blocks for which a group has room from the start */
#define LOCHI_GROUP_REACH 8 /* distance from its home place at which a word makes the array grow */

#define LOCHI_WORD_USED 1u
#define LOCHI_WORD_KEY ((1u << 17) - 1) /* the used bit and the offset */
#define LOCHI_WORD_FREED (1u << 17)
#define LOCHI_WORD_NAMED (1u << 18)
#define LOCHI_WORD_SIZE_AT 19
#define LOCHI_WORD_WIDE ((1u << 13) - 1) /* in place of the size */

typedef struct lochi_cell {
    uint64_t id_note;       /* id << 8 | note */
    uint64_t requested_tag; /* requested << 16 | tag */
    uint64_t allocated;
} lochi_cell;

typedef struct lochi_group {
    _Alignas(64) atomic_flag is_locked;
    uint8_t bits;   /* 2^bits home places, and LOCHI_GROUP_REACH places after them */
    uint16_t tag;   /* tag of every block that is not wide */
    uint32_t count; /* number of words without the last one, which is always empty */
    uint32_t used;  /* number of words that are not empty */
    uint32_t few_words[LOCHI_GROUP_FEW + 1];
    uint32_t *words;
    uint64_t chunk;           /* address >> LOCHI_CHUNK_BITS */
    lochi_cell *cells;        /* one for each word; NULL until the first is needed */
    struct lochi_group *next; /* in a list of the ledger */
    lochi_region region;      /* the chunk, in the index of all allocators, if the ledger has an owner */
    lochi_cell few_cells[LOCHI_GROUP_FEW];
} lochi_group;

/* Sets up an empty group. The memory is aligned for it. */
void lochi_group_init(lochi_group *group, uint64_t chunk, uint16_t tag);

/* Frees the arrays of a group. */
void lochi_group_fini(lochi_group *group);

/* Makes room in a group. Drops the marks of freed blocks if they are the majority, else doubles the array. Returns
 * false without memory. */
bool lochi_group_rebuild(lochi_group *group);

/* Returns whether any block of a group is live. */
bool lochi_group_is_live(const lochi_group *group);

/* Returns the cell at a place, and allocates the cells if needed; NULL without memory. */
lochi_cell *lochi_group_cell(lochi_group *group, size_t at);

static inline uint32_t lochi_group_key(uintptr_t address)
{
    return (uint32_t)(address & (((uintptr_t)1 << LOCHI_CHUNK_BITS) - 1)) << 1 | LOCHI_WORD_USED;
}

static inline size_t lochi_group_home(uint32_t key, unsigned bits)
{
    return key >> (LOCHI_CHUNK_BITS + 1 - bits);
}

/* Returns the place of a key, or the empty place where the key belongs. */
static inline size_t lochi_group_seek(const lochi_group *group, uint32_t key)
{
    size_t at = lochi_group_home(key, group->bits);
    while ((group->words[at] & LOCHI_WORD_KEY) != key && group->words[at])
        at++;
    return at;
}

/* Returns whether a new word may go to the empty place `at`. While an array is almost empty, a word may lie far from
 * its home place, so that the array does not grow for a few words. */
static inline bool lochi_group_has_room(const lochi_group *group, uint32_t key, size_t at)
{
    if (at == group->count) return false;
    return at - lochi_group_home(key, group->bits) < LOCHI_GROUP_REACH || group->used * 8 < group->count;
}

static inline bool lochi_word_is_live(uint32_t word)
{
    return word && !(word & LOCHI_WORD_FREED);
}

static inline bool lochi_word_is_wide(uint32_t word)
{
    return word >> LOCHI_WORD_SIZE_AT == LOCHI_WORD_WIDE;
}

/* Reads the entry at a place. Its id is 0 if the id was never asked for. */
static inline void lochi_group_read(const lochi_group *group, size_t at, lochi_entry *out)
{
    const uint32_t word = group->words[at];
    out->address = (uintptr_t)(group->chunk << LOCHI_CHUNK_BITS | (word & LOCHI_WORD_KEY) >> 1);
    out->requested = out->allocated = word >> LOCHI_WORD_SIZE_AT;
    out->id = 0;
    out->tag = group->tag;
    out->note = 0;
    if (__builtin_expect((word & LOCHI_WORD_NAMED) != 0, 0)) out->id = group->cells[at].id_note >> 8;
    if (__builtin_expect(lochi_word_is_wide(word), 0)) {
        const lochi_cell *cell = &group->cells[at];
        out->requested = (size_t)(cell->requested_tag >> 16);
        out->allocated = (size_t)cell->allocated;
        out->tag = (uint16_t)cell->requested_tag;
        out->note = (uint8_t)cell->id_note;
    }
}

/* Returns whether a word can hold an entry, apart from the id. */
static inline bool lochi_group_is_simple(const lochi_group *group, const lochi_entry *entry)
{
    return entry->requested < LOCHI_WORD_WIDE && entry->requested == entry->allocated && entry->tag == group->tag &&
           !entry->note;
}

/* Writes a live entry that fits into a word and has no id. */
static inline void lochi_group_write_simple(lochi_group *group, size_t at, uint32_t key, size_t requested)
{
    group->words[at] = key | (uint32_t)requested << LOCHI_WORD_SIZE_AT;
}

/* Writes any live entry, with its id unless the id is 0. Returns false, and writes nothing, without memory for a
 * cell. */
bool lochi_group_write(lochi_group *group, size_t at, const lochi_entry *entry, uint64_t id);

#endif
