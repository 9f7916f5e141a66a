/* SPDX-License-Identifier: MIT */
#include "report_bytes.h"
#include "kit/utf8.h"
#include <string.h>

void lochi_insight_report_put(report_bytes *bytes, uint64_t value)
{
    lochi_array *array = &bytes->array;
    if (bytes->has_failed || !lochi_array_reserve(array, array->count + 10, 1)) {
        bytes->has_failed = true;
        return;
    }
    uint8_t *at = (uint8_t *)array->data + array->count;
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    array->count = (size_t)(at - (uint8_t *)array->data);
}

void lochi_insight_report_put_change(report_bytes *bytes, uint64_t before, uint64_t after)
{
    const uint64_t change = after - before;
    lochi_insight_report_put(bytes, change << 1 ^ (change >> 63 ? UINT64_MAX : 0));
}

void lochi_insight_report_write_base64(FILE *file, const uint8_t *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4096];
    size_t length = 0;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const uint32_t group = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)data[i + 2] : 0);
        text[length++] = digits[group >> 18];
        text[length++] = digits[group >> 12 & 63];
        text[length++] = left > 1 ? digits[group >> 6 & 63] : '=';
        text[length++] = left > 2 ? digits[group & 63] : '=';
        if (length == sizeof text) {
            fwrite(text, 1, length, file);
            length = 0;
        }
    }
    if (length) fwrite(text, 1, length, file);
}

void lochi_insight_report_write_json(FILE *file, const char *text)
{
    fputc('"', file);
    for (const char *at = text; *at;) {
        const size_t length = lochi_utf8_length(at, SIZE_MAX);
        if (!length)
            fputs("\\ufffd", file);
        else if (length > 1)
            fwrite(at, 1, length, file);
        else if (lochi_utf8_control(at) || strchr("<>&\"\\'", *at))
            fprintf(file, "\\u%04x", (unsigned)*at);
        else
            fputc(*at, file);
        at += length ? length : 1;
    }
    fputc('"', file);
}

void lochi_insight_report_write_html(FILE *file, const char *text)
{
    for (const char *at = text; *at;) {
        const size_t length = lochi_utf8_length(at, SIZE_MAX);
        if (!length || (lochi_utf8_control(at) && *at != '\n' && *at != '\t'))
            fputs("&#xfffd;", file);
        else if (length == 1 && strchr("<>&\"'", *at))
            fprintf(file, "&#%d;", *at);
        else
            fwrite(at, 1, length, file);
        at += length ? length : 1;
    }
}
