/* SPDX-License-Identifier: MIT */
/* Characters of UTF-8 in texts that may come from anywhere: names of callers, files, other processes. */
#ifndef LOCHI_UTF8_H
#define LOCHI_UTF8_H

#include <stddef.h>

/* Returns the length of the well-formed character at `at`, of which `bytes` bytes can be read; 0 if there is none: too
 * long a form, a surrogate, above U+10FFFF, cut short. In a text that ends with a zero, no byte behind the zero is read
 * whatever `bytes` is. */
size_t lochi_utf8_length(const char *at, size_t bytes);

/* Returns the number of bytes at the start of a text that are well formed: `bytes` if all are. */
size_t lochi_utf8_check(const char *text, size_t bytes);

/* Returns the length of the control character at `at`: 1 in ASCII, 2 for U+0080 to U+009F, of which U+009B begins a
 * terminal's commands too; 0 for another character. The last of these bytes is its number. */
size_t lochi_utf8_control(const char *at);

/* Writes the character at `*at`, in a text that ends with a zero, as a string of JSON has it, and goes behind it. Bytes
 * that are not UTF-8 become U+FFFD. Returns the length, without the final zero. */
#define LOCHI_JSON_PIECE 8
size_t lochi_json_escape(const char **at, char out[LOCHI_JSON_PIECE]);

#endif
