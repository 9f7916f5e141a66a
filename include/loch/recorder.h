/* SPDX-License-Identifier: MIT */
/** @file recorder.h
 *  Records what a program does with its memory: allocations, frees, uses on further streams, resizes, moves, sleeps,
 *  ranges taken from drivers, driver calls, failed requests. docs/recording.md says how to record a program and what to
 *  do with a recording; docs/recording-format.md describes the file. Without code: LOCH_TRACE=file.
 *
 *      LOCH_CHECK(loch_recorder_start(&(loch_recorder_options){.size = sizeof(loch_recorder_options),
 *                                                              .path = "program.loch"}));
 *      ...
 *      LOCH_CHECK(loch_recorder_stop());
 *
 *  There is one recording at a time in a process. The child of a fork records nothing and does not write to the file.
 */
#ifndef LOCH_RECORDER_H
#define LOCH_RECORDER_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** Most frames of a recorded call stack. */
#define LOCH_RECORDER_STACK_MAX 64

/** Options of a recording. Zero means default. */
typedef struct loch_recorder_options {
    size_t size; /**< sizeof(loch_recorder_options) */
    /** File that is written while the program runs, so that it has every event up to the end of the process, however
     *  the process ends. "%p" stands for the process id. A file of this name is replaced; only its user can read the
     *  new one. NULL: the latest events are kept in a ring in memory, for loch_recorder_save. */
    const char *path;
    size_t ring_bytes;         /**< memory for the events of a ring; default 64 MiB, at least 1 MiB */
    uint32_t stack_depth;      /**< frames of call stacks to record with allocations; 0 none; at most 64 */
    uint32_t reserved;         /**< 0 */
    loch_device *clock;        /**< device whose clock gives the times; NULL for the host's clock */
    loch_allocator *allocator; /**< allocator to record; NULL for all. Of a wrapper: the allocator that it wraps */
} loch_recorder_options;

/** Starts recording. Other threads may use allocators meanwhile; a call that is in progress may be missing in the
 *  recording. Blocks that are live already are recorded as present. The recorder retains the clock and the allocator
 *  until it is stopped. E_BUSY: there is a recording already, or another process writes to this file. E_INVALID: an
 *  option is not valid. E_OUT_OF_RANGE: the ring is too small or too large. E_IO: the file cannot be written.
 *  E_HOST_MEMORY. Any thread, except in a function that an allocator or a driver calls.
 *  @param options  NULL for a ring of the default size. */
LOCH_API LOCH_MUST_USE loch_status loch_recorder_start(const loch_recorder_options *options);

/** Stops recording: completes the file, or frees the ring. Waits for threads that are recording an event. E_NOT_FOUND:
 *  there is no recording. E_IO: events are missing because the file could not be extended; the file is valid. Any
 *  thread, except in a function that an allocator or a driver calls. */
LOCH_API LOCH_MUST_USE loch_status loch_recorder_stop(void);

/** Writes the events of the ring to a file that only its user can read, and goes on recording. A file of this name is
 *  replaced; a symbolic link gives E_IO. Events that are recorded meanwhile may be in the
 *  file or not. E_NOT_FOUND: there is no recording. E_UNSUPPORTED: the recording is written to a file already. E_IO,
 *  E_HOST_MEMORY. Any thread, except in a function that an allocator or a driver calls. */
LOCH_API LOCH_MUST_USE loch_status loch_recorder_save(const char *path);

LOCH_END_DECLS

#endif
