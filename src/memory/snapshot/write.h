/* SPDX-License-Identifier: MIT */
/* Writes the contents of a snapshot as JSON (docs/snapshot.schema.json). */
#ifndef LOCHI_SNAPSHOT_WRITE_H
#define LOCHI_SNAPSHOT_WRITE_H

#include "memory/snapshot/collect.h"

/* Takes a piece of the text. A failure ends the writing. */
typedef loch_status snapshot_sink(void *user, const void *text, size_t bytes);

/* Writes a snapshot to a sink. Asks the devices for their free memory and their counts of driver calls. Needs no
 * memory. Returns the failure of the sink. */
loch_status lochi_snapshot_write(const snapshot_contents *contents, snapshot_sink *sink, void *user);

#endif
