/* SPDX-License-Identifier: MIT */
#include "text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

loch_status text_add(text_list *list, const char *text, size_t bytes)
{
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 64;
        char **items = realloc(list->items, room * sizeof *items);
        if (!items) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for %zu sentences", room);
        list->items = items;
        list->room = room;
    }
    char *item = malloc(bytes + 1);
    if (!item) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a sentence of %zu bytes", bytes);
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++)
        if (!is_space(text[i]))
            item[length++] = text[i];
        else if (length && item[length - 1] != ' ')
            item[length++] = ' ';
    if (length && item[length - 1] == ' ') length--;
    item[length] = 0;
    list->items[list->count++] = item;
    return LOCH_OK;
}

void text_release(text_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (text_list){.count = 0};
}

/* --- sentences --- */

/* A paragraph that grows line by line. */
typedef struct text_paragraph {
    char *text;
    size_t bytes, room;
} text_paragraph;

static loch_status append(text_paragraph *paragraph, const char *line, size_t bytes)
{
    if (!paragraph->text || paragraph->room < paragraph->bytes + bytes) {
        const size_t room = 2 * (paragraph->bytes + bytes) + 1;
        char *text = realloc(paragraph->text, room);
        if (!text) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a paragraph of %zu bytes", room);
        paragraph->text = text;
        paragraph->room = room;
    }
    memcpy(paragraph->text + paragraph->bytes, line, bytes);
    paragraph->bytes += bytes;
    return LOCH_OK;
}

/* Adds the sentences of a paragraph and empties it. Pieces of less than four words are no sentences. */
static loch_status cut(text_list *list, text_paragraph *paragraph)
{
    size_t start = 0, words = 0;
    for (size_t i = 0; i < paragraph->bytes; i++) {
        const int ends_word = i + 1 == paragraph->bytes || is_space(paragraph->text[i + 1]);
        words += !is_space(paragraph->text[i]) && ends_word;
        if (!ends_word || (i + 1 < paragraph->bytes && !strchr(".!?", paragraph->text[i]))) continue;
        if (words >= 4) LOCH_RETURN(text_add(list, paragraph->text + start, i + 1 - start));
        start = i + 1;
        words = 0;
    }
    paragraph->bytes = 0;
    return LOCH_OK;
}

typedef struct text_reading {
    text_list *list;
    text_unit unit;
    text_paragraph paragraph;
    int is_code; /* between two lines of ``` */
} text_reading;

static loch_status add_line(text_reading *reading, const char *line, size_t bytes)
{
    if (reading->unit == TEXT_LINES) return text_add(reading->list, line, bytes);
    const size_t indent = strspn(line, " \t");
    const char *mark = line + indent;
    const int is_fence = strncmp(mark, "```", 3) == 0;
    const int is_list = strncmp(mark, "- ", 2) == 0;
    if (is_fence || is_list || *mark == '\n' || *mark == 0 || *mark == '#' || *mark == '|')
        LOCH_RETURN(cut(reading->list, &reading->paragraph));
    if (is_fence) reading->is_code = !reading->is_code;
    if (is_fence || reading->is_code || *mark == '#' || *mark == '|') return LOCH_OK;
    return append(&reading->paragraph, mark + (is_list ? 2 : 0), bytes - indent - (is_list ? 2 : 0));
}

loch_status text_read(text_list *list, const char *path, text_unit unit)
{
    text_reading reading = {.list = list, .unit = unit};
    char *line = NULL;
    size_t room = 0;
    loch_status status = LOCH_OK;
    FILE *file = fopen(path, "re");
    if (!file)
        return loch_error_set(errno == ENOENT ? LOCH_E_NOT_FOUND : LOCH_E_IO, NULL, 0, "%.180s: %s", path,
                              strerror(errno));
    for (ssize_t bytes; status == LOCH_OK && (bytes = getline(&line, &room, file)) >= 0;)
        status = add_line(&reading, line, (size_t)bytes);
    if (status == LOCH_OK) status = cut(list, &reading.paragraph);
    if (status == LOCH_OK && ferror(file)) status = loch_error_set(LOCH_E_IO, NULL, 0, "%.180s: cannot be read", path);
    (void)fclose(file);
    free(line);
    free(reading.paragraph.text);
    return status;
}
