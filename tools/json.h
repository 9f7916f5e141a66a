/* SPDX-License-Identifier: MIT */
/* Writing JSON: commas, nesting and escapes are this writer's business. Keys are NULL inside arrays. */
#ifndef LOCH_TOOL_JSON_H
#define LOCH_TOOL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
    FILE *file;
    int depth;
    bool has_items; /* at the present depth; deeper ones have some by being inside */
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
