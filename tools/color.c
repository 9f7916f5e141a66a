/* SPDX-License-Identifier: MIT */
#include "color.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLOR_BOLD "\033[1m"
#define COLOR_DIM "\033[2m"
#define COLOR_RED "\033[31m"
#define COLOR_GREEN "\033[32m"
#define COLOR_BLUE "\033[34m"
#define COLOR_END "\033[0m"

bool color_is_wanted(FILE *file)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (!no || !*no) && terminal && strcmp(terminal, "dumb") != 0 && isatty(fileno(file));
}

static void color_write(FILE *file, const char *color, const char *text, size_t length)
{
    fprintf(file, "%s%.*s%s", color, (int)length, text, COLOR_END);
}

/* Returns the length of a word that is drawn: a bar of #, or block elements of UTF-8. */
static size_t color_bar(const char *at, const char *end)
{
    const char *start = at;
    while (at < end && (*at == '#' || (end - at >= 3 && !memcmp(at, "\xe2\x96", 2))))
        at += *at == '#' ? 1 : 3;
    return (size_t)(at - start);
}

/* Prints a row: differences and bars have colours. */
static void color_row(FILE *file, const char *at, const char *end)
{
    for (char last = ' '; at < end;) {
        const size_t bar = color_bar(at, end);
        if (last == ' ' && (*at == '+' || *at == '-') && end - at > 1 && isdigit((unsigned char)at[1])) {
            const char *start = at;
            while (at < end && *at != ' ')
                at++;
            if (end - at > 1 && (isalpha((unsigned char)at[1]) || at[1] == '%')) /* its unit */
                for (at++; at < end && *at != ' ';)
                    at++;
            color_write(file, *start == '+' ? COLOR_RED : COLOR_GREEN, start, (size_t)(at - start));
            last = at[-1];
        } else if (bar) {
            color_write(file, COLOR_BLUE, at, bar);
            at += bar;
            last = '#';
        } else {
            last = *at;
            putc(*at++, file);
        }
    }
}

static bool color_has_digit(const char *at, const char *end)
{
    for (; at < end; at++)
        if (isdigit((unsigned char)*at) || (unsigned char)*at >= 0x80) return true;
    return false;
}

void color_print(FILE *file, const char *page)
{
    bool is_after_title = false;
    if (!color_is_wanted(file)) {
        fputs(page, file);
        return;
    }
    while (*page) {
        const char *end = strchrnul(page, '\n');
        const bool is_title = *page != ' ' && end > page;
        if (is_title)
            color_write(file, COLOR_BOLD, page, (size_t)(end - page));
        else if (is_after_title && !color_has_digit(page, end))
            color_write(file, COLOR_DIM, page, (size_t)(end - page));
        else
            color_row(file, page, end);
        is_after_title = is_title;
        if (*end) putc('\n', file);
        page = *end ? end + 1 : end;
    }
}
