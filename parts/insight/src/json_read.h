/* SPDX-License-Identifier: MIT */
/* Reads JSON from memory, one value after the other, and keeps nothing. Strict: RFC 8259, at most 64 levels deep, no
 * text with a zero in it. The first mistake is kept; all later calls return false.
 *
 *     json_reader reader = lochi_insight_json_read_begin(text, bytes);
 *     char name[32];
 *     if (lochi_insight_json_read_open(&reader, '{'))
 *         while (lochi_insight_json_read_member(&reader, name, sizeof name))
 *             if (!strcmp(name, "bytes")) lochi_insight_json_read_number(&reader, &bytes);
 *             else lochi_insight_json_read_skip(&reader);
 *     if (!lochi_insight_json_read_end(&reader)) puts(reader.wrong);
 */
#ifndef LOCH_JSON_READ_H
#define LOCH_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json_reader {
    const char *start, *at, *end;
    const char *wrong; /* what is wrong; NULL if nothing is */
    unsigned depth;    /* of open objects and lists */
    bool is_first;     /* no comma before the next item */
} json_reader;

/* Begins to read a text, which must stay until the end. */
json_reader lochi_insight_json_read_begin(const void *text, size_t bytes);

/* Returns the kind of the next value by its first letter: '{', '[', '"', '0' (a number), 't' (true or false), 'n'
 * (null); 0 for none of them. */
char lochi_insight_json_read_kind(json_reader *reader);

/* Opens an object ('{') or a list ('['). Read all of it before what is behind it. */
bool lochi_insight_json_read_open(json_reader *reader, char bracket);

/* Goes to the next member of an object and copies its name, shortened if it is too long. Returns false behind the last
 * member, and after a mistake. */
bool lochi_insight_json_read_member(json_reader *reader, char *name, size_t room);

/* Goes to the next item of a list. Returns false behind the last item, and after a mistake. */
bool lochi_insight_json_read_item(json_reader *reader);

/* Reads text into `out`, as UTF-8 that ends with a zero. Text that does not fit is a mistake. */
bool lochi_insight_json_read_text(json_reader *reader, char *out, size_t room);

/* Reads a whole number from 0 to 2^64 - 1. */
bool lochi_insight_json_read_number(json_reader *reader, uint64_t *out);

/* Reads any number. */
bool lochi_insight_json_read_real(json_reader *reader, double *out);

/* Reads true or false. */
bool lochi_insight_json_read_truth(json_reader *reader, bool *out);

/* Skips a value of any kind. */
bool lochi_insight_json_read_skip(json_reader *reader);

/* Returns whether there was no mistake and nothing is left but space. */
bool lochi_insight_json_read_end(json_reader *reader);

/* Notes a mistake of the contents, unless there was one before. Returns false. */
bool lochi_insight_json_read_fail(json_reader *reader, const char *wrong);

#endif
