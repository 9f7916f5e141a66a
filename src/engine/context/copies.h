/* SPDX-License-Identifier: MIT */
/* The table of kept copies (copies.c). */
#ifndef LOCHI_CONTEXT_COPIES_H
#define LOCHI_CONTEXT_COPIES_H

#include "engine/context/state.h"

/* Drops copies whose source was written or has gone. Costs one load when there was no write at all. */
void lochi_copies_sweep(loch_context *context);

/* Drops all on a device; NULL: on all of them. Returns how many bytes they had. */
size_t lochi_copies_drop(loch_context *context, const loch_device *device);

/* Drops all, and ends the table. */
void lochi_copies_end(loch_context *context);

/* --- entries --- */

/* Makes the key of a tensor that is wanted on a seat. The layout stays the tensor's. */
lochi_copy_key lochi_copy_key_make(const loch_tensor *tensor, unsigned seat);

/* Finds the link to an entry; NULL: none has the key. */
lochi_copy_entry **lochi_copies_find(const lochi_copies *copies, const lochi_copy_key *key);

/* Makes room for one entry more. A table that cannot grow becomes slower, and nothing else. */
loch_status lochi_copies_make_room(lochi_copies *copies);

/* Puts an entry into the table, which has room; its count and bytes are the caller's to raise. */
void lochi_copies_put(lochi_copies *copies, lochi_copy_entry *entry);

/* Takes an entry out of the table, onto a list. */
void lochi_copies_take(lochi_copies *copies, lochi_copy_entry **link, lochi_copy_entry **list);

/* Ends a list of entries; returns how many bytes they had. What ends may call deleters, and those the context: nothing
 * may point into the table meanwhile. */
size_t lochi_copies_end_list(const loch_context *context, lochi_copy_entry *list);

/* Ends an entry that is in no list, whole or half made. */
void lochi_copy_end(const loch_context *context, lochi_copy_entry *entry);

/* Gives the event behind a copy back, if there is one. */
void lochi_copy_give_event(const loch_context *context, lochi_copy_entry *entry);

/* Tells whether somebody wrote the copy, bound its tensor to another buffer, or had its pool sleep without the contents. */
bool lochi_copy_is_spoilt(const lochi_copy_entry *entry);

#endif
