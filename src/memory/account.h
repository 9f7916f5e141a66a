/* SPDX-License-Identifier: MIT */
/* An allocator's figures over time. */
#ifndef LOCHI_ACCOUNT_H
#define LOCHI_ACCOUNT_H

#include "memory/allocator_state.h"

/* Makes a new allocator known to its keeper. */
void lochi_account_open(loch_allocator *allocator);
/* Undoes lochi_account_open, when the allocator ends. */
void lochi_account_close(loch_allocator *allocator);

/* Counts the live blocks; UINT64_MAX when the allocator does not say. */
uint64_t lochi_allocator_count_live(loch_allocator *allocator);

/* Reads figures with counts and peaks as they are, not since the last reset. */
loch_status lochi_allocator_read_stats(loch_allocator *allocator, loch_tag tag, loch_stats *out);

/* Ends the present segment of an allocator's keeper: its peaks go to all scopes there. The caller holds the allocator's lock. */
loch_status lochi_allocator_end_segment(loch_allocator *allocator);

/* Walks a ledger's entries as blocks. */
loch_status lochi_ledger_walk_blocks(lochi_ledger *ledger, loch_block_visitor *visitor, void *user);

#endif
