/* SPDX-License-Identifier: MIT */
/* Buffers, for the rest of the library. state.h describes their members. */
#ifndef LOCHI_BUFFER_H
#define LOCHI_BUFFER_H

#include "base/shared.h"
#include "device/ranges.h"
#include "memory/buffer/state.h"

/* Counts a whole in `meter` until its block is freed. The whole has a block of an allocator. The meter follows resizes,
 * and a detached block is not counted any more. Called at most once for a buffer, by the code that created it. */
LOCHI_SHARED void lochi_buffer_set_meter(loch_buffer *buffer, lochi_meter *meter);

/* Returns the watch of a buffer's whole. The caller owns the reference. Any thread that holds the buffer may call
 * this. */
LOCHI_SHARED loch_status lochi_buffer_watch(loch_buffer *buffer, lochi_watch **out);

/* --- addresses (pin.c) --- */

/* Checks that [offset, offset + bytes) lies in the present bytes of the buffer. */
LOCHI_SHARED loch_status lochi_buffer_check(const loch_buffer *buffer, size_t offset, size_t bytes);

/* Checks [offset, offset + bytes) and returns its address; NULL for 0 bytes. A movable buffer must be pinned. */
LOCHI_SHARED loch_status lochi_buffer_locate(const loch_buffer *buffer, size_t offset, size_t bytes, char **out);

/* Pins a movable buffer while work is queued on `stream` (NULL: the default stream of its device). Does nothing for
 * other buffers. */
LOCHI_SHARED loch_status lochi_buffer_hold(loch_buffer *buffer, loch_stream *stream);

/* Undoes lochi_buffer_hold, ordered after the queued work. Does not fail when host memory runs out. */
LOCHI_SHARED loch_status lochi_buffer_let_go(loch_buffer *buffer, loch_stream *stream);

/* Returns the stream for which one side of a copy must be held. A copy without a stream runs on the default stream of
 * either side, so this stream must be ordered after the moves of both sides. */
LOCHI_SHARED loch_stream *lochi_buffer_choose_stream(const loch_buffer *buffer, const loch_buffer *other,
                                                     loch_stream *stream);

/* --- contents --- */

/* Returns E_INVALID if the memory is read-only. */
LOCHI_SHARED loch_status lochi_buffer_check_writable(const loch_buffer *buffer);

/* Promises that memory from outside is plain host memory, if it was when the buffer was made: the buffer and all that
 * use it go by that. The caller holds the buffer until lochi_ranges_end_host. */
LOCHI_SHARED void lochi_buffer_begin_host(const loch_buffer *buffer, lochi_host_scope *out);

/* Keeps both sides of a copy that failed. The copy may have been queued in part, or without its ordering, on `stream`
 * (may be NULL) or on a default stream of either side. The error record stays unchanged. */
LOCHI_SHARED void lochi_buffer_keep_after_failure(loch_buffer *to, loch_buffer *from, loch_stream *stream);

/* --- for pools of buffers --- */

/* Sets the size of a whole within its capacity. Does not reallocate. */
LOCHI_SHARED loch_status lochi_buffer_set_bytes(loch_buffer *buffer, size_t bytes);

/* Returns the capacity of a buffer's memory in bytes. */
LOCHI_SHARED size_t lochi_buffer_get_capacity(const loch_buffer *buffer);

/* Tells whether the caller holds the only reference. */
LOCHI_SHARED bool lochi_buffer_is_sole(const loch_buffer *buffer);

/* Tells whether deleters were added to a whole. */
LOCHI_SHARED bool lochi_buffer_has_deleters(loch_buffer *whole);

/* Tells whether work that the allocator cannot track still uses a whole. Drops the marks of finished work. */
LOCHI_SHARED bool lochi_buffer_is_used(loch_buffer *whole);

/* Sets the mark of the pool of buffers that a buffer came from; 0: none. */
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
