/* SPDX-License-Identifier: MIT */
/* The ledger: what is known of an allocator's live blocks, and its figures.
 *
 * A block is found by its address. What is known of a freed block stays as a mark until its address is handed out
 * again or marks are the most in its part of the table and that is rebuilt: so a second free is told from a foreign
 * address.
 *
 * Figures are consistent: they hold at one moment for all threads. Peaks are exact for one thread. With several,
 * each thread knows the others' part as they last published it, so a peak may be off by LOCHI_LEDGER_BATCH_BYTES (or
 * _BLOCKS) a thread.
 *
 * Ids are given when they are first asked for, in that order, and never again. Taking a block out needs no memory
 * and cannot fail for want of any. How it works: state.h. */
#ifndef LOCHI_LEDGER_H
#define LOCHI_LEDGER_H

#include "memory/ledger/entry.h"
#include <loch/allocator.h>
#include <stdbool.h>

typedef struct lochi_ledger lochi_ledger;

/* Makes an empty ledger. */
loch_status lochi_ledger_create(lochi_ledger **out);

/* Ends a ledger; NULL does nothing. */
void lochi_ledger_destroy(lochi_ledger *ledger);

/* Enters a block (its id is not looked at), and gives it an id if `id` is not NULL. E_HOST_MEMORY; E_DRIVER when a
 * live block is at that address already. */
loch_status lochi_ledger_add(lochi_ledger *ledger, const lochi_entry *entry, uint64_t *id);

/* Enters a block that takes as much as was asked for, and whose id nobody wants yet: quicker than lochi_ledger_add. */
loch_status lochi_ledger_add_plain(lochi_ledger *ledger, const void *address, size_t bytes, loch_tag tag);

/* Takes a block out; its id is 0 if nobody had asked for it. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN; E_INVALID when
 * `bytes` is neither 0 nor its requested size. */
loch_status lochi_ledger_take(lochi_ledger *ledger, const void *address, size_t bytes, lochi_entry *out);

/* Undoes a take whose block could not be freed after all. Nobody else can have entered the address since. It needs
 * memory only if the mark has gone meanwhile; without any the block is forgotten then. */
void lochi_ledger_put_back(lochi_ledger *ledger, const lochi_entry *entry);

/* Gives what is known of the live block at `address`; errors as for lochi_ledger_take. Its id is 0 when there is no memory to
 * give it one. */
loch_status lochi_ledger_find(lochi_ledger *ledger, const void *address, lochi_entry *out);

/* Changes the owner's note on a live block; errors as for lochi_ledger_take, and E_HOST_MEMORY. */
loch_status lochi_ledger_set_note(lochi_ledger *ledger, const void *address, uint8_t note);

/* Calls `visit` for each live block, under locks of the ledger, and with what it returns ends when that is not LOCH_OK.
 * E_HOST_MEMORY for ids. */
loch_status lochi_ledger_walk(lochi_ledger *ledger, loch_status (*visit)(const lochi_entry *entry, void *user),
                              void *user);

/* Counts a failed attempt, unless the request is tried again (failure.h). */
void lochi_ledger_count_failure(lochi_ledger *ledger);

/* Counts a block of a tag in (`sign` is 1) or out (-1), and nothing else: no entry is written or taken out. `is_new`: the block
 * was not out for a moment only. Any thread. */
void lochi_ledger_count_tag(lochi_ledger *ledger, const lochi_entry *entry, int sign, bool is_new);

/* Fills the counts and bytes of blocks, and the peaks and largest of the present segment; leaves the rest of `out`
 * alone. With a tag, those of its blocks, of which the allocated bytes are not known; those peaks are exact. All
 * threads wait for a moment. */
void lochi_ledger_get_stats(lochi_ledger *ledger, loch_tag tag, loch_stats *out);

/* Starts a new segment: peaks := now, largest := 0. */
void lochi_ledger_new_segment(lochi_ledger *ledger);

/* Returns the number of live blocks; while others enter and take out, a number that may never have been. Of two threads that
 * take out the last blocks and then ask, at least one is told 0. */
uint64_t lochi_ledger_count_live(lochi_ledger *ledger);

/* Writes an entry as a block of the public interface. */
void lochi_ledger_to_block(const lochi_entry *entry, loch_block *out);

#endif
