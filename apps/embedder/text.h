/* SPDX-License-Identifier: MIT */
/* Sentences of text files. */
#ifndef EMBEDDER_TEXT_H
#define EMBEDDER_TEXT_H

#include <loch/loch.h>

typedef enum text_unit {
    TEXT_SENTENCES, /* up to a full stop, a question mark or an exclamation mark in front of white space, or a blank
                       line; headings, tables and code of Markdown are left out */
    TEXT_LINES      /* each line, also an empty one */
} text_unit;

typedef struct text_list {
    char **items; /* each ends with zero */
    size_t count, room;
} text_list;

/* Adds the sentences of a file. E_NOT_FOUND, E_IO: it cannot be read. */
loch_status text_read(text_list *list, const char *path, text_unit unit);

/* Adds one sentence; white space in it becomes one space each. */
loch_status text_add(text_list *list, const char *text, size_t bytes);

void text_release(text_list *list);

#endif
