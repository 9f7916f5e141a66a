/* SPDX-License-Identifier: MIT */
/* The door of workers: functions for engines beyond the public header. */
#ifndef LOCHI_WORKERS_H
#define LOCHI_WORKERS_H

#include <loch/device.h>
#include <loch/workers.h>

/* Makes workers as loch_workers_open does, for tasks that run with a device current in their thread (device/current.h).
 * A task fails without running if its thread cannot make the device current. `device` is borrowed until the threads
 * have ended; NULL: none. */
loch_status lochi_workers_create(const loch_workers_options *options, loch_device *device, loch_workers **out);

/* Queues a task as loch_workers_run does, for a function that makes the device current itself or needs no device. The
 * function always runs. */
loch_status lochi_workers_run_bare(loch_workers *workers, loch_task_function *function, void *user, loch_task **out);

/* Returns the number of tasks queued so far; 0 for NULL. If the number is equal before and after a wait, no task was
 * queued meanwhile. */
uint64_t lochi_workers_get_queued(loch_workers *workers);

/* Begins a close with LOCH_WORKERS_CANCEL without waiting. All further tasks are refused, also from running tasks. The
 * caller must still call loch_workers_close with LOCH_WORKERS_CANCEL. Returns the number of tasks that did not run; 0
 * for NULL. */
size_t lochi_workers_close(loch_workers *workers);

/* Get and set a note of a worker's thread: a pointer that belongs to the caller. In a thread that is not a worker, get
 * returns NULL and set does nothing. */
const void *lochi_workers_get_note(void);
void lochi_workers_set_note(const void *note);

#endif
