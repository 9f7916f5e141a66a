/* SPDX-License-Identifier: MIT */
/* What a page is written with: numbers packed into bytes, bytes as base64, texts as JSON and as HTML.
 *
 * A packed number has seven bits in each byte, the lowest first; the highest bit says that more follow. Signed numbers
 * alternate: 0, -1, 1, -2, ... */
#ifndef LOCH_INSIGHT_REPORT_BYTES_H
#define LOCH_INSIGHT_REPORT_BYTES_H

#include "kit/array.h"
#include <stdio.h>

/* Packed numbers. `has_failed` is set when there is no memory and then stays. */
typedef struct report_bytes {
    lochi_array array;
    bool has_failed;
} report_bytes;

void lochi_insight_report_put(report_bytes *bytes, uint64_t value);

/* Packs `after` minus `before`. */
void lochi_insight_report_put_change(report_bytes *bytes, uint64_t before, uint64_t after);

/* Writes bytes as base64. Failures stay in the file: ferror. */
void lochi_insight_report_write_base64(FILE *file, const uint8_t *data, size_t bytes);

/* Writes a text as a string of JSON with quotes. What could end a script element is escaped; bytes that are not UTF-8
 * become U+FFFD. */
void lochi_insight_report_write_json(FILE *file, const char *text);

/* Writes a text into HTML. */
void lochi_insight_report_write_html(FILE *file, const char *text);

#endif
