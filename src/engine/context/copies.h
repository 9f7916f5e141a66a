/* SPDX-License-Identifier: MIT */
/* The table of kept copies (copies.c). */
#ifndef LOCHI_CONTEXT_COPIES_H
#define LOCHI_CONTEXT_COPIES_H

#include "engine/context/state.h"

/* Drops copies whose source was written or destroyed. Costs one load if no watched buffer has changed. */
void lochi_copies_sweep(loch_context *context);

/* Drops all copies on `device`, or on all devices if it is NULL. Returns the bytes of the dropped copies. */
size_t lochi_copies_drop(loch_context *context, const loch_device *device);

/* Drops all copies and frees the table. */
void lochi_copies_end(loch_context *context);

/* --- entries --- */

/* Makes the key for a copy of `tensor` on `seat`. The layout in the key is borrowed from the tensor. */
lochi_copy_key lochi_copy_key_make(const loch_tensor *tensor, unsigned seat);

/* Finds the link that points to the entry with `key`. Returns NULL if no entry has the key. */
lochi_copy_entry **lochi_copies_find(const lochi_copies *copies, const lochi_copy_key *key);

/* Makes room for one more entry. If the table cannot grow, lookups become slower; this is not a failure. */
loch_status lochi_copies_make_room(lochi_copies *copies);

/* Puts an entry into the table, which has room. The caller updates the table's count and bytes. */
void lochi_copies_put(lochi_copies *copies, lochi_copy_entry *entry);

/* Takes an entry out of the table and puts it on `list`. */
void lochi_copies_take(lochi_copies *copies, lochi_copy_entry **link, lochi_copy_entry **list);

/* Destroys the entries of a list and returns their bytes. Destroying may call deleters, and deleters may call the
 * context: the caller must hold no pointer into the table meanwhile. */
size_t lochi_copies_end_list(const loch_context *context, lochi_copy_entry *list);

/* Destroys an entry that is in no list. The entry may be half made. */
void lochi_copy_end(const loch_context *context, lochi_copy_entry *entry);

/* Gives the event of a copy back to the pool, if there is one. */
void lochi_copy_give_event(const loch_context *context, lochi_copy_entry *entry);

/* Tells whether the copy was written, or its pool has slept without keeping the contents. */
bool lochi_copy_is_spoilt(const lochi_copy_entry *entry);

#endif
