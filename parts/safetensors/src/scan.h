/* SPDX-License-Identifier: MIT */
/* Reads JSON in place, from the front to the end, and changes the text: each string is replaced by its contents, which
 * end with a zero. Strict: RFC 8259, UTF-8, no text with a zero in it. The first mistake is kept; all later calls
 * return false or NULL. Needs no memory. */
#ifndef SAFETENSORS_SCAN_H
#define SAFETENSORS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct safetensors_scan {
    char *start, *at, *end;
    const char *wrong; /* what is wrong; NULL if nothing is */
    size_t wrong_at;   /* byte of the mistake */
} safetensors_scan;

/* Begins to read a text, which must stay until the end. Checks that it is UTF-8. */
safetensors_scan lochi_safetensors_scan_begin(char *text, size_t bytes);

/* Returns the next character that is not space, without going behind it; 0 at the end and after a mistake. */
char lochi_safetensors_scan_peek(safetensors_scan *scan);

/* Goes behind a character, which must be the next. `wrong` is the mistake otherwise. */
bool lochi_safetensors_scan_take(safetensors_scan *scan, char character, const char *wrong);

/* Goes to the next item of an object or list that was opened with lochi_safetensors_scan_take; `close` is its closing
 * bracket, and `count` counts the items. Returns false behind the closing bracket, and after a mistake. */
bool lochi_safetensors_scan_next(safetensors_scan *scan, char close, size_t *count);

/* Reads a string. Returns NULL after a mistake. */
char *lochi_safetensors_scan_text(safetensors_scan *scan);

/* Reads the name of a member and goes behind the colon. Returns NULL after a mistake. */
char *lochi_safetensors_scan_name(safetensors_scan *scan);

/* Reads a whole number from 0 to 2^64 - 1. */
bool lochi_safetensors_scan_whole(safetensors_scan *scan, uint64_t *out);

/* Reads any number as the text that it is written as. Returns NULL after a mistake. */
char *lochi_safetensors_scan_number(safetensors_scan *scan);

/* Skips a value of any kind, at most 64 levels deep. */
bool lochi_safetensors_scan_skip(safetensors_scan *scan);

/* Returns whether there was no mistake and nothing is left but space. */
bool lochi_safetensors_scan_end(safetensors_scan *scan);

/* Notes a mistake at the present place, unless there was one before. Returns false. */
bool lochi_safetensors_scan_fail(safetensors_scan *scan, const char *wrong);

/* Returns the number of bytes at the start of a text that are valid UTF-8: `bytes` if all are. */
size_t lochi_safetensors_utf8(const char *text, size_t bytes);

#endif
