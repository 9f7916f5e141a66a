/* SPDX-License-Identifier: MIT */
/* Chunks of records (chunk.c). */
#ifndef LOCHI_TIMELINE_CHUNK_H
#define LOCHI_TIMELINE_CHUNK_H

#include "engine/timeline/state.h"

/* Frees a chunk that is in no track, and the long names of its records. */
void lochi_timeline_chunk_free(timeline_chunk *chunk);

/* Frees the chunks of all tracks that have no live record. The timeline's lock is held, and there is no walk. */
void lochi_timeline_reclaim(loch_timeline *timeline);

#endif
