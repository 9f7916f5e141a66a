/* SPDX-License-Identifier: MIT */
/* Writing text into a caller's buffer that may be too small, like snprintf. The text that fits is kept and ends with
 * a zero. The length of the whole text is counted, so that a caller can ask for the length without a buffer. */
#ifndef LOCHI_TEXT_H
#define LOCHI_TEXT_H

#include <loch/macros.h>
#include <stddef.h>

typedef struct lochi_text {
    char *text;    /* may be NULL if `bytes` is 0 */
    size_t bytes;  /* size of the buffer */
    size_t length; /* length of the whole text so far, without the final zero */
} lochi_text;

/* Begins an empty text. */
lochi_text lochi_text_begin(char *text, size_t bytes);

void lochi_text_write(lochi_text *out, const char *format, ...) LOCH_PRINTF(2, 3);

/* Writes a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, because labels come from callers.
 * NULL is the empty string. */
void lochi_text_write_json(lochi_text *out, const char *string);

/* Returns the length of the well-formed UTF-8 character at `at`; 0 if the bytes are not well formed. The final zero
 * has length 1. */
int lochi_text_utf8_length(const char *at);

/* The text of a number of bytes for people: "64 MiB", "1.5 GiB", "700 B". */
typedef struct lochi_size {
    char text[16];
} lochi_size;
lochi_size lochi_size_of(unsigned long long bytes);
#define LOCHI_SIZE(bytes) (lochi_size_of(bytes).text) /* valid until the end of the full expression */

/* The text of a time for people, rounded down: "1.250 s", "12.000 ms", "3.141 us", "700 ns". */
typedef struct lochi_time {
    char text[32];
} lochi_time;
lochi_time lochi_time_of(unsigned long long ns);
#define LOCHI_TIME(ns) (lochi_time_of(ns).text) /* valid until the end of the full expression */

#endif
