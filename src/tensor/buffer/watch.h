/* SPDX-License-Identifier: MIT */
/* A watch on a buffer's contents, for who keeps something that was made of them: it counts the writes and the end of the buffer. The
 * buffer holds one for all who watch it, made when it is first watched, and each of them holds it, too: so it can be asked when the
 * buffer is long gone, and nobody has to be told. Nothing here takes a lock. */
#ifndef LOCHI_WATCH_H
#define LOCHI_WATCH_H

#include <loch/status.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct lochi_watch {
    atomic_size_t references;
    _Atomic uint64_t changes; /* raised by every write and by the end */
} lochi_watch;

/* Makes a watch with one reference, the buffer's. */
loch_status lochi_watch_create(lochi_watch **out);

/* Drops a reference; NULL does nothing. */
void lochi_watch_release(lochi_watch *watch);

/* Returns the number of changes. Acquire: a reader that sees a change sees what was done before it. */
static inline uint64_t lochi_watch_read(const lochi_watch *watch)
{
    return atomic_load_explicit(&watch->changes, memory_order_acquire);
}

/* Counts a write to the buffer, or its end. */
void lochi_watch_change(lochi_watch *watch);

/* Returns the changes of all watches of the process and the sleeps that have dropped contents: while it is the same, no watch
 * has changed. A sleep is not counted in a watch, but in the version of the buffer. */
uint64_t lochi_watch_count_changes(void);

#endif
