/* SPDX-License-Identifier: MIT */
/* The end of a whole. */
#ifndef LOCHI_BUFFER_END_H
#define LOCHI_BUFFER_END_H

#include "tensor/buffer/state.h"

/* Takes a whole out of its meter's count. Does nothing for one without a meter. */
void lochi_buffer_leave_meter(loch_buffer *whole);

/* Gives a whole's memory back and ends it. Returns its owner, which may be NULL; the reference on it passes to the caller. */
loch_buffer *lochi_buffer_end(loch_buffer *whole);

#endif
