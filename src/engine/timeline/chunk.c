/* SPDX-License-Identifier: MIT */
/* Chunks of records: freeing their memory. */
#include "engine/timeline/chunk.h"
#include "base/heap.h"
#include <string.h>

/* Frees a list of long names that no record owns any more. They are linked through their first bytes: each is longer
 * than a name that fits into a record, so there is room for a pointer. */
static void names_free(char *name)
{
    for (char *next; name; name = next) {
        memcpy(&next, name, sizeof next);
        lochi_free(name);
    }
}

static char *names_take(timeline_chunk *chunk)
{
    char *names = NULL;
    for (size_t i = 0; i < chunk->used; i++) {
        char *name = chunk->records[i].name;
        if (!name || name == chunk->records[i].text) continue;
        memcpy(name, &names, sizeof names);
        names = name;
    }
    return names;
}

void lochi_timeline_chunk_free(timeline_chunk *chunk)
{
    names_free(names_take(chunk));
    lochi_free(chunk);
}

/* Takes the chunks without a live record out of the track's list and returns them. The last chunk stays and is emptied:
 * the owner may be about to use it. */
static timeline_chunk *track_take_empty(timeline_track *track, char **names)
{
    timeline_chunk *taken = NULL;
    *names = NULL;
    lochi_track_lock(track);
    timeline_chunk **link = &track->first;
    while (*link && (*link)->next) {
        timeline_chunk *chunk = *link;
        if (chunk->live) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        chunk->next = taken;
        taken = chunk;
    }
    if (*link && !(*link)->live) {
        *names = names_take(*link);
        (*link)->used = 0;
    }
    lochi_track_unlock(track);
    return taken;
}

void lochi_timeline_reclaim(loch_timeline *timeline)
{
    lochi_lock_assert_held(&timeline->lock);
    timeline->needs_reclaim = false;
    for (timeline_track *track = timeline->first; track; track = track->next) {
        char *names;
        timeline_chunk *chunk = track_take_empty(track, &names);
        names_free(names);
        for (timeline_chunk *next; chunk; chunk = next) {
            next = chunk->next;
            lochi_timeline_chunk_free(chunk);
        }
    }
}
