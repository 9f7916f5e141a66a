/* SPDX-License-Identifier: MIT */
/* Work that uses buffers, and the functions that run at their end. */
#ifndef LOCHI_BUFFER_USES_H
#define LOCHI_BUFFER_USES_H

#include "tensor/buffer/state.h"

/* Adds a function to a whole, which owns it from now on. */
void lochi_buffer_link_deleter(loch_buffer *whole, lochi_deleter *deleter);

/* Ends the marks of a list that have passed, and returns the others. The caller has the list alone. */
lochi_use *lochi_uses_without_passed(lochi_use *uses);

/* Orders what `then` does behind what is queued on `first`. */
loch_status lochi_buffer_order(loch_stream *first, loch_stream *then);

#endif
