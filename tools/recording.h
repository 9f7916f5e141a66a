/* SPDX-License-Identifier: MIT */
/* Recordings in commands: read with progress, printed as pages. */
#ifndef LOCH_TOOL_RECORDING_H
#define LOCH_TOOL_RECORDING_H

#include <loch/insight.h>

/* Reads a recording, with progress on a terminal. `allocator` chooses the blocks of one allocator; NULL for all.
 * Returns TOOL_DONE, or TOOL_FAILED after a line on standard error. */
int tool_recording_load(const char *path, const char *allocator, loch_recording **out);

/* Prints the figures of a recording, or the differences to a second one (may be NULL), on standard output. */
int tool_recording_print(const loch_recording *recording, const loch_recording *after, loch_format format);

#endif
