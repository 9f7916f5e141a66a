/* SPDX-License-Identifier: MIT */
/* Writes JSON: commas, nesting and escapes. Keys are NULL inside arrays. */
#ifndef LOCH_TOOL_JSON_H
#define LOCH_TOOL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
    FILE *file;
    int depth;
    bool has_items; /* items at the present depth; every enclosing depth has at least one */
} json_writer;

void json_open_object(json_writer *json, const char *key);
void json_open_array(json_writer *json, const char *key);
void json_close_object(json_writer *json);
void json_close_array(json_writer *json);
void json_text(json_writer *json, const char *key, const char *value);
void json_number(json_writer *json, const char *key, uint64_t value);
void json_signed(json_writer *json, const char *key, int64_t value);
void json_real(json_writer *json, const char *key, double value);
void json_flag(json_writer *json, const char *key, bool value);

#endif
