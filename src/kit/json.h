/* SPDX-License-Identifier: MIT */
/* Reads JSON from memory, one value after the other, and keeps nothing. Strict: RFC 8259, at most 64 levels deep, no
 * text with a zero in it. The first mistake is kept with its place; all later calls return false or NULL.
 *
 *     lochi_json reader = lochi_json_begin(text, bytes);
 *     char name[32];
 *     if (lochi_json_open(&reader, '{'))
 *         while (lochi_json_member(&reader, name, sizeof name))
 *             if (!strcmp(name, "bytes")) lochi_json_number(&reader, &bytes);
 *             else lochi_json_skip(&reader);
 *     if (!lochi_json_end(&reader)) puts(reader.wrong);
 */
#ifndef LOCHI_JSON_H
#define LOCHI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lochi_json {
    const char *start, *at, *end;
    char *text;        /* the whole text, where texts are read in place; else NULL */
    const char *wrong; /* what is wrong; NULL if nothing is */
    size_t wrong_at;   /* byte of the mistake */
    unsigned depth;    /* of open objects and lists */
    bool is_first;     /* no comma before the next item */
} lochi_json;

/* Begins to read a text, which must stay until the end. */
lochi_json lochi_json_begin(const void *text, size_t bytes);

/* Begins to read a text that may change: each text that is read in place is replaced by its contents, which end with a
 * zero and are never longer. Checks that all is UTF-8. */
lochi_json lochi_json_begin_in_place(char *text, size_t bytes);

/* Returns the kind of the next value by its first letter: '{', '[', '"', '0' (a number), 't' (true or false), 'n'
 * (null); 0 for none of them. */
char lochi_json_kind(lochi_json *reader);

/* Opens an object ('{') or a list ('['). Read all of it before what is behind it. `wrong` is the mistake if something
 * else is there. */
bool lochi_json_open(lochi_json *reader, char bracket);
bool lochi_json_open_or(lochi_json *reader, char bracket, const char *wrong);

/* Goes to the next member of an object and copies its name, shortened if it is too long. Returns false behind the last
 * member, and after a mistake. */
bool lochi_json_member(lochi_json *reader, char *name, size_t room);

/* Goes to the next member of an object and reads its name in place. Returns NULL behind the last member, and after a
 * mistake. */
char *lochi_json_member_in_place(lochi_json *reader);

/* Goes to the next item of a list. Returns false behind the last item, and after a mistake. */
bool lochi_json_item(lochi_json *reader);

/* Reads text into `out`, as UTF-8 that ends with a zero. Text that does not fit is a mistake. */
bool lochi_json_text(lochi_json *reader, char *out, size_t room);

/* Reads text of any length in place. Returns NULL after a mistake. */
char *lochi_json_text_in_place(lochi_json *reader);

/* Reads a whole number from 0 to 2^64 - 1. */
bool lochi_json_number(lochi_json *reader, uint64_t *out);

/* Reads any number. */
bool lochi_json_real(lochi_json *reader, double *out);

/* Reads any number in place, as the text that it is written as. It must be in an object or a list. Returns NULL after a
 * mistake. */
char *lochi_json_number_in_place(lochi_json *reader);

/* Reads true or false. */
bool lochi_json_truth(lochi_json *reader, bool *out);

/* Skips a value of any kind. */
bool lochi_json_skip(lochi_json *reader);

/* Returns whether there was no mistake and nothing is left but space. */
bool lochi_json_end(lochi_json *reader);

/* Notes a mistake of the contents, unless there was one before. Returns false. */
bool lochi_json_fail(lochi_json *reader, const char *wrong);

#endif
