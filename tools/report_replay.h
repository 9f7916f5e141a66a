/* SPDX-License-Identifier: MIT */
/* What Loch would do with a recorded program: the recording of a replay. Used by `loch report`. */
#ifndef LOCH_TOOL_REPORT_REPLAY_H
#define LOCH_TOOL_REPORT_REPLAY_H

#include <loch/insight.h>

/* Replays a recording through a pool on a device, records that, and reads it. E_IO after a line on standard error that
 * says why. */
loch_status report_replay(const loch_recording *recording, const char *device, loch_recording **out);

#endif
