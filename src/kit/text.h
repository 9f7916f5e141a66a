/* SPDX-License-Identifier: MIT */
/* Writing text into a caller's buffer that may be too small, like snprintf. The text that fits is kept and ends with
 * a zero. The length of the whole text is counted, so that a caller can ask for the length without a buffer. */
#ifndef LOCHI_TEXT_H
#define LOCHI_TEXT_H

#include "kit/size.h"
#include <loch/macros.h>
#include <stddef.h>
#include <stdio.h>

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

/* Writes the same to a file. */
void lochi_text_put_json(FILE *file, const char *string);

/* Writes a name that comes from a file or another process. Control characters become "\x1b", so that no name can
 * command the reader's terminal or forge lines; bytes that are not UTF-8 become question marks. */
void lochi_text_write_name(lochi_text *out, const char *name);

#endif
