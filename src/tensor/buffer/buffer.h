/* SPDX-License-Identifier: MIT */
/* Buffers, for the rest of the library. state.h says what a buffer is made of. */
#ifndef LOCHI_BUFFER_H
#define LOCHI_BUFFER_H

#include "tensor/buffer/state.h"

/* Has the meter count a whole that has a block of an allocator, until that goes; it follows resizes, and a detached block is no
 * longer counted. Once for a buffer, by the code that made it. */
void lochi_buffer_set_meter(loch_buffer *buffer, lochi_meter *meter);

/* Gives the watch of a buffer's whole; the reference is the caller's. Any thread that holds the buffer. */
loch_status lochi_buffer_watch(loch_buffer *buffer, lochi_watch **out);

/* --- addresses (pin.c) --- */

/* Checks [offset, offset + bytes) against what the buffer has now. */
loch_status lochi_buffer_check(const loch_buffer *buffer, size_t offset, size_t bytes);

/* Checks [offset, offset + bytes) and gives its address; NULL for no bytes. A movable buffer has to be pinned. */
loch_status lochi_buffer_locate(const loch_buffer *buffer, size_t offset, size_t bytes, char **out);

/* Gives the buffer an address while work is queued on `stream` (NULL: the default one of its device). Does nothing for one that
 * does not move. */
loch_status lochi_buffer_hold(loch_buffer *buffer, loch_stream *stream);

/* Undoes lochi_buffer_hold, behind the work. Cannot fail for want of memory. */
loch_status lochi_buffer_let_go(loch_buffer *buffer, loch_stream *stream);

/* Returns the stream to hold one side of a copy for. A copy without a stream runs on the default one of either side, which is
 * then behind the moves of both. */
loch_stream *lochi_buffer_choose_stream(const loch_buffer *buffer, const loch_buffer *other, loch_stream *stream);

/* --- contents --- */

/* Refuses memory that must not be written: E_INVALID. */
loch_status lochi_buffer_check_writable(const loch_buffer *buffer);

/* Keeps both sides of a copy that failed: it may have been queued in part, or wholly without its order, on the stream (may be
 * NULL) or a default one of either side. The error record stays. */
void lochi_buffer_keep_after_failure(loch_buffer *to, loch_buffer *from, loch_stream *stream);

/* --- for pools of buffers --- */

/* Changes the bytes that a whole has, within its capacity: nothing is reallocated. */
loch_status lochi_buffer_set_bytes(loch_buffer *buffer, size_t bytes);

/* Returns the bytes that the memory of a buffer has. */
size_t lochi_buffer_get_capacity(const loch_buffer *buffer);

/* Tells whether the caller's reference is the only one. */
bool lochi_buffer_is_sole(const loch_buffer *buffer);

/* Tells whether functions were added that run at the buffer's end. */
bool lochi_buffer_has_deleters(loch_buffer *whole);

/* Tells whether work that the allocator does not know of still uses a whole; drops marks that have passed. */
bool lochi_buffer_is_used(loch_buffer *whole);

/* Writes the mark of the pool of buffers that a buffer came from; 0 for none. */
static inline void lochi_buffer_set_mark(loch_buffer *buffer, uint64_t mark)
{
    buffer->mark = mark;
}

/* Returns the mark of lochi_buffer_set_mark. */
static inline uint64_t lochi_buffer_get_mark(const loch_buffer *buffer)
{
    return buffer->mark;
}

#endif
