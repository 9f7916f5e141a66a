/* SPDX-License-Identifier: MIT */
/* Parsing numbers and sizes that people write. The functions return false for trailing characters, a sign, or
 * overflow, and then do not write `*out`. */
#ifndef LOCHI_PARSE_H
#define LOCHI_PARSE_H

#include <loch/macros.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

LOCH_BEGIN_DECLS

/* Parses a number: "42". */
bool lochi_parse_number(const char *text, uint64_t *out);

/* Parses a size: "80GiB", "512", "1.5GiB", "64KiB", "2MB" (powers of ten without the i), "8G" (means GiB). At most
 * SIZE_MAX. */
bool lochi_parse_bytes(const char *text, size_t *out);

/* Parses a size, and tells what is wrong with another text. */
typedef enum lochi_parsed { LOCHI_PARSED, LOCHI_PARSED_NOTHING, LOCHI_PARSED_TOO_LARGE } lochi_parsed;
lochi_parsed lochi_parse_size(const char *text, size_t *out);

/* Parses a switch: "on"/"off", "1"/"0", "yes"/"no", "true"/"false". */
bool lochi_parse_switch(const char *text, bool *out);

/* Copies the next piece of a comma-separated list into `piece`. Returns the text after the comma; NULL at the end of
 * the list. A piece longer than `piece_bytes - 1` is cut; no known word is that long. */
const char *lochi_parse_piece(const char *list, char *piece, size_t piece_bytes);

LOCH_END_DECLS

#endif
