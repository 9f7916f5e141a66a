/* SPDX-License-Identifier: MIT */
/* Numbers and names of what records refer to: allocators, devices, streams, tags, driver calls, call stacks (names.c).
 * A name is written when the number is first used, before the record that uses it. */
#ifndef LOCHI_RECORDER_NAMES_H
#define LOCHI_RECORDER_NAMES_H

#include "device/state.h"
#include "memory/recorder/state.h"

/* Makes the tables of a recording. */
loch_status lochi_recorder_names_open(void);
void lochi_recorder_names_close(void);

/* Return the number of an allocator that gets one now, and of a device. The lock is held. */
uint32_t lochi_recorder_name_allocator(const loch_allocator *allocator);
uint32_t lochi_recorder_name_device(const loch_device *device);

/* Returns the number of a device. Takes the lock. */
uint32_t lochi_recorder_find_device(const loch_device *device);

/* Returns the number of the stream with an id that is not that of a default stream. Takes the lock unless the thread
 * remembers the number. The thread is busy. */
uint16_t lochi_recorder_find_stream(recorder_thread *thread, uint64_t id);

/* Name a tag, or a driver call, if the recording has no name for it yet. */
void lochi_recorder_name_tag(loch_tag tag);
void lochi_recorder_name_call(loch_driver_call call);

/* Captures the call stack and returns its number plus one; 0 if there is no room for it. The thread is busy. */
uint32_t lochi_recorder_find_stack(recorder_thread *thread);

#endif
