/* SPDX-License-Identifier: MIT */
/* Groups: the functions that are off the fast path. */
#include "memory/ledger/group.h"
#include "base/heap.h"
#include <string.h>

#define GROUP_BITS_SECOND 4 /* bits of the first array that is allocated separately */

void lochi_group_init(lochi_group *group, uint64_t chunk, uint16_t tag)
{
    memset(group, 0, sizeof *group);
    atomic_flag_clear_explicit(&group->is_locked, memory_order_relaxed);
    group->count = LOCHI_GROUP_FEW;
    group->words = group->few_words;
    group->cells = group->few_cells;
    group->chunk = chunk;
    group->tag = tag;
}

void lochi_group_fini(lochi_group *group)
{
    if (group->words != group->few_words) lochi_free(group->words);
    if (group->cells != group->few_cells) lochi_free(group->cells);
}

bool lochi_group_is_live(const lochi_group *group)
{
    for (size_t at = 0; at < group->count; at++)
        if (lochi_word_is_live(group->words[at])) return true;
    return false;
}

lochi_cell *lochi_group_cell(lochi_group *group, size_t at)
{
    if (!group->cells) group->cells = lochi_alloc_array(group->count, sizeof *group->cells);
    return group->cells ? &group->cells[at] : NULL;
}

bool lochi_group_write(lochi_group *group, size_t at, const lochi_entry *entry, uint64_t id)
{
    const bool is_wide = !lochi_group_is_simple(group, entry);
    if (is_wide || id) {
        lochi_cell *cell = lochi_group_cell(group, at);
        if (!cell) return false;
        *cell = (lochi_cell){id << 8 | entry->note, (uint64_t)entry->requested << 16 | entry->tag, entry->allocated};
    }
    lochi_group_write_simple(group, at, lochi_group_key(entry->address), is_wide ? LOCHI_WORD_WIDE : entry->requested);
    if (id) group->words[at] |= LOCHI_WORD_NAMED;
    return true;
}

/* Copies words and cells into the empty arrays of `to`. Returns false if a word does not fit in front of the last
 * place. */
static bool group_copy(lochi_group *to, const lochi_group *from, bool keep_freed)
{
    for (size_t i = 0; i < from->count; i++) {
        const uint32_t word = from->words[i];
        if (!word || (word & LOCHI_WORD_FREED && !keep_freed)) continue;
        const size_t at = lochi_group_seek(to, word & LOCHI_WORD_KEY);
        if (at == to->count) return false;
        to->words[at] = word;
        if (word & LOCHI_WORD_NAMED || lochi_word_is_wide(word)) to->cells[at] = from->cells[i];
        to->used++;
    }
    return true;
}

/* Allocates empty arrays of words, and of cells if `with_cells`. Returns false without memory. */
static bool group_make_arrays(lochi_group *made, unsigned bits, bool with_cells)
{
    *made = (lochi_group){.bits = (uint8_t)bits, .count = (1u << bits) + LOCHI_GROUP_REACH};
    made->words = lochi_zalloc((made->count + 1) * sizeof *made->words);
    if (made->words && with_cells) made->cells = lochi_alloc_array(made->count, sizeof *made->cells);
    if (made->words && (made->cells || !with_cells)) return true;
    lochi_group_fini(made);
    return false;
}

/* Returns whether any word uses its cell. */
static bool group_has_cells(const lochi_group *group)
{
    for (size_t at = 0; at < group->count; at++)
        if (group->words[at] & LOCHI_WORD_NAMED || lochi_word_is_wide(group->words[at])) return true;
    return false;
}

bool lochi_group_rebuild(lochi_group *group)
{
    size_t live = 0;
    for (size_t at = 0; at < group->count; at++)
        live += lochi_word_is_live(group->words[at]);
    const bool keep_freed = group->used - live <= live, with_cells = group_has_cells(group);
    unsigned bits = keep_freed ? group->bits + 1u : group->bits;
    if (bits < GROUP_BITS_SECOND) bits = GROUP_BITS_SECOND;
    for (; bits <= LOCHI_CHUNK_BITS; bits++) {
        lochi_group made;
        if (!group_make_arrays(&made, bits, with_cells)) return false;
        if (!group_copy(&made, group, keep_freed)) {
            lochi_group_fini(&made);
            continue;
        }
        lochi_group_fini(group);
        group->words = made.words;
        group->cells = made.cells;
        group->bits = made.bits;
        group->count = made.count;
        group->used = made.used;
        return true;
    }
    return false; /* cannot happen: with all bits, every offset has its own place */
}
