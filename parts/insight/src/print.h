/* SPDX-License-Identifier: MIT */
/* Text in the caller's memory: as much as fits, and the length of all of it. */
#ifndef LOCH_INSIGHT_PRINT_H
#define LOCH_INSIGHT_PRINT_H

#include <loch/insight.h>

typedef struct insight_text {
    char *text;
    size_t bytes, length;
} insight_text;

#define INSIGHT_FIGURE_MAX 32 /* bytes of one formatted figure */

/* Checks the arguments of a function that prints, and sets `length` to 0. E_INVALID. */
loch_status lochi_insight_text_begin(const void *object, loch_format format, char *text, size_t bytes, size_t *length,
                                     insight_text *out);

/* Stores the length of the whole text. Returns LOCH_OK. */
loch_status lochi_insight_text_end(const insight_text *out, size_t *length);

void lochi_insight_text_add(insight_text *out, const char *format, ...) LOCH_PRINTF(2, 3);

/* Adds a name that comes from a file. Control characters become "\x1b", so that no file can command the reader's
 * terminal or forge lines; bytes that are not UTF-8 become question marks. */
void lochi_insight_text_add_name(insight_text *out, const char *name);

/* Adds a text in quotes, escaped for JSON. Bytes that are not UTF-8 become U+FFFD. */
void lochi_insight_text_add_quoted(insight_text *out, const char *text);

/* Format "3.36 GiB", "707,805", "12.5 ms". Return `text`. */
const char *lochi_insight_figure_bytes(uint64_t bytes, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_number(uint64_t number, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_time(uint64_t ns, char text[INSIGHT_FIGURE_MAX]);

/* Format a difference with its sign: "+266.00 MiB", "-1,024", "+3.100 ms"; "0" for none. Return `text`. */
const char *lochi_insight_figure_bytes_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_number_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_time_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);

#endif
