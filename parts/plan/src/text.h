/* SPDX-License-Identifier: MIT */
/* Files of text: whole files are read, numbers are parsed, files get their name once they are written. */
#ifndef LOCH_PLAN_TEXT_H
#define LOCH_PLAN_TEXT_H

#include "kit/new_file.h"
#include <stdbool.h>
#include <stdint.h>

/* Reads a whole file, or standard input for "-". The text ends with a zero. E_IO, E_HOST_MEMORY.
 * @param out  freed with lochi_plan_free */
loch_status lochi_plan_text_read(const char *path, char **out, size_t *bytes);

/* Parses a decimal number without a sign that fills [text, end). */
bool lochi_plan_text_number(const char *text, const char *end, uint64_t *out);

/* A file that is being written. */
typedef struct plan_sink {
    FILE *file;
    lochi_new_file whole;
} plan_sink;

/* Opens a file that replaces the one at `path` when it is closed; "-" is standard output. E_IO. */
loch_status lochi_plan_sink_open(const char *path, plan_sink *sink);

/* Closes the file and gives it its name, or removes it if something failed. */
loch_status lochi_plan_sink_close(plan_sink *sink);

#endif
