/* SPDX-License-Identifier: MIT */
/* Thread-local variables, a few words in all. They are initial-exec: one load at a fixed offset from the thread
 * pointer. The loader reserves little space for libraries that are loaded late, so larger data is in the thread's
 * room (base/room.h). */
#ifndef LOCHI_THREAD_OWN_H
#define LOCHI_THREAD_OWN_H

#include "base/shared.h"
#include <stdint.h>

#define LOCHI_SLOT_COUNT 256
/* The slot of all threads that found no free one. Data of this slot is written with atomic additions. */
#define LOCHI_SLOT_SHARED (LOCHI_SLOT_COUNT - 1)

/* Small variables of several files. Together, because each alone would be padded to a word. */
typedef struct lochi_thread_small {
    uint8_t room_ends;   /* how many rooms of the thread have ended (room.c) */
    uint8_t bare_status; /* status of the last failure while the thread has no room (status.c) */
    uint16_t factories;  /* nested calls of factories in the thread (memory/registry) */
} lochi_thread_small;

/* The thread's slot (base/thread.h) plus one; 0 before it is taken. The address of the variable identifies the
 * thread while it runs. */
LOCHI_SHARED extern _Thread_local uint32_t lochi_thread_slot_plus_one __attribute__((tls_model("initial-exec")));

extern _Thread_local lochi_thread_small lochi_thread_own_small __attribute__((tls_model("initial-exec")));

/* The thread's number (base/thread.h); 0 before it is taken. */
LOCHI_SHARED extern _Thread_local uint64_t lochi_thread_own_number __attribute__((tls_model("initial-exec")));

#endif
