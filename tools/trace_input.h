/* SPDX-License-Identifier: MIT */
/* Reads whole files into memory and decompresses them. */
#ifndef LOCH_TOOL_TRACE_INPUT_H
#define LOCH_TOOL_TRACE_INPUT_H

#include "trace.h"

/* Reads all of `path` ("-": standard input) into `text`, of which `count` bytes are valid. Returns false after a line
 * on standard error on failure. The caller frees `text` in either case. */
bool trace_input_read(const char *path, trace_array *text);

#endif
