/* SPDX-License-Identifier: MIT */
/* Colours on a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal has none. */
#ifndef LOCH_TOOL_COLOR_H
#define LOCH_TOOL_COLOR_H

#include <stdbool.h>
#include <stdio.h>

/* Tells whether a file is a terminal that gets colours. */
bool color_is_wanted(FILE *file);

/* Prints a page of figures: titles bold, headings of columns dim, bars blue, increases red, decreases green. Prints the
 * plain text if colours are not wanted. */
void color_print(FILE *file, const char *page);

#endif
