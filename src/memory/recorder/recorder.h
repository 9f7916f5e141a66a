/* SPDX-License-Identifier: MIT */
/* The door of the recorder: what allocators and pools report to it. It includes the fast path (fast.h). Each call
 * takes the number of a recorded allocator plus one (lochi_recorder_of), and does nothing if the recording has stopped
 * meanwhile. Any thread, with or without locks. */
#ifndef LOCHI_RECORDER_H
#define LOCHI_RECORDER_H

#include "memory/recorder/fast.h"

/* Returns the number of a recorded allocator plus one; 0 if it is not recorded. Wrappers are not recorded: the
 * allocator that has the memory is. */
static inline uint32_t lochi_recorder_of(const loch_allocator *allocator)
{
    return atomic_load_explicit(&allocator->recorded, memory_order_relaxed);
}

/* Starts or stops recording an allocator, whatever the recorder says. Called for a new allocator, and with its pool
 * when it gets one, which is stored here; otherwise NULL. */
void lochi_recorder_apply(loch_allocator *allocator, struct lochi_pool *pool);

/* Starts the recording that LOCH_TRACE asks for, the first time. */
loch_status lochi_recorder_start_by_option(void);

/* Records an allocation, after the block was taken. */
void lochi_recorder_note_alloc(uint32_t recorded, const void *address, const loch_request *request);

/* Records a free on a stream (NULL: that of the allocation), and that the last free of an address did not happen. */
void lochi_recorder_note_free(uint32_t recorded, const void *address, const loch_stream *stream);
void lochi_recorder_note_undo(uint32_t recorded, const void *address);

/* Records a use on a further stream, a new size, a new address. */
void lochi_recorder_note_use(uint32_t recorded, const void *address, const loch_stream *stream);
void lochi_recorder_note_resize(uint32_t recorded, const void *address, size_t bytes);
void lochi_recorder_note_move(uint32_t recorded, const void *from, const void *to);

/* Records a request that failed in the end, for the allocator at the bottom of `allocator`. */
void lochi_recorder_note_failure(const loch_allocator *allocator, size_t bytes, loch_status status);

/* Records that a pool went to sleep or woke, with the bytes given back or restored. */
void lochi_recorder_note_sleep(uint32_t recorded, size_t bytes);
void lochi_recorder_note_wake(uint32_t recorded, size_t bytes);

#endif
