/* SPDX-License-Identifier: MIT */
/* Text into a caller's buffer that may be too small, like snprintf: what fits is kept and ends with a zero, and the
 * length of the whole is counted, so that a caller can ask for it with no buffer at all. */
#ifndef LOCHI_TEXT_H
#define LOCHI_TEXT_H

#include <loch/macros.h>
#include <stddef.h>

typedef struct lochi_text {
    char *text;    /* may be NULL when `bytes` is 0 */
    size_t bytes;  /* of the buffer */
    size_t length; /* of the whole so far, without the final zero */
} lochi_text;

/* Begins an empty text. */
lochi_text lochi_text_begin(char *text, size_t bytes);

void lochi_text_write(lochi_text *out, const char *format, ...) LOCH_PRINTF(2, 3);

/* A JSON string with its quotes. What is not UTF-8 becomes U+FFFD: labels come from outside. NULL is the empty
 * string. */
void lochi_text_write_json(lochi_text *out, const char *string);

/* The length of the well-formed UTF-8 character at `at`; 0 when there is none. The final zero is one of length 1. */
int lochi_text_utf8_length(const char *at);

/* A number of bytes for people: "64 MiB", "1.5 GiB", "700 B". */
typedef struct lochi_size {
    char text[16];
} lochi_size;
lochi_size lochi_size_of(unsigned long long bytes);
#define LOCHI_SIZE(bytes) (lochi_size_of(bytes).text) /* lives as long as the statement */

#endif
