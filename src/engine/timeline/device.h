/* SPDX-License-Identifier: MIT */
/* The device's times of spans (device.c). The thread's error record stays as it was. */
#ifndef LOCHI_TIMELINE_DEVICE_H
#define LOCHI_TIMELINE_DEVICE_H

#include "engine/timeline/state.h"

/* Begins the time of a record that is being filled on the device of a stream, where that can be. By the owner. */
void lochi_timeline_device_begin(loch_timeline *timeline, timeline_track *track, timeline_record *record,
                                 loch_stream *stream);

/* Ends the time of a record. Returns whether the end was recorded; if not, the pair is still the record's. By the owner. */
bool lochi_timeline_device_end(timeline_record *record);

/* Takes the times that have come. By the owner. */
void lochi_timeline_device_look(timeline_track *track);

/* Stand around asking for times of a track by another thread than its owner: nobody else asks in between. Under the timeline's
 * `times`. */
void lochi_timeline_resolve_enter(const loch_timeline *timeline, timeline_track *track);
void lochi_timeline_resolve_leave(timeline_track *track);

/* Waits for all times of the track, which must not be freed meanwhile. */
void lochi_timeline_device_wait(loch_timeline *timeline, timeline_track *track);

/* Gives the pair of a record back to its clock. Under the track's lock. */
void lochi_timeline_pair_return(timeline_record *record);

/* Frees the clocks of a track that goes. */
void lochi_timeline_clocks_destroy(timeline_track *track);

#endif
