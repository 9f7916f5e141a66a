/* SPDX-License-Identifier: MIT */
/* The end of a whole (end.c). */
#ifndef LOCHI_BUFFER_END_H
#define LOCHI_BUFFER_END_H

#include "memory/buffer/state.h"

/* Removes a whole from its meter. Does nothing if it has no meter. */
void lochi_buffer_leave_meter(loch_buffer *whole);

/* Frees the memory of a whole and destroys it. Returns its owner, which may be NULL; the caller takes over the
 * reference to the owner. */
loch_buffer *lochi_buffer_end(loch_buffer *whole);

#endif
