/* SPDX-License-Identifier: MIT */
/* Texts of other programs in files that have rules for texts: UTF-8, JSON. */
#ifndef LOCH_INSIGHT_ESCAPE_H
#define LOCH_INSIGHT_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

/* Returns the length of the character at the start of a text of `bytes` bytes, which may be SIZE_MAX for one that ends
 * with a zero; 0 if there is none: those bytes are not UTF-8. */
size_t lochi_insight_utf8_length(const char *text, size_t bytes);

/* Returns the length of the control character at the start of a text: 1 in ASCII, 2 for U+0080 to U+009F, of which
 * U+009B begins a terminal's commands too; 0 for another character. The last of these bytes is its number. */
size_t lochi_insight_control_length(const char *text);

/* Writes a text as a JSON string with its quotes. Bytes that are not UTF-8 become question marks. */
void lochi_insight_put_json(FILE *file, const char *text);

#endif
