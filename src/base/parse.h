/* SPDX-License-Identifier: MIT */
/* Reading numbers and sizes that people write. All return false on anything left over, a sign, or overflow, and then
 * leave *out alone. */
#ifndef LOCHI_PARSE_H
#define LOCHI_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "42" */
bool lochi_parse_number(const char *text, uint64_t *out);

/* "80GiB", "512", "1.5GiB", "64KiB", "2MB" (powers of ten without the i), "8G" (as GiB). Never more than SIZE_MAX. */
bool lochi_parse_bytes(const char *text, size_t *out);

/* "on"/"off", "1"/"0", "yes"/"no", "true"/"false" */
bool lochi_parse_switch(const char *text, bool *out);

/* The next piece of a comma-separated list: copies it into `piece` and returns what is behind the comma, or NULL at the
 * end of the list. A piece longer than `piece_bytes - 1` is cut, which no known word survives. */
const char *lochi_parse_piece(const char *list, char *piece, size_t piece_bytes);

#endif
