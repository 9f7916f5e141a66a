/* SPDX-License-Identifier: MIT */
/* Device times of spans (device.c). The thread's error record stays unchanged. */
#ifndef LOCHI_TIMELINE_DEVICE_H
#define LOCHI_TIMELINE_DEVICE_H

#include "engine/timeline/state.h"

/* Begins the device time of a record that is being filled, if the device of `stream` can measure it. Called by the
 * track's owner. */
void lochi_timeline_device_begin(loch_timeline *timeline, timeline_track *track, timeline_record *record,
                                 loch_stream *stream);

/* Ends the device time of a record. Returns whether the end event was recorded; if not, the record still has the pair.
 * Called by the track's owner. */
bool lochi_timeline_device_end(timeline_record *record);

/* Reads the times that are available by now. Called by the track's owner. */
void lochi_timeline_device_look(timeline_track *track);

/* Begin and end the reading of a track's times by a thread that is not its owner. No other thread reads its times in
 * between. The timeline's `times` lock is held. */
void lochi_timeline_resolve_enter(const loch_timeline *timeline, timeline_track *track);
void lochi_timeline_resolve_leave(timeline_track *track);

/* Waits for all times of the track. The track must not be freed meanwhile. */
void lochi_timeline_device_wait(loch_timeline *timeline, timeline_track *track);

/* Gives the pair of a record back to its clock. The track's lock is held. */
void lochi_timeline_pair_return(timeline_record *record);

/* Frees the clocks of a track that is being destroyed. */
void lochi_timeline_clocks_destroy(timeline_track *track);

#endif
