/* SPDX-License-Identifier: MIT */
/* The state of the recorder. There is one recording at a time in a process. */
#include "memory/recorder/state.h"

recorder_state lochi_recorder_all = {.lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_RECORDER), .file = -1};
recorder_thread lochi_recorder_threads[LOCHI_SLOT_COUNT];
