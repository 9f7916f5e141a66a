/* SPDX-License-Identifier: MIT */
/* The file of a budget: opening, making, removing, the lock, reads and writes (file.c). */
#ifndef BUDGET_FILE_H
#define BUDGET_FILE_H

#include "layout.h"
#include <loch/loch.h>
#include <pthread.h>
#include <stdbool.h>

typedef struct budget_file {
    int fd; /* -1 for none; changed by open, close and forks only */
    char path[512];
    char name[BUDGET_NAME_BYTES]; /* for people: the last part of the path */
    bool is_placed;               /* a name without a path: the library chooses the folder, when it opens or makes it */
    pthread_mutex_t mutex;        /* one thread of this process has the file's lock */
    char *page;                   /* the start of the file, for the kernel to sleep on; never dereferenced */
} budget_file;

/* Makes a file that is not open. Sets its path, or its name if it has no path. E_INVALID: the name is not valid. */
loch_status lochi_budget_file_begin(budget_file *file, const char *name);

/* Ends a file, and closes it if it is open. */
void lochi_budget_file_end(budget_file *file);

/* Opens the file. Looks for a name in all folders of this user and sets the path. Checks the owner, the size and the
 * head. E_NOT_FOUND: there is none. E_INVALID: a folder that might have it belongs to another user, and no other folder
 * can be used. */
loch_status lochi_budget_file_open(budget_file *file);

/* Makes the file with these contents, complete from the moment that it has its name; without a path in the first folder
 * that can be used. E_EXISTS: another process was first, or removed the folder. Leaves the file open. */
loch_status lochi_budget_file_make(budget_file *file, const budget_head *head);

void lochi_budget_file_close(budget_file *file);

/* Takes the lock. E_BUSY: another process has held it for seconds. `patience_ns` 0 tries once. */
loch_status lochi_budget_file_lock(budget_file *file, uint64_t patience_ns);
void lochi_budget_file_unlock(budget_file *file);

#define BUDGET_PATIENCE_NS 2000000000u

/* Reads the head and checks it: E_CORRUPT, E_UNSUPPORTED. */
loch_status lochi_budget_file_read_head(const budget_file *file, budget_head *head);

/* Reads and writes a part of the file. With the lock, except for bells. */
loch_status lochi_budget_file_read(const budget_file *file, size_t place, void *data, size_t bytes);
loch_status lochi_budget_file_write(const budget_file *file, size_t place, const void *data, size_t bytes);

/* Removes the name of the file if it still leads to this file, and the folder in /dev/shm if it is empty. */
void lochi_budget_file_unlink(const budget_file *file);

/* Tells whether the name still leads to this file. */
bool lochi_budget_file_is_named(const budget_file *file);

/* Holds the mark of a slot as long as this process has the file open, or gives it up. */
loch_status lochi_budget_file_mark(const budget_file *file, size_t slot, bool is_held);

/* Tells whether another opening of the file holds the mark of a slot. */
bool lochi_budget_file_is_marked(const budget_file *file, size_t slot);

/* Changes a bell in the file, and wakes the threads that sleep on it. Any thread, without the lock. */
void lochi_budget_file_ring(const budget_file *file, size_t place);

/* Reads a bell, for lochi_budget_file_sleep. */
uint32_t lochi_budget_file_hear(const budget_file *file, size_t place);

/* Sleeps until a bell is not `heard` any more, or the time is over. */
void lochi_budget_file_sleep(const budget_file *file, size_t place, uint32_t heard, uint64_t timeout_ns);

#endif
