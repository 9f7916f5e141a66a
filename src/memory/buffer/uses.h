/* SPDX-License-Identifier: MIT */
/* Work that uses buffers, and their deleters (uses.c). */
#ifndef LOCHI_BUFFER_USES_H
#define LOCHI_BUFFER_USES_H

#include "memory/buffer/state.h"

/* Adds a deleter to a whole, which owns it from now on. */
void lochi_buffer_link_deleter(loch_buffer *whole, lochi_deleter *deleter);

/* Destroys the marks of a list that have passed, and returns the others. Only the caller has the list. */
lochi_use *lochi_uses_without_passed(lochi_use *uses);

/* Orders later work of `then` after the work queued on `first`. */
loch_status lochi_buffer_order(loch_stream *first, loch_stream *then);

#endif
