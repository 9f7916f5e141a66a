/* SPDX-License-Identifier: MIT */
/* Whole files in memory, decompressed on the way. */
#ifndef LOCH_TOOL_TRACE_INPUT_H
#define LOCH_TOOL_TRACE_INPUT_H

#include "trace.h"

/* Reads all of `path` ("-": standard input) into `text`, of which `count` bytes are valid. False after a line on
 * standard error. The caller frees `text` in either case. */
bool trace_input_read(const char *path, trace_array *text);

#endif
