/* SPDX-License-Identifier: MIT */
/* A watch on the contents of a buffer. It counts writes to the buffer and its end, for code that caches something made
 * from the contents. The buffer holds one watch for all watchers, created on first use. Each watcher holds a reference
 * too, so it can read the watch after the buffer was destroyed, and the buffer needs no callbacks. Nothing here takes a
 * lock. */
#ifndef LOCHI_WATCH_H
#define LOCHI_WATCH_H

#include "base/shared.h"
#include <loch/status.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct lochi_watch {
    atomic_size_t references;
    _Atomic uint64_t changes; /* incremented by each write and by the end of the buffer */
} lochi_watch;

/* Creates a watch with one reference, owned by the buffer. */
loch_status lochi_watch_create(lochi_watch **out);

/* Drops a reference; NULL does nothing. */
LOCHI_SHARED void lochi_watch_release(lochi_watch *watch);

/* Returns the number of changes. Acquire: a reader that sees a change sees the writes before it. */
static inline uint64_t lochi_watch_read(const lochi_watch *watch)
{
    return atomic_load_explicit(&watch->changes, memory_order_acquire);
}

/* Counts a write to the buffer, or its end. */
LOCHI_SHARED void lochi_watch_change(lochi_watch *watch);

/* Returns the changes of all watches of the process plus the sleeps that dropped contents. While the number is equal,
 * no watch has changed. A sleep is not counted in a watch, but in the version of the buffer. */
LOCHI_SHARED uint64_t lochi_watch_count_changes(void);

#endif
