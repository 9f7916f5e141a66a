/* SPDX-License-Identifier: MIT */
/* Variables of a thread, a few words in all. They are initial-exec: one load at a fixed offset from the thread pointer. The
 * loader keeps little room for libraries that are loaded late, so larger things are in the thread's room (base/room.h). */
#ifndef LOCHI_THREAD_OWN_H
#define LOCHI_THREAD_OWN_H

#include <stdint.h>

#define LOCHI_SLOT_COUNT 256
#define LOCHI_SLOT_SHARED (LOCHI_SLOT_COUNT - 1) /* of all threads beyond the others: written with atomic additions */

/* Small variables of several files, together because each by itself would be padded to a word. */
typedef struct lochi_thread_small {
    uint8_t room_ends;   /* how often the thread's room went (room.c) */
    uint8_t bare_status; /* of the last failure, while the thread has no room (status.c) */
    uint16_t factories;  /* that the thread is in (memory/registry) */
} lochi_thread_small;

/* The slot (base/thread.h), plus one; 0: none yet. Its address stands for the thread while it lives. */
extern _Thread_local uint32_t lochi_thread_slot_plus_one __attribute__((tls_model("initial-exec")));

extern _Thread_local lochi_thread_small lochi_thread_own_small __attribute__((tls_model("initial-exec")));

/* The number (base/thread.h); 0: none yet. */
extern _Thread_local uint64_t lochi_thread_own_number __attribute__((tls_model("initial-exec")));

#endif
