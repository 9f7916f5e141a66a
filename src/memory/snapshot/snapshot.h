/* SPDX-License-Identifier: MIT */
/* The door of snapshots: what the rest of the memory layer calls. */
#ifndef LOCHI_SNAPSHOT_H
#define LOCHI_SNAPSHOT_H

#include "memory/snapshot/top.h"
#include <loch/allocator.h>
#include <stdatomic.h>

/* Whether the snapshot of a failed request was written, or at least tried. Relaxed exchange: one thread writes it.
 * Tests reset it. */
extern atomic_bool lochi_snapshot_is_written;

/* Writes the snapshot that LOCH_SNAPSHOT asks for, if this is the first request of the process that failed in the end
 * because memory is short. Keeps the error record. Call without locks. */
void lochi_snapshot_note_failure(const loch_allocator *allocator, const loch_request *request, loch_status status);

#endif
