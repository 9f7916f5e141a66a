/* SPDX-License-Identifier: MIT */
/* The JSON writer. Output is indented by two spaces, one item a line. */
#include "json.h"
#include <inttypes.h>
#include <math.h>

static void json_quote(json_writer *json, const char *text)
{
    fputc('"', json->file);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(json->file, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(json->file, "\\u%04x", *at);
        else if (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) /* U+009B begins a terminal's commands too */
            fprintf(json->file, "\\u%04x", *++at);
        else
            fputc(*at, json->file);
    }
    fputc('"', json->file);
}

static void json_item(json_writer *json, const char *key)
{
    if (json->has_items) fputc(',', json->file);
    if (json->depth) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    if (key) {
        json_quote(json, key);
        fputs(": ", json->file);
    }
    json->has_items = true;
}

static void json_open(json_writer *json, const char *key, char bracket)
{
    json_item(json, key);
    fputc(bracket, json->file);
    json->depth++;
    json->has_items = false;
}

static void json_close(json_writer *json, char bracket)
{
    json->depth--;
    if (json->has_items) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    fputc(bracket, json->file);
    json->has_items = true;
    if (!json->depth) fputc('\n', json->file);
}

void json_open_object(json_writer *json, const char *key)
{
    json_open(json, key, '{');
}

void json_open_array(json_writer *json, const char *key)
{
    json_open(json, key, '[');
}

void json_close_object(json_writer *json)
{
    json_close(json, '}');
}

void json_close_array(json_writer *json)
{
    json_close(json, ']');
}

void json_text(json_writer *json, const char *key, const char *value)
{
    json_item(json, key);
    json_quote(json, value);
}

void json_number(json_writer *json, const char *key, uint64_t value)
{
    json_item(json, key);
    fprintf(json->file, "%" PRIu64, value);
}

void json_signed(json_writer *json, const char *key, int64_t value)
{
    json_item(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void json_real(json_writer *json, const char *key, double value)
{
    json_item(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.6g", value);
    else
        fputs("null", json->file);
}

void json_flag(json_writer *json, const char *key, bool value)
{
    json_item(json, key);
    fputs(value ? "true" : "false", json->file);
}
