/* SPDX-License-Identifier: MIT */
/* The door of workers: what engines use beyond the public header. */
#ifndef LOCHI_WORKERS_H
#define LOCHI_WORKERS_H

#include <loch/device.h>
#include <loch/workers.h>

/* Makes workers as loch_workers_open does, for tasks that run with a device current in their thread
 * (device/current.h). A task whose thread cannot have it fails without having run. `device` is borrowed until the
 * threads have ended; NULL: none. */
loch_status lochi_workers_create(const loch_workers_options *options, loch_device *device, loch_workers **out);

/* Queues a task as loch_workers_run does, for a function that makes the device current by itself, or needs none: it
 * always runs. */
loch_status lochi_workers_run_bare(loch_workers *workers, loch_task_function *function, void *user, loch_task **out);

/* Returns how many tasks were ever queued; 0 for NULL. If the number is the same before and after a wait, nothing was
 * queued meanwhile. */
uint64_t lochi_workers_get_queued(loch_workers *workers);

/* Begins an end with LOCH_WORKERS_CANCEL, without waiting: nothing is taken any more, from anybody.
 * loch_workers_close with the same is still owed. Returns how many tasks did not run; 0 for NULL. */
size_t lochi_workers_close(loch_workers *workers);

/* Get and set what the thread of a worker is at, for whoever gives it tasks: a pointer that is the caller's. NULL, and
 * nothing is noted, in a thread that is no worker's. */
const void *lochi_workers_get_note(void);
void lochi_workers_set_note(const void *note);

#endif
