/* SPDX-License-Identifier: MIT */
/* Statistics of an allocator over time: since creation, since the last reset, inside measuring scopes. */
#ifndef LOCHI_ACCOUNT_H
#define LOCHI_ACCOUNT_H

#include "base/shared.h"
#include "memory/allocator_state.h"

/* Adds a new allocator to the lists of its keeper. */
void lochi_account_open(loch_allocator *allocator);
/* Undoes lochi_account_open. Called when the allocator is destroyed. */
void lochi_account_close(loch_allocator *allocator);

/* Returns the number of live blocks, or UINT64_MAX if the allocator cannot tell. */
LOCHI_SHARED uint64_t lochi_allocator_count_live(loch_allocator *allocator);

/* Reads the statistics with counts and peaks as the implementation keeps them, not since the last reset. */
LOCHI_SHARED loch_status lochi_allocator_read_stats(loch_allocator *allocator, loch_tag tag, loch_stats *out);

/* Ends the present segment of the allocator's keeper. Its peaks raise the peaks of all scopes of the keeper. The
 * caller holds the allocator's lock. */
LOCHI_SHARED loch_status lochi_allocator_end_segment(loch_allocator *allocator);

/* Calls `visitor` for each entry of a ledger, as a block of the public interface. */
loch_status lochi_ledger_walk_blocks(lochi_ledger *ledger, loch_block_visitor *visitor, void *user);

#endif
