/* SPDX-License-Identifier: MIT */
/* The ledger of an allocator: its live blocks and its statistics.
 *
 * Blocks are found by address. A freed block leaves a mark, so that a second free is told apart from a foreign
 * address. The mark stays until its address is handed out again, or until marks are the majority in that part of the
 * table and the part is rebuilt.
 *
 * The statistics are consistent: they hold at one moment for all threads. Peaks are exact for one thread. With
 * several threads, each thread sees the others' part as last published, so a peak may be off by
 * LOCHI_LEDGER_BATCH_BYTES (or _BLOCKS) for each thread.
 *
 * A block gets an id when the id is first asked for. Ids are given in that order and never reused. Taking a block
 * out needs no memory, so it never returns E_HOST_MEMORY. state.h says how the ledger works. */
#ifndef LOCHI_LEDGER_H
#define LOCHI_LEDGER_H

#include "memory/ledger/entry.h"
#include <loch/allocator.h>
#include <stdbool.h>

typedef struct lochi_ledger lochi_ledger;

/* Creates an empty ledger. */
loch_status lochi_ledger_create(lochi_ledger **out);

/* Lets searches by address find the blocks of a new ledger as those of `owner` (base/regions.h). */
void lochi_ledger_set_owner(lochi_ledger *ledger, const void *owner);

/* Returns whether a live block starts at an address. */
bool lochi_ledger_has(lochi_ledger *ledger, const void *address);

/* Destroys a ledger; NULL does nothing. */
void lochi_ledger_destroy(lochi_ledger *ledger);

/* Adds a block; `entry->id` is ignored. Gives the block an id if `id` is not NULL. E_HOST_MEMORY; E_DRIVER: a live
 * block has this address already. */
loch_status lochi_ledger_add(lochi_ledger *ledger, const lochi_entry *entry, uint64_t *id);

/* Adds a block without an id, whose allocated size is its requested size. Faster than lochi_ledger_add. */
loch_status lochi_ledger_add_simple(lochi_ledger *ledger, const void *address, size_t bytes, loch_tag tag);

/* Takes a block out. The id in `out` is 0 if it was never asked for. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN;
 * E_INVALID: `bytes` is neither 0 nor the requested size. */
loch_status lochi_ledger_take(lochi_ledger *ledger, const void *address, size_t bytes, lochi_entry *out);

/* Undoes lochi_ledger_take for a block that could not be freed. No other block can have this address in between.
 * Needs memory only if the mark was dropped in between; without memory the block is then forgotten. */
void lochi_ledger_put_back(lochi_ledger *ledger, const lochi_entry *entry);

/* Changes the size of a live block, requested and allocated. A block that another thread takes out meanwhile stays
 * out. */
void lochi_ledger_resize(lochi_ledger *ledger, const void *address, size_t bytes);

/* Reads the entry of the live block at `address`. Errors as for lochi_ledger_take. The id is 0 if there is no memory
 * to give the block one. */
loch_status lochi_ledger_find(lochi_ledger *ledger, const void *address, lochi_entry *out);

/* Sets the note of a live block. Errors as for lochi_ledger_take, and E_HOST_MEMORY. */
loch_status lochi_ledger_set_note(lochi_ledger *ledger, const void *address, uint8_t note);

/* Calls `visit` for each live block, with locks of the ledger held. Stops at the first status that is not LOCH_OK,
 * and returns that status. E_HOST_MEMORY: no memory for ids. */
loch_status lochi_ledger_walk(lochi_ledger *ledger, loch_status (*visit)(const lochi_entry *entry, void *user),
                              void *user);

/* Counts a failed attempt, unless the request is retried (failure.h). */
void lochi_ledger_count_failure(lochi_ledger *ledger);

/* Counts a block of a tag in (`sign` is 1) or out (-1), without adding or taking an entry. `is_new` is false for a
 * block that is put back after a failed free. Any thread. */
void lochi_ledger_count_tag(lochi_ledger *ledger, const lochi_entry *entry, int sign, bool is_new);

/* Fills the counts and bytes of blocks, and the peaks and the largest request of the present segment. Leaves the
 * other members of `out` alone. With a tag: the statistics of that tag, without allocated bytes, and with exact
 * peaks. Stops all threads for a moment. */
void lochi_ledger_get_stats(lochi_ledger *ledger, loch_tag tag, loch_stats *out);

/* Starts a new segment: sets the peaks to the present use and the largest request to 0. */
void lochi_ledger_new_segment(lochi_ledger *ledger);

/* Returns the number of live blocks. While other threads add and take out blocks, the number is approximate. If two
 * threads take out the last blocks and then call this, at least one of them gets 0. */
uint64_t lochi_ledger_count_live(lochi_ledger *ledger);

/* Converts an entry to a block of the public interface. */
void lochi_ledger_to_block(const lochi_entry *entry, loch_block *out);

#endif
