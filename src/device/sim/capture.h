/* SPDX-License-Identifier: MIT */
/* Captures of simulated streams (capture.c). Every function needs the lock of the simulator held. */
#ifndef LOCHI_SIM_CAPTURE_H
#define LOCHI_SIM_CAPTURE_H

#include "device/sim/state.h"

/* Begins a capture on a stream, which becomes branch 0. */
loch_status lochi_sim_capture_begin(lochi_sim_stream *stream);

/* Ends a capture and frees it with the rest of its script. Its streams are no longer captured. */
void lochi_sim_capture_end(lochi_sim_capture *capture);

/* Fails if the capture is broken, with the reason. */
loch_status lochi_sim_capture_check(const lochi_sim_capture *capture);

/* Add to the script of a captured stream: an operation, a mark, a wait for a mark. The wait may add another stream
 * to the capture. */
loch_status lochi_sim_capture_add(lochi_sim_stream *stream, const lochi_sim_request *request);
loch_status lochi_sim_capture_record(lochi_sim_stream *stream, lochi_sim_event *event);
loch_status lochi_sim_capture_wait(lochi_sim_stream *stream, const lochi_sim_event *event);

/* Breaks the capture and fails with the reason `why`. Neither pointer may be NULL. */
loch_status lochi_sim_capture_break(lochi_sim_capture *capture, const char *why);

/* Fails for an event that was recorded in a capture, in progress or ended. Breaks a capture in progress. */
loch_status lochi_sim_capture_refuse(const lochi_sim_event *event, const char *what);

/* Removes a stream that ends from its capture, which breaks. */
void lochi_sim_capture_leave(lochi_sim_stream *stream);

uint64_t lochi_sim_capture_id(const lochi_sim_capture *capture);

/* Fails if branch 0 has not waited for the last operation of every other branch. */
loch_status lochi_sim_script_check_joined(const lochi_sim_script *script);

/* Frees the items of a script. */
void lochi_sim_script_fini(lochi_sim_script *script);

#endif
