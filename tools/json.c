/* SPDX-License-Identifier: MIT */
/* The JSON writer. Output is indented by two spaces, one item a line. */
#include "json.h"
#include "kit/text.h"
#include <inttypes.h>
#include <math.h>

static void json_item(json_writer *json, const char *key)
{
    if (json->has_items) fputc(',', json->file);
    if (json->depth) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    if (key) {
        lochi_text_put_json(json->file, key);
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
    lochi_text_put_json(json->file, value);
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
