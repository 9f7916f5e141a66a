/* SPDX-License-Identifier: MIT */
/* A watch on a buffer's contents, for who keeps something that was made of them: it counts the writes and the end of the buffer. The
 * buffer holds one for all who watch it, made when it is first watched, and each of them holds it, too: so it can be asked when the
 * buffer is long gone, and nobody has to be told. Nothing here takes a lock. */
#ifndef LOCHI_WATCH_H
#define LOCHI_WATCH_H

#include <loch/buffer.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct lochi_watch {
    atomic_size_t references;
    _Atomic uint64_t changes; /* raised by every write and by the end */
} lochi_watch;

/* The watch of a buffer's whole; the reference is the caller's. Any thread that holds the buffer. */
loch_status lochi_buffer_watch(loch_buffer *buffer, lochi_watch **out);

void lochi_watch_release(lochi_watch *watch); /* NULL does nothing */

/* Its number now. Acquire: who sees a change sees what was done before it. */
static inline uint64_t lochi_watch_read(const lochi_watch *watch)
{
    return atomic_load_explicit(&watch->changes, memory_order_acquire);
}

/* The buffer was written, or ends. */
void lochi_watch_change(lochi_watch *watch);

/* Counts changes of all watches of the process, and sleeps that have dropped contents: while it is the same, there is none that one
 * would have to look for. A watch does not hear of a sleep: the version of the buffer does. */
uint64_t lochi_watch_count_changes(void);

#endif
