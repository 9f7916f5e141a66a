/* SPDX-License-Identifier: MIT */
/* Chunks of a recording: of a file, mapped one by one, or of a ring in memory (chunk.c). */
#ifndef LOCHI_RECORDER_CHUNK_H
#define LOCHI_RECORDER_CHUNK_H

#include "memory/recorder/state.h"

/* Opens the file of a recording, or makes the ring, and the header. `path` is NULL for a ring. */
loch_status lochi_recorder_open(const char *path, size_t ring_bytes);
/* Ends the file, or frees the ring. No thread writes. */
void lochi_recorder_close(void);
/* Unmaps everything in the child of a fork, without writing. */
void lochi_recorder_drop(void);

/* Takes a chunk for a busy thread. Returns NULL, and the thread is not busy any more, if there is none. */
recorder_thread *lochi_recorder_enter_slow(recorder_thread *thread);

/* Gives up the chunk of a thread that ends, or of every thread when the recording has stopped. The lock is held. */
void lochi_recorder_give_up(recorder_thread *thread);

/* Unmaps the chunk of a thread in the child of a fork. */
void lochi_recorder_abandon(recorder_thread *thread);

/* Takes a chunk for names. The lock is held. Returns false if there is no room. */
bool lochi_recorder_take_names(void);

#endif
