/* SPDX-License-Identifier: MIT */
/* Writing records (write.c): those of calls are declared in recorder.h. */
#ifndef LOCHI_RECORDER_WRITE_H
#define LOCHI_RECORDER_WRITE_H

#include "memory/recorder/state.h"
#include <loch/observer.h>
#include <loch/driver.h>

/* Writes a free whose allocator is not that of the last record. The thread is busy. */
void lochi_recorder_write_change(recorder_thread *thread, uint64_t now, uint32_t recorded, uintptr_t address);

/* Writes an allocation of any kind, and leaves. The thread is busy. */
void lochi_recorder_write_alloc(recorder_thread *thread, uint64_t now, uint32_t recorded, const void *address,
                                const loch_request *request);

/* Records a block that was live when the recording started. `stream` is the id of its stream; 0: the default stream.
 * `max_bytes` are reserved for a growable block; 0 for other blocks. */
void lochi_recorder_write_present(uint32_t recorded, const loch_block *block, uint64_t stream, size_t max_bytes);

/* Records a range of memory that was taken or is going, and a driver call that has ended. */
void lochi_recorder_write_range(loch_range_event event, const loch_range *range);
void lochi_recorder_write_call(const loch_device *device, loch_driver_call call, uint64_t ns);

#endif
