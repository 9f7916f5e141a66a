/* SPDX-License-Identifier: MIT */
/* Which process is this, and does another one still live? (process.c) */
#ifndef BUDGET_PROCESS_H
#define BUDGET_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Names one process for as long as the machine runs: a pid alone may be given to another process later. */
typedef struct budget_process {
    int64_t pid;
    uint64_t start; /* in ticks since the machine started */
    uint64_t space; /* number of its pid namespace */
    uint64_t image; /* a random number of the program that it runs: exec keeps pid and start */
} budget_process;

typedef enum budget_life {
    BUDGET_DEAD,
    BUDGET_ALIVE,
    BUDGET_RUNNING, /* it lives, and runs this or another program: it has the file open if it still is a member */
    BUDGET_UNKNOWN  /* it is in another namespace, or the system does not tell */
} budget_life;

/* Reads what names the calling process. Members that the system does not tell are 0. */
budget_process lochi_budget_process_self(void);

/* Tells whether a process lives. It is dead when the system has closed its files, and not before: then the memory that
 * it had on a device is free. */
budget_life lochi_budget_process_look(const budget_process *self, const budget_process *other);

#endif
